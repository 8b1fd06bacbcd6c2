package db

import (
	"context"
	"fmt"

	"likewise/models"
)

// moderated is the part of a post or comment that acts of moderators depend on. It is read in a transaction that holds
// the row.
type moderated struct {
	AuthorID    int64
	Status      models.Status
	DeletedBy   int64 // 0: it is not deleted, or the deleting user is not known
	OperationID int64 // the ContentOperation that deleted it, else 0
	Locked      bool  // of posts alone, as the next
	Pinned      bool
	Version     int64
	Purged      bool // its text was deleted, and it cannot be restored
}

// errOwnCase is the error of moderators who decide about themselves.
func errOwnCase() *models.Error {
	return models.Errorf(models.CodeForbidden, "You cannot decide about yourself. Another moderator has to do it.")
}

// state returns the properties that the moderation log keeps.
func (m *moderated) state() map[string]any {
	state := map[string]any{"status": m.Status.String()}
	if m.Status == models.StatusDeleted && m.DeletedBy != 0 {
		state["deleted_by"] = m.DeletedBy
	}
	if m.OperationID != 0 {
		state["operation_id"] = m.OperationID
	}
	return state
}

// lockModerated reads a post or comment with the post's row locked: every deletion and restoration locks that row.
// CodeNotFound: it never existed.
func lockModerated(tx *Tx, target models.Target) (*moderated, error) {
	if err := lockTargetPost(tx, target); err != nil {
		return nil, err
	}
	flags := ", locked, pinned"
	if target.Kind == models.KindComment {
		flags = ""
	}
	query := `
		SELECT user_id AS author_id, status, COALESCE(deleted_by,0) AS deleted_by,
			COALESCE(operation_id,0) AS operation_id, version, purged` + flags + `
		FROM ` + TargetTables[target.Kind].Targets + `
		WHERE id=?`
	var m moderated
	read := tx.Raw(query, target.ID).Scan(&m)
	if read.Error == nil && read.RowsAffected == 0 {
		return nil, models.NotFound(target.Kind)
	}
	return &m, read.Error
}

// lockTargetPost locks the post that is the target, or that the target is a comment on.
func lockTargetPost(tx *Tx, target models.Target) error {
	const query = `
		SELECT COALESCE(MAX(post_id),0)
		FROM comments
		WHERE id=?`
	postID := target.ID
	if target.Kind == models.KindComment {
		if err := tx.Raw(query, target.ID).Scan(&postID).Error; err != nil {
			return err
		}
	}
	_, err := lockPosts(tx, []int64{postID}, models.StatusNormal)
	return err
}

// act returns an entry of the log about content.
func act(actor int64, verb string, target models.Target, reason string, before, after map[string]any) ModerationAct {
	return ModerationAct{
		ActorID: actor, Action: string(target.Kind) + "." + verb,
		TargetType: string(target.Kind), TargetID: target.ID, Reason: reason,
		Before: before, After: after,
	}
}

// RemoveContent deletes a post or comment as a moderator: its author cannot restore it. If the author deleted it
// before, the deletion becomes the moderator's. So does that of a ContentOperation: undoing the operation does not
// restore the target. If a moderator deleted it before, nothing changes and nothing is logged.
//
// CodeInvalid: the reason breaks a rule. CodeForbidden: the actor is not a moderator. CodeNotFound: the target never
// existed.
func (s *DB) RemoveContent(ctx context.Context, actor int64, target models.Target, reason string) error {
	if err := models.ValidateReason(reason); err != nil {
		return err
	}
	err := s.Transact(ctx, func(tx *Tx) error {
		if err := LockActor(tx, actor, models.RoleModerator); err != nil {
			return err
		}
		before, after, err := remove(tx, actor, target, reason)
		if err != nil || after == nil {
			return err
		}
		return LogModeration(tx, act(actor, "delete", target, reason, before, after))
	})
	if err != nil {
		return fmt.Errorf("remove %s: %w", target, err)
	}
	return nil
}

