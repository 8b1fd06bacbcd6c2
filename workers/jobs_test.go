package workers

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/counters"
)

// A job may need more time than there is between its runs: one target may have millions of likers to compare.
func TestJobs_haveLimitsOfTheirOwn(t *testing.T) {
	t.Parallel()
	i := slices.IndexFunc(schedule, func(job Job) bool { return job.Name == "reconcile" })
	job := schedule[i]
	assert.GreaterOrEqual(t, job.Limit, 30*time.Minute)
	for _, item := range schedule {
		assert.GreaterOrEqual(t, item.Limit, time.Minute, item.Name)
	}

	j := &Jobs{JobsConfig: JobsConfig{Targets: counters.NewTargets(nil, nil), Metrics: NewMetrics()}}
	ctx, cancel := context.WithCancel(t.Context())
	var left time.Duration
	job.run = func(_ *Jobs, ctx context.Context) (string, error) {
		end, ok := ctx.Deadline()
		require.True(t, ok)
		left = time.Until(end)
		cancel()
		return "", ctx.Err()
	}
	j.repeat(ctx, job)
	assert.Greater(t, left, job.Limit-time.Minute)
}

// What takes long does not keep the rest waiting, nor does what fails.
func TestEachBatch_worksInTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		left := 250
		endless := func(context.Context, int) (int, error) {
			<-time.After(time.Second)
			return textBatch, nil
		}
		batch := func(_ context.Context, limit int) (int, error) {
			n := min(limit, left)
			left -= n
			return n, nil
		}
		result, err := eachBatch(ctx, "%d and %d", endless, batch)
		require.NoError(t, err)
		assert.Equal(t, "5600 and 250, and more are left: run it again", result)
		left = 250
		fails := func(context.Context, int) (int, error) { return 0, context.Canceled }
		result, err = eachBatch(ctx, "%d and %d", fails, batch)
		require.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, "0 and 100", result)
	})
}
