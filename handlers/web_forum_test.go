//go:build web

package handlers_test

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/handlers"
	"likewise/models"
)

// publish writes a post by the API, and returns its id.
func (s *forum) publish(t *testing.T, as account, title string) int64 {
	t.Helper()
	var made struct{ ID int64 }
	s.must(t, 201, as, "POST", "/v1/posts", obj{"title": title, "content": "Some *text*.", "tags": []string{"go"}}).
		into(t, &made)
	return made.ID
}

// say writes a comment by the API, and returns its id.
func (s *forum) say(t *testing.T, as account, post int64, parent any, text string) int64 {
	t.Helper()
	var made struct{ ID int64 }
	s.must(t, 201, as, "POST", fmt.Sprintf("/v1/posts/%d/comments", post), obj{"content": text, "parent_id": parent}).
		into(t, &made)
	return made.ID
}

// Everybody's pages, and how many requests each makes to the API: cold, signed in.
func TestWeb_pagesAskLittle(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	ada, bob := s.account(t), s.account(t)
	post := s.publish(t, ada, "A first post")
	top := s.say(t, bob, post, nil, "A comment.")
	s.say(t, ada, post, top, "A reply.")
	v := s.as(t, ada)
	for path, most := range map[string]int{
		"/": 3, "/new": 3, "/top": 3, "/top?window=week": 3, "/active": 3, "/tags": 2, "/tags/go": 2, "/search": 1,
		"/search?q=first": 2, "/search?q=comment&in=comments": 2, "/feed": 2, "/unread": 2, "/bookmarks": 2,
		"/likes":                       2,
		fmt.Sprintf("/posts/%d", post): 3, fmt.Sprintf("/posts/%d/new", post): 3, fmt.Sprintf("/posts/%d/all", post): 3,
		fmt.Sprintf("/posts/%d/whole", post): 3, fmt.Sprintf("/posts/%d?sort=top", post): 3,
		fmt.Sprintf("/posts/%d/comments/%d", post, top): 2, fmt.Sprintf("/comments/%d", top): 3,
		fmt.Sprintf("/comments/%d/replies", top): 3, fmt.Sprintf("/comments/%d/reply", top): 3,
		fmt.Sprintf("/posts/%d/revisions?version=0", post): 3, fmt.Sprintf("/comments/%d/revisions", top): 2,
		fmt.Sprintf("/posts/%d/likes", post): 2, fmt.Sprintf("/users/%d", ada.ID): 2, "/users/" + ada.Name: 2,
		fmt.Sprintf("/users/%d/comments", bob.ID): 2, fmt.Sprintf("/users/%d/followers", ada.ID): 2,
		fmt.Sprintf("/users/%d/following", ada.ID): 2, "/notifications": 2, "/claims": 2, "/drafts": 2, "/reports": 2,
		"/settings": 1, "/settings/sessions": 2, "/settings/tokens": 2, "/settings/blocks": 2, "/settings/data": 1,
		"/posts/new": 2, fmt.Sprintf("/posts/%d/edit", post): 3, fmt.Sprintf("/posts/%d/comment", post): 3,
		"/posts/new?draft=one": 2, fmt.Sprintf("/posts/%d/report", post): 2,
		fmt.Sprintf("/posts/%d/drops/new", post): 2, "/help": 1, "/sign-in": 1, "/sign-up": 1,
		"/forgot": 1, "/reset?token=t": 1, "/confirm?token=t": 1, "/undo?token=t": 1,
	} {
		s.requests()
		v.see(path).wellFormed()
		asked := s.requests()
		assert.LessOrEqual(t, len(asked), most, "%s asks %s", path, strings.Join(asked, ", "))
	}
	s.must(t, 201, bob, "POST", "/v1/reports", obj{"target_type": "post", "target_id": post, "reason": "spam"})
	grace := s.as(t, s.promoted(t, s.account(t), models.RoleAdmin))
	for _, path := range []string{
		"/moderate", "/moderate?case=1", "/moderate/posts", "/moderate/users", "/moderate/log", "/operate",
		"/operate/dead-letters", "/operate/webhooks",
	} {
		s.requests()
		grace.see(path).wellFormed()
		asked := s.requests()
		assert.LessOrEqual(t, len(asked), 3, "%s asks %s", path, strings.Join(asked, ", "))
	}

	form := v.see(fmt.Sprintf("/posts/%d", post)).form(fmt.Sprintf("/posts/%d/comments", post))
	form.Set("content", "As a script sends it.")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		fmt.Sprintf("%s/posts/%d/comments", s.base, post), strings.NewReader(form.Encode()))
	require.NoError(t, err)
	req.Header = http.Header{
		"Content-Type": {"application/x-www-form-urlencoded"}, "Origin": {s.base}, "X-Requested-With": {"fetch"},
	}
	s.requests()
	sent := v.open(req)
	require.Equal(t, http.StatusCreated, sent.status, sent.body)
	sent.has("As a script sends it.")
	assert.Equal(t, "3", sent.header.Get("X-Comments"))
	assert.Len(t, s.requests(), 1, "a comment is one request")

	anonymous := s.guest(t)
	for _, path := range []string{
		"/", "/new", "/top", "/tags", "/tags/go", "/search?q=first", fmt.Sprintf("/posts/%d", post),
		fmt.Sprintf("/posts/%d/all", post), fmt.Sprintf("/comments/%d", top), fmt.Sprintf("/users/%d", ada.ID), "/help",
		"/sign-in", "/sign-up", "/forgot", "/reset?token=t", "/confirm?token=t", "/undo?token=t",
	} {
		anonymous.see(path).wellFormed()
	}
	for _, path := range []string{"/nothing", "/posts/999", "/posts/x", "/users/nobody", "/comments/999"} {
		d := anonymous.get(path)
		assert.Equal(t, http.StatusNotFound, d.status, path)
		d.wellFormed()
	}
	for _, path := range []string{"/feed", "/settings", "/notifications", "/posts/new"} {
		d := anonymous.get(path)
		assert.Equal(t, http.StatusUnauthorized, d.status, path)
		d.has("Sign in").wellFormed()
	}
}

