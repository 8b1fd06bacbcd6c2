package db

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"likewise/models"
)

// AskClosing records deletions for the gate, in their transaction. An operation has a record of its own for the first
// time that its targets are closed: see CloseStep.
func AskClosing(tx *Tx, kind models.TargetKind, ids []int64, d models.Deletion) error {
	if d.Operation != 0 {
		return nil
	}
	tx.CloseAfter(kind, ids)
	return RecordClosings(tx, kind, ids, d.At, false)
}

// RecordClosings records deletions for the gate. told means that their targets were closed once, at the time at.
func RecordClosings(tx *Tx, kind models.TargetKind, ids []int64, at time.Time, told bool) error {
	if len(ids) == 0 {
		return nil
	}
	args := make([]any, 0, 4*len(ids))
	for _, id := range ids {
		args = append(args, kind, id, models.WholeSeconds(at), told)
	}
	insert := `
		INSERT INTO gate_closings (kind, target_id, deleted_at, told)
		VALUES ` + strings.Repeat(",(?,?,?,?)", len(ids))[1:]
	if err := tx.Exec(insert, args...).Error; err != nil {
		return fmt.Errorf("record deletion for the gate: %w", err)
	}
	return nil
}

// Announcement is one event, of several objects of a kind.
type Announcement struct {
	Event     models.WebhookEvent
	Kind      string // of the objects: the prefix of the event, or what was liked
	IDs       []int64
	Milestone int64 // of LikeMilestone
}

// Announce notes that an event happened to objects whose rows the transaction holds. Their state is read at its end.
func (tx *Tx) Announce(event models.WebhookEvent, ids ...int64) {
	kind, _, _ := strings.Cut(string(event), ".")
	tx.AnnounceAll(Announcement{Event: event, Kind: kind, IDs: ids})
}

// AnnounceAll notes an event whose objects are not of the kind that its name begins with.
func (tx *Tx) AnnounceAll(a Announcement) {
	if len(a.IDs) > 0 {
		tx.events = append(tx.events, a)
	}
}

// subscription is what an active endpoint receives.
type subscription struct {
	ID     int64
	Events models.WebhookTypes
}

// writtenEvents is the size from which a statement takes no more rows, in bytes.
const writtenEvents = 1 << 20

// writeEvents writes the events that the transaction has announced, for the endpoints that subscribe to them.
func writeEvents(tx *Tx) error {
	if len(tx.events) == 0 {
		return nil
	}
	const query = `
		SELECT id, events
		FROM webhooks
		WHERE active
		ORDER BY id`
	var subscriptions []subscription
	if err := tx.Raw(query).Scan(&subscriptions).Error; err != nil {
		return fmt.Errorf("read webhooks: %w", err)
	}
	rows := eventRows{tx: tx}
	for _, t := range tx.events {
		var to []int64
		for _, sub := range subscriptions {
			if slices.Contains(sub.Events, t.Event) {
				to = append(to, sub.ID)
			}
		}
		if len(to) == 0 {
			continue
		}
		objects, err := tx.store.describe(tx, t)
		if err != nil {
			return fmt.Errorf("describe %s: %w", t.Event, err)
		}
		for _, id := range t.IDs {
			object, ok := objects[id]
			if !ok {
				object.Data = Reference{ID: id}
			}
			if err := rows.add(t, id, object, to); err != nil {
				return err
			}
		}
	}
	return rows.flush()
}

// eventRows writes rows of webhook_events, many in a statement.
type eventRows struct {
	tx    *Tx
	rows  int
	bytes int
	args  []any
}

func (r *eventRows) add(t Announcement, id int64, object Described, to []int64) error {
	var data bytes.Buffer
	encoder := json.NewEncoder(&data)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(object.Data); err != nil {
		return fmt.Errorf("encode %s: %w", t.Event, err)
	}
	text := strings.TrimSuffix(data.String(), "\n")
	for _, webhook := range to {
		if r.bytes > 0 && r.bytes+len(text) > writtenEvents {
			if err := r.flush(); err != nil {
				return err
			}
		}
		until := r.tx.Now.Add(models.WebhookRetry)
		r.args = append(r.args, webhook, t.Event, t.Kind, id, object.UserID, text, r.tx.Now, until, r.tx.Now)
		r.bytes += len(text)
		r.rows++
	}
	return nil
}

func (r *eventRows) flush() error {
	if r.rows == 0 {
		return nil
	}
	const row = "(?,?,?,?,NULLIF(?,0),?,'[]',?,?,?)"
	insert := `
		INSERT INTO webhook_events (webhook_id, type, object_type, object_id, user_id, data, attempt_log,
			due_at, retry_until, created_at)
		VALUES ` + row + strings.Repeat(","+row, r.rows-1)
	if err := r.tx.Exec(insert, r.args...).Error; err != nil {
		return fmt.Errorf("write webhook events: %w", err)
	}
	r.rows, r.bytes, r.args = 0, 0, nil
	return nil
}

// Described is an object as a delivery has it.
type Described struct {
	Data   any
	UserID int64 // whose name is in Data; 0: nobody's
}

// Reference is all that a delivery has of an object that is not public.
type Reference struct {
	ID     int64 `json:"id"`
	PostID int64 `json:"post_id,omitempty"` // of a comment
}

// Describe returns the objects of an event by their ids, as the API shows them to everybody. Objects that it leaves out
// are described by a Reference. It is for Options.
type Describe func(tx *Tx, a Announcement) (map[int64]Described, error)

// RedactEvents removes an object's text from the events about it, delivered or not, and from what endpoints answered.
// The transaction holds the row of the object's post.
func RedactEvents(tx *Tx, target models.Target) error {
	const find = `
		SELECT id
		FROM webhook_events FORCE INDEX (idx_object)
		WHERE object_type=? AND object_id=? AND type<>?`
	var ids []int64
	if err := tx.Raw(find, target.Kind, target.ID, models.LikeMilestone).Scan(&ids).Error; err != nil {
		return fmt.Errorf("read events of %s: %w", target, err)
	}
	for batch := range slices.Chunk(Ascending(ids), LockedAtOnce) {
		if err := EmptyEvents(tx, batch); err != nil {
			return err
		}
	}
	return nil
}

// EmptyEvents leaves of events the ids of their objects alone.
func EmptyEvents(tx *Tx, ids []int64) error {
	update := `
		UPDATE webhook_events FORCE INDEX (PRIMARY)
		SET data=CONCAT('{"id":',object_id,',"redacted":true}'), user_id=NULL, attempt_log='[]'
		WHERE id IN (` + JoinIDs(ids) + `)`
	if err := tx.Exec(update).Error; err != nil {
		return fmt.Errorf("redact webhook events: %w", err)
	}
	return nil
}
