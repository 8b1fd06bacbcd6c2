package db_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"likewise/models"
	"likewise/models/content"
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
			read := func(view content.PostView) time.Duration {
				started := time.Now()
				q := content.PostQuery{View: view, Sort: models.PostsNew, Limit: 21}
				page, err := content.New(store).ListPosts(b.Context(), q)
				require.NoError(b, err)
				require.Len(b, page.Posts, 21)
				return time.Since(started)
			}
			times := map[content.PostView][]time.Duration{}
			for range b.N {
				for _, view := range []content.PostView{content.ViewSummary, content.ViewFull} {
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
