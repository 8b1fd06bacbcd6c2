package handlers_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
)

// wholeThread is a thread with what it includes.
type wholeThread struct {
	page[tree]
	Post  *post
	Drops *[]drop
	Draft *draft
}

func TestThread_includesWhatIsAskedFor(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada, bob := a.account(t), a.account(t)
		d := a.newDrop(t, ada, obj{})
		p := post{ID: d.PostID}
		c := a.newComment(t, bob, p.ID)
		a.must(t, 200, bob, "PUT", pathOf(p)+"/like", nil)
		a.must(t, 200, bob, "PUT", pathOf(p)+"/bookmark", nil)
		a.markRead(t, bob, p.ID, obj{})
		draftKey := fmt.Sprintf("comment-%d", p.ID)
		a.must(t, 201, bob, "PUT", draftPath(draftKey), obj{"post_id": p.ID, "content": "Half"})
		path := pathOf(p) + "/thread"
		for _, as := range []account{{}, ada, bob} {
			// Each member is what its own path returns, and the order of the words changes nothing.
			r := a.must(t, 200, as, "GET", path+"?include=draft,post,drops", nil)
			whole := read[map[string]any](t, r)
			own := map[string]any{
				"post":  read[map[string]any](t, a.must(t, 200, as, "GET", pathOf(p), nil)),
				"drops": read[map[string]any](t, a.must(t, 200, as, "GET", pathOf(p)+"/drops", nil))["items"],
				"items": read[map[string]any](t, a.must(t, 200, as, "GET", path, nil))["items"],
				"draft": nil, "next_cursor": nil,
			}
			if as == bob {
				own["draft"] = read[map[string]any](t, a.must(t, 200, bob, "GET", draftPath(draftKey), nil))
			}
			assert.Equal(t, own, whole)
			again := a.must(t, 200, as, "GET", path+"?include=post,drops,draft", nil)
			assert.Equal(t, r.String(), again.String())
		}
		only := read[wholeThread](t, a.must(t, 200, bob, "GET", path+"?include=post", nil))
		assert.Nil(t, only.Drops)
		assert.Nil(t, only.Draft)
		assert.Equal(t, p.ID, only.Post.ID)
		some := a.must(t, 200, account{}, "GET", path+"?include=drops", nil)
		assert.NotContains(t, string(some.Body), `"post":`)
		assert.NotContains(t, string(some.Body), `"draft":`)
		assert.Len(t, *read[wholeThread](t, some).Drops, 1)
		none := a.must(t, 200, bob, "GET", pathOf(a.newPost(t, bob))+"/thread?include=drops,draft", nil)
		assert.Contains(t, string(none.Body), `"items":[],"next_cursor":null,"drops":[],"draft":null}`)

		// A page that continues can include them, too.
		a.newComment(t, bob, p.ID)
		first := read[wholeThread](t, a.must(t, 200, bob, "GET", path+"?limit=1", nil))
		next := read[wholeThread](t, a.must(t, 200, bob, "GET",
			path+"?include=post&limit=1&cursor="+*first.NextCursor, nil))
		assert.Equal(t, p.ID, next.Post.ID)
		assert.NotEqual(t, c.ID, next.Items[0].ID)

		for _, words := range []string{"", "likes", "post,likes", "post,", "Post", "post;drops"} {
			a.refusedField(t, 422, "invalid", "include", bob, "GET", path+"?include="+words, nil)
		}
		for _, words := range []string{"post", "drops", "draft", "post,drops,draft"} {
			a.refused(t, 404, "not_found", bob, "GET", "/v1/posts/4242/thread?include="+words, nil)
		}
		a.must(t, 204, ada, "DELETE", pathOf(p), nil)
		for _, as := range []account{{}, bob} {
			a.refused(t, 404, "not_found", as, "GET", path+"?include=post,drops,draft", nil)
		}
	})
}

// A list of all comments includes the same as a thread; one with replies includes nothing.
func TestComments_includeAtOnce(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	p := post{ID: a.newDrop(t, ada, obj{}).PostID}
	c := a.newComment(t, ada, p.ID)
	path := pathOf(p) + "/comments?flat=true"
	a.must(t, 201, ada, "PUT", draftPath(fmt.Sprintf("comment-%d", p.ID)), obj{"post_id": p.ID, "content": "Half"})
	for _, as := range []account{{}, ada} {
		want := read[wholeThread](t, a.must(t, 200, as, "GET", pathOf(p)+"/thread?include=post,drops,draft", nil))
		page := read[wholeThread](t, a.must(t, 200, as, "GET", path+"&include=post,drops,draft", nil))
		assert.Equal(t, want.Post, page.Post)
		assert.Equal(t, want.Drops, page.Drops)
		assert.Equal(t, want.Draft, page.Draft)
		require.Len(t, page.Items, 1)
		assert.Equal(t, c.ID, page.Items[0].ID)
		alone := read[wholeThread](t, a.must(t, 200, as, "GET", path, nil))
		assert.Nil(t, alone.Post)
	}
	a.refusedField(t, 422, "invalid", "include", ada, "GET", path+"&include=likes", nil)
	a.refusedField(t, 422, "invalid", "include", ada, "GET", pathOf(p)+"/comments?include=post", nil)
}

