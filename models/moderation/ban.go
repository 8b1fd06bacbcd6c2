package moderation

import (
	"context"
	"fmt"
	"time"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/db"
	"likewise/models/likes"
)

// BanState returns the properties of a ban that the moderation log keeps. A nil ban is none.
func BanState(b *models.Ban) map[string]any {
	if b == nil {
		return map[string]any{"banned_until": nil}
	}
	return map[string]any{"banned_until": b.Until, "ban_reason": b.Reason}
}

// BanUser bans a user in place of any earlier ban, and ends all their sessions and API tokens in the same transaction.
// It returns the hashes of those, and truncates ban.Until to the second. Other processes learn of the ban within some
// 2 s.
//
// CodeInvalid: the ban breaks a rule. CodeNotFound: the user does not exist. CodeForbidden: the actor does not outrank
// the user (see Outranks), or the present ban was decided by a user whose role is above the actor's.
func (s *Store) BanUser(ctx context.Context, actor, userID int64, ban *models.Ban) (ended [][32]byte, err error) {
	ban.Until = models.WholeSeconds(ban.Until)
	now := s.Now()
	if err := ban.Validate(now); err != nil {
		return nil, err
	}
	voidsEnd := ban.Until
	if !ban.Permanent() {
		voidsEnd = likes.New(s.DB).LikeTimeIn(ctx, ban.Until.Sub(now)).Round(time.Second)
	}
	const update = `
		UPDATE users
		SET banned_until=?, ban_reason=?, updated_at=updated_at
		WHERE id=?`
	err = s.Transact(ctx, func(tx *db.Tx) error {
		user, err := accounts.LockOutranked(tx, actor, userID)
		if err != nil {
			return err
		}
		if user.Ban(tx.Now) != nil { // this ban replaces it
			if err := accounts.MayOverruleBan(tx, actor, userID); err != nil {
				return err
			}
		}
		if err := tx.Exec(update, ban.Until, ban.Reason, userID).Error; err != nil {
			return err
		}
		tx.Announce(models.UserBanned, userID)
		if ended, err = accounts.EndSessions(tx, userID, db.Conditions{}); err != nil {
			return err
		}
		if err := accounts.VoidChallenges(tx, userID); err != nil {
			return err
		}
		if err := likes.EndVoids(tx, userID, voidsEnd); err != nil { // it may end sooner than the one before
			return err
		}
		until := "for good"
		if !ban.Permanent() {
			until = "until " + ban.Until.UTC().Format(time.RFC3339)
		}
		if err := accounts.LogSecurity(tx, accounts.SecurityEvent{Kind: accounts.EventBanned, UserID: userID,
			Detail: until}); err != nil {
			return err
		}
		return accounts.LogModeration(tx, accounts.ModerationAct{
			ActorID: actor, Action: "user.ban", TargetType: "user", TargetID: userID, Reason: ban.Reason,
			Before: BanState(user.Ban(tx.Now)), After: BanState(ban),
		})
	})
	if err != nil {
		return nil, fmt.Errorf("ban user %d: %w", userID, err)
	}
	return ended, nil
}

// UnbanUser ends the ban of a user. If the user is not banned, nothing changes and nothing is logged. The errors are
// those of BanUser.
func (s *Store) UnbanUser(ctx context.Context, actor, userID int64, reason string) error {
	if err := models.ValidateReason(reason); err != nil {
		return err
	}
	voidsEnd := likes.New(s.DB).LikeTimeIn(ctx, 0)
	const update = `
		UPDATE users
		SET banned_until=NULL, ban_reason='', updated_at=updated_at
		WHERE id=?`
	err := s.Transact(ctx, func(tx *db.Tx) error {
		user, err := accounts.LockOutranked(tx, actor, userID)
		if err != nil || user.Ban(tx.Now) == nil {
			return err
		}
		if err := accounts.MayOverruleBan(tx, actor, userID); err != nil {
			return err
		}
		if err := tx.Exec(update, userID).Error; err != nil {
			return err
		}
		tx.Announce(models.UserUnbanned, userID)
		if err := likes.EndVoids(tx, userID, voidsEnd); err != nil {
			return err
		}
		if err := accounts.LogSecurity(tx, accounts.SecurityEvent{Kind: accounts.EventUnbanned,
			UserID: userID}); err != nil {
			return err
		}
		return accounts.LogModeration(tx, accounts.ModerationAct{
			ActorID: actor, Action: "user.unban", TargetType: "user", TargetID: userID, Reason: reason,
			Before: BanState(user.Ban(tx.Now)), After: BanState(nil),
		})
	})
	if err != nil {
		return fmt.Errorf("unban user %d: %w", userID, err)
	}
	return nil
}
