package workers

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/counters"
	"likewise/models"
	"likewise/models/db"
	"likewise/models/moderation"
)

// Two processes run a job at the same time: one of them works. A job whose lock is lost writes nothing more.
func TestJobs_runOneAtATime(t *testing.T) {
	t.Parallel()
	p := setup(t)
	j := &Jobs{JobsConfig: JobsConfig{Store: p.store, Redis: p.redis, Targets: counters.NewTargets(nil, nil)}}
	began, goOn := make(chan struct{}), make(chan struct{})
	job := Job{Name: "work", run: func(_ *Jobs, ctx context.Context) (string, error) {
		close(began)
		<-goOn
		return "done", moderation.New(p.store).SetRingCheckpoint(ctx, models.KindPost, 1)
	}}
	ended := make(chan error, 1)
	go func() {
		result, err := j.runAlone(t.Context(), job)
		assert.Equal(t, "done", result)
		ended <- err
	}()
	<-began
	_, err := j.runAlone(t.Context(), job)
	require.ErrorIs(t, err, errElsewhere)
	close(goOn)
	require.NoError(t, <-ended)

	another := t.Context()
	job.run = func(_ *Jobs, ctx context.Context) (string, error) {
		_, err := p.store.NextFence(another, "work") // another process has taken over
		require.NoError(t, err)
		return "", moderation.New(p.store).SetRingCheckpoint(ctx, models.KindPost, 2)
	}
	_, err = j.runAlone(t.Context(), job)
	require.ErrorIs(t, err, db.ErrFenced)
	id, _, err := moderation.New(p.store).RingCheckpoint(t.Context(), models.KindPost)
	require.NoError(t, err)
	require.EqualValues(t, 1, id)

	// The lock is free at once, and without Redis the job runs all the same.
	job.run = func(*Jobs, context.Context) (string, error) { return "alone", nil }
	result, err := j.runAlone(t.Context(), job)
	require.NoError(t, err)
	require.Equal(t, "alone", result)
	down, err := counters.Open("redis://127.0.0.1:1/0", 16)
	require.NoError(t, err)
	defer down.Close()
	j.Redis = down
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	result, err = j.runAlone(ctx, job)
	require.NoError(t, err)
	require.Equal(t, "alone", result)
}
