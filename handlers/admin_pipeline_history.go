package handlers

import (
	"math"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

type pipelineHistoryJSON struct {
	StepSeconds int          `json:"step_seconds"`
	Items       []sampleJSON `json:"items"` // earliest first
}

// sampleJSON is the state of the pipeline at a time, of all shards together. What is not known is null.
type sampleJSON struct {
	At                time.Time `json:"at"`
	AcceptedPerSecond *float64  `json:"accepted_per_second"`
	AppliedPerSecond  *float64  `json:"applied_per_second"`
	OutboxEvents      *int64    `json:"outbox_events"`
	LagEvents         *int64    `json:"lag_events"`
	LagSeconds        *float64  `json:"lag_seconds"`
	ClosedShards      *int      `json:"closed_shards"`
	OpenGaps          *int      `json:"open_gaps"`
	DeadLetters       int64     `json:"dead_letters"`
}

// historyWindow is a span of the history with the step of its samples, so that an answer has some hundred.
type historyWindow struct{ span, step time.Duration }

var historyWindows = map[string]historyWindow{
	"hour": {time.Hour, models.SampleEvery},
	"day":  {models.SamplesKept, 5 * time.Minute},
}

// readPipelineHistory shows the samples of the last hour or day.
func (s *Server) readPipelineHistory(c *fiber.Ctx) error {
	name, err := oneOf(c, "window", "hour", "day")
	if err != nil {
		return err
	}
	window := historyWindows[name]
	samples, err := s.likes.Samples(c.UserContext(), s.now().Add(-window.span), window.step)
	if err != nil {
		return err
	}
	out := pipelineHistoryJSON{int(window.step / time.Second), make([]sampleJSON, len(samples))}
	for i, p := range samples {
		out.Items[i] = sampleJSON{
			p.Slot.UTC(), rounded(p.AcceptedPerSecond), rounded(p.AppliedPerSecond), p.OutboxEvents, p.LagEvents,
			rounded(p.LagSeconds), p.ClosedShards, p.OpenGaps, p.DeadLetters,
		}
	}
	return c.JSON(out)
}

// rounded rounds to thousandths.
func rounded(n *float64) *float64 {
	if n == nil {
		return nil
	}
	r := math.Round(*n*1000) / 1000
	return &r
}

type traceJSON struct {
	Shard      *int             `json:"shard"` // null in direct mode, as all but the time
	Position   *models.Position `json:"position"`
	AcceptedAt *time.Time       `json:"accepted_at"`
	Sent       *bool            `json:"sent"`
	Applied    *bool            `json:"applied"`
	AppliedAt  *time.Time       `json:"applied_at"`
	At         time.Time        `json:"at"` // when the rest was read
}

// tracePostLikes shows how far the last change of the likes of a post has come.
func (s *Server) tracePostLikes(c *fiber.Ctx) error {
	id, err := pathID(c, models.KindPost)
	if err != nil {
		return err
	}
	if _, err := s.content.PostByID(c.UserContext(), viewerID(c), id); err != nil {
		return err
	}
	if !s.desk.Gated() {
		return c.JSON(traceJSON{At: s.now().UTC()})
	}
	trace, err := s.desk.Trace(c.UserContext(), models.Target{Kind: models.KindPost, ID: id})
	if err != nil {
		return pipelineError(err)
	}
	out := traceJSON{Shard: &trace.Shard, At: s.now().UTC()}
	if !trace.Position.IsZero() {
		accepted := trace.AcceptedAt.UTC()
		out.Position, out.AcceptedAt = &trace.Position, &accepted
		out.Sent, out.Applied = &trace.Sent, &trace.Applied
	}
	if trace.Applied {
		applied := trace.AppliedAt.UTC()
		out.AppliedAt = &applied
	}
	return c.JSON(out)
}
