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

// account is who a request is made by; the zero account is the anonymous.
type account struct {
	id    int64
	token string
}

// readTokens takes the output of `likewise user token` apart.
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

// reply is an answer that was read to its end.
type reply struct {
	status int
	header http.Header
	body   string
}

func (r reply) String() string { return fmt.Sprintf("%d %s", r.status, r.body) }

// clients are enough for every test: idle connections are kept for each API.
var clients = &http.Client{
	Timeout:   30 * time.Second,
	Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true},
}

// internals are words that only somebody who knows the inside would use; they may not be in an answer.
var internals = regexp.MustCompile(
	`(?i)mysql|redis|kafka|sarama|gorm|sql:|dial |tcp|127\.0\.0\.1|goroutine|\.go\b|panic|deadlock|lua|eof|` +
		`outbox|shard|Error [0-9]{4}|context `,
)

// send makes a request; body nil is none. An answer that breaks the rules for errors fails the test; no answer at all
// is the error.
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
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return reply{}, err
	}
	r := reply{response.StatusCode, response.Header, string(text)}
	if r.status >= 400 && path != "/readyz" {
		r.holdProblem(t, method+" "+path)
	}
	return r, nil
}

// holdProblem holds an error to what every one must be.
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

// call makes a request that must get the status, and reads the answer into out unless that is nil.
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

// contentJSON is what the tests read of posts and comments.
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

// like makes the account's like of what is at path (such as /v1/posts/1) as asked, which must succeed.
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
