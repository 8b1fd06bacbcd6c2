package workers

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
)

// Evicting a target whose last like is on its way would lose it: the target would be loaded without it.
func TestCool_waitsForLikesThatAreOnTheirWay(t *testing.T) {
	t.Parallel()
	p := setup(t)
	stop := p.start()
	target := p.post()
	p.set(target, 1, true)
	p.set(target, 2, true)
	p.flush()
	stop()
	p.set(target, 1, false)
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := Cool(short, p.redis, p.store, target)
	require.ErrorIs(t, err, errStaysWarm)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.EqualValues(t, 1, p.raw.Exists(t.Context(), p.likesKey(target)).Val())

	cooled := make(chan error, 1)
	go func() { cooled <- Cool(t.Context(), p.redis, p.store, target) }()
	p.start()
	require.NoError(t, <-cooled)
	assert.Equal(t, []int64{2}, p.likers(target))
	p.exec("DELETE FROM post_likes WHERE user_id=2")
	p.exec("UPDATE posts SET likes_count=0")
	assert.EqualValues(t, 1, p.set(target, 3, true).Count, "it is read from MySQL again")
	require.NoError(t, Cool(t.Context(), p.redis, p.store, p.post()), "one that was never warm")
}

func TestCool_waitsForGaps(t *testing.T) {
	t.Parallel()
	p := setup(t)
	stop := p.start()
	target := p.postIn(6)
	p.set(target, 1, true)
	p.flush()
	stop()
	p.set(target, 2, true)
	p.loseOutbox(6)
	p.set(target, 3, true)
	p.start()
	p.flush()
	require.Equal(t, 1, p.openGaps())
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, Cool(short, p.redis, p.store, target), "has 1 gaps")
	_, err := NewReconciler(p.redis, p.store, p.likes).Reconcile(t.Context())
	require.NoError(t, err)
	require.NoError(t, Cool(t.Context(), p.redis, p.store, target))
	assert.Equal(t, []int64{1, 2, 3}, p.likers(target))
}

// While a load is under way, what it has read may be older than the operator's change.
func TestCool_ofATargetWhoseShardIsClosed(t *testing.T) {
	t.Parallel()
	p := setup(t)
	target := p.postIn(6)
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, Cool(short, p.redis, p.store, target), "the shard is closed")
	p.start()
	testkit.Eventually(t, patience, func() (bool, string) {
		return Cool(t.Context(), p.redis, p.store, target) == nil, "not cold"
	})
}
