package counters

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
)

func TestReassert_sendsTheCurrentState(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	target := f.post(t)
	f.inMySQL(t, target, 7)
	f.like(t, target, 8)
	require.NoError(t, f.Reassert(t.Context(), target, []int64{7, 9, 8}))
	require.Equal(t, []string{"1-0" + opened, "1-1 p1 8", "1-2 p1 7 -9 8"}, entries(t, f.plain, "{s01}:outbox"))
	require.Equal(t, "1-2", dump(t, f.plain)["{s01}:post:1:likes"].(hash)["last"])
}

func TestReassert_splitsManyUsers(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	l := NewLikes(r, nil, LikesOptions{OutboxLimit: 901})
	users := make([]int64, 1000)
	for i := range users {
		users[i] = int64(i + 1)
	}
	require.NoError(t, l.Reassert(t.Context(), post(1), users))
	got := fold(t, t.Context(), plain, 1)[post(1)]
	require.Len(t, got, len(users))
	require.EqualValues(t, 9, plain.XLen(t.Context(), "{s01}:outbox").Val(), "eight parts, after the opening")

	err := l.Reassert(t.Context(), post(1), users[:99])
	requireCode(t, models.CodeUnavailable, err)
	require.EqualValues(t, 9, plain.XLen(t.Context(), "{s01}:outbox").Val())
}

// However low the limit of the outbox is, a gap can be closed.
func TestReassert_fitsASmallOutbox(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	l := NewLikes(r, nil, LikesOptions{OutboxLimit: 1})
	require.NoError(t, l.Reassert(t.Context(), post(1), []int64{1, 2, 3}))
	require.Len(t, fold(t, t.Context(), plain, 1)[post(1)], 3)
	err := l.Reassert(t.Context(), post(1), []int64{4})
	requireCode(t, models.CodeUnavailable, err)
}

func TestReassert_needsAWarmTargetInAnOpenShard(t *testing.T) {
	t.Parallel()
	r, plain := newGate(t)
	l := NewLikes(r, nil, LikesOptions{})
	assert.ErrorIs(t, l.Reassert(t.Context(), post(17), []int64{7}), ErrNotWarm)
	assert.NoError(t, l.Reassert(t.Context(), post(17), nil))
	require.NoError(t, plain.HSet(t.Context(), r.keys(post(33)).likes, "count", 1).Err())
	assert.ErrorIs(t, l.Reassert(t.Context(), post(33), []int64{7}), ErrNotWarm, "damaged")
	closeShard(t, plain, 1)
	err := l.Reassert(t.Context(), post(1), []int64{7})
	assert.ErrorIs(t, err, ErrShardClosed)
	assert.NotErrorIs(t, err, ErrNotWarm)
}
