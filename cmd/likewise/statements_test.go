package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime/multipart"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
)

// statement is what a page of the documentation says, and how it is tried on a running site.
type statement struct {
	says string // word for word, except for the ends of lines
	try  func(v *visit)
}

// statements are by page of docs.
var statements = map[string][]statement{
	"api.md":        apiStatements,
	"security.md":   securityStatements,
	"operations.md": operationsStatements,
	"moderation.md": moderationStatements,
	"webhooks.md":   webhookStatements,
}

// oneLine replaces line breaks and indents by spaces.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// A sentence that was changed on its page has to be tried again, as it reads now.
func TestStatements_areOnTheirPages(t *testing.T) {
	t.Parallel()
	for page, list := range statements {
		text, err := os.ReadFile(filepath.Join("../../docs", page))
		require.NoError(t, err)
		whole, seen := oneLine(string(text)), map[string]bool{}
		for _, s := range list {
			says := oneLine(s.says)
			if !strings.Contains(whole, says) {
				t.Errorf("docs/%s no longer says: %s", page, says)
			}
			assert.False(t, seen[says], "twice: %s", says)
			seen[says] = true
		}
	}
}

// TestStatements_areTrue tries what the pages say on a site with the settings of production, limits included.
func TestStatements_areTrue(t *testing.T) {
	t.Parallel()
	s := newTried(t)
	for page, list := range statements {
		for _, statement := range list {
			t.Run(page+": "+beginning(statement.says), func(t *testing.T) {
				t.Parallel()
				statement.try(&visit{t, s, fmt.Sprintf("2001:db8:%x::1", s.visits.Add(1))})
			})
		}
	}
}

// beginning returns the first characters of a text on one line.
func beginning(text string) string {
	r := []rune(oneLine(text))
	return string(r[:min(len(r), 60)])
}

// tried is the site on which statements are tried.
type tried struct {
	*site
	api, web   *process
	url, admin string // of the api
	// bare is the URL of an api with nothing but its defaults and the servers.
	bare   string
	forum  string // URL of the pages
	visits atomic.Int64
	users  chan account // older than a day
	fresh  chan account
	// moderators and admins are older than a day.
	moderators, admins chan account
}

// publicURL is the front end of the site.
const publicURL = "https://forum.example"

func newTried(t *testing.T) *tried {
	t.Helper()
	s := &tried{site: newSite(t)}
	s.env = append(s.env, "LIKEWISE_LIMITS=1")
	const each, few = 150, 20
	all := s.accounts(each + 3*few)
	pool := func(list []account) chan account {
		c := make(chan account, len(list))
		for _, a := range list {
			c <- a
		}
		return c
	}
	s.users, s.fresh = pool(all[:each]), pool(all[each:each+few])
	s.moderators, s.admins = pool(all[each+few:each+2*few]), pool(all[each+2*few:])
	s.exec("UPDATE users SET created_at=created_at - INTERVAL 2 DAY WHERE id<=? OR id>?",
		all[each-1].id, all[each+few-1].id)
	s.exec("ALTER TABLE posts AUTO_INCREMENT=1000000") // no id of a post is one of anything else
	s.exec("UPDATE users SET email=CONCAT(username, '@example.org')")
	s.exec("UPDATE users SET role=2 WHERE id>?", all[each+few-1].id)
	s.exec("UPDATE users SET role=3 WHERE id>?", all[each+2*few-1].id)

	dir := t.TempDir()
	s.start("worker")
	s.start("cron", "--images="+dir)
	s.api, s.url = s.site.api("--trusted-proxies=127.0.0.1", "--images="+dir, "--public-url="+publicURL)
	s.admin = s.api.admin()
	_, s.bare = s.site.api()
	s.web, s.forum = startWeb(t, s.url, "--trusted-proxies=127.0.0.1")
	s.awaitOpen()
	return s
}

// visit is the trial of a statement. It has an address of its own, and so its own limits.
type visit struct {
	t    *testing.T
	s    *tried
	from string
}

// elsewhere returns a visit from another address.
func (v *visit) elsewhere() *visit {
	return &visit{v.t, v.s, fmt.Sprintf("2001:db8:%x::1", v.s.visits.Add(1))}
}

// take returns an account that no other visit has.
func (v *visit) take(from chan account) account {
	v.t.Helper()
	select {
	case a := <-from:
		return a
	default:
		v.t.Fatal("newTried has too few accounts")
		return account{}
	}
}

func (v *visit) user() account      { v.t.Helper(); return v.take(v.s.users) }
func (v *visit) fresh() account     { v.t.Helper(); return v.take(v.s.fresh) }
func (v *visit) moderator() account { v.t.Helper(); return v.take(v.s.moderators) }
func (v *visit) adminUser() account { v.t.Helper(); return v.take(v.s.admins) }

// anonymous sends no token.
var anonymous account

