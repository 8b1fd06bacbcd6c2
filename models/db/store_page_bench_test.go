package db_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/content"
)

// BenchmarkPage1000 measures page 1,000 of a list of 100,000 posts, as a multiple of page 1 (medians, twenty
// posts a page, the two read by turns).
//
//	go test ./models -run '^$' -bench Page1000 -benchtime 200x
func BenchmarkPage1000(b *testing.B) {
	const size, skip = 20, 999 * 20
	store, _ := openWatched(b, testkit.Database(b))
	fillLarge(b, store)
	list := func(b *testing.B, q content.PostQuery) content.PostPage {
		b.Helper()
		page, err := content.New(store).ListPosts(b.Context(), q)
		require.NoError(b, err)
		return page
	}
	for name, q := range map[string]content.PostQuery{
		"new": {Sort: models.PostsNew}, "hot": {Sort: models.PostsHot}, "top": {Sort: models.PostsTop},
		"active":              {Sort: models.PostsActive},
		"new, with a tag":     {Sort: models.PostsNew, Tag: "tag1"},
		"hot, with a tag":     {Sort: models.PostsHot, Tag: "tag1"},
		"relevance, one word": {Sort: models.PostsRelevance, Terms: []string{"common"}},
		"new, one word":       {Sort: models.PostsNew, Terms: []string{"common"}},
	} {
		q.ViewerID = 1
		far := q
		for read := 0; read < skip; {
			far.Limit = min(1000, skip-read)
			page := list(b, far)
			require.Len(b, page.Posts, far.Limit)
			key := page.Key(&page.Posts[len(page.Posts)-1])
			far.After = &key
			read += far.Limit
		}
		q.Limit, far.Limit = size, size
		b.Run(name, func(b *testing.B) {
			var near, distant []time.Duration
			for range b.N {
				started := time.Now()
				require.Len(b, list(b, q).Posts, size)
				between := time.Now()
				require.Len(b, list(b, far).Posts, size)
				near, distant = append(near, between.Sub(started)), append(distant, time.Since(between))
			}
			slices.Sort(near)
			slices.Sort(distant)
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(float64(near[len(near)/2].Microseconds()), "µs/page1")
			b.ReportMetric(float64(distant[len(distant)/2].Microseconds()), "µs/page1000")
			b.ReportMetric(float64(distant[len(distant)/2])/float64(near[len(near)/2]), "page1000/page1")
		})
	}
}
