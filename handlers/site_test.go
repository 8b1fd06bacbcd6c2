package handlers_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/handlers"
	"likewise/models"
)

type siteLimit struct {
	Min, Max int
	Unit     string
}

type siteAnswer struct {
	Name          string
	PublicURL     *string `json:"public_url"`
	Limits        map[string]siteLimit
	ReportReasons []struct{ Reason, Name string } `json:"report_reasons"`
	AvatarHosts   []string                        `json:"avatar_hosts"`
	Features      obj
}

func TestSite_hasTheSettings(t *testing.T) {
	t.Parallel()
	store := newAPI(t, modes[0]).store
	of := func(change func(*handlers.Config)) siteAnswer {
		return read[siteAnswer](t, serve(t, store, change).must(t, 200, account{}, "GET", "/v1/site", nil))
	}
	got := of(func(c *handlers.Config) {
		c.SiteName, c.AvatarHosts = "The Engines", []string{"images.example.org"}
		c.Images = imagesIn(t, t.TempDir())
		c.Mail = true
	})
	assert.Equal(t, "The Engines", got.Name)
	assert.Equal(t, "https://forum.example", *got.PublicURL)
	assert.Equal(t, []string{"images.example.org"}, got.AvatarHosts)
	assert.Equal(t, obj{
		"registration": "open", "images": true, "feeds": true, "mail": true, "password_reset": true,
		"second_factors": false,
	}, got.Features)

	bare := of(func(c *handlers.Config) { c.PublicURL = "" })
	assert.Equal(t, "Likewise", bare.Name)
	assert.Nil(t, bare.PublicURL)
	assert.Equal(t, []string{}, bare.AvatarHosts)
	assert.Equal(t, obj{
		"registration": "open", "images": false, "feeds": false, "mail": false, "password_reset": false,
		"second_factors": false,
	}, bare.Features)

	for url, name := range map[string]string{
		"https://forum.example": "forum.example", "http://forum.example:8080/a": "forum.example",
		"http://localhost:8083": "Likewise",
	} {
		assert.Equal(t, name, of(func(c *handlers.Config) { c.PublicURL = url }).Name, url)
	}
}

func TestSite_isCachedByEverybody(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	r := a.must(t, 200, account{Token: "expired"}, "GET", "/v1/site", nil)
	assert.Equal(t, "public, max-age=60", r.Header.Get("Cache-Control"))
	a.must(t, 304, account{}, "GET", "/v1/site", nil, header{"If-None-Match", r.Header.Get("ETag")})
}

func TestSite_namesAreLines(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{" a", "a\nb", "a\x00", "\xff", strings.Repeat("a", models.MaxSiteName+1)} {
		assert.Error(t, models.ValidateSiteName(bad), "%q", bad)
	}
	assert.NoError(t, models.ValidateSiteName("论坛"))
}

