package counters

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
)

// Viewers who ask for the same targets while Redis answers share a call, and each sees what is the viewer's own: of a
// target in one set, of one in many sets, and of a cold one.
func TestStatesOf_viewersShareACall(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	small, large, cold := f.post(t), f.post(t), f.post(t)
	const viewers = 2*maxViewers + 10
	for _, target := range []models.Target{small, large} {
		users := make([]int64, 0, 2*viewers)
		for user := int64(7); user < 7+2*viewers; user += 2 { // the odd ones
			users = append(users, user)
		}
		if target == small {
			users = users[:3]
		}
		warmUp(t, f.redis, target, users...)
	}
	states, err := f.redis.TargetStates(t.Context(), []models.Target{small, large})
	require.NoError(t, err)
	require.Equal(t, 1, states[0].Sets)
	require.Greater(t, states[1].Sets, 1)

	trips := countTrips(t, f.redis)
	var all sync.WaitGroup
	for viewer := range int64(viewers) {
		all.Go(func() {
			got := f.held(t.Context(), viewer, []models.Target{small, large, cold})
			odd := viewer >= 7 && viewer%2 == 1
			few := models.LikeState{Count: 3, Liked: odd && viewer < 13}
			assert.Equal(t, few, got[0].LikeState, "viewer %d", viewer)
			assert.Equal(t, models.LikeState{Count: viewers, Liked: odd}, got[1].LikeState, "viewer %d", viewer)
			assert.True(t, got[0].known && got[1].known && !got[2].known && got[2].cold, "viewer %d", viewer)
		})
	}
	all.Wait()
	assert.Less(t, trips.Load(), int64(viewers/2), "each viewer made a call")
}
