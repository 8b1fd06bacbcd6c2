package accounts

import (
	"time"

	"likewise/models"
	"likewise/models/db"
)

// Standing is the part of an account that decides what its user may do and what others may do to it. It is read in a
// transaction that holds the row.
type Standing struct {
	ID           int64
	Username     string
	PasswordHash string
	Role         models.Role
	BannedUntil  *time.Time
	BanReason    string
}

// Ban returns the user's ban; nil if none is in force.
func (u *Standing) Ban(now time.Time) *models.Ban {
	return models.BanAt(now, u.BannedUntil, u.BanReason)
}

// LockStandings reads users that were not deleted and locks them, by ascending id.
func LockStandings(tx *db.Tx, ids ...int64) (map[int64]*Standing, error) {
	query := `
		SELECT id, username, password_hash, role, banned_until, ban_reason
		FROM users FORCE INDEX (PRIMARY)
		WHERE id IN (` + db.JoinIDs(ids) + `) AND deleted_at IS NULL
		ORDER BY id
		FOR UPDATE`
	var list []Standing
	if err := tx.Raw(query).Scan(&list).Error; err != nil {
		return nil, err
	}
	found := map[int64]*Standing{}
	for i := range list {
		found[list[i].ID] = &list[i]
	}
	return found, nil
}

// RequireRole returns CodeForbidden if the actor's role is below least, or the actor is banned or deleted (nil).
func RequireRole(tx *db.Tx, actor *Standing, least models.Role) error {
	if actor == nil || actor.Role < least || actor.Ban(tx.Now) != nil {
		return models.Errorf(models.CodeForbidden, "Your account no longer has the role %s.", least)
	}
	return nil
}

// LockActor locks the actor of an act that requires a role, and checks the role as it is now, even while a session is
// cached with another one (CodeForbidden). It comes before all other locks of an act.
func LockActor(tx *db.Tx, actor int64, least models.Role) error {
	found, err := LockStandings(tx, actor)
	if err != nil {
		return err
	}
	return RequireRole(tx, found[actor], least)
}

// MayOverrule returns CodeForbidden if the decider's role is now above the actor's. The decisions of deleted accounts,
// and of deciders who are not known, can be reversed by any actor.
func MayOverrule(tx *db.Tx, actor, decider int64) error {
	const query = `
		SELECT
			COALESCE((SELECT role FROM users WHERE id=?),0) AS actor,
			COALESCE((SELECT role FROM users WHERE id=?),0) AS decider`
	var roles struct{ Actor, Decider models.Role }
	err := tx.Raw(query, actor, decider).Scan(&roles).Error
	if err == nil && roles.Decider > roles.Actor {
		err = models.Errorf(models.CodeForbidden, "A user with the role %s decided this. You cannot reverse it.",
			roles.Decider)
	}
	return err
}

// MayOverruleBan is MayOverrule for the ban of a user.
func MayOverruleBan(tx *db.Tx, actor, userID int64) error {
	const query = `
		SELECT COALESCE((
			SELECT actor_id
			FROM moderation_log FORCE INDEX (idx_target_created)
			WHERE target_type='user' AND target_id=? AND action='user.ban'
			ORDER BY created_at DESC, id DESC
			LIMIT 1),0)`
	var by int64
	if err := tx.Raw(query, userID).Scan(&by).Error; err != nil {
		return err
	}
	return MayOverrule(tx, actor, by)
}

// LockOutranked locks a moderator and the user whom they act on, and returns the user. It checks the moderator's role
// as it is now, even while a session is cached with another one. CodeNotFound: the user does not exist. CodeForbidden:
// the actor is not a moderator, or does not outrank the user (see Outranks).
func LockOutranked(tx *db.Tx, actor, userID int64) (*Standing, error) {
	found, err := LockStandings(tx, actor, userID)
	if err != nil {
		return nil, err
	}
	moderator, user := found[actor], found[userID]
	if err := RequireRole(tx, moderator, models.RoleModerator); err != nil {
		return nil, err
	}
	if user == nil {
		return nil, ErrNoUser()
	}
	return user, models.Outranks(actor, moderator.Role, userID, user.Role)
}

// ErrBanned returns the error for a banned user who has authenticated.
func ErrBanned(b models.Ban) *models.Error {
	e := &models.Error{Code: models.CodeBanned, Message: "The account is banned.", Ban: &b}
	if !b.Permanent() {
		e.Message = "The account is banned until " + b.Until.UTC().Format(time.RFC3339) + "."
	}
	return e
}
