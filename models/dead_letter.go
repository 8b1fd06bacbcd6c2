package models

import "time"

// DeadLetter is an event, or a whole record of the log, that could not be applied.
type DeadLetter struct {
	ID         int64
	Shard      int
	Pos        Position `gorm:"-"` // zero: the record could not be read at all, and Payload is all of it
	Epoch, Seq int64
	Topic      string
	Partition  int32  `gorm:"column:topic_partition"`
	Offset     int64  `gorm:"column:topic_offset"`
	Payload    []byte // of a list: its first MaxShownPayload bytes
	Size       int    // of the payload, in bytes
	Error      string
	CreatedAt  time.Time
	Resolution LetterFate
	ResolvedAt *time.Time
	ResolvedBy *int64
}

// LetterFate is how a dead letter was resolved.
type LetterFate string

// The fates.
const (
	Unresolved LetterFate = ""          // it waits for an admin
	Retried    LetterFate = "retried"   // its events were sent through the pipeline again
	Discarded  LetterFate = "discarded" // it stays without effect
)

// MaxShownPayload is the maximum size of a letter's payload in a list, in bytes. A record of the log can have a
// megabyte.
const MaxShownPayload = 4 << 10

// Place sets Pos to what the columns hold.
func (l *DeadLetter) Place() { l.Pos = Position{l.Epoch, l.Seq} }

// Key returns the place of the letter in the list.
func (l *DeadLetter) Key() ListKey { return ListKey{ID: l.ID} }

// Events decodes the events of the letter by the current rules, and returns the position of the first of them. If it
// still cannot be decoded, Events returns CodeConflict.
func (l *DeadLetter) Events(shards int) (events []Event, first Position, err error) {
	runs := []Enveloped{{Pos: l.Pos, Run: Run(l.Payload)}}
	if l.Pos.IsZero() {
		envelope, err := DecodeEnvelope(l.Payload, l.Shard)
		if err != nil {
			return nil, Position{}, unreadable(err)
		}
		runs = envelope.Runs
	}
	for _, item := range runs {
		batch, err := item.Run.Events(l.Shard, shards)
		if err != nil {
			return nil, Position{}, unreadable(err)
		}
		events = append(events, batch...)
	}
	return events, runs[0].Pos, nil
}

func unreadable(err error) error {
	return &Error{Code: CodeConflict, Message: "The letter still cannot be read.", Err: err}
}
