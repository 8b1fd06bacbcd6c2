package db_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/likes"
)

// hotScores compares hot_score of every post with models.HotScore of its count.
func (l shardLog) hotScores() {
	l.t.Helper()
	rows, err := l.store.Pool().QueryContext(l.t.Context(), "SELECT id, created_at, likes_count, hot_score FROM posts")
	require.NoError(l.t, err)
	defer rows.Close()
	for rows.Next() {
		var id, likes, score int64
		var at time.Time
		require.NoError(l.t, rows.Scan(&id, &at, &likes, &score))
		assert.Equal(l.t, models.HotScore(at, likes), score, "hot_score of post %d with %d likes", id, likes)
	}
	require.NoError(l.t, rows.Err())
}

func TestHotScore_followsTheLikes(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	l.hotScores()
	var log []models.LikeRecord
	for user := int64(1); user <= 11; user++ {
		log = append(log, l.at(1, user, user, true))
	}
	l.apply(log...)
	l.hotScores()
	assert.Equal(t, 46_863, count(t, l.store, "SELECT hot_score-UNIX_TIMESTAMP(created_at) FROM posts"), "eleven likes")
	l.apply(l.at(1, 12, 1, false))
	l.hotScores()
	_, err := likes.New(l.store).SetLike(t.Context(), l.target, 2, false)
	require.NoError(t, err)
	l.hotScores()
	_, err = likes.New(l.store).SetLike(t.Context(), l.target, 99, true)
	require.NoError(t, err)
	l.hotScores()

	tally := func() models.TargetTally {
		tally, _, err := likes.New(l.store).TallyOf(t.Context(), l.target)
		require.NoError(t, err)
		return tally
	}
	assert.Equal(t, tally().HotWant, tally().HotScore)
	_, err = l.store.Pool().ExecContext(t.Context(), "UPDATE posts SET hot_score=7")
	require.NoError(t, err)
	assert.Equal(t, int64(7), tally().HotScore)
	require.NoError(t, likes.New(l.store).Recount(t.Context(), l.target))
	l.hotScores()
	assert.Equal(t, tally().HotWant, tally().HotScore)
}

// TestHotScore_isTheSameInGoAndInTheDatabase uses the statement that counts, for every number of likes up to 100,000
// and for the powers of ten above.
func TestHotScore_isTheSameInGoAndInTheDatabase(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	ada := newUser(t, store, "ada")
	var counts []int64
	for i := int64(0); i <= 100_000; i += int64(testkit.Volume(1, 7)) {
		counts = append(counts, i)
	}
	for power := int64(1_000_000); power <= 1_000_000_000; power *= 10 {
		counts = append(counts, power-1, power, power+1)
	}
	counts = append(counts, 1<<31-1)
	for start := 0; start < len(counts); start += 5000 {
		var rows []string
		for _, likes := range counts[start:min(start+5000, len(counts))] {
			rows = append(rows, fmt.Sprintf("(%d,'t','c',%d,'2020-02-03 04:05:06')", ada.ID, likes))
		}
		_, err := store.Pool().ExecContext(t.Context(),
			"INSERT INTO posts (user_id, title, content, likes_count, created_at) VALUES "+strings.Join(rows, ","))
		require.NoError(t, err)
	}
	wrong, after := 0, int64(0)
	for {
		tallies, err := likes.New(store).Tally(t.Context(), models.KindPost, after, 5000)
		require.NoError(t, err)
		if len(tallies) == 0 {
			break
		}
		for _, tally := range tallies {
			after = tally.ID
			if want := models.HotScore(past, tally.Likes); tally.HotWant != want {
				if wrong++; wrong < 5 {
					t.Errorf("%d likes: the database says %d, Go %d", tally.Likes, tally.HotWant, want)
				}
			}
		}
	}
	var highest sql.NullInt64
	require.NoError(t, store.Pool().QueryRowContext(t.Context(), "SELECT MAX(likes_count) FROM posts").Scan(&highest))
	assert.Equal(t, int64(1<<31-1), highest.Int64)
}