// ask sends a request of a route such as "GET /v1/posts". A body that is a text is sent as it is, and anything but nil
// as JSON. Headers have the form "Name: value".
func (v *visit) ask(as account, route string, body any, headers ...string) reply {
	v.t.Helper()
	r, err := v.askAt(v.s.url, as, route, body, headers...)
	require.NoError(v.t, err)
	return r
}

func (v *visit) askAt(url string, as account, route string, body any, headers ...string) (reply, error) {
	v.t.Helper()
	response, err := v.open(url, as, route, body, headers...)
	if err != nil {
		return reply{}, err
	}
	r, err := readReply(response)
	if r.status >= 400 {
		r.holdProblem(v.t, route)
	}
	return r, err
}

// open is ask for an answer that the caller reads.
func (v *visit) open(url string, as account, route string, body any, headers ...string) (*http.Response, error) {
	v.t.Helper()
	method, path, _ := strings.Cut(route, " ")
	var in io.Reader
	switch body := body.(type) {
	case nil:
	case string:
		in = strings.NewReader(body)
	default:
		text, err := json.Marshal(body)
		require.NoError(v.t, err)
		in = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(v.t.Context(), method, url+path, in)
	require.NoError(v.t, err)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	request.Header.Set("X-Forwarded-For", v.from)
	if as.token != "" {
		request.Header.Set("Authorization", "Bearer "+as.token)
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		request.Header.Set(name, value)
	}
	return clients.Do(request)
}

// gets sends a request, whose answer must have the status.
func (v *visit) gets(status int, as account, route string, body any, headers ...string) reply {
	v.t.Helper()
	r := v.ask(as, route, body, headers...)
	require.Equal(v.t, status, r.status, "%s answers %s", route, r)
	return r
}

// browses sends a request to the pages, as a browser with the session of an account does. It follows no redirection.
func (v *visit) browses(status int, as account, route string, form url.Values, headers ...string) reply {
	v.t.Helper()
	method, path, _ := strings.Cut(route, " ")
	request, err := http.NewRequestWithContext(v.t.Context(), method, v.s.forum+path, strings.NewReader(form.Encode()))
	require.NoError(v.t, err)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("X-Forwarded-For", v.from)
	if as.token != "" {
		request.AddCookie(&http.Cookie{Name: "__Host-session", Value: as.token})
	}
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		request.Header.Set(name, value)
	}
	response, err := stays().Do(request)
	require.NoError(v.t, err)
	r, err := readReply(response)
	require.NoError(v.t, err)
	require.Equal(v.t, status, r.status, "%s answers %s", route, r)
	return r
}

// refused sends a request, whose answer must have the status and the code of a problem.
func (v *visit) refused(status int, code string, as account, route string, body any, headers ...string) reply {
	v.t.Helper()
	r := v.gets(status, as, route, body, headers...)
	require.Equal(v.t, code, r.at(v.t, "code"), "%s answers %s", route, r)
	return r
}

// raw sends bytes on a connection of their own and returns all that the server sends until it closes the connection.
func (v *visit) raw(text string) string {
	v.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(v.s.url, "http://"))
	require.NoError(v.t, err)
	defer conn.Close()
	require.NoError(v.t, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err = io.WriteString(conn, text)
	require.NoError(v.t, err)
	answer, err := io.ReadAll(conn)
	require.NoError(v.t, err, "the connection stays open")
	return string(answer)
}

// post writes a post and returns its path.
func (v *visit) post(as account) string {
	v.t.Helper()
	r := v.gets(201, as, "POST /v1/posts", obj{"title": "A post", "content": "with *text*"})
	return fmt.Sprintf("/v1/posts/%v", r.at(v.t, "id"))
}

// comment writes a comment on the post at a path and returns its path.
func (v *visit) comment(as account, post string) string {
	v.t.Helper()
	r := v.gets(201, as, "POST "+post+"/comments", obj{"content": "a comment"})
	return fmt.Sprintf("/v1/comments/%v", r.at(v.t, "id"))
}

// version returns what If-Match has to have for an edit of what is at a path.
func (v *visit) version(path string) string {
	v.t.Helper()
	return "If-Match: " + v.gets(200, anonymous, "GET "+path, nil).header.Get("ETag")
}

// drop attaches a drop to a new post of an author, and returns its path.
func (v *visit) drop(author account, settings obj) string {
	v.t.Helper()
	body := obj{"title": "A voucher", "stock": 1}
	maps.Copy(body, settings)
	r := v.gets(201, author, "POST "+v.post(author)+"/drops", body)
	return fmt.Sprintf("/v1/drops/%v", r.at(v.t, "id"))
}

