package accounts

import (
	"context"
	"fmt"

	"likewise/models"
	"likewise/models/db"
)

// SetRole sets the role of a user, as a command of the operator: the moderation log records it without an actor. A
// lower role ends sessions and API tokens as in ChangeRole. If the user has the role already, nothing changes and
// nothing is logged. CodeNotFound: the user does not exist.
func (s *Store) SetRole(ctx context.Context, userID int64, role models.Role) error {
	const operator = 0
	const update = `
		UPDATE users
		SET role=?
		WHERE id=?`
	err := s.Transact(ctx, func(tx *db.Tx) error {
		found, err := LockStandings(tx, userID)
		if err != nil {
			return err
		}
		user := found[userID]
		if user == nil {
			return ErrNoUser()
		}
		if user.Role == role {
			return nil
		}
		if err := tx.Exec(update, role, userID).Error; err != nil {
			return err
		}
		_, err = roleChanged(tx, operator, user, role, "")
		return err
	})
	if err != nil {
		return fmt.Errorf("set role of user %d: %w", userID, err)
	}
	return nil
}

// ChangeRole sets the role of a user for an admin. Nobody changes their own role, so there is always an admin left.
//
// A lower role ends all sessions and API tokens of the user in the same transaction, and ChangeRole returns their
// hashes: otherwise a token with the scope to moderate would work again after a later promotion. If the user has the
// role already, nothing changes and nothing is logged. The errors are those of BanUser; CodeForbidden also if the actor
// is not an admin.
func (s *Store) ChangeRole(
	ctx context.Context, actor, userID int64, role models.Role, reason string,
) (ended [][32]byte, err error) {
	if err := models.ValidateReason(reason); err != nil {
		return nil, err
	}
	const update = `
		UPDATE users
		SET role=?, updated_at=updated_at
		WHERE id=?`
	err = s.Transact(ctx, func(tx *db.Tx) error {
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
		if err := models.Outranks(actor, admin.Role, userID, user.Role); err != nil || user.Role == role {
			return err
		}
		if err := tx.Exec(update, role, userID).Error; err != nil {
			return err
		}
		ended, err = roleChanged(tx, actor, user, role, reason)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("change role of user %d: %w", userID, err)
	}
	return ended, nil
}

// roleChanged ends the sessions of a user whose role the transaction lowers, and logs the change as an act of the actor
// (0 for the operator). user has the role before the change.
func roleChanged(
	tx *db.Tx, actor int64, user *Standing, role models.Role, reason string,
) (ended [][32]byte, err error) {
	if role < user.Role {
		if ended, err = EndSessions(tx, user.ID, db.Conditions{}); err != nil {
			return nil, err
		}
	} else if err = SessionsChanged(tx, user.ID); err != nil {
		return nil, err
	}
	change := SecurityEvent{Kind: eventRole, UserID: user.ID, Detail: user.Role.String() + " to " + role.String()}
	if err := LogSecurity(tx, change); err != nil {
		return nil, err
	}
	return ended, LogModeration(tx, ModerationAct{
		ActorID: actor, Action: "user.role", TargetType: "user", TargetID: user.ID, Reason: reason,
		Before: map[string]any{"role": user.Role.String()}, After: map[string]any{"role": role.String()},
	})
}
