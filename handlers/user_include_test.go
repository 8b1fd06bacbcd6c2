package handlers_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"likewise/handlers"
)

// A profile has the first page of a list as its own path returns it, and the cursor continues there.
func TestUser_includesTheFirstPageOfAList(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada, bob := a.account(t), a.account(t)
		var posts []post
		for range 21 {
			posts = append(posts, a.newPost(t, ada))
		}
		for range 21 {
			a.newComment(t, ada, posts[3].ID)
		}
		a.must(t, 200, bob, "PUT", pathOf(posts[20])+"/like", nil)
		a.must(t, 200, bob, "PUT", pathOf(posts[20])+"/bookmark", nil)
		byName := "/v1/users/by-name/" + ada.Name
		for _, as := range []account{{}, ada, bob} {
			for _, profile := range []string{userPath(ada), byName} {
				plain := read[map[string]any](t, a.must(t, 200, as, "GET", profile, nil))
				for _, list := range []string{"posts", "comments"} {
					own := fmt.Sprintf("%s/%s", userPath(ada), list)
					got := read[map[string]any](t, a.must(t, 200, as, "GET",
						profile+"?include="+list, nil))
					assert.Equal(t, read[map[string]any](t, a.must(t, 200, as, "GET", own, nil)), got[list])
					cursor, _ := got[list].(map[string]any)["next_cursor"].(string)
					rest := read[page[map[string]any]](t, a.must(t, 200, as, "GET", own+"?cursor="+cursor, nil))
					assert.Len(t, rest.Items, 1)
					delete(got, list)
					assert.Equal(t, plain, got)
				}
			}
		}
		empty := a.must(t, 200, bob, "GET", userPath(bob)+"?include=posts", nil)
		assert.Contains(t, string(empty.Body), `"posts":{"items":[],"next_cursor":null}}`)

		// What is included counts for the tag of the answer.
		for list, change := range map[string]func(){
			"posts":    func() { a.must(t, 200, bob, "PUT", pathOf(posts[19])+"/like", nil) },
			"comments": func() { a.newReply(t, bob, a.newComment(t, ada, posts[0].ID).ID) },
		} {
			path := byName + "?include=" + list
			tag := header{"If-None-Match", a.must(t, 200, bob, "GET", path, nil).Header.Get("ETag")}
			a.must(t, 304, bob, "GET", path, nil, tag)
			change()
			a.must(t, 200, bob, "GET", path, nil, tag)
		}

		for _, list := range []string{"", "likes", "posts,comments", "Posts"} {
			for _, profile := range []string{userPath(ada), byName} {
				a.refusedField(t, 422, "invalid", "include", bob, "GET", profile+"?include="+list, nil)
			}
		}
		a.refused(t, 404, "not_found", bob, "GET", "/v1/users/4242?include=posts", nil)

		// Lists leave out content of those whom the caller blocks.
		a.must(t, 200, bob, "PUT", userPath(ada)+"/block", nil)
		blocked := a.must(t, 200, bob, "GET", byName+"?include=posts", nil)
		assert.Contains(t, string(blocked.Body), `"posts":{"items":[],"next_cursor":null}}`)
	})
}

// A profile with a list waits for a place among expensive requests, as the list does, and a profile alone does not.
func TestUser_withAListIsAnExpensiveRequest(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], func(c *handlers.Config) { c.Timeout = time.Second })
	ada := a.account(t)
	release := a.FillExpensiveShare()
	a.must(t, 200, ada, "GET", userPath(ada), nil)
	a.refused(t, 503, "unavailable", ada, "GET", userPath(ada)+"?include=posts", nil)
	a.refused(t, 503, "unavailable", ada, "GET", "/v1/users/by-name/"+ada.Name+"?include=comments", nil)
	release()
	a.must(t, 200, ada, "GET", userPath(ada)+"?include=posts", nil)
}
