package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// banLands is how long a ban, or another end of a session, may take to every other process.
const banLands = 5 * time.Second

func TestBan_landsInAnotherProcessWithinFiveSeconds(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.start("worker")
	_, here := s.api()
	_, there := s.api()
	s.awaitOpen()

	mod := s.accounts(1)[0]
	s.succeed("user", "promote", "script-1", "moderator")
	var session struct {
		User  struct{ ID int64 }
		Token string
	}
	credentials := obj{"login": "ada", "password": "difference engine"}
	call(
		t,
		here,
		account{},
		"POST",
		"/v1/auth/register",
		obj{"username": "ada", "email": "ada@example.org", "password": "difference engine"},
		http.StatusCreated,
		nil,
	)
	call(t, there, account{}, "POST", "/v1/auth/login", credentials, http.StatusOK, &session)
	ada := account{session.User.ID, session.Token}
	var token struct{ Token string }
	call(
		t,
		there,
		ada,
		"POST",
		"/v1/me/tokens",
		obj{"name": "bot", "scopes": []string{"read", "write"}},
		http.StatusCreated,
		&token,
	)
	post := newPost(t, there, mod)

	// What the user does there, one after the other, until it is refused; the session is in that process's memory.
	acts := map[string]func(as account) (reply, error){
		"a post": func(as account) (reply, error) {
			return send(t, there, as, "POST", "/v1/posts", obj{"title": "T", "content": "C"})
		},
		"a comment": func(as account) (reply, error) {
			return send(t, there, as, "POST", post.path()+"/comments", obj{"content": "C"})
		},
		"a like":      func(as account) (reply, error) { return send(t, there, as, "PUT", post.path()+"/like", nil) },
		"the session": func(as account) (reply, error) { return send(t, there, as, "GET", "/v1/me", nil) },
		"a post by token": func(account) (reply, error) {
			return send(t, there, account{ada.id, token.Token}, "POST", "/v1/posts", obj{"title": "T", "content": "C"})
		},
	}
	for name, act := range acts {
		r, err := act(ada)
		require.NoError(t, err)
		require.Less(t, r.status, 300, "%s before the ban: %s", name, r)
	}
	path := "/v1/admin/users/" + strconv.FormatInt(ada.id, 10)
	until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	call(t, here, mod, "POST", path+"/ban", obj{"until": until, "reason": "Spam."}, http.StatusOK, nil)
	banned := time.Now()

	r, err := send(t, here, ada, "GET", "/v1/me", nil)
	require.NoError(t, err)
	assert.Equal(t, http.StatusUnauthorized, r.status, "in the process that banned: %s", r)
	names := make([]string, 0, len(acts))
	for name := range acts {
		names = append(names, name)
	}
	landed := make([]time.Duration, len(names))
	atOnce(len(names), func(i int) {
		pace := time.NewTicker(50 * time.Millisecond)
		defer pace.Stop()
		for ; ; <-pace.C {
			sent := time.Since(banned)
			r, err := acts[names[i]](ada)
			switch {
			case err != nil:
				t.Errorf("%s: %v", names[i], err)
				return
			case r.status == http.StatusUnauthorized:
				landed[i] = time.Since(banned)
				return
			case r.status >= 300 || sent > banLands:
				t.Errorf("%s, sent %v after the ban, is answered with %s", names[i], sent, r)
				return
			}
		}
	})
	t.Logf("%v ended after %v", names, landed)

	for _, url := range []string{here, there} {
		r, err := send(t, url, account{}, "POST", "/v1/auth/login", credentials)
		require.NoError(t, err)
		var problem struct {
			Code string
			Ban  struct{ Until, Reason string }
		}
		require.NoError(t, json.Unmarshal([]byte(r.body), &problem))
		assert.Equal(
			t,
			"403 banned "+until+" Spam.",
			fmt.Sprint(r.status, " ", problem.Code, " ", problem.Ban.Until, " ", problem.Ban.Reason),
		)
	}

	call(t, there, mod, "POST", path+"/unban", obj{"reason": "It was somebody else."}, http.StatusNoContent, nil)
	for _, url := range []string{here, there} {
		call(t, url, account{}, "POST", "/v1/auth/login", credentials, http.StatusOK, &session)
		newComment(t, url, account{ada.id, session.Token}, post)
		like(t, url, account{ada.id, session.Token}, post.path(), true)
	}
	call(t, here, account{ada.id, token.Token}, "GET", "/v1/me", nil, http.StatusUnauthorized, nil)
	s.verify()
}
