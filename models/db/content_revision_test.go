package db_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/likes"
	"likewise/models/search"
)

func TestRevisions_keepWhatAnEditReplaces(t *testing.T) {
	t.Parallel()
	now := past
	store := openWith(t, db.Options{Now: func() time.Time { return now }})
	ada, mod := newUser(t, store, "ada"), newUser(t, store, "mod")
	p, err := content.New(store).CreatePost(t.Context(), ada,
		models.PostText{Title: "T0", Content: "C0", Tags: models.Tags{"a", "b"}})
	require.NoError(t, err)
	want := []string{"0 ada T0 C0 [a b] " + now.Format(time.TimeOnly)}
	for i, editor := range []models.Author{ada, mod, ada, mod} {
		now = now.Add(time.Hour)
		tags := models.Tags{fmt.Sprint("t", i)}
		_, err := content.New(store).UpdatePost(t.Context(), editor.ID, p.ID, int64(i), models.PostText{
			Title: fmt.Sprint("T", i+1), Content: fmt.Sprint("C", i+1), Tags: tags})
		require.NoError(t, err)
		want = append(want,
			fmt.Sprintf("%d %s T%d C%d %v %s", i+1, editor.Username, i+1, i+1, tags, now.Format(time.TimeOnly)))
		// Counting must not move the time of a version.
		now = now.Add(time.Minute)
		_, err = likes.New(store).SetLike(t.Context(), models.Target{Kind: models.KindPost, ID: p.ID}, mod.ID, i%2 == 0)
		require.NoError(t, err)
		newComment(t, store, mod, p, nil)
	}
	target := models.Target{Kind: models.KindPost, ID: p.ID}
	for limit := 1; limit <= 6; limit++ {
		var got []string
		for before := int64(0); ; {
			page, err := content.New(store).ListRevisions(t.Context(),
				content.RevisionQuery{Target: target, Before: before, Limit: limit})
			require.NoError(t, err)
			for _, light := range page {
				r, err := content.New(store).RevisionOf(t.Context(), content.RevisionQuery{Target: target},
					light.Version)
				require.NoError(t, err)
				assert.Empty(t, light.Content)
				assert.EqualValues(t, len(r.Content), light.Size)
				if light.Version > 0 {
					assert.Equal(t, []string{"title", "content", "tags"}, light.Changed.Names())
				} else {
					assert.Empty(t, light.Changed.Names())
				}
				got = append(
					[]string{
						fmt.Sprintf("%d %s %s %s %v %s", r.Version, r.Editor.Username, r.Title, r.Content,
							[]string(r.Tags), r.CreatedAt.Format(time.TimeOnly)),
					},
					got...)
				before = r.Version
			}
			if len(page) < limit || before == 0 {
				break
			}
		}
		assert.Equal(t, want, got, "by %d", limit)
	}
	require.NoError(t, content.New(store).DeletePost(t.Context(), 0, p.ID))
	_, err = content.New(store).ListRevisions(t.Context(), content.RevisionQuery{Target: target, Limit: 10})
	assert.Equal(t, models.CodeNotFound, models.ErrorCode(err))
	_, err = content.New(store).RevisionOf(t.Context(), content.RevisionQuery{Target: target}, 0)
	assert.Equal(t, models.CodeNotFound, models.ErrorCode(err))
	_, err = content.New(store).ListRevisions(t.Context(),
		content.RevisionQuery{Target: models.Target{Kind: models.KindPost, ID: 999}, Limit: 10})
	assert.Equal(t, models.CodeNotFound, models.ErrorCode(err))
}

func TestRestorePost(t *testing.T) {
	t.Parallel()
	now := past
	store := openWith(t, db.Options{Now: func() time.Time { return now }})
	ada, bob := newUser(t, store, "ada"), newUser(t, store, "bob")
	restore := func(as models.Author, p *models.Post) models.Code {
		got, err := content.New(store).RestorePost(t.Context(), as.ID, p.ID)
		if err != nil {
			return models.ErrorCode(err)
		}
		assert.Equal(t, p.Tags, got.Tags)
		assert.Equal(t, p.UpdatedAt, got.UpdatedAt)
		return ""
	}
	deleted := func(by models.Author, ago time.Duration) *models.Post {
		p := tagged(t, store, ada, "go")
		now = now.Add(-ago)
		require.NoError(t, content.New(store).DeletePost(t.Context(), by.ID, p.ID))
		now = now.Add(ago)
		return p
	}
	own := deleted(ada, models.RestoreWithin)
	assert.Equal(t, models.CodeNotFound, restore(bob, own), "to others it is not there")
	assert.Empty(t, restore(ada, own))
	assert.Empty(t, restore(ada, own), "again")
	assert.Equal(t, models.CodeTooLate, restore(ada, deleted(ada, models.RestoreWithin+time.Second)))
	assert.Equal(t, models.CodeForbidden, restore(ada, deleted(bob, 0)))
	assert.Equal(t, models.CodeTooLate, restore(ada, deleted(models.Author{}, 0)),
		"deleted before anybody kept when and by whom")
	assert.Equal(t, models.CodeNotFound, restore(ada, &models.Post{ID: 999}))
	assert.Equal(t, 1, count(t, store, "SELECT posts_count FROM tags WHERE name='go'"))
	page, err := content.New(store).ListPosts(t.Context(),
		content.PostQuery{Sort: models.PostsRelevance, Terms: search.QueryTerms("text"), Limit: 10})
	require.NoError(t, err)
	require.Len(t, page.Posts, 1, "a search finds what is restored and nothing that is deleted")
	assert.Equal(t, own.ID, page.Posts[0].ID)
	require.NoError(t, content.New(store).DeletePost(t.Context(), ada.ID, own.ID))
	assert.Zero(t, count(t, store, "SELECT COUNT(*) FROM post_terms"))
}