// A draft is the caller's own, of a comment on this post.
func TestThread_includesNoOtherDraft(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada, bob := a.account(t), a.account(t)
	p, other := a.newPost(t, ada), a.newPost(t, ada)
	path := pathOf(p) + "/thread?include=draft"
	included := func(as account, path string) *draft {
		return read[wholeThread](t, a.must(t, 200, as, "GET", path, nil)).Draft
	}
	key := fmt.Sprintf("comment-%d", p.ID)
	a.must(t, 201, ada, "PUT", draftPath(key), obj{"post_id": other.ID, "content": "Elsewhere"})
	assert.Nil(t, included(ada, path), "a draft on another post")
	a.must(t, 200, ada, "PUT", draftPath(key), obj{"post_id": p.ID, "content": "Here"}, header{"If-Match", "*"})
	require.NotNil(t, included(ada, path))
	assert.Equal(t, "Here", included(ada, path).Content)
	assert.Nil(t, included(bob, path))
	assert.Nil(t, included(account{}, path))

	// A token reads it with the scope that reading drafts needs, and without it reads no thread either.
	assert.Equal(t, "Here", included(ada.with(a.newToken(t, ada, "read").Token), path).Content)
	a.refused(t, 403, "forbidden", ada.with(a.newToken(t, ada, "write").Token), "GET", path, nil)
}

// What a thread includes is never older than the request, whatever answers others were given before.
func TestThread_includesNothingStale(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada, bob := a.account(t), a.account(t)
		d := a.newDrop(t, ada, obj{"stock": 5})
		p := post{ID: d.PostID}
		path := pathOf(p) + "/thread?include=post,drops,draft"
		plain := header{"Accept-Encoding", "identity"}
		tags := map[string]string{}
		readers := map[string]account{"anonymous": {}, "bob": bob}
		// changed checks which answers have changed since the last call.
		changed := func(what string, names ...string) {
			t.Helper()
			t.Log(what)
			for name, as := range readers {
				want := http.StatusNotModified
				if strings.Contains(strings.Join(names, " "), name) {
					want = http.StatusOK
				}
				r := a.must(t, want, as, "GET", path, nil, plain, header{"If-None-Match", tags[name]})
				tags[name] = r.Header.Get("ETag")
			}
		}
		for name, as := range readers {
			tags[name] = a.must(t, 200, as, "GET", path, nil, plain).Header.Get("ETag")
		}
		changed("nothing")
		a.claim(t, 201, bob, d)
		changed("a claim", "anonymous", "bob")
		key := draftPath(fmt.Sprintf("comment-%d", p.ID))
		a.must(t, 201, bob, "PUT", key, obj{"post_id": p.ID, "content": "Half"})
		changed("a draft", "bob")
		a.must(t, 204, bob, "DELETE", key, nil)
		changed("no draft", "bob")
		a.must(t, 200, bob, "PUT", pathOf(p)+"/like", nil)
		changed("a like", "anonymous", "bob")
		a.markRead(t, bob, p.ID, obj{})
		changed("a mark", "bob")
		a.must(t, 200, ada, "PATCH", pathOf(p), obj{"title": "Another"}, header{"If-Match", "*"})
		changed("an edit", "anonymous", "bob")
		a.must(t, 200, ada, "POST", d.path()+"/close", nil)
		changed("a closed drop", "anonymous", "bob")
	})
}

// The post counts against the size of the page.
func TestThread_withItsPostIsNotLongerThanAPage(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	long := strings.Repeat("<", models.MaxContent) // much longer as HTML
	p := read[post](t, a.must(t, 201, ada, "POST", "/v1/posts", obj{"title": "Long", "content": long}))
	parent := read[comment](t, a.must(t, 201, ada, "POST", pathOf(p)+"/comments", obj{"content": "Short"}))
	for range 6 {
		a.must(t, 201, ada, "POST", pathOf(parent)+"/replies", obj{"content": long})
	}
	count := func(include string) int {
		r := a.must(t, 200, ada, "GET", pathOf(p)+"/thread"+include, nil)
		assert.LessOrEqual(t, len(r.Body), 1<<20)
		return len(read[page[tree]](t, r).Items[0].Replies.Items)
	}
	assert.Less(t, count("?include=post"), count(""))
}