// A text of the greatest length is accepted, and one that is longer is refused with the same limit.
func TestSite_limitsAreThoseOfRequests(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	limits := read[siteAnswer](t, a.must(t, 200, account{}, "GET", "/v1/site", nil)).Limits
	thread := a.newPost(t, ada)
	post := pathOf(thread)
	text := func(n int) string { return strings.Repeat("a", n) }
	name := func(n int) string { return strings.Repeat(fmt.Sprintf("u%09d", rand.IntN(1e9)), n/10+1)[:n] }
	secret := func(n int) string { return strings.Repeat("x9 Engine of 1843, ", n/19+1)[:n] }
	// registration returns a registration with one field of its own.
	registration := func(field, value string) obj {
		body := obj{"username": name(12), "email": name(12) + "@example.org", "password": "nine brown foxes dig"}
		body[field] = value
		return body
	}
	tags := func(n int) (list []string) {
		for i := range n {
			list = append(list, fmt.Sprint("tag", i))
		}
		return list
	}
	for _, c := range []struct {
		limit, field string
		method, path string
		body         func(n int) obj
	}{
		{"username", "username", "POST", "/v1/auth/register", func(n int) obj {
			return registration("username", name(n))
		}},
		{"email", "email", "POST", "/v1/auth/register", func(n int) obj {
			return registration("email", name(max(0, n-12))+"@example.org")
		}},
		{"password", "password", "POST", "/v1/auth/register", func(n int) obj {
			return registration("password", secret(n))
		}},
		{"display_name", "display_name", "PATCH", "/v1/me", func(n int) obj { return obj{"display_name": text(n)} }},
		{"bio", "bio", "PATCH", "/v1/me", func(n int) obj { return obj{"bio": text(n)} }},
		{"title", "title", "POST", "/v1/posts", func(n int) obj { return obj{"title": text(n), "content": "c"} }},
		{"post", "content", "POST", "/v1/posts", func(n int) obj { return obj{"title": "t", "content": text(n)} }},
		{"comment", "content", "POST", post + "/comments", func(n int) obj { return obj{"content": text(n)} }},
		{"tags", "tags", "POST", "/v1/posts", func(n int) obj {
			return obj{"title": "t", "content": "c", "tags": tags(n)}
		}},
		{"tag", "tags", "POST", "/v1/posts", func(n int) obj {
			return obj{"title": "t", "content": "c", "tags": []string{text(n)}}
		}},
		{"drop_stock", "stock", "POST", post + "/drops", func(n int) obj { return obj{"title": "t", "stock": n} }},
		{"report_detail", "detail", "POST", "/v1/reports", func(n int) obj {
			return obj{"target_type": "post", "target_id": thread.ID, "reason": "spam", "detail": text(n)}
		}},
		{"token_name", "name", "POST", "/v1/me/tokens", func(n int) obj {
			return obj{"name": text(n), "scopes": []string{"read"}}
		}},
		{"token_days", "expires_in_days", "POST", "/v1/me/tokens", func(n int) obj {
			return obj{"name": "t", "scopes": []string{"read"}, "expires_in_days": n}
		}},
		{"search", "q", "GET", "/v1/posts?q=", nil},
		{"page", "limit", "GET", "/v1/posts?limit=", nil},
	} {
		most := limits[c.limit]
		require.NotZero(t, most.Max, c.limit)
		send := func(n int) reply {
			switch {
			case c.body != nil:
				return a.send(t, ada, c.method, c.path, c.body(n))
			case most.Unit == "characters":
				return a.send(t, ada, c.method, c.path+text(n), nil)
			}
			return a.send(t, ada, c.method, c.path+fmt.Sprint(n), nil)
		}
		r := send(most.Max)
		assert.Less(t, r.Status, 300, "%s: %s", c.limit, r.Body)
		refused := []int{most.Max + 1}
		if most.Min > 0 {
			refused = append(refused, most.Min-1)
		}
		for _, n := range refused {
			r := send(n)
			require.Equal(t, 422, r.Status, "%s of %d: %s", c.limit, n, r.Body)
			var problem struct {
				Errors []struct {
					Field  string
					Params struct {
						Max  *int
						Unit *string
					}
				}
			}
			require.NoError(t, json.Unmarshal(r.Body, &problem))
			assert.Equal(t, c.field, problem.Errors[0].Field, c.limit)
			if params := problem.Errors[0].Params; n > most.Max && params.Max != nil {
				assert.Equal(t, most.Max, *params.Max, c.limit)
				if params.Unit != nil {
					assert.Equal(t, most.Unit, *params.Unit, c.limit)
				}
			}
		}
	}
}

func TestSite_reasonsAreThoseOfReports(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	for _, r := range read[siteAnswer](t, a.must(t, 200, account{}, "GET", "/v1/site", nil)).ReportReasons {
		assert.NotEmpty(t, r.Name, r.Reason)
		a.must(t, 201, ada, "POST", "/v1/reports", obj{
			"target_type": "post", "target_id": a.newPost(t, a.account(t)).ID, "reason": r.Reason,
		})
	}
}
