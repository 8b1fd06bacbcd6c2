package accounts

import (
	"context"
	"fmt"
	"time"

	"likewise/models"
	"likewise/models/db"
)

// RequestFactorReset has the second factors of a user removed at the first sign-in after FactorResetDelay, for an admin
// whom the user has asked for it. It returns the time after which that is; an earlier request stays as it is.
//
// CodeInvalid: the reason breaks a rule. CodeNotFound: the user does not exist. CodeForbidden: the actor is not an
// admin, or does not outrank the user. CodeConflict: the user has no second factor.
func (s *Store) RequestFactorReset(
	ctx context.Context, actor, userID int64, reason string,
) (due time.Time, err error) {
	if err := models.ValidateReason(reason); err != nil {
		return due, err
	}
	const insert = `
		INSERT INTO factor_resets (user_id, actor_id, reason, requested_at, due_at)
		VALUES (?,?,?,?,?)`
	err = s.Transact(ctx, func(tx *db.Tx) error {
		if err := lockForReset(tx, actor, userID); err != nil {
			return err
		}
		known, err := resetDue(tx, userID)
		if err != nil {
			return err
		}
		if known != nil {
			due = *known
			return nil
		}
		totp, err := lockTOTP(tx, userID)
		if err != nil {
			return err
		}
		if totp == nil || totp.ConfirmedAt == nil {
			return models.Errorf(models.CodeConflict, "The user has no second factor.")
		}
		now := models.WholeSeconds(tx.Now)
		due = now.Add(models.FactorResetDelay)
		if err := tx.Exec(insert, userID, actor, reason, now, due).Error; err != nil {
			return err
		}
		if err := noticeFactors(tx, userID, eventFactorResetRequested); err != nil {
			return err
		}
		return LogModeration(tx, ModerationAct{
			ActorID: actor, Action: "user.factor_reset", TargetType: "user", TargetID: userID, Reason: reason,
			After: map[string]any{"due_at": due},
		})
	})
	if err != nil {
		return due, fmt.Errorf("request reset of factors of user %d: %w", userID, err)
	}
	return due, nil
}

// CancelFactorReset withdraws a reset that was not carried out yet. CodeNotFound: there is none. The other errors are
// those of RequestFactorReset.
func (s *Store) CancelFactorReset(ctx context.Context, actor, userID int64) error {
	const remove = `
		DELETE FROM factor_resets
		WHERE user_id=?`
	err := s.Transact(ctx, func(tx *db.Tx) error {
		if err := lockForReset(tx, actor, userID); err != nil {
			return err
		}
		due, err := resetDue(tx, userID)
		if err != nil {
			return err
		}
		if due == nil {
			return models.Errorf(models.CodeNotFound, "No reset of the second factors was requested.")
		}
		if err := tx.Exec(remove, userID).Error; err != nil {
			return err
		}
		if err := noticeFactors(tx, userID, eventFactorResetCanceled); err != nil {
			return err
		}
		return LogModeration(tx, ModerationAct{
			ActorID: actor, Action: "user.factor_reset_cancel", TargetType: "user", TargetID: userID,
			Before: map[string]any{"due_at": *due},
		})
	})
	if err != nil {
		return fmt.Errorf("cancel reset of factors of user %d: %w", userID, err)
	}
	return nil
}

// lockForReset locks an admin and the user whose factors the admin resets.
func lockForReset(tx *db.Tx, actor, userID int64) error {
	found, err := LockStandings(tx, actor, userID)
	if err != nil {
		return err
	}
	admin, user := found[actor], found[userID]
	if err := RequireRole(tx, admin, models.RoleAdmin); err != nil {
		return err
	}
	if user == nil {
		return ErrNoUser()
	}
	return models.Outranks(actor, admin.Role, userID, user.Role)
}

// resetDue returns the time from which the factors of a user are to be removed; nil if nobody has requested that.
func resetDue(tx *db.Tx, userID int64) (*time.Time, error) {
	const query = `
		SELECT due_at
		FROM factor_resets
		WHERE user_id=?`
	var due []time.Time
	if err := tx.Raw(query, userID).Scan(&due).Error; err != nil || len(due) == 0 {
		return nil, err
	}
	return &due[0], nil
}

// resetIfDue removes the factors of a user whom the transaction has locked, if a reset is due, and ends all sessions
// except one.
func resetIfDue(tx *db.Tx, userID int64, keep [32]byte) error {
	due, err := resetDue(tx, userID)
	if err != nil || due == nil || due.After(tx.Now) {
		return err
	}
	if err := DropFactors(tx, userID); err != nil {
		return err
	}
	if keep != [32]byte{} {
		if err := setSecondFactor(tx, keep, false); err != nil {
			return err
		}
	}
	_, err = factorsChanged(tx, userID, keep, eventFactorReset)
	return err
}
