package rounds

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// No call gets a result of a run that began before the call.
func TestDo_returnsNothingOlderThanTheCall(t *testing.T) {
	t.Parallel()
	var g Group[int64]
	var runs, value atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 500 {
				at := value.Add(1)
				got, err := g.Do(t.Context(), "key", func() (int64, error) {
					runs.Add(1)
					return value.Load(), nil
				})
				if err != nil || got < at {
					t.Errorf("%d, %v, at %d", got, err, at)
				}
			}
		})
	}
	all.Wait()
	assert.LessOrEqual(t, runs.Load(), int64(4000))
	assert.Empty(t, g.batch.keys, "keys are kept")
}

func TestDo_callsThatWaitShareARun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g Group[int]
		runs := map[string]int{}
		var mu sync.Mutex
		call := func(key string) (int, error) {
			return g.Do(t.Context(), key, func() (int, error) {
				<-time.After(time.Second)
				mu.Lock()
				defer mu.Unlock()
				runs[key]++
				return runs[key], nil
			})
		}
		results := make([]int, 100)
		var all sync.WaitGroup
		for i := range results {
			all.Go(func() {
				if i > 0 {
					<-time.After(time.Millisecond) // while the first one runs
				}
				var err error
				results[i], err = call("a")
				assert.NoError(t, err)
			})
		}
		all.Go(func() { _, _ = call("b") })
		all.Wait()
		assert.Equal(t, map[string]int{"a": 2, "b": 1}, runs)
		assert.Equal(t, 1, results[0])
		for _, got := range results[1:] {
			assert.Equal(t, 2, got)
		}
	})
}

// A run that panics fails for those who wait for it, and the next one is run. A call whose context ends does not wait.
func TestDo_survivesPanicsAndImpatience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var g Group[int]
		slow := func(end func() (int, error)) (int, error) {
			return g.Do(context.Background(), "key", func() (int, error) {
				<-time.After(time.Second)
				return end()
			})
		}
		go func() { _, _ = slow(func() (int, error) { return 1, nil }) }()
		synctest.Wait()
		go func() {
			defer func() { assert.NotNil(t, recover(), "the panic is lost") }()
			_, _ = slow(func() (int, error) { panic("on purpose") })
		}()
		synctest.Wait()
		soon, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		_, err := g.Do(soon, "key", nil)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = g.Do(context.Background(), "key", nil)
		require.ErrorContains(t, err, "panicked")
		got, err := slow(func() (int, error) { return 3, nil })
		require.NoError(t, err)
		assert.Equal(t, 3, got)
	})
}

// A crowd waits for Every or for AtOnce arguments, and a call that comes alone for nothing.
func TestDo_pacesACrowd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := Batch[int, int]{Every: time.Second, AtOnce: 3}
		begin := time.Now()
		var all sync.WaitGroup
		call := func(arg, args int, after time.Duration) {
			all.Go(func() {
				n, _, err := b.Do(t.Context(), "", arg, func(args []int) (int, error) { return len(args), nil })
				assert.NoError(t, err)
				assert.Equal(t, args, n)
				assert.Equal(t, after, time.Since(begin))
			})
			synctest.Wait()
		}
		call(1, 1, 0)
		call(2, 2, time.Second)
		call(3, 2, time.Second)
		all.Wait()
		for arg := range 3 { // the third one ends the wait
			call(arg, 3, time.Second)
		}
		all.Wait()
		<-time.After(time.Minute)
		call(1, 1, time.Minute+time.Second)
		all.Wait()
	})
}