// upload sends a file as an image.
func (v *visit) upload(as account, file []byte, headers ...string) reply {
	v.t.Helper()
	var b bytes.Buffer
	form := multipart.NewWriter(&b)
	part, err := form.CreateFormFile("file", "photo")
	require.NoError(v.t, err)
	_, err = part.Write(file)
	require.NoError(v.t, err)
	require.NoError(v.t, form.Close())
	headers = append(headers, "Content-Type: "+form.FormDataContentType())
	return v.ask(as, "POST /v1/images", b.String(), headers...)
}

// at returns what is at a place of the JSON of an answer, such as "items", 0, "id". Numbers are json.Number.
func (r reply) at(t testing.TB, place ...any) any {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(r.body))
	decoder.UseNumber()
	var value any
	require.NoError(t, decoder.Decode(&value), "%s", r)
	for _, step := range place {
		switch step := step.(type) {
		case string:
			object, ok := value.(obj)
			require.True(t, ok, "%v of %s", place, r)
			value, ok = object[step]
			require.True(t, ok, "%v of %s", place, r)
		case int:
			list, ok := value.([]any)
			require.True(t, ok && step < len(list), "%v of %s", place, r)
			value = list[step]
		}
	}
	return value
}

// items returns the items of a list.
func (r reply) items(t testing.TB) []any {
	t.Helper()
	list, ok := r.at(t, "items").([]any)
	require.True(t, ok, "%s", r)
	return list
}

// text returns the text at a place.
func (r reply) text(t testing.TB, place ...any) string {
	t.Helper()
	return fmt.Sprint(r.at(t, place...))
}

// defaults compares the default of a flag of a command with what a page says, such as "512".
func defaults(command, flag, want string) func(*visit) {
	return func(v *visit) {
		v.t.Helper()
		assert.Equal(v.t, want, defaultOf(v.t, command, flag), "--%s of %s", flag, command)
	}
}

// defaultOf returns the default of a flag.
func defaultOf(t *testing.T, command, flag string) string {
	t.Helper()
	product, _ := commandLine(t)
	for _, leaf := range leaves(product) {
		if strings.TrimSuffix(leaf.Path(), " serve") != command {
			continue
		}
		for _, f := range leaf.Flags {
			if f.Name == flag {
				return f.Default
			}
		}
	}
	t.Fatalf("likewise %s has no flag --%s", command, flag)
	return ""
}

// each tries several things in turn.
func each(tries ...func(*visit)) func(*visit) {
	return func(v *visit) {
		v.t.Helper()
		for _, try := range tries {
			try(v)
		}
	}
}

// eventually waits until a condition holds.
func (v *visit) eventually(condition func() (ok bool, why string)) {
	v.t.Helper()
	testkit.Eventually(v.t, patience, condition)
}

// statusOfPage is a status in a sentence. Numbers of bytes and the like are none.
var statusOfPage = regexp.MustCompile(`\b(?:2(?:00|01|02|04|06)|304|4(?:0\d|1[0235]|2[289]|31)|50[03])\b` +
	`( [KMG]?i?[Bb](?:ytes)?\b| in )?`)

// untried are sentences of docs/api.md with a status that nothing tries here, and why.
var untried = map[string]string{
	"500 | the server failed | see below":                                         "nothing that is sent causes it",
	"Results of more than 32 KiB are not stored, and a repetition gets 409.":      "needs thousands of posts",
	"After 503 or a lost connection, send it again, or read `claim` of the drop.": "advice",
	"A claim that was answered with 201 is stored in the end, or becomes `rejected`, and then its user is " +
		"notified.": "the promise, which make faults-drop tries",
}

// Every sentence of docs/api.md with a status must be tried.
func TestStatements_haveEveryStatusOfThePage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/api.md")
	require.NoError(t, err)
	plain := func(text string) string { return oneLine(strings.ReplaceAll(text, "**", "")) }
	var says []string
	for _, s := range apiStatements {
		says = append(says, plain(s.says))
	}
	known := map[string]bool{}
	text = regexp.MustCompile("(?s)```.*?```").ReplaceAll(text, nil)
	for sentence := range strings.SplitSeq(sentenceEnds.ReplaceAllString(string(text), "$1\x00"), "\x00") {
		sentence = strings.Trim(plain(sentence), " |-")
		found := slices.ContainsFunc(statusOfPage.FindAllStringSubmatch(sentence, -1), func(match []string) bool {
			return match[1] == ""
		})
		if !found {
			continue
		}
		known[sentence] = true
		tried := slices.ContainsFunc(says, func(s string) bool {
			return strings.Contains(s, sentence) || strings.Contains(sentence, s)
		})
		if untried[sentence] == "" && !tried {
			t.Errorf("nothing tries: %s", sentence)
		}
	}
	for sentence := range untried {
		assert.True(t, known[sentence], "docs/api.md no longer says: %s", sentence)
	}
}

// sentenceEnds are the ends of sentences, of rows of tables, and of paragraphs.
var sentenceEnds = regexp.MustCompile(`([.:;])\s|\n\n|\|\n|\n- `)
