package models

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"gorm.io/gorm"
)

// Act is one thing that a moderator did. Acts are written in the transaction that does the thing, and never changed.
type Act struct {
	ActorID    int64
	Action     string // what was done, as "post.delete"
	TargetType string // to what: "post", "comment", "user", "report", "shard", …
	TargetID   int64
	Reason     string // at most MaxReason characters
	// Before and After are what of the target the act changed, as JSON objects; nil where there was or is nothing.
	Before, After map[string]any
}

type requestIDKey struct{}

// WithRequestID makes the id of the request under way known to the moderation log.
func WithRequestID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, requestIDKey{}, id)
}

// logModeration writes an act into the moderation log, as part of the transaction tx that does it.
func (s *Store) logModeration(tx *gorm.DB, act Act) error {
	before, err := stateJSON(act.Before)
	if err != nil {
		return err
	}
	after, err := stateJSON(act.After)
	if err != nil {
		return err
	}
	requestID, _ := tx.Statement.Context.Value(requestIDKey{}).(string)
	err = tx.Exec("INSERT INTO moderation_log (actor_id, action, target_type, target_id, reason, before_state, after_state, request_id, created_at)"+
		" VALUES (?,?,?,?,?,?,?,?,?)", act.ActorID, act.Action, act.TargetType, act.TargetID, act.Reason, before, after, requestID, s.now().UTC()).Error
	if err != nil {
		return fmt.Errorf("log moderation: %w", err)
	}
	return nil
}

func stateJSON(state map[string]any) (*string, error) {
	if state == nil {
		return nil, nil
	}
	b, err := json.Marshal(state)
	if err != nil {
		return nil, fmt.Errorf("log moderation: %w", err)
	}
	text := string(b)
	return &text, nil
}

// LoggedAct is an act as it is in the log.
type LoggedAct struct {
	ID                      int64
	Actor                   Author `gorm:"embedded;embeddedPrefix:author_"`
	Action                  string
	TargetType              string
	TargetID                int64
	Reason                  string
	BeforeState, AfterState *string // JSON objects; nil where there was or is nothing
	RequestID               string
	CreatedAt               time.Time // to the millisecond
}

// Key gives the place of the act in the log: its time in milliseconds since 1970, and its id.
func (a *LoggedAct) Key() ListKey { return ListKey{a.CreatedAt.UnixMilli(), a.ID} }

// ActQuery says which acts to list. The zero value of a field leaves it open.
type ActQuery struct {
	ActorID      int64
	Action       string
	TargetType   string
	TargetID     int64     // with TargetType only
	Since, Until time.Time // from, and before
	After        *ListKey  // nil for the first page
	Limit        int
}

// ModerationLog lists acts, latest first, in one query.
func (s *Store) ModerationLog(ctx context.Context, q ActQuery) ([]LoggedAct, error) {
	index, where, args := "idx_created_at", "1=1", []any{}
	filter := func(on bool, condition string, values ...any) {
		if on {
			where, args = where+" AND "+condition, append(args, values...)
		}
	}
	switch {
	case q.TargetType != "" && q.TargetID != 0:
		index = "idx_target_created"
	case q.ActorID != 0:
		index = "idx_actor_created"
	case q.Action != "":
		index = "idx_action_created"
	case q.TargetType != "":
		index = "idx_type_created"
	}
	filter(q.TargetType != "", "l.target_type=?", q.TargetType)
	filter(q.TargetID != 0, "l.target_id=?", q.TargetID)
	filter(q.ActorID != 0, "l.actor_id=?", q.ActorID)
	filter(q.Action != "", "l.action=?", q.Action)
	filter(!q.Since.IsZero(), "l.created_at>=?", q.Since.UTC())
	filter(!q.Until.IsZero(), "l.created_at<?", q.Until.UTC())
	if q.After != nil {
		at := time.UnixMilli(q.After.Value).UTC()
		// Two ranges on the index, so that not even those of the same moment are read that were seen already.
		filter(true, "(l.created_at<? OR l.created_at=? AND l.id<?)", at, at, q.After.ID)
	}
	var acts []LoggedAct
	err := s.db.WithContext(ctx).Raw("SELECT l.id, l.action, l.target_type, l.target_id, l.reason, l.before_state, l.after_state, l.request_id, l.created_at, "+
		authorColumns+" FROM moderation_log l FORCE INDEX ("+index+") LEFT JOIN users u ON u.id=l.actor_id WHERE "+where+
		" ORDER BY l.created_at DESC, l.id DESC LIMIT ?", append(args, q.Limit)...).Scan(&acts).Error
	if err != nil {
		return nil, fmt.Errorf("read moderation log: %w", err)
	}
	return acts, nil
}