// A person signs up, writes, is answered, and changes what there is to change, without scripts.
func TestWeb_everythingWorksWithoutScripts(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	other := s.account(t)
	v := s.guest(t)

	d := v.see("/sign-up").submit("/sign-up", "username", "x", "email", "wrong", "password", password)
	require.Equal(t, http.StatusUnprocessableEntity, d.status)
	d.has("username").wellFormed()
	assert.Equal(t, "wrong", d.form("/sign-up").Get("email"), "what was typed is still there")
	d = d.done("/sign-up", "username", "ada", "email", "ada@example.org", "password", password)
	d.has("ada").hasNot("Sign up")

	d = v.see("/posts/new").done("", "title", "A question", "content", "Why **not**?", "tags", "go redis")
	d.has("A question").has("Why not?").has("redis")
	at := d.url.Path
	var id int64
	_, err := fmt.Sscanf(at, "/posts/%d", &id)
	require.NoError(t, err)

	v.see(at).done(at+"/comments", "content", "My own *comment*.").has("My own comment.")
	v.see(at).has("My own comment.").has("1 comment")
	reply := s.say(t, other, id, nil, "Somebody else's view.")
	v.see(at).has("1 unread").has("To the first unread comment")
	v.see(at).hasNot("To the first unread comment")
	d = v.see(fmt.Sprintf("/comments/%d/reply?quote=1", reply))
	assert.Equal(t, "> Somebody else's view.\n\n", d.form(at+"/comments").Get("content"))
	d.done(at+"/comments", "content", "> Somebody else's view.\n\nIndeed.").has("Indeed.")

	d = v.see(at)
	d.done(at + "/like").has("1 like, you like this")
	v.see(at).done(at + "/like").has("0 likes")
	v.see(at).done(at + "/bookmark").has("Remove bookmark")
	v.see("/bookmarks").has("A question")
	v.see(at).done(at + "/subscription").has("Stop following")
	v.see(at+"/edit").done("", "title", "A better question").has("A better question").has("edited")
	v.see(at + "/revisions?version=0").has("A question").has("Version 1")

	profile := fmt.Sprintf("/users/%d", other.ID)
	v.see(profile).done(profile + "/follow").has("Stop following")
	v.see(profile).done(profile + "/block").has("Unblock")
	v.see("/settings/blocks").has(other.Name).done(profile + "/block").has("You block nobody.")

	report := fmt.Sprintf("/comments/%d/report", reply)
	v.see(report).done(report, "reason", "spam", "detail", "Twice.").has("A moderator will look at it")
	v.see("/reports").has("not decided yet")

	v.see("/notifications").has(other.Name).done("").hasNot("new comments")
	v.see("/settings").done("/settings/profile", "display_name", "Ada L.", "bio", "Counts.").has("Saved.")
	v.see("/settings/tokens").done("/settings/tokens", "name", "bot", "scope", "read").has("shown only now")
	d = v.see("/settings/sessions")
	d = d.submit("/settings/password", "current_password", "wrong", "new_password", "another good password")
	assert.Equal(t, http.StatusForbidden, d.status, d.text())
	d.has("password is wrong")

	d = v.see(at).done(at + "/delete").has("Delete this post?")
	d.done(at + "/delete").has("You can restore it")
	assert.Equal(t, http.StatusNotFound, v.get(at).status)
	v.see(at + "/restore").done(at + "/restore").has("A better question")

	v.see("/").done("/sign-out").has("Sign in")
	v.see("/sign-in").done("/sign-in", "login", "ada", "password", password).has("Ada L.")
	v.see("/settings/data").done("/settings/data/delete", "password", password).has("Sign in")
}

