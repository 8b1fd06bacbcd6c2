package privacy

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/db"
	"likewise/models/media"
	"likewise/models/moderation"
	"likewise/models/reader"
	"likewise/models/stock"
	"likewise/models/webhooks"
)

// DeleteUser turns an account into a placeholder for the author of its content, in one transaction. It frees the name,
// the address and the password, empties the profile, and ends all sessions. It also requests that the account's likes
// (see LikeVoid) and its other rows (see PurgeUser) are deleted. It returns the hashes of the ended sessions.
//
// passwordHash is the hash that was checked. CodeForbidden: the password was changed since. CodeBanned: the account is
// banned. CodeConflict: the user is the last admin.
func (s *Store) DeleteUser(ctx context.Context, userID int64, passwordHash string) (ended [][32]byte, err error) {
	err = s.Transact(ctx, func(tx *db.Tx) error {
		if err := leaveAdmin(tx, userID); err != nil {
			return err
		}
		found, err := accounts.LockStandings(tx, userID)
		if err != nil {
			return err
		}
		user := found[userID]
		if user == nil {
			return accounts.ErrNoUser()
		}
		if ban := user.Ban(tx.Now); ban != nil {
			return accounts.ErrBanned(*ban) // only an admin can delete the account: see DeleteBannedUser
		}
		if user.PasswordHash != passwordHash {
			return models.Errorf(models.CodeForbidden, "The password was changed meanwhile.")
		}
		ended, err = emptyAccount(tx, userID)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("delete user %d: %w", userID, err)
	}
	return ended, nil
}

// emptyAccount does what DeleteUser describes to an account that the transaction has locked.
func emptyAccount(tx *db.Tx, userID int64) (ended [][32]byte, err error) {
	const empty = `
		UPDATE users
		SET username=?, email=?, email_verified_at=NULL, email_undeliverable=FALSE, pending_email=NULL,
			password_hash='', role=?, display_name='[deleted]', bio='', avatar_url=NULL, banned_until=NULL,
			ban_reason='', deleted_at=?
		WHERE id=?`
	const requestVoid = `
		INSERT INTO like_voids (user_id, requested_by, requested_at)
		VALUES (?,?,CURRENT_TIMESTAMP(3))`
	if err := accounts.HoldUsernames(tx, userID); err != nil {
		return nil, err
	}
	if err := accounts.ForgetMail(tx, userID); err != nil {
		return nil, err
	}
	now := tx.Now
	id := strconv.FormatInt(userID, 10)
	// No username contains "~", and the address ends in NoEmailDomain: no other account can have them.
	err = tx.Exec(empty, "deleted~"+id, id+"@deleted"+models.NoEmailDomain, models.RoleUser, now, userID).Error
	if err != nil {
		return nil, err
	}
	if ended, err = accounts.EndSessions(tx, userID, db.Conditions{}); err != nil {
		return nil, err
	}
	if err := accounts.DropFactors(tx, userID); err != nil {
		return nil, err
	}
	if err := dropExport(tx, userID); err != nil {
		return nil, err
	}
	if err := media.SetImageUses(tx, media.UserSubject(userID), nil); err != nil { // the avatar
		return nil, err
	}
	if err := accounts.LogSecurity(tx, accounts.SecurityEvent{Kind: accounts.EventAccountDeleted,
		UserID: userID}); err != nil {
		return nil, err
	}
	return ended, tx.Exec(requestVoid, userID, userID).Error
}

// leaveAdmin returns CodeConflict if the user is the only admin who is not banned. It locks the admins, who are few: of
// the last two, only one can be deleted.
func leaveAdmin(tx *db.Tx, userID int64) error {
	const readRole = `
		SELECT role
		FROM users
		WHERE id=?`
	const readAdmins = `
		SELECT id
		FROM users FORCE INDEX (idx_role)
		WHERE role=? AND deleted_at IS NULL`
	var role models.Role
	if err := tx.Raw(readRole, userID).Scan(&role).Error; err != nil || role != models.RoleAdmin {
		return err
	}
	var ids []int64
	if err := tx.Raw(readAdmins, models.RoleAdmin).Scan(&ids).Error; err != nil {
		return err
	}
	users, err := accounts.LockStandings(tx, ids...)
	if err != nil {
		return err
	}
	for id, user := range users {
		if id != userID && accounts.RequireRole(tx, user, models.RoleAdmin) == nil {
			return nil
		}
	}
	return models.Errorf(models.CodeConflict, "You are the last admin. Give another user the role admin first.")
}

// PurgeUser deletes the rows of a deleted account, except its content and likes: sessions, follows and blocks in both
// directions, bookmarks, notifications, subscriptions, read marks, drafts. It also ends the account's claims, and
// empties the events of webhooks that have its name. It reports whether the account was deleted, and leaves any other
// one alone. Each transaction is short, and PurgeUser can be run again at any time.
func (s *Store) PurgeUser(ctx context.Context, userID int64) (deleted bool, err error) {
	const query = `
		SELECT COUNT(*)>0
		FROM users
		WHERE id=? AND deleted_at IS NOT NULL`
	if err := s.Read(ctx).Raw(query, userID).Scan(&deleted).Error; err != nil {
		return false, fmt.Errorf("read user %d: %w", userID, err)
	}
	if !deleted {
		return false, nil
	}
	err = s.Transact(ctx, func(tx *db.Tx) error {
		if _, err := accounts.LockStandings(tx, userID); err != nil {
			return err
		}
		_, err := accounts.EndSessions(tx, userID, db.Conditions{})
		return err
	})
	if err != nil {
		return true, fmt.Errorf("purge user %d: %w", userID, err)
	}
	if _, err := stock.New(s.DB).EndClaimsOf(ctx, userID, models.ReasonAccountDeleted); err != nil {
		return true, fmt.Errorf("end claims of user %d: %w", userID, err)
	}
	for _, rows := range []purgedRows{
		{"blocks", "PRIMARY", "user_id", "blocked_id"},
		{"blocks", "PRIMARY", "blocked_id", "user_id"},
		{"bookmarks", "PRIMARY", "user_id", "id"},
		{"notifications", "PRIMARY", "user_id", "id"},
		{"subscriptions", "PRIMARY", "user_id", "id"},
		{"read_marks", "PRIMARY", "user_id", "post_id"},
		{"follows", "idx_user_followed", "followed_id", "user_id"}, // the followers of a deleted account are not shown
	} {
		for more := true; more; {
			if more, err = s.purgeSome(ctx, rows, userID); err != nil {
				return true, fmt.Errorf("purge user %d: %w", userID, err)
			}
		}
	}
	for more := true; more; {
		if more, err = reader.New(s.DB).PurgeDraftsOf(ctx, userID, db.PurgeBatch); err != nil {
			return true, fmt.Errorf("purge drafts of user %d: %w", userID, err)
		}
	}
	for more := true; more; {
		if more, err = webhooks.New(s.DB).EmptyEventsOf(ctx, userID, db.PurgeBatch); err != nil {
			return true, fmt.Errorf("empty webhook events of user %d: %w", userID, err)
		}
	}
	for more := true; more; {
		err := s.Transact(ctx, func(tx *db.Tx) error {
			n, err := unfollowSome(tx, userID)
			more = n > 0
			return err
		})
		if err != nil {
			return true, fmt.Errorf("end follows of user %d: %w", userID, err)
		}
	}
	return true, nil
}

// purgedRows are rows of a table that belong to a user by one column. Together with the column other it makes the key
// that all writers of such rows use.
type purgedRows struct {
	table, index, user, other string
}

// purgeSome deletes at most purgeBatch of the rows and reports whether there may be more.
func (s *Store) purgeSome(ctx context.Context, rows purgedRows, userID int64) (more bool, err error) {
	find := fmt.Sprintf(`
		SELECT %s
		FROM %s
		WHERE %s=?
		LIMIT ?`, rows.other, rows.table, rows.user)
	var others []int64
	err = s.Read(ctx).Raw(find, userID, db.PurgeBatch).Scan(&others).Error
	if err != nil || len(others) == 0 {
		return false, err
	}
	remove := fmt.Sprintf(`
		DELETE r
		FROM %s r FORCE INDEX (%s)
		WHERE r.%s=? AND r.%s IN (%s)`,
		rows.table, rows.index, rows.user, rows.other, db.JoinIDs(db.Ascending(others)))
	_, err = s.Write(ctx, remove, userID)
	return len(others) == db.PurgeBatch, err
}

// unfollowSome ends at most purgeBatch follows of a user and returns their number. The users are locked before the
// follows, in the lock order.
func unfollowSome(tx *db.Tx, userID int64) (int, error) {
	const find = `
		SELECT followed_id
		FROM follows
		WHERE user_id=?
		ORDER BY followed_id
		LIMIT ?`
	var ids []int64
	if err := tx.Raw(find, userID, db.PurgeBatch).Scan(&ids).Error; err != nil || len(ids) == 0 {
		return 0, err
	}
	list := db.JoinIDs(ids)
	lock := `
		SELECT id
		FROM users FORCE INDEX (PRIMARY)
		WHERE id IN (` + list + `)
		ORDER BY id
		FOR UPDATE`
	var locked []int64
	if err := tx.Raw(lock).Scan(&locked).Error; err != nil {
		return 0, err
	}
	remove := tx.Exec(`
		DELETE f
		FROM follows f FORCE INDEX (idx_user_followed)
		WHERE f.user_id=? AND f.followed_id IN (`+list+`)`, userID)
	if remove.Error != nil {
		return 0, remove.Error
	}
	if remove.RowsAffected != int64(len(ids)) {
		return 0, db.ErrChangedMeanwhile
	}
	count := `
		UPDATE users
		SET followers_count=followers_count-1, updated_at=updated_at
		WHERE id IN (` + list + `)`
	return len(ids), tx.Exec(count).Error
}

// A deleted account leaves a row in held_names for its username, and for each of its former ones, for good. A banned
// one leaves one for its e-mail address, too, until the ban ends. They are hashes with a key of the installation, so
// the deleted names cannot be read from them.

// errNotBanned is the error of DeleteBannedUser and DeleteBanned for other users.
var errNotBanned = models.Errorf(models.CodeConflict,
	"The user is not banned. Only the account of a banned user can be deleted by others.")

// DeleteBannedUser deletes the account of a banned user for an admin, as DeleteUser does. The ban stays in force: until
// it ends, nobody can register with the username or the e-mail address. It returns the hashes of the sessions that
// ended. The errors are those of ChangeRole; CodeConflict: the user is not banned.
func (s *Store) DeleteBannedUser(
	ctx context.Context, actor, userID int64, reason string,
) (ended [][32]byte, err error) {
	if err := models.ValidateReason(reason); err != nil {
		return nil, err
	}
	err = s.Transact(ctx, func(tx *db.Tx) error {
		found, err := accounts.LockStandings(tx, actor, userID)
		if err != nil {
			return err
		}
		admin, user := found[actor], found[userID]
		if err := accounts.RequireRole(tx, admin, models.RoleAdmin); err != nil {
			return err
		}
		if user == nil {
			return accounts.ErrNoUser()
		}
		if err := models.Outranks(actor, admin.Role, userID, user.Role); err != nil {
			return err
		}
		ended, err = deleteBanned(tx, actor, user, reason)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("delete banned user %d: %w", userID, err)
	}
	return ended, nil
}

// DeleteBanned is DeleteBannedUser as a command of the operator: the moderation log records it without an actor. It
// returns the ban that stays in force. CodeInvalid: the reason breaks a rule. CodeNotFound: the user does not exist.
// CodeConflict: the user is not banned.
func (s *Store) DeleteBanned(ctx context.Context, userID int64, reason string) (ban *models.Ban, err error) {
	if err := models.ValidateReason(reason); err != nil {
		return nil, err
	}
	err = s.Transact(ctx, func(tx *db.Tx) error {
		found, err := accounts.LockStandings(tx, userID)
		if err != nil {
			return err
		}
		user := found[userID]
		if user == nil {
			return accounts.ErrNoUser()
		}
		ban = user.Ban(tx.Now)
		_, err = deleteBanned(tx, 0, user, reason)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("delete banned user %d: %w", userID, err)
	}
	return ban, nil
}

// deleteBanned deletes the account of a user that the transaction has locked, and logs it as an act of the actor.
func deleteBanned(tx *db.Tx, actor int64, user *accounts.Standing, reason string) (ended [][32]byte, err error) {
	ban := user.Ban(tx.Now)
	if ban == nil {
		return nil, errNotBanned
	}
	const read = `
		SELECT email
		FROM users
		WHERE id=?`
	const hold = `
		INSERT INTO held_names (name_hash, held_until)
		VALUES (UNHEX(?),?), (UNHEX(?),?)
		ON DUPLICATE KEY UPDATE held_until=GREATEST(held_until,VALUES(held_until))`
	var email string
	if err := tx.Raw(read, user.ID).Scan(&email).Error; err != nil {
		return nil, err
	}
	hashes := []string{db.HexOf(accounts.HeldHash(tx, "username", user.Username)), db.HexOf(accounts.HeldHash(tx,
		"email", email))}
	slices.Sort(hashes)
	if err := tx.Exec(hold, hashes[0], ban.Until, hashes[1], ban.Until).Error; err != nil {
		return nil, fmt.Errorf("hold names: %w", err)
	}
	if ended, err = emptyAccount(tx, user.ID); err != nil {
		return nil, err
	}
	return ended, accounts.LogModeration(tx, accounts.ModerationAct{
		ActorID: actor, Action: "user.delete", TargetType: "user", TargetID: user.ID, Reason: reason,
		Before: moderation.BanState(ban),
	})
}
