package web

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// wellState returns a pipeline of four shards without a fault, and its latest sample.
func wellState(now time.Time) (pipelineState, pipelineHistory) {
	p := pipelineState{Mode: "gated", Redis: new("ok"), Shards: make([]shardState, 4)}
	for i := range p.Shards {
		p.Shards[i] = shardState{Shard: i, Open: new(true), Relay: new("worker-1:7/ABC"), LagEvents: new(int64(0))}
	}
	zero := 0.0
	return p, pipelineHistory{10, []pipelineSample{{At: now.Add(-15 * time.Second), LagSeconds: &zero}}}
}

func TestFindings_nameWhatIsWrong(t *testing.T) {
	t.Parallel()
	l, now := newSite(t).languages[0], time.Now()
	for name, c := range map[string]struct {
		change func(p *pipelineState, h *pipelineHistory)
		want   []finding
	}{
		"nothing": {func(*pipelineState, *pipelineHistory) {},
			[]finding{{Text: "All is well. All 4 shards take likes, and MySQL keeps up."}}},
		"redis": {func(p *pipelineState, _ *pipelineHistory) {
			p.Redis = new("unreachable")
			for i := range p.Shards {
				p.Shards[i].Open, p.Shards[i].Relay = nil, nil
			}
		}, []finding{{
			Text: "Redis does not answer. Likes are refused until it does; everything else works.", Bad: true,
		}}},
		"closed and alone": {func(p *pipelineState, _ *pipelineHistory) {
			p.Shards[1].Open, p.Shards[3].Open, p.Shards[2].Relay = new(false), new(false), nil
		}, []finding{
			{Text: "Shards that take no likes: 1, 3. Their worker opens them, if one runs.", Bad: true},
			{Text: "Shards that no worker relays: 2. Likes wait in Redis.", Bad: true},
		}},
		"kafka": {func(p *pipelineState, _ *pipelineHistory) {
			old := now.Add(-90 * time.Second)
			p.Shards[2].OldestAt, p.Totals.OldestAt = &old, &old
		}, []finding{{Text: "Shards whose likes wait for Kafka: 2, for 90 s.", Bad: true}}},
		"mysql": {func(p *pipelineState, h *pipelineHistory) {
			p.Shards[3].LagEvents = new(int64(70))
			h.Items[0].LagSeconds = new(34.5)
		}, []finding{{Text: "MySQL is 34 s behind, most in shard 3.", Bad: true}}},
		"gaps and letters": {func(p *pipelineState, _ *pipelineHistory) {
			p.Totals.OpenGaps, p.Totals.DeadLetters = 1, 2
		}, []finding{
			{Text: "1 open gap: the job reconcile repairs it.", Bad: true, Link: "/operate/reconcile"},
			{Text: "2 dead letters wait for you.", Bad: true, Link: "/operate/dead-letters"},
		}},
		"no cron": {func(_ *pipelineState, h *pipelineHistory) { h.Items[0].At = now.Add(-10 * time.Minute) },
			[]finding{{
				Text: "There is no recent sample for the charts. They need a running cron process.", Bad: true,
			}}},
		"direct": {func(p *pipelineState, _ *pipelineHistory) {
			p.Mode, p.Redis, p.Shards = "direct", nil, nil
		}, []finding{{Text: "Each like is written to MySQL directly. There are no shards."}}},
	} {
		p, h := wellState(now)
		c.change(&p, &h)
		assert.Equal(t, c.want, l.findings(&p, h, now), name)
	}
}

// Each look is a bound for the time of every step, and no more.
func TestStepsOf_areBounds(t *testing.T) {
	t.Parallel()
	accepted := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	at := func(ms int) time.Time { return accepted.Add(time.Duration(ms) * time.Millisecond) }
	look := func(sent, applied bool, seen int) likeTrace {
		return likeTrace{AcceptedAt: &accepted, Sent: &sent, Applied: &applied, At: at(seen)}
	}
	bounds := func(trace likeTrace) (list [][3]any) {
		for _, s := range stepsOf(trace)[1:] {
			list = append(list, [3]any{s.Done, s.From, s.To})
		}
		return list
	}
	assert.Equal(t, [][3]any{{false, "5", ""}, {false, "5", ""}}, bounds(look(false, false, 5)))
	assert.Equal(t, [][3]any{{true, "", "30"}, {false, "30", ""}}, bounds(look(true, false, 30)))
	done, written := look(true, true, 5000), at(41)
	done.AppliedAt = &written
	assert.Equal(t, [][3]any{{true, "", "41"}, {true, "", "41"}}, bounds(done))
	early := at(-2) // by another clock
	done.AppliedAt = &early
	assert.Equal(t, [][3]any{{true, "", "0"}, {true, "", "0"}}, bounds(done))
	assert.Nil(t, stepsOf(likeTrace{At: at(5)}), "Redis knows of no like")
}
