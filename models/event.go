package models

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// TargetKind is a kind of what the gate decides about.
type TargetKind string

// The kinds of targets. Posts and comments can be liked, the stock of drops can be claimed.
const (
	KindPost    TargetKind = "post"
	KindComment TargetKind = "comment"
	KindDrop    TargetKind = "drop"
)

// Target is a post or a comment as the receiver of likes, or a drop as the receiver of claims.
type Target struct {
	Kind TargetKind
	ID   int64
}

// String returns "post:42", the form of a target in keys and logs.
func (t Target) String() string { return string(t.Kind) + ":" + strconv.FormatInt(t.ID, 10) }

// Short returns "p42", "c42" or "d42", the form of a target in runs.
func (t Target) Short() string { return string(t.Kind[:1]) + strconv.FormatInt(t.ID, 10) }

// Shard returns the shard of the target among n. Ids are consecutive, so the remainder spreads them evenly, and an
// operator can compute it mentally.
func (t Target) Shard(n int) int { return int(t.ID % int64(n)) }

// TargetCount is a target with the number of likes that MySQL has for it.
type TargetCount struct {
	Target
	Count int64
}

// LikeState is the likes of a target as a viewer sees them.
type LikeState struct {
	Liked bool  // by the viewer; false for the anonymous
	Count int64 // all likes
}

// Position is the place of an event in its shard. The events of an epoch are numbered 0, 1, 2, … without a gap, and an
// epoch begins each time the shard is opened in Redis. A position is written "epoch-seq". It is the event's id in the
// Redis outbox, so Redis itself keeps the numbers ascending. The zero Position is before every event.
type Position struct {
	Epoch, Seq int64
}

// ParsePosition parses the form that String returns.
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

// IsZero reports whether p is before every event.
func (p Position) IsZero() bool { return p == Position{} }

// After reports whether p is later than q.
func (p Position) After(q Position) bool {
	return p.Epoch > q.Epoch || p.Epoch == q.Epoch && p.Seq > q.Seq
}

// Follows reports whether p is the next number after q in the same epoch.
func (p Position) Follows(q Position) bool { return p.Epoch == q.Epoch && p.Seq == q.Seq+1 }

// Beyond returns the number of events after q up to p. Across epochs it counts from the beginning of the new one.
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

// MarshalText returns the form of String, so that a Position is a string in JSON.
func (p Position) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText parses the form that MarshalText returns.
func (p *Position) UnmarshalText(b []byte) error {
	q, err := ParsePosition(string(b))
	*p = q
	return err
}

// EventType is the name of an event, in the past tense.
type EventType string

// The events of a shard's log.
const (
	PostLiked      EventType = "post.liked"
	PostUnliked    EventType = "post.unliked"
	CommentLiked   EventType = "comment.liked"
	CommentUnliked EventType = "comment.unliked"
	ClaimTaken     EventType = "claim.taken"
	ClaimReturned  EventType = "claim.returned"
	// DropSet means that the gate has the settings of a drop of this version.
	DropSet EventType = "drop.set"
	// ShardOpened is the first event of every epoch. When it is applied, all events before it in the log are applied,
	// and later events of an older epoch are dropped.
	ShardOpened EventType = "shard.opened"
	// ShardProbed changes nothing. It has a number, so applying it shows whether the events before it have arrived.
	ShardProbed EventType = "shard.probed"
)

// Event is a change that the gate accepted. Events of likes are absolute: the state of a (target, user) is its last
// event. Events of claims are applied in their order: each names its claim, so a repeated one changes nothing.
type Event struct {
	Type    EventType `json:"type"`
	ID      int64     `json:"id,omitempty"`       // of the post, comment or drop
	UserID  int64     `json:"user_id,omitempty"`  // who liked or claimed
	ClaimID int64     `json:"claim_id,omitempty"` // of ClaimTaken and ClaimReturned
	Version int64     `json:"version,omitempty"`  // of DropSet
	At      int64     `json:"at,omitempty"`       // when it was accepted, in ms since 1970 UTC, on Redis's clock
	After   Position  `json:"after,omitzero"`     // of ShardOpened: the last position in the outbox before it
	Again   bool      `json:"-"`                  // of a like: LastEvents has left out an unlike before it
}

// LikeEvent returns the event of a user who likes, or unlikes, a target.
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

