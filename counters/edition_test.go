package counters

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An edition that is read after an advance differs from those that were read before it, in every process.
func TestEdition_endsWithEachChangeEverywhere(t *testing.T) {
	t.Parallel()
	const readers, changes = 8, 200
	r, plain := newRedis(t)
	other, err := Open(urlOf(plain), shards)
	require.NoError(t, err)
	t.Cleanup(func() { other.Close() })
	here, there := NewEdition(r), NewEdition(other)
	var ended sync.Map // editions that an advance has ended
	var stop atomic.Bool
	var all sync.WaitGroup
	for range readers {
		all.Go(func() {
			for !stop.Load() {
				gone := map[any]bool{}
				ended.Range(func(edition, _ any) bool { gone[edition] = true; return true })
				edition, err := there.Current(t.Context())
				if err != nil || gone[edition] {
					t.Errorf("edition %d, which had ended, or %v", edition, err)
					return
				}
			}
		})
	}
	for range changes {
		edition, err := here.Current(t.Context())
		require.NoError(t, err)
		require.NoError(t, here.Advance(t.Context()))
		ended.Store(edition, true)
	}
	stop.Store(true)
	all.Wait()
}

func TestEdition_callsThatWaitShareAReading(t *testing.T) {
	t.Parallel()
	const calls = 500
	r, _ := newRedis(t)
	trips := countTrips(t, r)
	e := NewEdition(r)
	before := trips.Load()
	var all sync.WaitGroup
	for range calls {
		all.Go(func() {
			_, err := e.Current(t.Context())
			assert.NoError(t, err)
		})
	}
	all.Wait()
	n := trips.Load() - before
	t.Logf("%d calls took %d round trips", calls, n)
	assert.Less(t, n, int64(calls/4))
	_, err := e.Current(t.Context())
	require.NoError(t, err)
	assert.Equal(t, n+1, trips.Load()-before, "an edition that was read is kept")
}