func TestThread_aroundACommentIsItsPath(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada, bob, carol := a.account(t), a.account(t), a.account(t)
		p := a.newPost(t, ada)
		var top, second, third [3]comment
		for i := range top {
			top[i] = a.newComment(t, ada, p.ID)
		}
		for i := range second {
			second[i] = a.newReply(t, bob, top[1].ID)
		}
		for i := range third {
			third[i] = a.newReply(t, ada, second[1].ID)
		}
		below := a.newReply(t, bob, third[1].ID)
		deeper := a.newReply(t, ada, below.ID)
		around := func(as account, id int64, more string) wholeThread {
			t.Helper()
			return read[wholeThread](t, a.must(t, 200, as, "GET",
				fmt.Sprintf("%s/thread?around=%d%s", pathOf(p), id, more), nil))
		}
		only := func(list page[tree]) tree {
			t.Helper()
			require.Len(t, list.Items, 1)
			return list.Items[0]
		}
		rest := func(path string, list page[tree]) (ids []int64) {
			t.Helper()
			require.NotNil(t, list.NextCursor)
			r := a.must(t, 200, ada, "GET", path+"?cursor="+*list.NextCursor, nil)
			for _, c := range read[page[tree]](t, r).Items {
				ids = append(ids, c.ID)
			}
			return ids
		}
		for _, as := range []account{{}, bob} {
			list := around(as, third[1].ID, "&include=post&depth=1")
			assert.Equal(t, p.ID, list.Post.ID)
			first := only(list.page)
			assert.Equal(t, top[1].ID, first.ID)
			assert.Equal(t, []int64{top[2].ID}, rest(pathOf(p)+"/thread", list.page))
			assert.Equal(t, []int64{top[2].ID}, rest(pathOf(p)+"/comments", list.page))
			next := only(first.Replies)
			assert.Equal(t, second[1].ID, next.ID)
			assert.Equal(t, []int64{second[2].ID}, rest(pathOf(first.comment)+"/replies", first.Replies))
			own := only(next.Replies)
			assert.Equal(t, third[1].ID, own.ID)
			assert.Equal(t, []int64{third[2].ID}, rest(pathOf(next.comment)+"/replies", next.Replies))
			reply := only(own.Replies)
			assert.Equal(t, below.ID, reply.ID)
			assert.Nil(t, own.Replies.NextCursor)
			assert.Empty(t, reply.Replies.Items, "depth=1 is one level below the comment")
			assert.Equal(t, []int64{deeper.ID}, rest(pathOf(reply.comment)+"/replies", reply.Replies))
		}
		// The limit and the depth are those of its replies.
		own := only(only(only(around(bob, third[1].ID, "&limit=2").page).Replies).Replies)
		assert.Equal(t, deeper.ID, only(only(own.Replies).Replies).ID)
		// The cursors continue in the order of the list, and are null at its end.
		list := around(bob, second[2].ID, "")
		assert.Nil(t, only(list.page).Replies.NextCursor)
		list = around(bob, second[2].ID, "&sort=new")
		assert.Equal(t, []int64{second[1].ID, second[0].ID},
			rest(pathOf(top[1])+"/replies", only(list.page).Replies))
		list = around(bob, top[2].ID, "")
		assert.Nil(t, list.NextCursor)
		assert.Equal(t, top[2].ID, only(list.page).ID)
		list = around(bob, second[1].ID, "&limit=2&depth=1") // which has three replies
		assert.Len(t, only(only(list.page).Replies).Replies.Items, 2)
		assert.Equal(t, []int64{third[2].ID},
			rest(pathOf(second[1])+"/replies", only(only(list.page).Replies).Replies))

		path := pathOf(p) + "/thread?around="
		for _, id := range []string{"x", "0", "-1", "", "01"} {
			a.refusedField(t, 422, "invalid", "around", bob, "GET", path+id, nil)
		}
		cursor := *around(bob, top[1].ID, "").NextCursor
		a.refusedField(t, 422, "invalid", "around", bob, "GET",
			fmt.Sprintf("%s%d&cursor=%s", path, top[1].ID, cursor), nil)
		elsewhere := a.newComment(t, ada, a.newPost(t, ada).ID)
		for _, id := range []int64{424242, elsewhere.ID} {
			a.refused(t, 404, "not_found", bob, "GET", path+fmt.Sprint(id), nil)
		}

		// Deleted and blocked ancestors are placeholders, and deleted siblings that keep replies are reached.
		leaf := a.newReply(t, carol, second[2].ID)
		a.must(t, 204, bob, "DELETE", pathOf(second[1]), nil)
		a.must(t, 204, bob, "DELETE", pathOf(second[2]), nil)
		a.must(t, 200, carol, "PUT", userPath(ada)+"/block", nil)
		a.must(t, 200, carol, "PUT", userPath(bob)+"/block", nil)
		for _, as := range []account{{}, carol} {
			list = around(as, third[1].ID, "")
			first := only(list.page)
			next := only(first.Replies)
			assert.Equal(t, "deleted", next.Status)
			assert.Empty(t, next.Content)
			if as == carol {
				assert.Equal(t, "blocked", first.Status)
				assert.Empty(t, first.Content)
			}
			own := only(next.Replies)
			assert.Equal(t, "normal", own.Status, "who asks for it wants to read it")
			assert.NotEmpty(t, own.Content)
			assert.Equal(t, []int64{second[2].ID}, rest(pathOf(first.comment)+"/replies", first.Replies))
		}
		assert.Equal(t, leaf.ID, only(only(only(around(carol, leaf.ID, "").page).Replies).Replies).ID)
		a.refused(t, 404, "not_found", ada, "GET", path+fmt.Sprint(second[1].ID), nil)
		a.must(t, 204, ada, "DELETE", pathOf(p), nil)
		a.refused(t, 404, "not_found", ada, "GET", path+fmt.Sprint(third[1].ID), nil)
	})
}

