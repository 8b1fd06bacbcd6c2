package web

import (
	"encoding/json"
	"strings"
	"time"
)

// The objects of the API that the operators' desk shows.

type pipelineState struct {
	Mode   string  `json:"mode"`
	Redis  *string `json:"redis"`
	Totals struct {
		OutboxEvents *int64     `json:"outbox_events"`
		OldestAt     *time.Time `json:"oldest_at"`
		LagEvents    *int64     `json:"lag_events"`
		ClosedShards *int64     `json:"closed_shards"`
		OpenGaps     int64      `json:"open_gaps"`
		DeadLetters  int64      `json:"dead_letters"`
	} `json:"totals"`
	Shards []shardState `json:"shards"`
}

type shardState struct {
	Shard        int        `json:"shard"`
	Open         *bool      `json:"open"`
	Relay        *string    `json:"relay"`
	OutboxEvents *int64     `json:"outbox_events"`
	OldestAt     *time.Time `json:"oldest_at"`
	Accepted     *string    `json:"accepted"`
	Applied      string     `json:"applied"`
	AppliedAt    *time.Time `json:"applied_at"`
	LagEvents    *int64     `json:"lag_events"`
	OpenGaps     int64      `json:"open_gaps"`
	Failures     []struct {
		Stage    string    `json:"stage"`
		Worker   string    `json:"worker"`
		Error    string    `json:"error"`
		FailedAt time.Time `json:"failed_at"`
	} `json:"failures"`
}

// Closed reports whether the shard is known to take no likes.
func (s shardState) Closed() bool { return s.Open != nil && !*s.Open }

// Process returns the process that relays the shard, without what distinguishes its locks.
func (s shardState) Process() string {
	process, _, _ := strings.Cut(deref(s.Relay), "/")
	return process
}

type pipelineHistory struct {
	StepSeconds int64            `json:"step_seconds"`
	Items       []pipelineSample `json:"items"`
}

type pipelineSample struct {
	At                time.Time `json:"at"`
	AcceptedPerSecond *float64  `json:"accepted_per_second"`
	AppliedPerSecond  *float64  `json:"applied_per_second"`
	OutboxEvents      *float64  `json:"outbox_events"`
	LagEvents         *float64  `json:"lag_events"`
	LagSeconds        *float64  `json:"lag_seconds"`
	ClosedShards      *float64  `json:"closed_shards"`
	OpenGaps          *float64  `json:"open_gaps"`
	DeadLetters       float64   `json:"dead_letters"`
}

type likeTrace struct {
	Shard      *int64     `json:"shard"`
	Position   *string    `json:"position"`
	AcceptedAt *time.Time `json:"accepted_at"`
	Sent       *bool      `json:"sent"`
	Applied    *bool      `json:"applied"`
	AppliedAt  *time.Time `json:"applied_at"`
	At         time.Time  `json:"at"`
}

type deadLetter struct {
	ID          int64      `json:"id"`
	Shard       int64      `json:"shard"`
	Position    *string    `json:"position"`
	Topic       string     `json:"topic"`
	Partition   int64      `json:"partition"`
	Offset      int64      `json:"offset"`
	Payload     string     `json:"payload"`
	Encoding    string     `json:"encoding"`
	PayloadSize int64      `json:"payload_size"`
	Error       string     `json:"error"`
	Status      string     `json:"status"`
	CreatedAt   time.Time  `json:"created_at"`
	ResolvedAt  *time.Time `json:"resolved_at"`
	ResolvedBy  *int64     `json:"resolved_by"`
}

type reconciliation struct {
	DryRun      bool `json:"dry_run"`
	Compared    int64
	Differences []struct {
		Type      string `json:"target_type"`
		ID        int64  `json:"target_id"`
		Problem   string `json:"problem"`
		Repaired  bool   `json:"repaired"`
		Undecided bool   `json:"undecided"`
	} `json:"differences"`
	NextCursor *string `json:"next_cursor"`
}

type webhook struct {
	ID                  int64      `json:"id"`
	URL                 string     `json:"url"`
	Events              []string   `json:"events"`
	Active              bool       `json:"active"`
	DisabledReason      *string    `json:"disabled_reason"`
	FailingSince        *time.Time `json:"failing_since"`
	PendingSince        *time.Time `json:"pending_since"`
	PreviousSecretUntil *time.Time `json:"previous_secret_until"`
	Version             int64      `json:"version"`
	CreatedAt           time.Time  `json:"created_at"`
	Secret              *string    `json:"secret"`
}

type delivery struct {
	ID         int64      `json:"id"`
	EventID    string     `json:"event_id"`
	Type       string     `json:"type"`
	ObjectType string     `json:"object_type"`
	ObjectID   string     `json:"object_id"`
	State      string     `json:"state"`
	Attempts   int64      `json:"attempts"`
	DueAt      *time.Time `json:"due_at"`
	CreatedAt  time.Time  `json:"created_at"`
	Log        []struct {
		At        time.Time   `json:"at"`
		Status    json.Number `json:"status"`
		LatencyMS int64       `json:"latency_ms"`
		Answer    string      `json:"answer"`
		Error     *string     `json:"error"`
	} `json:"log"`
}