// A person confirms an address, changes it, undoes that, and sets a new password, by the links in mails. Opening a link
// changes nothing: only its form does.
func TestWeb_mailsLeadToPages(t *testing.T) {
	t.Parallel()
	s := newForum(t, withMail)
	v := s.guest(t)
	link := func(kind models.MailKind, to string) string {
		t.Helper()
		return s.mail(t, kind, to).Token
	}
	v.see("/sign-up").done("/sign-up", "username", "ada", "email", "ada@example.org", "password", password)
	v.see("/settings").has("not verified")
	at := "/confirm?token=" + link(models.MailEmailConfirm, "ada@example.org")
	for range 2 {
		v.see(at).has("Confirm the address").wellFormed()
	}
	v.see(at).done("/confirm").has("Your address is confirmed.").wellFormed()
	d := v.see(at).submit("/confirm")
	assert.Equal(t, http.StatusForbidden, d.status)
	d.has("it has expired, was used already").wellFormed()
	v.see("/settings").hasNot("not verified")

	d = v.see("/settings").submit("/settings/email", "email", "nowhere")
	assert.Equal(t, http.StatusUnprocessableEntity, d.status)
	assert.Equal(t, "nowhere", d.form("/settings/email").Get("email"), "what was typed is still there")
	v.see("/settings").done("/settings/email", "email", "lovelace@example.org").has("A mail is on its way")
	v.see("/confirm?token=" + link(models.MailEmailConfirm, "lovelace@example.org")).done("/confirm")
	v.see("/settings").has("lovelace@example.org")
	at = "/undo?token=" + link(models.MailEmailChanged, "ada@example.org")
	s.guest(t).see(at).has("all its sessions will end").done("/undo").has("has its former address again")
	s.mails(t)

	v = s.guest(t)
	v.see("/sign-in").has("Forgot your password?")
	v.see("/reset").done("/forgot", "email", "ada@example.org").has("works for 30 minutes").wellFormed()
	at = "/reset?token=" + link(models.MailPasswordReset, "ada@example.org")
	d = v.see(at).submit("/reset", "password", "ada")
	assert.Equal(t, http.StatusUnprocessableEntity, d.status)
	d.done("/reset", "password", "seventeen violet umbrellas").has("Your password was changed").wellFormed()
	v.see("/sign-in").done("/sign-in", "login", "ada", "password", "seventeen violet umbrellas").has("ada")
}

// A site that verifies addresses first shows what comes next.
func TestWeb_signUpWithAMail(t *testing.T) {
	t.Parallel()
	s := newForum(t, withMail, func(c *handlers.Config) { c.Registration = handlers.RegistrationVerified })
	v := s.guest(t)
	v.see("/sign-up").done("/sign-up", "username", "ada", "email", "ada@example.org", "password", password).
		has("A mail is on its way to ada@example.org").wellFormed()
	v.see("/confirm?token=" + s.mail(t, models.MailRegistration, "ada@example.org").Token).done("/confirm").
		has("Your address is confirmed.")
	v.see("/sign-in").done("/sign-in", "login", "ada", "password", password).has("ada")
}

