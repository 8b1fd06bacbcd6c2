package db_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"likewise/models"
	"likewise/models/db"
)

// BenchmarkViews measures pages of twenty posts in each view, for texts of several lengths. The two are read by turns;
// the times are medians.
//
//	go test -tags dev ./models -run '^$' -bench Views -benchtime 200x
func BenchmarkViews(b *testing.B) {
	for _, length := range []int{300, 2_000, 20_000} {
		b.Run(fmt.Sprint(length), func(b *testing.B) {
			store := openStore(b)
			ada, bob := newUser(b, store, "ada"), newUser(b, store, "bob")
			for range 100 {
				newComment(b, store, bob, newPost(b, store, ada), nil)
			}
			exec(b, store, "UPDATE posts SET content=REPEAT('All the words of a post. ',? DIV 25)", length)
			exec(b, store, "UPDATE posts SET excerpt=LEFT(content,?)", models.MaxExcerpt)
			read := func(view db.PostView) time.Duration {
				started := time.Now()
				q := db.PostQuery{View: view, Sort: models.PostsNew, Limit: 21}
				page, err := store.ListPosts(b.Context(), q)
				require.NoError(b, err)
				require.Len(b, page.Posts, 21)
				return time.Since(started)
			}
			times := map[db.PostView][]time.Duration{}
			for range b.N {
				for _, view := range []db.PostView{db.ViewSummary, db.ViewFull} {
					times[view] = append(times[view], read(view))
				}
			}
			b.ReportMetric(0, "ns/op")
			for view, list := range times {
				slices.Sort(list)
				b.ReportMetric(float64(list[len(list)/2].Microseconds()), "µs/"+string(view))
			}
		})
	}
}
