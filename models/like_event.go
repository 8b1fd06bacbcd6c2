package models

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// TargetKind is what a like can be given to.
type TargetKind string

// The kinds of targets.
const (
	KindPost    TargetKind = "post"
	KindComment TargetKind = "comment"
)

// Target is a post or a comment as the receiver of likes.
type Target struct {
	Kind TargetKind
	ID   int64
}

// String gives "post:42", the form in which a target stands in keys and logs.
func (t Target) String() string { return string(t.Kind) + ":" + strconv.FormatInt(t.ID, 10) }

// Shard says which of n shards the target belongs to. Ids are handed out one after the other, so the remainder
// spreads them evenly, and an operator can tell the shard by head.
func (t Target) Shard(n int) int { return int(t.ID % int64(n)) }

// TargetCount is a target with the number of likes that MySQL has for it.
type TargetCount struct {
	Target
	Count int64
}

// LikeState is what a viewer sees of a target's likes.
type LikeState struct {
	Liked bool  // by the viewer; false for the anonymous
	Count int64 // likes in all
}

// Position is where an event stands in its shard: events of one epoch are numbered 0, 1, 2, … without a hole, and an
// epoch begins each time the shard is opened in Redis. It is written "epoch-seq" and is the event's id in the Redis
// outbox, so Redis itself keeps the numbers growing. The zero Position stands before every event.
type Position struct {
	Epoch, Seq int64
}

// ParsePosition reads the form that String writes.
func ParsePosition(s string) (Position, error) {
	epoch, seq, ok := strings.Cut(s, "-")
	if !ok {
		return Position{}, fmt.Errorf("position %q is not epoch-seq", s)
	}
	e, err1 := strconv.ParseInt(epoch, 10, 64)
	q, err2 := strconv.ParseInt(seq, 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return Position{}, fmt.Errorf("position %q: %w", s, err)
	}
	if e < 0 || q < 0 {
		return Position{}, fmt.Errorf("position %q is negative", s)
	}
	return Position{e, q}, nil
}

func (p Position) String() string {
	return strconv.FormatInt(p.Epoch, 10) + "-" + strconv.FormatInt(p.Seq, 10)
}

// IsZero reports whether p stands before every event.
func (p Position) IsZero() bool { return p == Position{} }

// After reports whether p comes later than q.
func (p Position) After(q Position) bool {
	return p.Epoch > q.Epoch || p.Epoch == q.Epoch && p.Seq > q.Seq
}

// Follows reports whether p is the very next position after q: the next number of the same epoch, or the first number
// of a later epoch.
func (p Position) Follows(q Position) bool {
	if p.Epoch == q.Epoch {
		return p.Seq == q.Seq+1
	}
	return p.Epoch > q.Epoch && p.Seq == 0
}

// Beyond counts the events after q up to p. Across epochs it is known only from the beginning of the new one.
func (p Position) Beyond(q Position) int64 {
	switch {
	case !p.After(q):
		return 0
	case p.Epoch == q.Epoch:
		return p.Seq - q.Seq
	default:
		return p.Seq + 1
	}
}

// MarshalText and UnmarshalText make a Position a JSON string.
func (p Position) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads the form that MarshalText writes.
func (p *Position) UnmarshalText(b []byte) error {
	q, err := ParsePosition(string(b))
	*p = q
	return err
}

// EventType names what happened, in the past tense.
type EventType string

// The events of a shard's log.
const (
	PostLiked      EventType = "post.liked"
	PostUnliked    EventType = "post.unliked"
	CommentLiked   EventType = "comment.liked"
	CommentUnliked EventType = "comment.unliked"
	// ShardOpened is the first event of every epoch. Once it is applied, everything that was in the log before it is
	// applied too, and whatever turns up of an older epoch is dropped.
	ShardOpened EventType = "shard.opened"
	// ShardProbed changes nothing. It has a number, so applying it shows whether the ones before it have arrived.
	ShardProbed EventType = "shard.probed"
)