func TestWeb_offersAndClaims(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	ada, bob := s.account(t), s.account(t)
	post := s.publish(t, ada, "Tickets")
	at := fmt.Sprintf("/posts/%d", post)
	owner := s.as(t, ada)
	d := owner.see(at+"/drops/new").submit("", "title", "A ticket", "stock", "many")
	require.Equal(t, http.StatusUnprocessableEntity, d.status)
	d.has("must be a whole number").done("", "stock", "1", "confirm_within", "10").has("A ticket").has("1 left")
	v := s.as(t, bob)
	d = v.see(at)
	drop := ""
	for _, f := range d.elements("form") {
		if action, _ := attribute(f, "action"); strings.HasPrefix(action, "/drops/") {
			drop = action
		}
	}
	d = d.done(drop).has("reserved for you").has("0 left")
	claim := ""
	for _, f := range d.elements("form") {
		if action, _ := attribute(f, "action"); strings.HasSuffix(action, "/return") {
			claim = strings.TrimSuffix(action, "/return")
		}
	}
	s.settle()
	v.see("/claims").done(claim + "/confirm").has("confirmed")
	v.see(at).has("You have one.").done(claim + "/return").has("1 left")
	s.guest(t).see(at).has("Sign in to claim one")
}

// What was typed survives refusals, outages, and the end of a session.
func TestWeb_losesNoText(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	ada := s.account(t)
	at := fmt.Sprintf("/posts/%d", s.publish(t, ada, "A post"))
	v := s.as(t, ada)
	const text = "Three\nlines\n  of <text> & more"

	s.away.Store(true)
	form := func() url.Values { // as on the page that was read before
		s.away.Store(false)
		defer s.away.Store(true)
		return v.see(at).form(at + "/comments")
	}()
	form.Set("content", text)
	d := v.post(at+"/comments", form)
	assert.Equal(t, http.StatusServiceUnavailable, d.status)
	kept := d.form(at + "/comments")
	assert.Equal(t, text, kept.Get("content"))
	assert.Equal(t, form.Get("key"), kept.Get("key"), "the same key: the first may have been posted")
	s.away.Store(false)

	// The API has posted the comment, but its answer was lost.
	s.lost.Store(true)
	d = v.post(at+"/comments", kept)
	assert.Equal(t, http.StatusServiceUnavailable, d.status)
	s.lost.Store(false)
	again := d.form(at + "/comments")
	assert.Equal(t, text, again.Get("content"))
	d = v.post(at+"/comments", again)
	require.Equal(t, http.StatusOK, d.status, d.text())
	v.see(at).has("1 comment")

	// A refusal names the field, and another text has another key.
	long := strings.Repeat("x", 60001)
	form = v.see(at).form(at + "/comments")
	form.Set("content", long)
	d = v.post(at+"/comments", form)
	assert.Equal(t, http.StatusUnprocessableEntity, d.status)
	d.wellFormed()
	assert.Equal(t, long, d.form(at+"/comments").Get("content"))
	assert.NotEqual(t, form.Get("key"), d.form(at+"/comments").Get("key"))

	// The session ends while the form is open.
	form = v.see(at).form(at + "/comments")
	form.Set("content", text)
	user := s.guest(t)
	user.see("/sign-up").done("/sign-up", "username", "carol", "email", "carol@example.org", "password", password)
	form = user.see(at).form(at + "/comments")
	form.Set("content", text)
	user.see("/settings/sessions")
	other := s.guest(t)
	d = other.post(at+"/comments", form)
	assert.Equal(t, http.StatusUnauthorized, d.status)
	d = d.done("/sign-in", "login", "carol", "password", password)
	assert.Equal(t, text, d.form(at+"/comments").Get("content"))
	d.done(at + "/comments")
	user.see(at).has("2 comments")
}

// A form whose answer was lost is carried out once, although it is sent again.
func TestWeb_createsOnce(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	ada := s.account(t)
	at := fmt.Sprintf("/posts/%d/report", s.publish(t, s.account(t), "A post"))
	v := s.as(t, ada)
	lost := func(d *document, action string, pairs ...string) *document {
		t.Helper()
		s.lost.Store(true)
		defer s.lost.Store(false)
		d = d.submit(action, pairs...)
		require.Equal(t, http.StatusServiceUnavailable, d.status)
		return d.has("it is carried out only once")
	}
	d := lost(v.see("/settings/tokens"), "/settings/tokens", "name", "bot", "scope", "write")
	assert.Equal(t, "bot", d.form("/settings/tokens").Get("name"))
	assert.Equal(t, []string{"write"}, d.form("/settings/tokens")["scope"])
	d.done("/settings/tokens").has("This token is shown only now")
	assert.Equal(t, 1, strings.Count(v.see("/settings/tokens").body, `/revoke"`))
	lost(v.see(at), at, "reason", "spam").done(at, "reason", "spam").has("A moderator will look at it")
	assert.Equal(t, 1, strings.Count(v.see("/reports").text(), "not decided yet"))
}

