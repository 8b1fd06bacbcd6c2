package models

import (
	"context"
	"encoding/json"
	"fmt"

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