// Event is one change that the gate accepted. Events are absolute: the last one of a (target, user) is its state.
type Event struct {
	Type   EventType `json:"type"`
	ID     int64     `json:"id,omitempty"`      // of the post or comment
	UserID int64     `json:"user_id,omitempty"` // who liked
	At     int64     `json:"at,omitempty"`      // when it was accepted, in milliseconds since 1970 UTC
}

// LikeEvent makes the event of a user liking (or no longer liking) a target.
func LikeEvent(t Target, userID int64, liked bool, at time.Time) Event {
	e := Event{ID: t.ID, UserID: userID, At: at.UnixMilli()}
	switch {
	case t.Kind == KindPost && liked:
		e.Type = PostLiked
	case t.Kind == KindPost:
		e.Type = PostUnliked
	case liked:
		e.Type = CommentLiked
	default:
		e.Type = CommentUnliked
	}
	return e
}

// Target and Liked undo LikeEvent; they have no meaning for the events of a shard itself.
func (e Event) Target() Target {
	if e.Type == PostLiked || e.Type == PostUnliked {
		return Target{KindPost, e.ID}
	}
	return Target{KindComment, e.ID}
}

// Liked reports whether the event sets the like or takes it away.
func (e Event) Liked() bool { return e.Type == PostLiked || e.Type == CommentLiked }

// maxEventTime is the end of MySQL's TIMESTAMP, 2038-01-19 03:14:07 UTC, in milliseconds.
const maxEventTime = (1<<31 - 1) * 1000

// DecodeEvent reads one event of the given shard (of shards in all) and refuses what could not be written to MySQL.
func DecodeEvent(payload []byte, shard, shards int) (Event, error) {
	var e Event
	if err := json.Unmarshal(payload, &e); err != nil {
		return Event{}, fmt.Errorf("event is not readable: %w", err)
	}
	switch e.Type {
	case ShardOpened, ShardProbed:
		return e, nil
	case PostLiked, PostUnliked, CommentLiked, CommentUnliked:
	default:
		return Event{}, fmt.Errorf("event has an unknown type %q", e.Type)
	}
	switch {
	case e.ID <= 0:
		return Event{}, fmt.Errorf("event has no id of a %s", e.Target().Kind)
	case e.UserID <= 0:
		return Event{}, errors.New("event has no user_id")
	case e.At <= 0 || e.At > maxEventTime:
		return Event{}, fmt.Errorf("event has an impossible time %d", e.At)
	case e.Target().Shard(shards) != shard:
		return Event{}, fmt.Errorf("event of %s does not belong to shard %d", e.Target(), shard)
	}
	return e, nil
}

// Envelope is the value of one Kafka record: a run of consecutive events of one shard. A record is written whole or
// not at all, so a send that fails halfway cannot leave a hole in the numbers.
type Envelope struct {
	V      int         `json:"v"` // EnvelopeVersion
	Shard  int         `json:"shard"`
	Events []Enveloped `json:"events"`
}

// Enveloped is one event in a record. The relay passes the event on unread: it is judged where it is applied.
type Enveloped struct {
	Pos   Position        `json:"pos"`
	Event json.RawMessage `json:"event"`
}

// EnvelopeVersion is the only format written so far.
const EnvelopeVersion = 1

// DecodeEnvelope reads the value of a record of a shard, and not the events in it.
func DecodeEnvelope(value []byte, shard int) (Envelope, error) {
	var envelope Envelope
	switch err := json.Unmarshal(value, &envelope); {
	case err != nil:
		return Envelope{}, fmt.Errorf("record is not readable: %w", err)
	case envelope.V != EnvelopeVersion:
		return Envelope{}, fmt.Errorf("record has version %d, and this writer knows %d", envelope.V, EnvelopeVersion)
	case envelope.Shard != shard:
		return Envelope{}, fmt.Errorf("record of shard %d is in partition %d", envelope.Shard, shard)
	}
	return envelope, nil
}
