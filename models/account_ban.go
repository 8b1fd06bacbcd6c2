package models

import (
	"context"
	"fmt"
	"time"
)

// Ban keeps a user from signing in, and so from everything that requires a token. The user's content and likes stay.
type Ban struct {
	Until  time.Time // ForGood, or the end of the ban, to the second
	Reason string    // shown to the user
}

// BanAt returns the ban of an account that is banned until a time, nil for one that is not; nil if it is over at now.
func BanAt(now time.Time, until *time.Time, reason string) *Ban {
	if until == nil || !until.After(now) {
		return nil
	}
	return &Ban{until.UTC(), reason}
}

// ForGood is the end of a permanent ban.
var ForGood = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// Validate names every field that breaks a rule (CodeInvalid).
func (b Ban) Validate(now time.Time) error {
	var f fieldErrors
	f.check(b.Until.After(now) && !b.Until.After(ForGood), "until", Broken(FieldNotFuture, "must be in the future"))
	f.checkReason("reason", b.Reason)
	return f.err()
}

// Permanent reports whether the ban has no end.
func (b Ban) Permanent() bool { return !b.Until.Before(ForGood) }

// errBanned returns the error for a banned user who has authenticated.
func errBanned(b Ban) *Error {
	e := &Error{Code: CodeBanned, Message: "The account is banned.", Ban: &b}
	if !b.Permanent() {
		e.Message = "The account is banned until " + b.Until.UTC().Format(time.RFC3339) + "."
	}
	return e
}

// banState returns the properties of a ban that the moderation log keeps. A nil ban is none.
func banState(b *Ban) map[string]any {
	if b == nil {
		return map[string]any{"banned_until": nil}
	}
	return map[string]any{"banned_until": b.Until, "ban_reason": b.Reason}
}

// BanUser bans a user in place of any earlier ban, and ends all their sessions and API tokens in the same transaction.
// It returns the hashes of those, and truncates ban.Until to the second. Other processes learn of the ban within 5
// seconds.
//
// CodeInvalid: the ban breaks a rule. CodeNotFound: the user does not exist. CodeForbidden: the actor does not outrank
// the user (see Outranks), or the present ban was decided by a user whose role is above the actor's.
func (s *Store) BanUser(ctx context.Context, actor, userID int64, ban *Ban) (ended [][32]byte, err error) {
	ban.Until = wholeSeconds(ban.Until)
	now := s.now()
	if err := ban.Validate(now); err != nil {
		return nil, err
	}
	voidsEnd := ban.Until
	if !ban.Permanent() {
		voidsEnd = s.likeTimeIn(ctx, ban.Until.Sub(now)).Round(time.Second)
	}
	const update = `
		UPDATE users
		SET banned_until=?, ban_reason=?, updated_at=updated_at
		WHERE id=?`
	err = s.transact(ctx, func(tx *Tx) error {
		user, err := lockOutranked(tx, actor, userID)
		if err != nil {
			return err
		}
		if user.ban(tx.Now) != nil { // this ban replaces it
			if err := mayOverruleBan(tx, actor, userID); err != nil {
				return err
			}
		}
		if err := tx.Exec(update, ban.Until, ban.Reason, userID).Error; err != nil {
			return err
		}
		tx.announce(UserBanned, userID)
		if ended, err = endSessions(tx, userID, conditions{}); err != nil {
			return err
		}
		if err := endVoids(tx, userID, voidsEnd); err != nil { // it may end sooner than the one before
			return err
		}
		until := "for good"
		if !ban.Permanent() {
			until = "until " + ban.Until.UTC().Format(time.RFC3339)
		}
		if err := logSecurity(tx, securityEvent{kind: eventBanned, userID: userID, detail: until}); err != nil {
			return err
		}
		return logModeration(tx, moderationAct{
			ActorID: actor, Action: "user.ban", TargetType: "user", TargetID: userID, Reason: ban.Reason,
			Before: banState(user.ban(tx.Now)), After: banState(ban),
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
	if err := ValidateReason(reason); err != nil {
		return err
	}
	voidsEnd := s.likeTimeIn(ctx, 0)
	const update = `
		UPDATE users
		SET banned_until=NULL, ban_reason='', updated_at=updated_at
		WHERE id=?`
	err := s.transact(ctx, func(tx *Tx) error {
		user, err := lockOutranked(tx, actor, userID)
		if err != nil || user.ban(tx.Now) == nil {
			return err
		}
		if err := mayOverruleBan(tx, actor, userID); err != nil {
			return err
		}
		if err := tx.Exec(update, userID).Error; err != nil {
			return err
		}
		tx.announce(UserUnbanned, userID)
		if err := endVoids(tx, userID, voidsEnd); err != nil {
			return err
		}
		if err := logSecurity(tx, securityEvent{kind: eventUnbanned, userID: userID}); err != nil {
			return err
		}
		return logModeration(tx, moderationAct{
			ActorID: actor, Action: "user.unban", TargetType: "user", TargetID: userID, Reason: reason,
			Before: banState(user.ban(tx.Now)), After: banState(nil),
		})
	})
	if err != nil {
		return fmt.Errorf("unban user %d: %w", userID, err)
	}
	return nil
}