// ClaimEvent returns the event of a user who claims a share of a drop, or whose claim is returned to its stock.
func ClaimEvent(dropID, userID, claimID int64, taken bool, at time.Time) Event {
	e := Event{Type: ClaimReturned, ID: dropID, UserID: userID, ClaimID: claimID, At: at.UnixMilli()}
	if taken {
		e.Type = ClaimTaken
	}
	return e
}

// DropEvent returns the event that the gate has the settings of a drop of this version.
func DropEvent(dropID, version int64, at time.Time) Event {
	return Event{Type: DropSet, ID: dropID, Version: version, At: at.UnixMilli()}
}

// OfDrop reports whether the event is about a drop or a claim.
func (e Event) OfDrop() bool {
	return e.Type == ClaimTaken || e.Type == ClaimReturned || e.Type == DropSet
}

// Target returns the target of the event. It has no meaning for the events of a shard itself.
func (e Event) Target() Target {
	switch {
	case e.OfDrop():
		return Target{KindDrop, e.ID}
	case e.Type == PostLiked || e.Type == PostUnliked:
		return Target{KindPost, e.ID}
	}
	return Target{KindComment, e.ID}
}

// Liked reports whether the event sets the like, rather than removing it.
func (e Event) Liked() bool { return e.Type == PostLiked || e.Type == CommentLiked }

// Run is the text of the events that have one position: likes that were accepted together, claims that were, or one
// event of the shard itself. The gate writes it, and the like writer decodes it. Its words are separated by single
// spaces:
//
//	likes 1732270000123 p42 7 8 -9 c5 7      when, in ms, and for each target who liked it and who unliked it
//	claims 1732270000123 d42 +7:99 -8:98 =3  when, in ms, and for each drop which user took or returned which claim,
//	                                         and which version of the settings the gate has now
//	opened 3-17                              ShardOpened, and the last position in the outbox before it
//	probed                                   ShardProbed
type Run string

// NewRun returns the run of events that have the same time: all of likes, or all of claims.
func NewRun(events ...Event) Run {
	var b strings.Builder
	var target Target
	for i, e := range events {
		switch {
		case e.Type == ShardOpened:
			return Run("opened " + e.After.String())
		case e.Type == ShardProbed:
			return "probed"
		case i == 0 && e.OfDrop():
			b.WriteString("claims " + strconv.FormatInt(e.At, 10))
		case i == 0:
			b.WriteString("likes " + strconv.FormatInt(e.At, 10))
		}
		if e.Target() != target {
			target = e.Target()
			b.WriteString(" " + target.Short())
		}
		b.WriteString(" " + e.word())
	}
	return Run(b.String())
}

// word returns the form of the event in a run, after its target.
func (e Event) word() string {
	user := strconv.FormatInt(e.UserID, 10)
	switch e.Type {
	case PostLiked, CommentLiked:
		return user
	case ClaimTaken:
		return "+" + user + ":" + strconv.FormatInt(e.ClaimID, 10)
	case ClaimReturned:
		return "-" + user + ":" + strconv.FormatInt(e.ClaimID, 10)
	case DropSet:
		return "=" + strconv.FormatInt(e.Version, 10)
	}
	return "-" + user
}

// Repeats reports whether an unlike comes before a like, if earlier is the event of the same like before it.
func (e Event) Repeats(earlier Event) bool {
	return e.Liked() && (e.Again || earlier.Again || earlier.Type != "" && !earlier.Liked())
}

// LastEvents returns the events of a run that decide its outcome, in their order: the last event of each like, and the
// events of claims without those of a claim that its user has replaced within the run. So an event that is applied once
// more after later ones of the run changes nothing. The events left out have no effect but Again.
func LastEvents(events []Event) []Event {
	last, again := map[LikeKey]int{}, make([]bool, len(events))
	claims := map[LikeKey]int64{} // the last claim that each user takes
	for i, e := range events {
		key := LikeKey{e.Target(), e.UserID}
		if e.OfDrop() {
			if e.Type == ClaimTaken {
				claims[key] = e.ClaimID
			}
			continue
		}
		if before, ok := last[key]; ok {
			earlier := events[before]
			earlier.Again = again[before]
			again[i] = e.Repeats(earlier)
		}
		last[key] = i
	}
	replaced := map[int64]bool{} // by claim
	var list []Event
	for i, e := range events {
		key := LikeKey{e.Target(), e.UserID}
		if e.OfDrop() {
			if e.Type == ClaimTaken && claims[key] != e.ClaimID {
				replaced[e.ClaimID] = true
			}
			if e.Type == DropSet || !replaced[e.ClaimID] {
				list = append(list, e)
			}
		} else if last[key] == i {
			e.Again = e.Again || again[i]
			list = append(list, e)
		}
	}
	return list
}