// remove does what RemoveContent describes and leaves the log to the caller. If nothing changed, after is nil.
func remove(tx *Tx, actor int64, target models.Target, reason string) (before, after map[string]any, err error) {
	update := `
		UPDATE ` + TargetTables[target.Kind].Targets + `
		SET deleted_at=?, deleted_by=?, delete_reason=?, operation_id=NULL, updated_at=updated_at
		WHERE id=?`
	m, err := lockModerated(tx, target)
	if err != nil {
		return nil, nil, err
	}
	before = m.state()
	now := &moderated{Status: models.StatusDeleted, DeletedBy: actor}
	switch {
	case m.Status == models.StatusNormal:
		err = hide(tx, target, models.Deletion{At: tx.Now, By: models.Author{ID: actor}, Reason: reason})
	case m.DeletedBy == 0 || m.OperationID != 0 || m.DeletedBy == m.AuthorID && actor != m.AuthorID:
		if m.OperationID != 0 {
			if err := mayOverrule(tx, actor, m.DeletedBy); models.ErrorCode(err) == models.CodeForbidden {
				now.DeletedBy = m.DeletedBy // otherwise the actor could restore the deletion of an admin
			} else if err != nil {
				return nil, nil, err
			}
		}
		err = tx.Exec(update, models.WholeSeconds(tx.Now), now.DeletedBy, reason, target.ID).Error
	default:
		return before, nil, nil
	}
	return before, now.state(), err
}

// ReinstateContent restores a deleted post or comment, regardless of who deleted it and when. If it is not deleted,
// nothing changes and nothing is logged. The errors are those of RemoveContent. CodeForbidden also: the actor is the
// author, or it was deleted by a user whose role is above the actor's. CodeConflict: it was purged.
func (s *DB) ReinstateContent(ctx context.Context, actor int64, target models.Target, reason string) error {
	if err := models.ValidateReason(reason); err != nil {
		return err
	}
	err := s.Transact(ctx, func(tx *Tx) error {
		if err := LockActor(tx, actor, models.RoleModerator); err != nil {
			return err
		}
		m, err := lockModerated(tx, target)
		if err == nil && m.AuthorID == actor {
			err = errOwnCase()
		}
		if err != nil || m.Status == models.StatusNormal {
			return err
		}
		if m.Purged {
			return errPurged(target.Kind)
		}
		if err := mayOverrule(tx, actor, m.DeletedBy); err != nil {
			return err
		}
		if err := show(tx, target); err != nil {
			return err
		}
		after := map[string]any{"status": models.StatusNormal.String()}
		return LogModeration(tx, act(actor, "restore", target, reason, m.state(), after))
	})
	if err != nil {
		return fmt.Errorf("reinstate %s: %w", target, err)
	}
	return nil
}

var flagVerbs = map[models.PostFlag]map[bool]string{
	models.PostLocked: {true: "lock", false: "unlock"},
	models.PostPinned: {true: "pin", false: "unpin"},
}

// SetPostFlag sets or removes a flag of a post. If the post has the state already, nothing changes and nothing is
// logged. The errors are those of RemoveContent. CodeConflict: MaxPinned posts are pinned.
func (s *DB) SetPostFlag(ctx context.Context, actor, id int64, flag models.PostFlag, set bool, reason string) error {
	if err := models.ValidateReason(reason); err != nil {
		return err
	}
	target := models.Target{Kind: models.KindPost, ID: id}
	verb := flagVerbs[flag][set]
	update := `
		UPDATE posts
		SET ` + string(flag) + `=?, updated_at=updated_at
		WHERE id=?`
	err := s.Transact(ctx, func(tx *Tx) error {
		if err := LockActor(tx, actor, models.RoleModerator); err != nil {
			return err
		}
		m, err := lockModerated(tx, target)
		if err != nil {
			return err
		}
		was := m.Locked
		if flag == models.PostPinned {
			was = m.Pinned
		}
		if was == set {
			return nil
		}
		if flag == models.PostPinned && set {
			if err := roomToPin(tx); err != nil {
				return err
			}
		}
		if err := tx.Exec(update, set, id).Error; err != nil {
			return err
		}
		before, after := map[string]any{string(flag): was}, map[string]any{string(flag): set}
		return LogModeration(tx, act(actor, verb, target, reason, before, after))
	})
	if err != nil {
		return fmt.Errorf("%s post %d: %w", verb, id, err)
	}
	return nil
}

// roomToPin returns CodeConflict if MaxPinned posts are pinned. Until the commit, other transactions wait for it.
func roomToPin(tx *Tx) error {
	const lock = `
		SELECT name
		FROM settings
		WHERE name='pins'
		FOR UPDATE`
	const count = `
		SELECT COUNT(*)
		FROM posts FORCE INDEX (idx_pinned_created)
		WHERE pinned=1`
	var held string
	if err := tx.Raw(lock).Scan(&held).Error; err != nil {
		return err
	}
	var pinned int
	if err := tx.Raw(count).Scan(&pinned).Error; err != nil {
		return err
	}
	if pinned >= models.MaxPinned {
		return models.Errorf(models.CodeConflict,
			"%d posts are pinned, including deleted ones, and more is not possible. Unpin one of them first.", pinned)
	}
	return nil
}
