package db_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/people"
	"likewise/models/reader"
)

// Posts that are read together are those that are read alone, and the server reads the rows of these alone.
func TestPostsByID_readsThesePosts(t *testing.T) {
	t.Parallel()
	const atOnce = 20
	store := openWith(t, db.Options{MaxConns: 1})
	ada := newUser(t, store, "ada")
	var ids []int64
	for i := range 5 * atOnce {
		text := models.PostText{Title: fmt.Sprintf("Post %d", i), Content: "Text", Tags: models.Tags{"a", "b"}}
		p, err := content.New(store).CreatePost(t.Context(), ada, text)
		require.NoError(t, err)
		if i%5 == 0 {
			ids = append(ids, p.ID)
		}
	}
	require.NoError(t, content.New(store).DeletePost(t.Context(), ada.ID, ids[1]))
	_, err := content.New(store).PostsByID(t.Context(), ids) // opens the tables
	require.NoError(t, err)
	before := rowsRead(t, store)
	posts, err := content.New(store).PostsByID(t.Context(), append([]int64{1 << 40}, ids...))
	require.NoError(t, err)
	assert.Less(t, rowsRead(t, store)-before, 16*atOnce) // with the author, and two rows for each tag
	assert.Len(t, posts, len(ids)-1)
	for id, p := range posts {
		alone, err := content.New(store).PostByID(t.Context(), 0, id)
		require.NoError(t, err)
		assert.Equal(t, alone, p)
	}
	assert.NotContains(t, posts, ids[1])
}

// Viewpoints that are read together are those of each user, at the cost of an entry of each index.
func TestViewpoints_areThoseOfEachUser(t *testing.T) {
	t.Parallel()
	const readers = 20
	store := openWith(t, db.Options{MaxConns: 1})
	ada := newUser(t, store, "ada")
	post := newPost(t, store, ada)
	var ids []int64
	want := map[int64]models.Viewpoint{}
	for i := range readers {
		u := newUser(t, store, fmt.Sprintf("reader%d", i))
		ids = append(ids, u.ID)
		var view models.Viewpoint
		switch i % 5 {
		case 0:
			require.NoError(t, people.New(store).Block(t.Context(), u.ID, ada.ID))
			view.Blocks = true
		case 1:
			require.NoError(t, reader.New(store).SetBookmark(t.Context(), u.ID, post.ID, true))
			view.Bookmarks = true
		case 2:
			require.NoError(t, reader.New(store).MarkRead(t.Context(), u.ID, post.ID, 0))
			view.HasReaderStates = true
		case 3:
			require.NoError(t, people.New(store).SetSubscription(t.Context(), u.ID, post.ID, models.Muted))
			view.HasReaderStates = true
		}
		want[u.ID] = view
	}
	var bookmarks []string
	for i := range 1000 { // of one reader, of which one row is enough
		bookmarks = append(bookmarks, fmt.Sprintf("(%d, %d)", ids[1], post.ID+int64(i)+1))
	}
	_, err := patient(store).Exec("INSERT INTO bookmarks (user_id, post_id) VALUES " + strings.Join(bookmarks, ","))
	require.NoError(t, err)
	_, err = reader.New(store).Viewpoints(t.Context(), ids) // opens the tables
	require.NoError(t, err)
	before := rowsRead(t, store)
	views, err := reader.New(store).Viewpoints(t.Context(), append([]int64{1 << 40}, ids...))
	require.NoError(t, err)
	assert.Less(t, rowsRead(t, store)-before, 10*readers)
	assert.Equal(t, want, views)
}