// Time returns when the likes or claims of the run were accepted, or the zero Time for other runs.
func (r Run) Time() time.Time {
	verb, rest, _ := strings.Cut(string(r), " ")
	word, _, _ := strings.Cut(rest, " ")
	at, err := strconv.ParseInt(word, 10, 64)
	if verb != "likes" && verb != "claims" || err != nil {
		return time.Time{}
	}
	return time.UnixMilli(at)
}

// maxEventTime is the end of MySQL's TIMESTAMP, 2038-01-19 03:14:07 UTC, in milliseconds.
const maxEventTime = (1<<31 - 1) * 1000

// Events decodes the run of a shard, out of shards. Events that cannot be written to MySQL are an error.
func (r Run) Events(shard, shards int) ([]Event, error) {
	verb, rest, _ := strings.Cut(string(r), " ")
	switch verb {
	case "likes", "claims":
		return eventsOfRun(rest, verb == "claims", shard, shards)
	case "probed":
		if rest == "" {
			return []Event{{Type: ShardProbed}}, nil
		}
	case "opened":
		after, err := ParsePosition(rest)
		if err == nil {
			return []Event{{Type: ShardOpened, After: after}}, nil
		}
	}
	return nil, fmt.Errorf("run %.40q is not readable", string(r))
}

// eventsOfRun decodes what follows the verb of a run of likes, or of claims.
func eventsOfRun(rest string, claims bool, shard, shards int) ([]Event, error) {
	word, rest, _ := strings.Cut(rest, " ")
	at, err := strconv.ParseInt(word, 10, 64)
	if err != nil || at <= 0 || at > maxEventTime {
		return nil, fmt.Errorf("run has an impossible time %.40q", word)
	}
	events := make([]Event, 0, strings.Count(rest, " ")+1)
	var target Target
	for rest != "" {
		word, rest, _ = strings.Cut(rest, " ")
		if word == "" {
			return nil, errors.New("run has an empty word")
		}
		if strings.IndexByte("+-=0123456789", word[0]) < 0 {
			if target, err = targetOfWord(word, claims); err != nil {
				return nil, err
			}
			if target.Shard(shards) != shard {
				return nil, fmt.Errorf("run names %s, which does not belong to shard %d", target, shard)
			}
			continue
		}
		if target.ID == 0 {
			return nil, fmt.Errorf("run names no target before %.40q", word)
		}
		event, err := eventOfWord(word, target, time.UnixMilli(at))
		if err != nil {
			return nil, err
		}
		events = append(events, event)
	}
	if len(events) == 0 {
		return nil, errors.New("run has no events")
	}
	return events, nil
}

// targetOfWord decodes the form that Short returns. A run of claims names only drops, a run of likes none.
func targetOfWord(word string, claims bool) (Target, error) {
	id, err := parseEventID(word[1:])
	if err != nil {
		return Target{}, fmt.Errorf("run has no id in %.40q", word)
	}
	switch {
	case word[0] == 'p' && !claims:
		return Target{KindPost, id}, nil
	case word[0] == 'c' && !claims:
		return Target{KindComment, id}, nil
	case word[0] == 'd' && claims:
		return Target{KindDrop, id}, nil
	}
	return Target{}, fmt.Errorf("run has an unknown word %.40q", word)
}

// eventOfWord decodes the form that Event.word returns.
func eventOfWord(word string, target Target, at time.Time) (Event, error) {
	if target.Kind != KindDrop {
		number, unliked := strings.CutPrefix(word, "-")
		id, err := parseEventID(number)
		if err != nil {
			return Event{}, fmt.Errorf("run has an unknown word %.40q", word)
		}
		return LikeEvent(target, id, !unliked, at), nil
	}
	number, claim, named := strings.Cut(word[1:], ":")
	id, err := parseEventID(number)
	if err != nil {
		return Event{}, fmt.Errorf("run has no id in %.40q", word)
	}
	switch sign := word[0]; {
	case sign == '=' && !named:
		return DropEvent(target.ID, id, at), nil
	case sign != '+' && sign != '-':
		return Event{}, fmt.Errorf("run has an unknown word %.40q", word)
	}
	claimID, err := parseEventID(claim)
	if err != nil {
		return Event{}, fmt.Errorf("run has no claim in %.40q", word)
	}
	return ClaimEvent(target.ID, id, claimID, word[0] == '+', at), nil
}

