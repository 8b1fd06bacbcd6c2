package accounts

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"likewise/models"
	"likewise/models/db"
)

// ModerationAct is one action of a moderator. It is logged in the transaction that carries it out, and never changed.
type ModerationAct struct {
	ActorID    int64
	Action     string // such as "post.delete"
	TargetType string // "post", "comment", "user", "report", "shard", …
	TargetID   int64
	Reason     string // see models.ValidateReason
	// Before and After are the changed properties of the target, as JSON objects; nil if the target did not or does not
	// exist.
	Before, After map[string]any
}

// LogModeration writes an act into the moderation log, as part of the transaction tx that does it, with the id of the
// request.
func LogModeration(tx *db.Tx, act ModerationAct) error {
	before, err := stateJSON(act.Before)
	if err != nil {
		return err
	}
	after, err := stateJSON(act.After)
	if err != nil {
		return err
	}
	const insert = `
		INSERT INTO moderation_log (actor_id, action, target_type, target_id, reason,
			before_state, after_state, request_id, created_at)
		VALUES (?,?,?,?,?,?,?,?,?)`
	err = tx.Exec(insert, act.ActorID, act.Action, act.TargetType, act.TargetID, act.Reason,
		before, after, tx.RequestID(), tx.Now).Error
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

// ModerationLog lists acts, latest first, in one query.
func (s *Store) ModerationLog(ctx context.Context, q models.ActQuery) ([]models.LoggedAct, error) {
	index := "idx_created_at"
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
	var where db.Conditions
	where.AddIf(q.TargetType != "", "l.target_type=?", q.TargetType)
	where.AddIf(q.TargetID != 0, "l.target_id=?", q.TargetID)
	where.AddIf(q.ActorID != 0, "l.actor_id=?", q.ActorID)
	where.AddIf(q.Action != "", "l.action=?", q.Action)
	where.AddIf(!q.Since.IsZero(), "l.created_at>=?", q.Since.UTC())
	where.AddIf(!q.Until.IsZero(), "l.created_at<?", q.Until.UTC())
	if q.After != nil {
		at := time.UnixMilli(q.After.Value).UTC()
		// Two ranges of the index, so that acts of the same millisecond that were listed before are not read again.
		where.Add("(l.created_at<? OR l.created_at=? AND l.id<?)", at, at, q.After.ID)
	}
	query := `
		SELECT l.id, l.action, l.target_type, l.target_id, l.reason, l.before_state, l.after_state, l.request_id,
			l.created_at, ` + AuthorColumns + `
		FROM moderation_log l FORCE INDEX (` + index + `)
		LEFT JOIN users u ON u.id=l.actor_id
		` + where.Clause() + `
		ORDER BY l.created_at DESC, l.id DESC
		LIMIT ?`
	var acts []models.LoggedAct
	if err := s.Read(ctx).Raw(query, append(where.Args, q.Limit)...).Scan(&acts).Error; err != nil {
		return nil, fmt.Errorf("read moderation log: %w", err)
	}
	return acts, nil
}
