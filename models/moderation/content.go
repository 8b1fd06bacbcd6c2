package moderation

import (
	"context"
	"fmt"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/content"
	"likewise/models/db"
)

// act returns an entry of the log about content.
func act(
	actor int64, verb string, target models.Target, reason string, before, after map[string]any,
) accounts.ModerationAct {
	return accounts.ModerationAct{
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
func (s *Store) RemoveContent(ctx context.Context, actor int64, target models.Target, reason string) error {
	if err := models.ValidateReason(reason); err != nil {
		return err
	}
	err := s.Transact(ctx, func(tx *db.Tx) error {
		if err := accounts.LockActor(tx, actor, models.RoleModerator); err != nil {
			return err
		}
		before, after, err := remove(tx, actor, target, reason)
		if err != nil || after == nil {
			return err
		}
		return accounts.LogModeration(tx, act(actor, "delete", target, reason, before, after))
	})
	if err != nil {
		return fmt.Errorf("remove %s: %w", target, err)
	}
	return nil
}

// remove does what RemoveContent describes and leaves the log to the caller. If nothing changed, after is nil.
func remove(tx *db.Tx, actor int64, target models.Target, reason string) (before, after map[string]any, err error) {
	update := `
		UPDATE ` + db.TargetTables[target.Kind].Targets + `
		SET deleted_at=?, deleted_by=?, delete_reason=?, operation_id=NULL, updated_at=updated_at
		WHERE id=?`
	m, err := content.LockModerated(tx, target)
	if err != nil {
		return nil, nil, err
	}
	before = m.State()
	now := &content.Moderated{Status: models.StatusDeleted, DeletedBy: actor}
	switch {
	case m.Status == models.StatusNormal:
		err = content.Hide(tx, target, models.Deletion{At: tx.Now, By: models.Author{ID: actor}, Reason: reason})
	case m.DeletedBy == 0 || m.OperationID != 0 || m.DeletedBy == m.AuthorID && actor != m.AuthorID:
		if m.OperationID != 0 {
			if err := accounts.MayOverrule(tx, actor, m.DeletedBy); models.ErrorCode(err) == models.CodeForbidden {
				now.DeletedBy = m.DeletedBy // otherwise the actor could restore the deletion of an admin
			} else if err != nil {
				return nil, nil, err
			}
		}
		err = tx.Exec(update, models.WholeSeconds(tx.Now), now.DeletedBy, reason, target.ID).Error
	default:
		return before, nil, nil
	}
	return before, now.State(), err
}

// ReinstateContent restores a deleted post or comment, regardless of who deleted it and when. If it is not deleted,
// nothing changes and nothing is logged. The errors are those of RemoveContent. CodeForbidden also: the actor is the
// author, or it was deleted by a user whose role is above the actor's. CodeConflict: it was purged.
func (s *Store) ReinstateContent(ctx context.Context, actor int64, target models.Target, reason string) error {
	if err := models.ValidateReason(reason); err != nil {
		return err
	}
	err := s.Transact(ctx, func(tx *db.Tx) error {
		if err := accounts.LockActor(tx, actor, models.RoleModerator); err != nil {
			return err
		}
		m, err := content.LockModerated(tx, target)
		if err == nil && m.AuthorID == actor {
			err = content.ErrOwnCase()
		}
		if err != nil || m.Status == models.StatusNormal {
			return err
		}
		if m.Purged {
			return errPurged(target.Kind)
		}
		if err := accounts.MayOverrule(tx, actor, m.DeletedBy); err != nil {
			return err
		}
		if err := content.Show(tx, target); err != nil {
			return err
		}
		after := map[string]any{"status": models.StatusNormal.String()}
		return accounts.LogModeration(tx, act(actor, "restore", target, reason, m.State(), after))
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
func (s *Store) SetPostFlag(ctx context.Context, actor, id int64, flag models.PostFlag, set bool, reason string) error {
	if err := models.ValidateReason(reason); err != nil {
		return err
	}
	target := models.Target{Kind: models.KindPost, ID: id}
	verb := flagVerbs[flag][set]
	update := `
		UPDATE posts
		SET ` + string(flag) + `=?, updated_at=updated_at
		WHERE id=?`
	err := s.Transact(ctx, func(tx *db.Tx) error {
		if err := accounts.LockActor(tx, actor, models.RoleModerator); err != nil {
			return err
		}
		m, err := content.LockModerated(tx, target)
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
		return accounts.LogModeration(tx, act(actor, verb, target, reason, before, after))
	})
	if err != nil {
		return fmt.Errorf("%s post %d: %w", verb, id, err)
	}
	return nil
}

// roomToPin returns CodeConflict if MaxPinned posts are pinned. Until the commit, other transactions wait for it.
func roomToPin(tx *db.Tx) error {
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
