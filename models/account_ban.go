package models

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"gorm.io/gorm"
)

// Ban keeps a user from signing in, and so from everything that takes a token. What the user wrote and likes stays.
type Ban struct {
	Until  time.Time // ForGood, or when it ends by itself, to the second
	Reason string    // the user is told
}

// ForGood is the end of a ban that has none.
var ForGood = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// MaxReason is how long the reason of a moderator's act may be, in characters.
const MaxReason = 500

// ValidateReason holds the reason of a moderator's act to the rule (CodeInvalid). Whatever a moderator does has one.
func ValidateReason(reason string) error {
	var f fieldErrors
	checkReason(&f, reason)
	return f.err()
}

func checkReason(f *fieldErrors, reason string) {
	f.check(strings.TrimSpace(reason) != "", "reason", "must not be empty")
	f.check(utf8.RuneCountInString(reason) <= MaxReason, "reason", fmt.Sprintf("must have at most %d characters", MaxReason))
	f.check(!strings.ContainsFunc(reason, isUnseen), "reason", "must be a single line without control characters")
}

// Validate names every field that breaks a rule (CodeInvalid).
func (b Ban) Validate(now time.Time) error {
	var f fieldErrors
	f.check(b.Until.After(now) && !b.Until.After(ForGood), "until", "must be in the future")
	checkReason(&f, b.Reason)
	return f.err()
}

// Permanent reports whether the ban has no end.
func (b Ban) Permanent() bool { return !b.Until.Before(ForGood) }

// errBanned tells a user who proved to be who they are why they cannot sign in.
func errBanned(b Ban) *Error {
	e := &Error{Code: CodeBanned, Message: "The account is banned.", Ban: &b}
	if !b.Permanent() {
		e.Message = "The account is banned until " + b.Until.UTC().Format(time.RFC3339) + "."
	}
	return e
}

// standing is what is read of a user for what depends on it, in a transaction that holds the row.
type standing struct {
	ID           int64
	Username     string
	PasswordHash string
	Role         Role
	BannedUntil  *time.Time
	BanReason    string
}

// ban gives the user's ban; nil when there is none now.
func (u *standing) ban(now time.Time) *Ban {
	if u.BannedUntil == nil || !u.BannedUntil.After(now) {
		return nil
	}
	return &Ban{u.BannedUntil.UTC(), u.BanReason}
}

// banState is what the moderation log keeps of a ban, or of there being none.
func banState(b *Ban) map[string]any {
	if b == nil {
		return map[string]any{"banned_until": nil}
	}
	return map[string]any{"banned_until": b.Until, "ban_reason": b.Reason}
}

// lockStandings reads users that were not deleted and locks them, by ascending id.
func lockStandings(tx *gorm.DB, ids ...int64) (map[int64]*standing, error) {
	var list []standing
	err := tx.Raw("SELECT id, username, password_hash, role, banned_until, ban_reason FROM users FORCE INDEX (PRIMARY) WHERE id IN (" + joinIDs(ids) + ") AND deleted_at IS NULL" +
		" ORDER BY id FOR UPDATE").Scan(&list).Error
	if err != nil {
		return nil, err
	}
	found := map[int64]*standing{}
	for i := range list {
		found[list[i].ID] = &list[i]
	}
	return found, nil
}

// stillActs holds who acts, as they are now, to a role: CodeForbidden when theirs is below it, or they are banned or gone.
func (s *Store) stillActs(actor *standing, least Role) error {
	if actor == nil || actor.Role < least || actor.ban(s.now()) != nil {
		return Errorf(CodeForbidden, "You are no %s any more.", least)
	}
	return nil
}

// lockActor locks who does an act that takes a role, and holds them to it as they are now, whatever a cached session says
// (CodeForbidden). It comes before all other locks of an act.
func (s *Store) lockActor(tx *gorm.DB, actor int64, least Role) error {
	found, err := lockStandings(tx, actor)
	if err != nil {
		return err
	}
	return s.stillActs(found[actor], least)
}

// mayOverrule keeps an actor from taking back what somebody decided whose role is above the actor's now (CodeForbidden).
// What accounts decided that are gone, or nobody knows who, anybody may take back.
func mayOverrule(tx *gorm.DB, actor, decider int64) error {
	var roles struct{ Actor, Decider Role }
	err := tx.Raw("SELECT COALESCE((SELECT role FROM users WHERE id=?),0) AS actor, COALESCE((SELECT role FROM users WHERE id=?),0) AS decider",
		actor, decider).Scan(&roles).Error
	if err == nil && roles.Decider > roles.Actor {
		err = Errorf(CodeForbidden, "A user with the role %s decided this: you cannot take it back.", roles.Decider)
	}
	return err
}

// mayOverruleBan is mayOverrule for the ban that a user has.
func mayOverruleBan(tx *gorm.DB, actor, userID int64) error {
	var by int64
	err := tx.Raw("SELECT COALESCE((SELECT actor_id FROM moderation_log FORCE INDEX (idx_target_created)"+
		" WHERE target_type='user' AND target_id=? AND action='user.ban' ORDER BY created_at DESC, id DESC LIMIT 1),0)", userID).Scan(&by).Error
	if err != nil {
		return err
	}
	return mayOverrule(tx, actor, by)
}

