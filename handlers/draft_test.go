package handlers_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
	"likewise/models/db"
	"likewise/models/reader"
)

// draft is a draft as a client decodes it.
type draft struct {
	Key            string
	PostID         *int64 `json:"post_id"`
	ParentID       *int64 `json:"parent_id"`
	Title, Content string
	Tags           []string
	Version        int64
}

func draftPath(key string) string { return "/v1/me/drafts/" + key }

func TestDrafts_areSavedReadAndDeleted(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada, bob := a.account(t), a.account(t)
	r := a.must(t, 201, ada, "PUT", draftPath("post"), obj{"title": "Half", "tags": []string{"Go", "go"}})
	assert.Equal(t, draft{Key: "post", Title: "Half", Tags: []string{"go"}}, read[draft](t, r))
	r = a.must(t, 200, ada, "GET", draftPath("post"), nil)
	tag := r.Header.Get("ETag")
	assert.Equal(t, "Half", read[draft](t, r).Title)

	// All of it is replaced, by the version that was read alone.
	r = a.must(t, 200, ada, "PUT", draftPath("post"), obj{"content": "More @text <&>\n"}, header{"If-Match", tag})
	assert.Equal(t, draft{Key: "post", Content: "More @text <&>\n", Tags: []string{}, Version: 1}, read[draft](t, r))
	a.refused(t, 412, "precondition_failed", ada, "PUT", draftPath("post"), obj{"content": "Old"},
		header{"If-Match", tag})
	a.refused(t, 428, "if_match_required", ada, "PUT", draftPath("post"), obj{"content": "Blind"})
	a.refused(t, 404, "not_found", ada, "PUT", draftPath("gone"), obj{"content": "Old"}, header{"If-Match", tag})
	r = a.must(t, 200, ada, "PUT", draftPath("post"), obj{"content": "More @text <&>\n"}, header{"If-Match", "*"})
	assert.EqualValues(t, 1, read[draft](t, r).Version, "an edit that changes nothing")

	reply := obj{"post_id": 1, "parent_id": 2, "content": "A reply"}
	got := read[draft](t, a.must(t, 201, ada, "PUT", draftPath("Comment-1.2_x"), reply))
	assert.Equal(t, []int64{1, 2}, []int64{*got.PostID, *got.ParentID})
	list := func(as account) (keys []string) {
		for cursor := ""; ; {
			p := read[page[draft]](t, a.must(t, 200, as, "GET", "/v1/me/drafts?limit=1"+cursor, nil))
			for _, d := range p.Items {
				keys = append(keys, d.Key)
			}
			if p.NextCursor == nil {
				return keys
			}
			cursor = "&cursor=" + *p.NextCursor
		}
	}
	assert.Equal(t, []string{"Comment-1.2_x", "post"}, list(ada))

	// They are the user's alone.
	assert.Empty(t, list(bob))
	a.refused(t, 404, "not_found", bob, "GET", draftPath("post"), nil)
	a.must(t, 204, bob, "DELETE", draftPath("post"), nil)
	a.must(t, 201, bob, "PUT", draftPath("post"), obj{"content": "Bob's"})
	a.refused(t, 401, "unauthorized", account{}, "GET", draftPath("post"), nil)
	for range 2 {
		a.must(t, 204, ada, "DELETE", draftPath("post"), nil)
	}
	assert.Equal(t, []string{"Comment-1.2_x"}, list(ada))
	assert.Equal(t, []string{"post"}, list(bob))
	a.refused(t, 404, "not_found", ada, "GET", draftPath("post"), nil)
}

func TestDrafts_refuseBadInput(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	for field, value := range map[string]any{
		"title": strings.Repeat("x", 201), "content": strings.Repeat("x", 60_001), "tags": []string{"-"},
		"post_id": -1, "parent_id": 1,
	} {
		a.refusedField(t, 422, "invalid", field, ada, "PUT", draftPath("post"), obj{field: value})
	}
	a.refusedField(t, 422, "invalid", "title", ada, "PUT", draftPath("post"), obj{"title": "two\nlines"})
	a.refusedField(t, 422, "invalid", "title", ada, "PUT", draftPath("c"), obj{"title": "A title", "post_id": 1})
	a.refusedField(t, 422, "invalid", "tags", ada, "PUT", draftPath("c"), obj{"tags": []string{"go"}, "post_id": 1})
	a.refused(t, 400, "malformed", ada, "PUT", draftPath("post"), obj{}, header{"If-Match", "v1"})
	for _, key := range []string{"a%20b", "%E9", strings.Repeat("x", 65), "a%2Fb"} {
		for _, method := range []string{"GET", "DELETE"} {
			a.refused(t, 404, "not_found", ada, method, draftPath(key), nil)
		}
		a.refused(t, 404, "not_found", ada, "PUT", draftPath(key), obj{})
	}
	assert.Zero(t, a.number(t, "SELECT COUNT(*) FROM drafts"))
	a.must(t, 201, ada, "PUT", draftPath(strings.Repeat("x", 64)), obj{"content": strings.Repeat("x", 60_000)})
}

