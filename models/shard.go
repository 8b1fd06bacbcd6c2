package models

import (
	"errors"
	"time"
)

// ShardState is the state of a shard in MySQL.
type ShardState struct {
	Shard     int
	Epoch     int64     // the highest that was handed out
	Applied   Position  // the watermark
	AppliedAt time.Time // when the watermark last moved
	Sealed    Position  // the watermark just before the applied epoch began
	OpenGaps  int       // gaps that are not reconciled yet: all those up to Applied, at least
	Letters   int       // dead letters that are not resolved yet, in the same way
}

// Whole reports whether MySQL has everything up to Applied. Otherwise only Redis may have some of it: the events of
// gaps and of dead letters.
func (s ShardState) Whole() bool { return s.OpenGaps == 0 && s.Letters == 0 }

// LikeTrace is how far the last change of the likes of a target has come on its way to MySQL.
type LikeTrace struct {
	Shard      int
	Position   Position  // of the change; zero if Redis knows of none
	AcceptedAt time.Time // by the clock of Redis
	Sent       bool      // Kafka has it
	Applied    bool      // MySQL has it
	// AppliedAt is when MySQL last applied events of the shard, if it has this one, which was applied then or before.
	AppliedAt time.Time
}

// ErrNotGated means that a shard may not be opened, because the site is not in the mode LikesGated.
var ErrNotGated = errors.New("likes are not gated")

// Gaps are the gaps of a shard that are not reconciled.
type Gaps struct {
	IDs   []int64
	After Position // the last position applied before the first of them
}

// ShardFailure is the latest failure of a stage of a shard's pipeline to MySQL.
type ShardFailure struct {
	Shard    int
	Stage    Stage
	Worker   string // the process: host and pid
	Error    string // as in the log of the worker
	FailedAt time.Time
}

// Stage is a stage of the pipeline that takes likes to MySQL.
type Stage string

// The stages.
const (
	StageRelay  Stage = "relay"
	StageWriter Stage = "writer"
)

// Closing is the record of a deletion that is to be announced to the gate. It is written in the transaction of the
// deletion, so that the gate closes the target even if the deleting process dies first; see workers.Closer.
type Closing struct {
	ID            int64
	Target        Target `gorm:"embedded;embeddedPrefix:target_"`
	Last          bool   // the target has been closed once before, or no second time is needed
	DoneCommentID int64  // of a post: its comments up to here are closed
}
