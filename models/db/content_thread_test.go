package db_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/content"
)

// The first replies of many comments that have few are one range of an index. If more are hidden than the comments
// count, or the content does not fit, each comment has a limited read of its own. Both return the same.
func TestFirstReplies_ofFewAndOfMany(t *testing.T) {
	t.Parallel()
	store, log := openWatched(t, testkit.Database(t))
	ada := newUser(t, store, "ada")
	post := newPost(t, store, ada)
	const parents = 10
	reply := func(parent, n int, status models.Status, content string) string {
		return fmt.Sprintf("(%d,%d,%d,%d,2,%d,%s,FROM_UNIXTIME(%d))",
			1000*parent+n, post.ID, ada.ID, parent, status, content, past.Unix()+int64(n))
	}
	var rows []string
	for i := 1; i <= parents; i++ {
		for n := range i % 4 {
			rows = append(rows, reply(i, n, models.StatusNormal, "'Text.'"))
		}
		exec(t, store, fmt.Sprintf(`
			INSERT INTO comments (id, post_id, user_id, replies_count, content)
			VALUES (%d,%d,%d,%d,'Text.')`, i, post.ID, ada.ID, i%4))
	}
	write := func(rows []string) {
		exec(t, store, `
			INSERT INTO comments (id, post_id, user_id, parent_id, depth, status, content, created_at)
			VALUES `+strings.Join(rows, ","))
	}
	write(rows)
	read := func(each int) (ids []int64, more []bool, selects int) {
		list, _, err := content.New(store).ListComments(t.Context(), content.CommentQuery{PostID: post.ID,
			Limit: parents})
		require.NoError(t, err)
		log.selects()
		require.NoError(t, content.New(store).FirstReplies(t.Context(), 0, list, each))
		for _, query := range log.selects() {
			selects += 1 + strings.Count(query, "UNION ALL")
		}
		for _, c := range list {
			more = append(more, c.More)
			for _, r := range c.Replies {
				ids = append(ids, r.ID)
			}
		}
		return ids, more, selects
	}
	want := []int64{1000, 2000, 2001, 3000, 3001, 3002, 5000, 6000, 6001, 7000, 7001, 7002, 9000, 10000, 10001}
	ids, more, selects := read(3)
	assert.Equal(t, want, ids)
	assert.Equal(t, make([]bool, parents), more)
	assert.Equal(t, 1, selects)
	ids, more, selects = read(2)
	assert.Equal(t, []int64{1000, 2000, 2001, 3000, 3001, 5000, 6000, 6001, 7000, 7001, 9000, 10000, 10001}, ids)
	assert.Equal(t, []bool{false, false, true, false, false, false, true, false, false, false}, more)
	assert.Equal(t, 1, selects)

	rows = nil
	for n := range 150 { // hidden, and before the replies that are not
		rows = append(rows, reply(5, n-500, models.StatusDeleted, "'Text.'"))
	}
	write(rows)
	ids, more, selects = read(3)
	assert.Equal(t, want, ids)
	assert.Equal(t, make([]bool, parents), more)
	assert.Greater(t, selects, parents/2)

	exec(t, store, "DELETE FROM comments WHERE status="+fmt.Sprint(int(models.StatusDeleted)))
	exec(t, store, "UPDATE comments SET content=REPEAT('x', 60000) WHERE parent_id IS NOT NULL")
	long := "REPEAT('x', 65000)"
	write([]string{reply(4, 0, models.StatusNormal, long), reply(8, 0, models.StatusNormal, long)})
	exec(t, store, "UPDATE comments SET replies_count=1 WHERE id IN (4,8)")
	ids, more, selects = read(3)
	assert.Len(t, ids, 17, "they nearly fill the page")
	assert.Equal(t, make([]bool, parents), more)
	assert.Equal(t, 1, selects)
	exec(t, store, "UPDATE comments SET content="+long+" WHERE parent_id IS NOT NULL")
	ids, more, selects = read(3)
	assert.Equal(t, []int64{1000, 2000, 2001, 3000, 3001, 3002, 4000, 5000, 6000, 6001, 7000, 7001, 7002, 8000, 9000,
		10000}, ids)
	assert.Equal(t, []bool{false, false, false, false, false, false, false, false, false, true}, more)
	assert.Greater(t, selects, parents)
}