func TestDrafts_areBounded(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	for i := range models.MaxDrafts - 1 {
		a.exec(t, "INSERT INTO drafts (user_id, draft_key, title, content, tags) VALUES (?,?,'',?,'')", ada.ID,
			fmt.Sprint("d", i), strings.Repeat("<", 60_000))
	}
	together(8, func(i int) {
		r, err := a.try(ada, "PUT", draftPath(fmt.Sprint("last", i)), obj{})
		if err != nil || r.Status != http.StatusCreated && r.Status != http.StatusConflict {
			t.Errorf("%d %v", r.Status, err)
		}
	})
	assert.EqualValues(t, models.MaxDrafts, a.number(t, "SELECT COUNT(*) FROM drafts"))
	seen := 0
	for path := "/v1/me/drafts?limit=100"; path != ""; {
		r := a.must(t, 200, ada, "GET", path, nil)
		require.LessOrEqual(t, len(r.Body), db.PageBytes)
		p := read[page[draft]](t, r)
		seen += len(p.Items)
		if path = ""; p.NextCursor != nil {
			path = "/v1/me/drafts?limit=100&cursor=" + *p.NextCursor
		}
	}
	assert.Equal(t, models.MaxDrafts, seen)
}

// Of fifty clients that save the same version, one wins.
func TestDrafts_fiftyClientsRaceOne(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	a.must(t, 201, ada, "PUT", draftPath("post"), obj{})
	won := make([]bool, 50)
	together(50, func(i int) {
		r, err := a.try(ada, "PUT", draftPath("post"), obj{"content": fmt.Sprint("By ", i)}, header{"If-Match", `"v0"`})
		if won[i] = r.Status == 200; err != nil || !won[i] && r.Status != 412 {
			t.Errorf("%s %v", r, err)
		}
	})
	got := read[draft](t, a.must(t, 200, ada, "GET", draftPath("post"), nil))
	winners := 0
	for i, ok := range won {
		if ok {
			winners++
			assert.Equal(t, fmt.Sprint("By ", i), got.Content)
		}
	}
	assert.Equal(t, 1, winners)
}

func TestDrafts_arePurged(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	for key, days := range map[string]int{"old": 181, "new": 179} {
		a.must(t, 201, ada, "PUT", draftPath(key), obj{})
		a.exec(t, "UPDATE drafts SET updated_at=? WHERE draft_key=?", time.Now().UTC().AddDate(0, 0, -days), key)
	}
	n, err := reader.New(a.store).PurgeDrafts(t.Context(), 100)
	require.NoError(t, err)
	assert.EqualValues(t, 1, n)
	a.must(t, 200, ada, "GET", draftPath("new"), nil)
	a.refused(t, 404, "not_found", ada, "GET", draftPath("old"), nil)
}

// A text that is posted takes its draft with it, and its answer has what a page shows besides the text.
func TestDrafts_goWithTheTextThatIsPosted(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada, bob := a.account(t), a.account(t)
		p := a.newPost(t, ada)
		save := func(as account, key string) {
			a.must(t, 201, as, "PUT", "/v1/me/drafts/"+key, obj{"post_id": p.ID, "content": "Not yet."})
		}
		for _, key := range []string{"comment", "reply", "post", "kept"} {
			save(bob, key)
		}
		save(ada, "comment")
		type created struct {
			ID       int64
			Comments *int64 `json:"post_comments_count"`
		}
		comments := fmt.Sprintf("/v1/posts/%d/comments", p.ID)
		a.refusedField(t, 422, "invalid", "draft", bob, "POST", comments, obj{"content": "Yes.", "draft": "a b"})
		a.refusedField(t, 422, "invalid", "draft", bob, "POST", comments, obj{"content": "Yes.", "draft": ""})
		c := read[created](t, a.must(t, 201, bob, "POST", comments, obj{"content": "Yes.", "draft": "comment"}))
		assert.EqualValues(t, 1, *c.Comments)
		body := obj{"content": "And yes.", "draft": "reply"}
		reply := fmt.Sprintf("/v1/comments/%d/replies", c.ID)
		first := a.must(t, 201, bob, "POST", reply, body, header{"Idempotency-Key", "a-reply-that-is-sent-twice"})
		assert.EqualValues(t, 2, *read[created](t, first).Comments)
		again := a.must(t, 201, bob, "POST", reply, body, header{"Idempotency-Key", "a-reply-that-is-sent-twice"})
		assert.Equal(t, read[created](t, first), read[created](t, again))
		a.must(t, 201, bob, "POST", "/v1/posts", obj{"title": "T", "content": "C", "draft": "post"})
		left := read[page[struct{ Key string }]](t, a.must(t, 200, bob, "GET", "/v1/me/drafts", nil)).Items
		assert.Equal(t, []struct{ Key string }{{"kept"}}, left)
		assert.Len(t, read[page[obj]](t, a.must(t, 200, ada, "GET", "/v1/me/drafts", nil)).Items, 1)
		assert.Nil(t, read[created](t, a.must(t, 200, bob, "GET", fmt.Sprintf("/v1/comments/%d", c.ID), nil)).Comments)
	})
}