// A link to a comment alone leads to the comment below its post.
func TestWeb_leadsToComments(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	ada := s.account(t)
	post, other := s.publish(t, ada, "A post"), s.publish(t, ada, "Another post")
	comment := s.say(t, ada, post, nil, "A comment.")
	v := s.guest(t)
	d := v.see(fmt.Sprintf("/comments/%d", comment)).has("A comment.")
	assert.Equal(t, fmt.Sprintf("/posts/%d/comments/%d", post, comment), d.url.Path)
	assert.Equal(t, http.StatusNotFound, v.get(fmt.Sprintf("/posts/%d/comments/%d", other, comment)).status)
	assert.Equal(t, http.StatusNotFound, v.get(fmt.Sprintf("/posts/%d/comments/x", post)).status)
	v.see("/users/" + ada.Name + "?cursor=").has("A post")
}

// Somebody else has saved the post meanwhile: the form shows both versions.
func TestWeb_showsBothVersions(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	ada := s.account(t)
	id := s.publish(t, ada, "A post")
	at := fmt.Sprintf("/posts/%d/edit", id)
	v := s.as(t, ada)
	form := v.see(at).form("")
	s.must(t, 200, ada, "PATCH", fmt.Sprintf("/v1/posts/%d", id), obj{"content": "Theirs."}, header{"If-Match", `"v0"`})
	form.Set("content", "Mine.")
	d := v.post(at, form)
	require.Equal(t, http.StatusPreconditionFailed, d.status)
	d.has("Theirs.").wellFormed()
	assert.Equal(t, "Mine.", d.form("").Get("content"))
	d.done("").has("Mine.").hasNot("Theirs.")
}

func TestWeb_refusesOtherSites(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	ada := s.account(t)
	at := fmt.Sprintf("/posts/%d", s.publish(t, ada, "A post"))
	v := s.as(t, ada)
	for _, from := range []http.Header{
		{"Origin": {"https://evil.example"}},
		{"Origin": {"null"}},
		{"Sec-Fetch-Site": {"cross-site"}},
		{"Sec-Fetch-Site": {"same-site"}},
		{},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.base+at+"/like",
			strings.NewReader("liked=true"))
		require.NoError(t, err)
		req.Header = from.Clone()
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		assert.Equal(t, http.StatusForbidden, v.open(req).status, from)
		req, err = http.NewRequestWithContext(t.Context(), http.MethodPut, s.base+"/v1"+at+"/like", nil)
		require.NoError(t, err)
		req.Header = from.Clone()
		assert.Equal(t, http.StatusForbidden, v.open(req).status, from)
	}
	v.see(at).has("0 likes")
	for _, back := range []string{"https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)"} {
		form := v.see(at).form(at + "/like")
		form.Set("back", back)
		v.at = "https://evil.example/" + at
		d := v.post(at+"/like", form)
		assert.Equal(t, "/", d.url.Path, back)
		assert.Equal(t, strings.TrimPrefix(s.base, "http://"), d.url.Host)
	}
}

// The anonymous share pages, which are at most a second old.
func TestWeb_sharedPagesAreFresh(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	ada := s.account(t)
	id := s.publish(t, ada, "A post")
	at := fmt.Sprintf("/posts/%d", id)
	v := s.guest(t)
	v.see(at).has("Nobody has commented yet.")
	s.requests()
	for range 20 {
		v.see(at)
	}
	assert.LessOrEqual(t, len(s.requests()), 4, "visitors share the copy")
	s.say(t, ada, id, nil, "News.")
	require.Eventually(t, func() bool { return strings.Contains(v.see(at).text(), "News.") }, 10*time.Second,
		50*time.Millisecond)
	s.as(t, ada).see(at).has("Delete") // an own page is not shared
	v.see(at).hasNot("Delete")
}

func TestWeb_banned(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	moderator, ada := s.moderator(t), s.account(t)
	at := fmt.Sprintf("/posts/%d", s.publish(t, moderator, "A post"))
	v := s.as(t, ada)
	form := v.see(at).form(at + "/comments")
	s.must(t, 200, moderator, "POST", "/v1/admin/users/"+strconv.FormatInt(ada.ID, 10)+"/ban", obj{"reason": "Enough."})
	form.Set("content", "One more word.")
	d := v.post(at+"/comments", form)
	assert.Contains(t, d.body, "One more word.")
}

