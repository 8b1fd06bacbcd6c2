package handlers_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
)

// idsOf returns the ids of all comments of a list, and how many requests it took to read them.
func (a *api) idsOf(t *testing.T, as account, path string) (ids []int64, requests int) {
	t.Helper()
	for cursor := ""; ; {
		p := read[page[comment]](t, a.must(t, 200, as, "GET", path+cursor, nil))
		requests++
		for _, c := range p.Items {
			ids = append(ids, c.ID)
		}
		if p.NextCursor == nil {
			return ids, requests
		}
		cursor = "&cursor=" + *p.NextCursor
	}
}

func TestFlatComments_areAllInTheOrderWritten(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada, bob, carol := a.account(t), a.account(t), a.account(t)
		p := a.newPost(t, ada)
		flat := pathOf(p) + "/comments?flat=true"
		none := read[page[comment]](t, a.must(t, 200, account{}, "GET", flat, nil))
		assert.Empty(t, none.Items)
		var all []comment
		for i := range 12 { // a chain, and a branch at the top level
			if i%5 == 0 {
				all = append(all, a.newComment(t, ada, p.ID))
			} else {
				all = append(all, a.newReply(t, []account{ada, bob}[i%2], all[i-1].ID))
			}
		}
		var want []int64
		for _, c := range all {
			want = append(want, c.ID)
		}
		for _, as := range []account{{}, bob} {
			for limit, requests := range map[int]int{1: 12, 5: 3, 12: 1, 100: 1} {
				path := fmt.Sprintf("%s&limit=%d", flat, limit)
				ids, n := a.idsOf(t, as, path)
				assert.Equal(t, want, ids, path)
				assert.Equal(t, requests, n, path)
				ids, _ = a.idsOf(t, as, path+"&sort=new")
				slices.Reverse(ids)
				assert.Equal(t, want, ids, path)
			}
		}
		after := func(sort string, id int64) []int64 {
			ids, _ := a.idsOf(t, bob, fmt.Sprintf("%s&sort=%s&after=%d&limit=3", flat, sort, id))
			return ids
		}
		assert.Equal(t, want[5:], after("old", want[4]))
		assert.Empty(t, after("old", want[11]))
		assert.Equal(t, []int64{want[1], want[0]}, after("new", want[2]))

		// A reader without a mark begins at the first comment, and others after their mark.
		unread := func() []int64 {
			ids, _ := a.idsOf(t, carol, flat+"&unread=true&limit=5")
			return ids
		}
		assert.Equal(t, want, unread())
		a.markRead(t, carol, p.ID, obj{"comment_id": want[6]})
		assert.Equal(t, want[7:], unread())

		// A deleted comment with replies stays as it does elsewhere, and one without does not.
		a.must(t, 204, ada, "DELETE", pathOf(all[0]), nil)
		last := all[11]
		a.must(t, 204, []account{ada, bob}[11%2], "DELETE", pathOf(last), nil)
		first := read[page[comment]](t, a.must(t, 200, bob, "GET", flat, nil)).Items
		assert.Len(t, first, 11)
		assert.Equal(t, "deleted", first[0].Status)
		assert.Nil(t, first[0].Author)
		a.must(t, 204, ada, "DELETE", pathOf(p), nil)
		a.refused(t, 404, "not_found", bob, "GET", flat, nil)
	})
}

func TestFlatComments_refuseWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	path := pathOf(a.newPost(t, ada)) + "/comments?"
	top := read[page[comment]](t, a.must(t, 200, ada, "GET", path, nil))
	assert.Empty(t, top.Items)
	for query, field := range map[string]string{
		"flat=maybe": "flat", "flat=true&sort=top": "sort", "after=1": "after", "unread=true": "unread",
		"flat=true&after=0": "after", "flat=true&after=x": "after", "flat=true&after=1&unread=true": "after",
		"flat=true&unread=true&sort=new": "unread",
	} {
		a.refusedField(t, 422, "invalid", field, ada, "GET", path+query, nil)
	}
	a.refused(t, 401, "unauthorized", account{}, "GET", path+"flat=true&unread=true", nil)
}
