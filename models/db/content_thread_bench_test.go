package db_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"likewise/models"
	"likewise/models/content"
)

// BenchmarkComments reads pages of 100 of 10,000 siblings with four replies each, the first one and one behind 9,000,
// in turns; then threads.
func BenchmarkComments(b *testing.B) {
	store := openStore(b)
	ada := newUser(b, store, "ada")
	post := newPost(b, store, ada)
	var rows []string
	for i := range 50_000 {
		parent, depth, replies := "NULL", 1, 4
		if i >= 10_000 {
			parent, depth, replies = fmt.Sprint(i%10_000+1), 2, 0
		}
		rows = append(
			rows,
			fmt.Sprintf("(%d,%d,%d,%s,%d,%d,REPEAT('word ',40),FROM_UNIXTIME(%d),%d)",
				i+1, post.ID, ada.ID, parent, depth, replies, past.Unix()+int64(i), i%7),
		)
	}
	for batch := range slices.Chunk(rows, 2000) {
		exec(b, store, `
			INSERT INTO comments
				(id, post_id, user_id, parent_id, depth, replies_count, content, created_at, likes_count)
			VALUES `+strings.Join(batch, ","))
	}
	exec(b, store, "ANALYZE TABLE comments")
	for _, sort := range []models.CommentSort{models.CommentsOld, models.CommentsNew, models.CommentsTop} {
		page := func(after *models.ListKey) []models.Comment {
			list, _, err := content.New(store).ListComments(b.Context(),
				content.CommentQuery{ViewerID: ada.ID, PostID: post.ID, Sort: sort, After: after, Limit: 100})
			require.NoError(b, err)
			return list
		}
		var far models.ListKey
		for range 90 {
			after := &far
			if far.ID == 0 {
				after = nil
			}
			list := page(after)
			far = list[len(list)-1].Key(sort)
		}
		b.Run("list/"+string(sort), func(b *testing.B) {
			var took, replies [2]time.Duration
			for b.Loop() {
				for i, after := range []*models.ListKey{nil, &far} {
					start := time.Now()
					list := page(after)
					took[i] += time.Since(start)
					start = time.Now()
					require.NoError(b, content.New(store).FirstReplies(b.Context(), ada.ID, list, 3))
					replies[i] += time.Since(start)
					if len(list) != 100 || len(list[99].Replies) != 3 || !list[99].More {
						b.Fatalf("%d comments with %d replies", len(list), len(list[99].Replies))
					}
				}
			}
			ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 / float64(b.N) }
			b.ReportMetric(ms(took[0]), "ms/first")
			b.ReportMetric(ms(took[1]), "ms/far")
			b.ReportMetric(float64(took[1])/float64(took[0]), "far/first")
			b.ReportMetric(ms(replies[0]+replies[1])/2, "ms/replies")
		})
	}
	for _, limit := range []int{100, 500} {
		b.Run(fmt.Sprintf("thread/%d", limit), func(b *testing.B) {
			for b.Loop() {
				if _, _, err := content.New(store).Thread(
					b.Context(),
					models.ThreadQuery{
						ViewerID: ada.ID,
						PostID:   post.ID,
						Sort:     models.CommentsOld,
						Depth:    3,
						Limit:    limit,
					},
				); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
