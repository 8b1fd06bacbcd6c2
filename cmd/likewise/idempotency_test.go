package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
)

// sendOnce writes a post with an Idempotency-Key. It may fail.
func sendOnce(url string, as account, path, body, key string) (reply, error) {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPost, url+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+as.token)
	request.Header.Set("Idempotency-Key", key)
	response, err := clients.Do(request)
	if err != nil {
		return reply{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return reply{response.StatusCode, response.Header, string(text)}, err
}

// Redis stands still, so the process stands still after the COMMIT, telling the gate of the new post; there it is
// killed. The answer is stored by nobody, and yet the repetition creates nothing.
func TestIdempotency_survivesAKillBetweenCommitAndAnswer(t *testing.T) {
	t.Parallel()
	s, all := ownSite(t)
	ada := s.accounts(1)[0]
	s.start("worker")
	s.awaitOpen()
	first, url := s.api()
	call(t, url, ada, "GET", "/v1/posts", nil, 200, nil) // the session is known
	const body = `{"title":"Once","content":"and no more"}`
	creations := []struct{ path, body, table string }{
		{"/v1/posts", body, "posts"},
		{"/v1/posts/1/comments", `{"content":"Once."}`, "comments"},
	}
	for i, create := range creations {
		key := fmt.Sprint("key ", i)
		require.NoError(t, all.Redis.Pause())
		broken := make(chan error, 1)
		go func() {
			_, err := sendOnce(url, ada, create.path, create.body, key)
			broken <- err
		}()
		testkit.Eventually(t, patience, func() (bool, string) {
			n := s.count("SELECT COUNT(*) FROM idempotency_keys WHERE effect IS NOT NULL")
			return n == 1, create.path + " is not committed"
		})
		first.Kill()
		require.Error(t, <-broken)
		require.NoError(t, all.Redis.Resume())
		assert.Equal(t, 1, s.count("SELECT COUNT(*) FROM "+create.table))

		first, url = s.api()
		var bodies []string
		for range 3 {
			r, err := sendOnce(url, ada, create.path, create.body, key)
			require.NoError(t, err)
			require.Equal(t, http.StatusCreated, r.status, "%s", r)
			assert.Equal(t, "true", r.header.Get("Idempotency-Replayed"))
			bodies = append(bodies, r.body)
		}
		assert.Equal(t, bodies[0], bodies[1])
		var created contentJSON
		require.NoError(t, json.Unmarshal([]byte(bodies[2]), &created))
		assert.Equal(t, int64(1), created.ID)
		assert.Equal(t, 1, s.count("SELECT COUNT(*) FROM "+create.table))
		s.exec("DELETE FROM idempotency_keys")
	}
	assert.Equal(t, 1, s.count("SELECT comments_count FROM posts"))

	// Without MySQL nobody can know whether it was carried out.
	require.NoError(t, all.MySQL.Kill())
	r, err := sendOnce(url, ada, "/v1/posts", body, "another key")
	require.NoError(t, err)
	assert.Equal(t, http.StatusServiceUnavailable, r.status, "%s", r)
	r.holdProblem(t, "a post without MySQL")
	require.NoError(t, all.MySQL.Start(t.Context()))
}
