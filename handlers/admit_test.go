package handlers_test

import (
	"context"
	"testing"

	"likewise/handlers"
	"likewise/models"
)

// heldLikes blocks likes until the test releases them.
type heldLikes struct {
	handlers.Likes
	taken, release chan struct{}
}

func (h heldLikes) SetLike(ctx context.Context, target models.Target, userID int64,
	liked bool) (models.LikeState, error) {
	h.taken <- struct{}{}
	<-h.release
	return h.Likes.SetLike(ctx, target, userID, liked)
}

func TestAdmit_refusesAtOnceWhatIsTooMuch(t *testing.T) {
	t.Parallel()
	held := heldLikes{taken: make(chan struct{}), release: make(chan struct{})}
	a := newAPI(t, modes[0], func(c *handlers.Config) {
		held.Likes = c.Likes
		c.Likes, c.MaxInFlight = held, 2
	})
	users := a.accounts(t, 2)
	p := read[post](t, a.must(t, 201, users[0], "POST", "/v1/posts", obj{"title": "A post", "content": "text"}))
	answered := make(chan struct{})
	for _, u := range users {
		go func() {
			if r, err := a.try(u, "PUT", pathOf(p)+"/like", nil); err != nil || r.Status != 200 {
				t.Errorf("%v, %v", r, err)
			}
			answered <- struct{}{}
		}()
	}
	for range users {
		<-held.taken
	}
	if _, r := a.refused(t, 503, "unavailable", account{}, "GET", "/v1/posts",
		nil); r.Header.Get("Retry-After") != "1" {
		t.Errorf("no Retry-After in %v", r.Header)
	}
	a.refused(t, 503, "unavailable", account{}, "GET", "/docs", nil)
	a.refused(t, 503, "unavailable", account{}, "GET", "/nope", nil)
	a.must(t, 200, account{}, "GET", "/healthz", nil) // health checks are admitted
	close(held.release)
	for range users {
		<-answered
	}
	a.must(t, 200, account{}, "GET", "/v1/posts", nil)
}
