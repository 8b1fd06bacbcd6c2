package handlers_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
	"likewise/workers"
)

type pipelineHistory struct {
	StepSeconds int `json:"step_seconds"`
	Items       []struct {
		At          time.Time
		Accepted    *float64 `json:"accepted_per_second"`
		Applied     *float64 `json:"applied_per_second"`
		Outbox      *int64   `json:"outbox_events"`
		LagSeconds  *float64 `json:"lag_seconds"`
		Closed      *int     `json:"closed_shards"`
		OpenGaps    *int     `json:"open_gaps"`
		DeadLetters int64    `json:"dead_letters"`
	}
}

func TestPipelineHistory(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	read := func(window string) pipelineHistory {
		t.Helper()
		return read[pipelineHistory](t, d.must(t, 200, d.admin, "GET", "/v1/admin/pipeline/history"+window, nil))
	}
	require.Equal(t, 10, read("").StepSeconds)
	require.Empty(t, read("?window=day").Items)

	added, err := workers.NewSampler(d.store, d.redis).Sample(t.Context())
	require.NoError(t, err)
	require.True(t, added)
	now := read("").Items
	require.Len(t, now, 1)
	assert.WithinDuration(t, time.Now(), now[0].At, 20*time.Second)
	assert.Nil(t, now[0].Accepted)
	assert.Zero(t, *now[0].Closed)

	// Five minutes of five hours ago: of the day, they are one.
	d.exec(t, "DELETE FROM pipeline_samples")
	begin := time.Now().UTC().Add(-5 * time.Hour).Truncate(5 * time.Minute)
	for i := range 30 {
		d.exec(t, `
			INSERT INTO pipeline_samples (slot, accepted_per_second, applied_per_second, outbox_events, lag_seconds,
				open_gaps, dead_letters)
			VALUES (?,?,NULL,?,?,0,2)`, begin.Add(time.Duration(i)*10*time.Second), i%2*3, i, float64(i)/3)
	}
	require.Empty(t, read("?window=hour").Items)
	day := read("?window=day")
	require.Equal(t, 300, day.StepSeconds)
	require.Len(t, day.Items, 1)
	sample := day.Items[0]
	assert.Equal(t, begin, sample.At.UTC())
	assert.InDelta(t, 1.5, *sample.Accepted, 0.0001)
	assert.Nil(t, sample.Applied)
	assert.EqualValues(t, 29, *sample.Outbox)
	assert.InDelta(t, 9.667, *sample.LagSeconds, 0.00001, "rounded")
	assert.Nil(t, sample.Closed)
	assert.Zero(t, *sample.OpenGaps)
	assert.EqualValues(t, 2, sample.DeadLetters)

	d.refusedField(t, 422, "invalid", "window", d.admin, "GET", "/v1/admin/pipeline/history?window=week", nil)
	d.refused(t, 403, "forbidden", d.moderator, "GET", "/v1/admin/pipeline/history", nil)
}

type likeTrace struct {
	Shard      *int
	Position   *string
	AcceptedAt *time.Time `json:"accepted_at"`
	Sent       *bool
	Applied    *bool
	AppliedAt  *time.Time `json:"applied_at"`
	At         time.Time
}

func TestTracePostLikes(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	p := d.newPost(t, d.admin)
	path := fmt.Sprintf("/v1/admin/pipeline/posts/%d", p.ID)
	trace := read[likeTrace](t, d.must(t, 200, d.admin, "GET", path, nil))
	require.NotNil(t, trace.Shard)
	require.Nil(t, trace.Position)
	require.Nil(t, trace.Sent)

	d.must(t, 200, d.admin, "PUT", fmt.Sprintf("/v1/posts/%d/like", p.ID), nil)
	testkit.Eventually(t, 30*time.Second, func() (bool, string) {
		trace = read[likeTrace](t, d.must(t, 200, d.admin, "GET", path, nil))
		return *trace.Applied, fmt.Sprintf("%+v", trace)
	})
	assert.Equal(t, models.Target{Kind: models.KindPost, ID: p.ID}.Shard(d.store.Shards()), *trace.Shard)
	assert.NotEmpty(t, *trace.Position)
	assert.True(t, *trace.Sent)
	assert.WithinDuration(t, time.Now(), *trace.AcceptedAt, time.Minute)
	assert.WithinDuration(t, time.Now(), *trace.AppliedAt, time.Minute)
	d.refused(t, 403, "forbidden", d.moderator, "GET", path, nil)
	d.refused(t, 404, "not_found", d.admin, "GET", "/v1/admin/pipeline/posts/999999", nil)

	direct := newAPI(t, modes[0])
	admin := direct.raise(t, models.RoleAdmin)
	path = fmt.Sprintf("/v1/admin/pipeline/posts/%d", direct.newPost(t, admin).ID)
	trace = read[likeTrace](t, direct.must(t, 200, admin, "GET", path, nil))
	require.Equal(t, likeTrace{At: trace.At}, trace)
	require.NotZero(t, trace.At)
}