// The API is away for a while, under 50 writers who try until their comment is there: each comment is there once.
func TestWeb_outageUnderWriters(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	ada := s.account(t)
	at := fmt.Sprintf("/posts/%d", s.publish(t, ada, "A post"))
	const writers = 50
	var all sync.WaitGroup
	for i := range writers {
		v := s.as(t, s.account(t))
		form := v.see(at).form(at + "/comments")
		text := fmt.Sprintf("Comment %d of all.", i)
		form.Set("content", text)
		all.Go(func() {
			for range 400 {
				d := v.post(at+"/comments", form)
				if d.status == http.StatusOK || d.url.Path != at+"/comments" {
					return // it was accepted, even if the page that shows it cannot be read now
				}
				if !assert.Equal(t, http.StatusServiceUnavailable, d.status) || !assert.Contains(t, d.body, text) {
					return
				}
				form = d.form(at + "/comments")
				<-time.After(20 * time.Millisecond)
			}
			t.Error("the comment was never accepted")
		})
	}
	s.lost.Store(true) // first their answers are lost
	<-time.After(300 * time.Millisecond)
	s.away.Store(true)
	s.lost.Store(false)
	<-time.After(time.Second)
	s.away.Store(false)
	all.Wait()
	found := map[string]int{}
	cursor := ""
	for {
		var page struct {
			Items      []struct{ Content string }
			NextCursor *string `json:"next_cursor"`
		}
		s.must(t, 200, ada, "GET", "/v1"+at+"/comments?flat=true&limit=100"+cursor, nil).into(t, &page)
		for _, c := range page.Items {
			found[c.Content]++
		}
		if page.NextCursor == nil {
			break
		}
		cursor = "&cursor=" + *page.NextCursor
	}
	require.Len(t, found, writers)
	for text, n := range found {
		assert.Equal(t, 1, n, text)
	}
}

// A first visit costs little: the page with all that it loads, compressed.
func TestWeb_weighsLittle(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	ada, bob := s.account(t), s.account(t)
	var id int64
	for i := range 30 {
		id = s.publish(t, ada, fmt.Sprintf("What do you think of the %dth thing that happened here this year?", i))
	}
	for i := range 100 {
		s.say(t, bob, id, nil,
			fmt.Sprintf("This is comment %d, which has two sentences. Here is the other one, with %x.", i, i*i*i))
	}
	v := s.guest(t)
	for _, path := range []string{"/new", fmt.Sprintf("/posts/%d", id)} {
		total, requests := 0, 0
		d := v.see(path)
		loads := []string{path}
		for _, n := range append(d.elements("link"), d.elements("script")...) {
			rel, _ := attribute(n, "rel")
			for _, name := range []string{"href", "src"} {
				if to, ok := attribute(n, name); ok && (n.Data == "script" || rel == "stylesheet" || rel == "icon") {
					loads = append(loads, to)
				}
			}
		}
		for _, to := range loads {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.base+to, nil)
			require.NoError(t, err)
			req.Header.Set("Accept-Encoding", "gzip")
			resp, err := http.DefaultTransport.RoundTrip(req)
			require.NoError(t, err)
			raw, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, http.StatusOK, resp.StatusCode, to)
			total, requests = total+len(raw), requests+1
			if strings.HasPrefix(to, "/assets/") {
				assert.Contains(t, resp.Header.Get("Cache-Control"), "immutable", to)
			}
			t.Logf("%s: %d bytes", to, len(raw))
			switch {
			case strings.HasSuffix(to, ".css"):
				assert.LessOrEqual(t, len(raw), 8<<10, to)
			case strings.HasSuffix(to, ".js"):
				assert.LessOrEqual(t, len(raw), 6<<10, to)
			}
		}
		t.Logf("%s: %d bytes in %d requests", path, total, requests)
		assert.LessOrEqual(t, total, 30<<10, path)
		assert.LessOrEqual(t, requests, 4, path)
	}
}