// TestThread_aroundReachesEverythingLater compares what follows the path of a comment with the lists.
func TestThread_aroundReachesEverythingLater(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	p := a.newPost(t, ada)
	size := 600
	base := a.plant(t, ada, p.ID, deepThread(size))
	deepest := a.number(t, "SELECT MAX(id) FROM comments WHERE depth=?", models.MaxDepth)
	for _, sort := range []string{"old", "new", "top"} {
		all := a.follow(t, pathOf(p)+"/thread?sort="+sort, func() {})
		require.Len(t, all, size)
		for _, id := range []int64{base + 1, base + 100, base + int64(size)/2, deepest} {
			seen := a.follow(t, fmt.Sprintf("%s/thread?sort=%s&around=%d", pathOf(p), sort, id), func() {})
			require.Equal(t, 1, seen[id])
			for id, n := range seen {
				require.Equal(t, 1, n, "comment %d", id)
			}
			// What is not seen comes before the path, in its own list or in that of an ancestor.
			var path []int64
			for at := id; at != 0; at = a.number(t, "SELECT COALESCE(parent_id,0) FROM comments WHERE id=?", at) {
				path = append(path, at)
			}
			for _, at := range path {
				for _, sibling := range a.siblings(t, at, sort) {
					require.Equal(t, 1, seen[sibling], "%s: %d follows %d", sort, sibling, at)
				}
			}
		}
	}
}

// siblings returns a comment and those that follow it in its list.
func (a *api) siblings(t *testing.T, id int64, sort string) (ids []int64) {
	t.Helper()
	later := map[string]string{
		"old": "(s.created_at, s.id) >= (c.created_at, c.id)",
		"new": "(s.created_at, s.id) <= (c.created_at, c.id)",
		"top": "(s.likes_count, s.id) <= (c.likes_count, c.id)",
	}[sort]
	rows, err := a.store.Pool().Query(`
		SELECT s.id
		FROM comments c
		JOIN comments s ON s.post_id=c.post_id AND s.parent_id<=>c.parent_id AND `+later+`
		WHERE c.id=?`, id)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var id int64
		require.NoError(t, rows.Scan(&id))
		ids = append(ids, id)
	}
	require.NoError(t, rows.Err())
	return ids
}

// A path that is too large for a page ends early, with a cursor.
func TestThread_aroundEndsEarlyIfThePathIsTooLarge(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	p := a.newPost(t, ada)
	long := strings.Repeat("long ", models.MaxContent/5)
	c := read[comment](t, a.must(t, 201, ada, "POST", pathOf(p)+"/comments", obj{"content": long}))
	for range 20 {
		c = read[comment](t, a.must(t, 201, ada, "POST", pathOf(c)+"/replies", obj{"content": long}))
	}
	r := a.must(t, 200, ada, "GET", fmt.Sprintf("%s/thread?around=%d", pathOf(p), c.ID), nil)
	assert.LessOrEqual(t, len(r.Body), 1<<20)
	at := read[page[tree]](t, r)
	for len(at.Items) > 0 {
		require.Len(t, at.Items, 1)
		at = at.Items[0].Replies
	}
	assert.NotNil(t, at.NextCursor)
}
