package db_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/content"
	"likewise/models/likes"
)

// BenchmarkApplyLikes writes full batches: all likes of one post; one like of each of many posts that had some before,
// without tags and with as many as a post can have; and the first like of each, which notifies their author.
func BenchmarkApplyLikes(b *testing.B) {
	const batch = 2000
	for _, c := range []struct {
		name    string
		targets int
		before  int64 // likes that each has
		tags    models.Tags
	}{
		{"hot", 1, 100, nil},
		{"wide", batch, 2, nil},
		{"wide, 5 tags", batch, 2, models.Tags{"a", "b", "c", "d", "e"}},
		{"first", batch, 0, nil},
	} {
		b.Run(c.name, func(b *testing.B) {
			store := openStore(b)
			author := newUser(b, store, "ada")
			next := map[int]int64{} // by shard
			var opened []models.LikeRecord
			for shard := range store.Shards() {
				opened, next[shard] = append(opened, models.LikeRecord{
					Shard:  shard,
					Pos:    models.Position{Epoch: 1},
					Events: []models.Event{{Type: models.ShardOpened}},
				}), 1
			}
			if _, err := likes.New(store).ApplyLikes(b.Context(), opened); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				b.StopTimer()
				testkit.AddUsers(b, store.Pool(), 1, batch)
				ids := make([]int64, c.targets)
				for i := range ids {
					post, err := content.New(store).CreatePost(b.Context(), author,
						models.PostText{Title: "A post", Content: "with text", Tags: c.tags})
					require.NoError(b, err)
					ids[i] = post.ID
				}
				if _, err := store.Pool().ExecContext(b.Context(), "UPDATE posts SET likes_count=?",
					c.before); err != nil {
					b.Fatal(err)
				}
				records := make([]models.LikeRecord, batch)
				for i := range records {
					event := models.LikeEvent(models.Target{Kind: models.KindPost, ID: ids[i%len(ids)]}, int64(i+1),
						true, past)
					shard := event.Target().Shard(store.Shards())
					records[i] = models.LikeRecord{
						Shard:  shard,
						Pos:    models.Position{Epoch: 1, Seq: next[shard]},
						Events: []models.Event{event},
					}
					next[shard]++
				}
				b.StartTimer()
				done, err := likes.New(store).ApplyLikes(b.Context(), records)
				if err != nil || done.Inserted != batch || done.Gaps != 0 {
					b.Fatalf("%+v, %v", done, err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/batch, "µs/like")
		})
	}
}