// All of 400 nested comments on one page take few requests.
func TestWeb_longThreads(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	ada := s.account(t)
	id := s.publish(t, ada, "A post")
	var parents []any
	parents = append(parents, nil)
	for i := range 400 {
		parents = append(parents, s.say(t, ada, id, parents[i/3], fmt.Sprintf("Number %d.", i)))
	}
	v := s.as(t, ada)
	v.see("/")
	s.requests()
	d := v.see(fmt.Sprintf("/posts/%d/all", id))
	for {
		var next string
		for _, a := range d.elements("a") {
			if rel, _ := attribute(a, "rel"); rel == "next" {
				next, _ = attribute(a, "href")
			}
		}
		if next == "" {
			break
		}
		d = v.see(next)
	}
	t.Logf("all pages: %d requests", len(s.requests()))
	d = v.see(fmt.Sprintf("/posts/%d/whole", id))
	asked := s.requests()
	assert.LessOrEqual(t, len(asked), 8, strings.Join(asked, ", "))
	shown := strings.Count(d.body, `data-comment="`)
	assert.Equal(t, 400, shown)
}

// A draft is deleted with the text that came from it, and with no other.
func TestWeb_sendsOnlyTheDraftThatIsShown(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	ada := s.account(t)
	id := s.publish(t, ada, "A post")
	at, draft := fmt.Sprintf("/posts/%d", id), fmt.Sprintf("/v1/me/drafts/comment-%d", id)
	v := s.as(t, ada)
	form := v.see(at).form(at + "/comments") // before the draft
	s.must(t, 201, ada, "PUT", draft, obj{"post_id": id, "content": "A long draft."})
	form.Set("content", "Thanks.")
	require.Equal(t, http.StatusOK, v.post(at+"/comments", form).status)
	s.must(t, 200, ada, "GET", draft, nil)
	for _, page := range []string{at, at + "/all", at + "/whole", at + "/new"} {
		assert.Equal(t, "A long draft.", v.see(page).form(at+"/comments").Get("content"), page)
	}
	v.see(at + "/all").done(at + "/comments")
	s.refused(t, 404, "not_found", ada, "GET", draft, nil)
}

// Tags such as c# keep their sign, in forms and in links.
func TestWeb_keepsTags(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	ada := s.account(t)
	v := s.as(t, ada)
	d := v.see("/posts/new").done("", "title", "Sharp", "content", "Text.", "tags", "c# #go, f#")
	at := d.url.Path
	v.see(at+"/edit").done("", "title", "Sharper")
	assert.Equal(t, "c# go f#", v.see(at+"/edit").form("").Get("tags"))
	for _, a := range v.see(at).elements("a") {
		if class, _ := attribute(a, "class"); class == "tag" && a.FirstChild.Data == "c#" {
			href, _ := attribute(a, "href")
			v.see(href).has("Sharper")
			return
		}
	}
	t.Error("the post does not link to its tag")
}

// What a script gets is not a copy for others, and the other way round.
func TestWeb_fragmentsAreNoPages(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	ada := s.account(t)
	parent := s.say(t, ada, s.publish(t, ada, "A post"), nil, "A comment.")
	v := s.guest(t)
	path := fmt.Sprintf("/comments/%d/replies", parent)
	for range 2 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.base+path, nil)
		require.NoError(t, err)
		req.Header.Set("X-Requested-With", "fetch")
		assert.NotContains(t, v.open(req).body, "<html")
		assert.Contains(t, v.see(path).body, "<html")
	}
}

// The page with what is new marks it as read.
func TestWeb_newsAreReadOnce(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	ada, bob := s.account(t), s.account(t)
	id := s.publish(t, ada, "A post")
	s.say(t, bob, id, nil, "An old one.")
	v := s.as(t, ada)
	at := fmt.Sprintf("/posts/%d", id)
	v.see(at)
	s.say(t, bob, id, nil, "A new one.")
	v.see(at + "/new").has("A new one.").hasNot("An old one.")
	v.see(at + "/new").has("You have read everything.")
}

// A link of somebody else cannot offer to undo what nobody has done.
func TestWeb_notesAreSigned(t *testing.T) {
	t.Parallel()
	s := newForum(t)
	mallory := s.account(t)
	grace := s.as(t, s.promoted(t, s.account(t), models.RoleAdmin))
	user := fmt.Sprintf("/moderate/users/%d", mallory.ID)
	grace.see(user + fmt.Sprintf("?did=user.role&of=%d&was=admin", mallory.ID)).hasNot("Undo")
	grace.see(user).done(user+"/ban", "reason", "Spam.", "for", "day").has("Undo")
}