// lockOutranked locks a user whom a moderator wants to act on, and the moderator, and gives the user. What counts is what
// the moderator is now, whatever a cached session says. CodeNotFound when there is no such user, CodeForbidden when the
// moderator does not outrank them (see Outranks) or is none any more.
func (s *Store) lockOutranked(tx *gorm.DB, actor, userID int64) (*standing, error) {
	found, err := lockStandings(tx, actor, userID)
	if err != nil {
		return nil, err
	}
	moderator, user := found[actor], found[userID]
	if err := s.stillActs(moderator, RoleModerator); err != nil {
		return nil, err
	}
	if user == nil {
		return nil, errNoUser()
	}
	return user, Outranks(actor, moderator.Role, userID, user.Role)
}

// BanUser bans a user, in place of the ban that there is, and ends all sessions and API tokens in the same transaction;
// it gives their hashes, and cuts the end of the ban off to the second. Other processes hear of it within 5 seconds. CodeInvalid for a ban that breaks a rule,
// CodeNotFound when there is no such user, CodeForbidden when the actor does not outrank them (see Outranks), or the ban
// that there is was decided by somebody whose role is above the actor's.
func (s *Store) BanUser(ctx context.Context, actor, userID int64, ban *Ban) (ended [][32]byte, err error) {
	ban.Until = second(ban.Until)
	if err := ban.Validate(s.now()); err != nil {
		return nil, err
	}
	err = s.transact(ctx, func(tx *gorm.DB) error {
		user, err := s.lockOutranked(tx, actor, userID)
		if err != nil {
			return err
		}
		if user.ban(s.now()) != nil { // which this one takes back
			if err := mayOverruleBan(tx, actor, userID); err != nil {
				return err
			}
		}
		if err := tx.Exec("UPDATE users SET banned_until=?, ban_reason=?, updated_at=updated_at WHERE id=?", ban.Until, ban.Reason, userID).Error; err != nil {
			return err
		}
		if ended, err = endSessions(tx, userID, ""); err != nil {
			return err
		}
		if err := endVoids(tx, userID, ban.Until); err != nil { // it may end sooner than the one before
			return err
		}
		until := "for good"
		if !ban.Permanent() {
			until = "until " + ban.Until.UTC().Format(time.RFC3339)
		}
		if err := s.logSecurity(tx, securityEvent{kind: EventBanned, userID: userID, detail: until}); err != nil {
			return err
		}
		return s.logModeration(tx, Act{ActorID: actor, Action: "user.ban", TargetType: "user", TargetID: userID, Reason: ban.Reason,
			Before: banState(user.ban(s.now())), After: banState(ban)})
	})
	if err != nil {
		return nil, fmt.Errorf("ban user %d: %w", userID, err)
	}
	return ended, nil
}

// UnbanUser ends the ban of a user. Of one who is not banned nothing changes, and nothing is logged. The errors are those
// of BanUser.
func (s *Store) UnbanUser(ctx context.Context, actor, userID int64, reason string) error {
	if err := ValidateReason(reason); err != nil {
		return err
	}
	err := s.transact(ctx, func(tx *gorm.DB) error {
		user, err := s.lockOutranked(tx, actor, userID)
		if err != nil || user.ban(s.now()) == nil {
			return err
		}
		if err := mayOverruleBan(tx, actor, userID); err != nil {
			return err
		}
		if err := tx.Exec("UPDATE users SET banned_until=NULL, ban_reason='', updated_at=updated_at WHERE id=?", userID).Error; err != nil {
			return err
		}
		if err := endVoids(tx, userID, s.now()); err != nil {
			return err
		}
		if err := s.logSecurity(tx, securityEvent{kind: EventUnbanned, userID: userID}); err != nil {
			return err
		}
		return s.logModeration(tx, Act{ActorID: actor, Action: "user.unban", TargetType: "user", TargetID: userID, Reason: reason,
			Before: banState(user.ban(s.now())), After: banState(nil)})
	})
	if err != nil {
		return fmt.Errorf("unban user %d: %w", userID, err)
	}
	return nil
}

// ChangeRole sets the role of a user. Nobody changes their own, so there is always an admin left. If the role is lower than
// the one before, ChangeRole ends all sessions and API tokens of the user in the same transaction and returns their hashes: a
// token that moderates must not work again when its owner is promoted again. Of a user who has the role nothing changes,
// and nothing is logged. The errors are those of BanUser; an actor who is not an admin any more gets CodeForbidden.
func (s *Store) ChangeRole(ctx context.Context, actor, userID int64, role Role, reason string) (ended [][32]byte, err error) {
	if err := ValidateReason(reason); err != nil {
		return nil, err
	}
	err = s.transact(ctx, func(tx *gorm.DB) error {
		found, err := lockStandings(tx, actor, userID)
		if err != nil {
			return err
		}
		admin, user := found[actor], found[userID]
		if err := s.stillActs(admin, RoleAdmin); err != nil {
			return err
		}
		if user == nil {
			return errNoUser()
		}
		if err := Outranks(actor, admin.Role, userID, user.Role); err != nil || user.Role == role {
			return err
		}
		if err := tx.Exec("UPDATE users SET role=?, updated_at=updated_at WHERE id=?", role, userID).Error; err != nil {
			return err
		}
		if role < user.Role {
			if ended, err = endSessions(tx, userID, ""); err != nil {
				return err
			}
		}
		if err := s.logSecurity(tx, securityEvent{kind: EventRole, userID: userID, detail: user.Role.String() + " to " + role.String()}); err != nil {
			return err
		}
		return s.logModeration(tx, Act{ActorID: actor, Action: "user.role", TargetType: "user", TargetID: userID, Reason: reason,
			Before: map[string]any{"role": user.Role.String()}, After: map[string]any{"role": role.String()}})
	})
	if err != nil {
		return nil, fmt.Errorf("change role of user %d: %w", userID, err)
	}
	return ended, nil
}
