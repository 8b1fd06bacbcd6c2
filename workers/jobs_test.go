package workers

import (
	"context"
	"slices"
	"testing"
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
	for _, one := range schedule {
		assert.GreaterOrEqual(t, one.Limit, time.Minute, one.Name)
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