// parseEventID parses an id or a version, which is above 0.
func parseEventID(s string) (int64, error) {
	id, err := strconv.ParseUint(s, 10, 63)
	if err == nil && id == 0 {
		err = errors.New("0 is not an id")
	}
	return int64(id), err
}

// Envelope is the value of one Kafka record: consecutive runs of one shard. A record is written whole or not at all,
// so a send that fails halfway cannot leave a gap in the numbers.
type Envelope struct {
	V     int         `json:"v"`              // EnvelopeVersion
	Site  string      `json:"site,omitempty"` // Store.Site
	Shard int         `json:"shard"`
	Runs  []Enveloped `json:"runs"`
}

// Enveloped is one run in a record. The relay passes on the run undecoded; the like writer checks it.
type Enveloped struct {
	Pos Position `json:"pos"`
	Run Run      `json:"run"`
}

// EnvelopeVersion is the version of the format. There is only one.
const EnvelopeVersion = 1

// DecodeEnvelope decodes the value of a record of a shard, but not its runs, of which there is at least one.
func DecodeEnvelope(value []byte, shard int) (Envelope, error) {
	var envelope Envelope
	switch err := json.Unmarshal(value, &envelope); {
	case err != nil:
		return Envelope{}, fmt.Errorf("record is not readable: %w", err)
	case envelope.V != EnvelopeVersion:
		return Envelope{}, fmt.Errorf("record has version %d, and this writer knows %d", envelope.V, EnvelopeVersion)
	case envelope.Shard != shard:
		return Envelope{}, fmt.Errorf("record of shard %d is in partition %d", envelope.Shard, shard)
	case len(envelope.Runs) == 0:
		return Envelope{}, errors.New("record has no runs")
	}
	return envelope, nil
}

// SiteOf returns the id of the installation that made a record; "" if the record has none, or cannot be read. It reads
// only the fields before the id, which is one of the first.
func SiteOf(value []byte) string {
	fields := json.NewDecoder(bytes.NewReader(value))
	if begin, err := fields.Token(); err != nil || begin != json.Delim('{') {
		return ""
	}
	for fields.More() {
		name, err := fields.Token()
		if err != nil || name == "runs" {
			return ""
		}
		var field any
		if fields.Decode(&field) != nil {
			return ""
		}
		if name == "site" {
			site, _ := field.(string)
			return site
		}
	}
	return ""
}

// LikeRecord is one run as the log delivered it.
type LikeRecord struct {
	Shard     int
	Pos       Position // zero if the Kafka record could not be read at all
	Part      bool     // Events are only some of the run's: they are applied, and the watermark stays before the run
	Events    []Event
	Payload   []byte // the run, or the whole Kafka record
	Problem   string // why the events can never be applied; such a record becomes a dead letter
	Topic     string
	Partition int32
	Offset    int64
}

// LikesApplied counts what a batch did.
type LikesApplied struct {
	Inserted, Deleted int // rows of likes
	Claimed           int // claims that are live after their event
	Returned          int // live claims that were returned
	Rejected          int // claims that MySQL could not accept
	Accepted          int // events that were applied, whether or not they changed a row
	Duplicates        int // events of runs at or before the watermark, including those of old epochs; they are dropped
	Vanished          int // events whose target has no row; they are dropped
	Strangers         int // events whose user has no row; they are dropped
	DeadLetters       int
	Gaps              int
	Watermarks        map[int]Position // of the shards in the batch, after it
}

// Follows reports whether nothing is missing between the watermark and the run. The first run of an epoch names the
// last position before it. Redis may have lost some that MySQL has, but MySQL must not miss any that Redis had.
func (r *LikeRecord) Follows(watermark Position) bool {
	if r.Pos.Epoch == watermark.Epoch {
		return r.Pos.Follows(watermark)
	}
	return r.Pos.Seq == 0 && len(r.Events) == 1 && r.Events[0].Type == ShardOpened &&
		!r.Events[0].After.After(watermark)
}

// LikeKey is a user's like of a target, or a claim of a drop.
type LikeKey struct {
	Target
	UserID int64
}
