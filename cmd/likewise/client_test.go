package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// account is the user who sends a request. The zero account is anonymous.
type account struct {
	id    int64
	token string
}

// readTokens parses the output of `likewise user token`.
func readTokens(t *testing.T, text string, n int) []account {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	require.Len(t, lines, n)
	list := make([]account, n)
	for i, line := range lines {
		require.Regexp(t, `^[1-9][0-9]*\t[A-Za-z0-9_-]{43}$`, line)
		id, token, _ := strings.Cut(line, "\t")
		list[i].token = token
		var err error
		list[i].id, err = strconv.ParseInt(id, 10, 64)
		require.NoError(t, err)
	}
	return list
}

// reply is an answer with its whole body.
type reply struct {
	status int
	header http.Header
	body   string
}

func (r reply) String() string { return fmt.Sprintf("%d %s", r.status, r.body) }

// clients sends the requests of all tests. It keeps enough idle connections to each API.
var clients = &http.Client{
	Timeout:   30 * time.Second,
	Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true},
}

// internals matches terms of the implementation, which answers must not contain.
var internals = regexp.MustCompile(
	`(?i)mysql|redis|kafka|sarama|gorm|sql:|dial |tcp|127\.0\.0\.1|goroutine|\.go\b|panic|deadlock|lua|eof|` +
		`outbox|shard|Error [0-9]{4}|context `,
)

// send sends a request, without a body if body is nil. If the answer violates the rules for errors, the test fails.
// Without an answer, send returns an error.
func send(t testing.TB, url string, as account, method, path string, body any) (reply, error) {
	var in io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return reply{}, err
		}
		in = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(context.Background(), method, url+path, in)
	if err != nil {
		return reply{}, err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if as.token != "" {
		request.Header.Set("Authorization", "Bearer "+as.token)
	}
	response, err := clients.Do(request)
	if err != nil {
		return reply{}, err
	}
	r, err := readReply(response)
	if r.status >= 400 && path != "/readyz" {
		r.holdProblem(t, method+" "+path)
	}
	return r, err
}

// readReply reads an answer to its end, and closes it.
func readReply(response *http.Response) (reply, error) {
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return reply{}, err
	}
	return reply{response.StatusCode, response.Header, string(text)}, nil
}

// holdProblem checks an answer by the rules for errors.
func (r reply) holdProblem(t testing.TB, what string) {
	t.Helper()
	var p struct {
		Type, Title, Detail, Code string
		Status                    int
		RequestID                 string `json:"request_id"`
	}
	if got := r.header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("%s: an error of type %q: %s", what, got, r)
	}
	if err := json.Unmarshal(
		[]byte(r.body),
		&p,
	); err != nil || p.Status != r.status || p.Type == "" || p.Title == "" || p.Detail == "" || p.Code == "" ||
		p.RequestID == "" {
		t.Errorf("%s: not a whole problem (%v): %s", what, err, r)
	}
	if r.status >= 500 && internals.MatchString(strings.Replace(r.body, p.RequestID, "", 1)) {
		t.Errorf("%s shows internals: %s", what, r)
	}
	if (r.status == http.StatusServiceUnavailable || r.status == http.StatusTooManyRequests) &&
		r.header.Get("Retry-After") == "" {
		t.Errorf("%s: no Retry-After: %s", what, r)
	}
}

// call sends a request whose answer must have the status. It decodes the answer into out unless out is nil.
func call(t testing.TB, url string, as account, method, path string, body any, status int, out any) {
	t.Helper()
	r, err := send(t, url, as, method, path, body)
	require.NoError(t, err)
	require.Equal(t, status, r.status, "%s %s answers %s", method, path, r)
	if out != nil {
		require.NoError(t, json.Unmarshal([]byte(r.body), out), "%s", r)
	}
}

type obj = map[string]any

// contentJSON has the fields of posts and comments that the tests read.
type contentJSON struct {
	ID            int64  `json:"id"`
	Content       string `json:"content"`
	LikesCount    int64  `json:"likes_count"`
	CommentsCount int64  `json:"comments_count"`
	Liked         bool   `json:"liked"`
}

func (c contentJSON) path() string { return fmt.Sprintf("/v1/posts/%d", c.ID) }

type likeJSON struct {
	Liked      bool  `json:"liked"`
	LikesCount int64 `json:"likes_count"`
}

func newPost(t testing.TB, url string, as account) contentJSON {
	t.Helper()
	var p contentJSON
	call(t, url, as, "POST", "/v1/posts", obj{"title": "A post", "content": "with *text*"}, http.StatusCreated, &p)
	return p
}

func newComment(t testing.TB, url string, as account, post contentJSON) contentJSON {
	t.Helper()
	var c contentJSON
	call(t, url, as, "POST", post.path()+"/comments", obj{"content": "a comment"}, http.StatusCreated, &c)
	return c
}

// like sets or removes the account's like of the target at path, such as /v1/posts/1. It must succeed.
func like(t testing.TB, url string, as account, path string, liked bool) likeJSON {
	t.Helper()
	var l likeJSON
	call(t, url, as, likeMethod(liked), path+"/like", nil, http.StatusOK, &l)
	require.Equal(t, liked, l.Liked)
	return l
}

func likeMethod(liked bool) string {
	if liked {
		return http.MethodPut
	}
	return http.MethodDelete
}
