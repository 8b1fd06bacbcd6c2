package handlers_test

import (
	"strings"
	"testing"
	"time"

	"likewise/handlers"
	"likewise/internal/testkit"
)

type sessionInfo struct {
	ID        string
	CreatedAt time.Time `json:"created_at"`
	ExpiresAt time.Time `json:"expires_at"`
	UserAgent string    `json:"user_agent"`
	Current   bool
}

const password = "difference engine"

// person is an account with a password.
func (a *api) person(t *testing.T, name string) account {
	t.Helper()
	in := read[session](t, a.must(t, 201, account{}, "POST", "/v1/auth/register",
		obj{"username": name, "email": name + "@example.org", "password": password}))
	return account{in.User.ID, name, in.Token}
}

func (a *api) login(t *testing.T, name, password string, headers ...header) account {
	t.Helper()
	in := read[session](t, a.must(t, 200, account{}, "POST", "/v1/auth/login", obj{"login": name, "password": password},
		headers...))
	return account{in.User.ID, name, in.Token}
}

func (a *api) sessions(t *testing.T, as account) []sessionInfo {
	t.Helper()
	return read[page[sessionInfo]](t, a.must(t, 200, as, "GET", "/v1/me/sessions", nil)).Items
}

func TestSessions_areListedAndEnded(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.person(t, "ada")
	phone := a.login(t, "ada", password, header{"User-Agent", "Phone \u202e" + strings.Repeat("é", 300)})
	bob := a.person(t, "bob")
	list := a.sessions(t, ada)
	if len(list) != 2 {
		t.Fatalf("sessions %+v", list)
	}
	var mine, other sessionInfo
	for _, s := range list {
		if s.Current {
			mine = s
		} else {
			other = s
		}
	}
	if mine.ID == "" || other.ID == "" || mine.ID == other.ID || !mine.ExpiresAt.After(mine.CreatedAt) ||
		!strings.HasPrefix(mine.UserAgent, "Go-http-client") ||
		!strings.HasPrefix(other.UserAgent, "Phone é") || len([]rune(other.UserAgent)) != 200 {
		t.Errorf("sessions %+v", list)
	}
	for _, id := range []string{"", "x", "0123456789abcdef", other.ID + "0", strings.ToUpper("abcdefabcdefabcd"),
		"%00"} {
		if id != "" {
			a.refused(t, 404, "not_found", ada, "DELETE", "/v1/me/sessions/"+id, nil)
		}
	}
	a.refused(t, 404, "not_found", bob, "DELETE", "/v1/me/sessions/"+other.ID, nil) // of another user
	a.must(t, 200, phone, "GET", "/v1/me", nil)
	a.must(t, 204, ada, "DELETE", "/v1/me/sessions/"+other.ID, nil)
	a.refused(t, 401, "unauthorized", phone, "GET", "/v1/me", nil)

	second, third := a.login(t, "ada", password), a.login(t, "ada", password)
	a.must(t, 200, third, "GET", "/v1/me", nil)
	a.must(t, 204, second, "DELETE", "/v1/me/sessions", nil)
	a.refused(t, 401, "unauthorized", ada, "GET", "/v1/me", nil)
	a.refused(t, 401, "unauthorized", third, "GET", "/v1/me", nil)
	if list := a.sessions(t, second); len(list) != 1 || !list[0].Current {
		t.Errorf("sessions %+v", list)
	}
	a.must(t, 204, second, "DELETE", "/v1/me/sessions/"+a.sessions(t, second)[0].ID, nil)
	a.refused(t, 401, "unauthorized", second, "GET", "/v1/me", nil)
	a.must(t, 200, bob, "GET", "/v1/me", nil)
}

func TestSessions_areListedOnce(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	// Several in each second, and hashes on both sides of the sign of an integer.
	if _, err := a.store.Pool().Exec("INSERT INTO sessions (token_hash, user_id, created_at, expires_at)"+
		" WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i+1 FROM n WHERE i<60)"+
		" SELECT UNHEX(SHA2(i,256)), ?, FROM_UNIXTIME(1700000000+i%7), '2037-01-01' FROM n", ada.ID); err != nil {
		t.Fatal(err)
	}
	for _, limit := range []string{"1", "7", "61", "100"} {
		seen := map[string]int{}
		for cursor := ""; ; {
			p := read[page[sessionInfo]](t, a.must(t, 200, ada, "GET", "/v1/me/sessions?limit="+limit+cursor, nil))
			for _, s := range p.Items {
				seen[s.ID]++
			}
			if p.NextCursor == nil {
				break
			}
			cursor = "&cursor=" + *p.NextCursor
		}
		if len(seen) != 61 {
			t.Errorf("by %s: %d sessions, want 61", limit, len(seen))
		}
	}
}

func TestPassword_changeEndsOtherSessionsEverywhere(t *testing.T) {
	t.Parallel()
	store := openStore(t, testkit.Database(t))
	here := serve(t, store)
	var ahead clock
	there := serve(t, store, func(c *handlers.Config) { c.Now = ahead.now })
	ada := here.person(t, "ada")
	other := here.login(t, "ada", password)
	here.must(t, 200, other, "GET", "/v1/me", nil)
	there.must(t, 200, other, "GET", "/v1/me", nil)
	there.must(t, 200, ada, "GET", "/v1/me", nil)
	change := obj{"current_password": "wrong", "new_password": "analytical engine"}
	here.refusedField(t, 403, "forbidden", "current_password", ada, "PUT", "/v1/me/password", change)
	// Has none.
	here.refusedField(t, 403, "forbidden", "current_password", here.account(t), "PUT", "/v1/me/password", change)
	here.refusedField(t, 422, "invalid", "new_password", ada, "PUT", "/v1/me/password",
		obj{"current_password": password, "new_password": "short"})
	here.must(t, 200, other, "GET", "/v1/me", nil)
	change["current_password"] = password
	here.must(t, 204, ada, "PUT", "/v1/me/password", change)
	here.refused(t, 401, "unauthorized", other, "GET", "/v1/me", nil)
	here.must(t, 200, ada, "GET", "/v1/me", nil)
	ahead.advance(5 * time.Second)
	there.refused(t, 401, "unauthorized", other, "GET", "/v1/me", nil)
	there.must(t, 200, ada, "GET", "/v1/me", nil)
	here.refused(t, 401, "unauthorized", account{}, "POST", "/v1/auth/login", obj{"login": "ada", "password": password})
	here.login(t, "ada", "analytical engine")
}

// TestPassword_noLoginOutlivesItsPassword changes a password while logins with the old one are in flight.
func TestPassword_noLoginOutlivesItsPassword(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	a.person(t, "ada")
	passwords := []string{password, "analytical engine"}
	for round := range 4 {
		ada := a.login(t, "ada", passwords[round%2])
		var tokens [6]string
		together(len(tokens)+1, func(i int) {
			if i == len(tokens) {
				if r, err := a.try(ada, "PUT", "/v1/me/password",
					obj{"current_password": passwords[round%2], "new_password": passwords[1-round%2]}); err != nil ||
					r.Status != 204 {
					t.Errorf("change: %s %v", r, err)
				}
				return
			}
			r, err := a.try(account{}, "POST", "/v1/auth/login", obj{"login": "ada", "password": passwords[round%2]})
			if err == nil && r.Status == 200 {
				tokens[i] = read[session](t, r).Token
			}
		})
		if n := a.number(t, "SELECT COUNT(*) FROM sessions"); n != 1 {
			t.Errorf("round %d: %d sessions after the change, want 1", round, n)
		}
	}
}
