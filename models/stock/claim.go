package stock

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/db"
	"likewise/models/people"
)

// claimColumns are the columns of a Claim.
const claimColumns = `c.id, c.drop_id, c.user_id, c.state, c.reason, c.created_at, c.expires_at, c.confirmed_at,
			c.ended_at`

const heldClaims = `
		SELECT ` + claimColumns + `, d.post_id, IF(p.status=?, d.title, '') AS drop_title
		FROM claims c FORCE INDEX (%s)
		STRAIGHT_JOIN drops d FORCE INDEX (PRIMARY) ON d.id=c.drop_id
		STRAIGHT_JOIN posts p FORCE INDEX (PRIMARY) ON p.id=d.post_id
		%s`

// ClaimByID reads a claim. If it does not exist, or the user has made a later claim to the same drop, ClaimByID returns
// CodeNotFound. A claim that the gate accepted just now may not be in MySQL yet.
func (s *Store) ClaimByID(ctx context.Context, id int64) (*models.HeldClaim, error) {
	query := fmt.Sprintf(heldClaims, "idx_id", "WHERE c.id=?")
	var c models.HeldClaim
	read := s.Read(ctx).Raw(query, models.StatusNormal, id).Scan(&c)
	if read.Error != nil {
		return nil, fmt.Errorf("read claim %d: %w", id, read.Error)
	}
	if read.RowsAffected == 0 {
		return nil, errNoClaim()
	}
	return &c, nil
}

func errNoClaim() *models.Error { return models.Errorf(models.CodeNotFound, "There is no such claim.") }

// Claims lists the claims of a user, latest first: at most limit with ids below before (0 for the first page). It
// includes ended ones.
func (s *Store) Claims(ctx context.Context, userID, before int64, limit int) ([]models.HeldClaim, error) {
	where := db.Matching("c.user_id=?", userID)
	where.AddIf(before > 0, "c.id<?", before)
	query := fmt.Sprintf(heldClaims, "idx_user_id", where.Clause()) + `
		ORDER BY c.id DESC
		LIMIT ?`
	list := []models.HeldClaim{}
	args := where.Between([]any{models.StatusNormal}, limit)
	if err := s.Read(ctx).Raw(query, args...).Scan(&list).Error; err != nil {
		return nil, fmt.Errorf("list claims of user %d: %w", userID, err)
	}
	return list, nil
}

// ClaimsAmong returns the latest claim of a user to each of these drops that has one, by drop, in one query. For user 0
// it runs no query.
func (s *Store) ClaimsAmong(ctx context.Context, userID int64, drops []int64) (map[int64]models.Claim, error) {
	if userID == 0 || len(drops) == 0 {
		return nil, nil
	}
	query := `
		SELECT ` + claimColumns + `
		FROM claims c FORCE INDEX (PRIMARY)
		WHERE c.drop_id IN (` + db.JoinIDs(db.Ascending(drops)) + `) AND c.user_id=?`
	var found []models.Claim
	if err := s.Read(ctx).Raw(query, userID).Scan(&found).Error; err != nil {
		return nil, fmt.Errorf("read claims of user %d: %w", userID, err)
	}
	claims := make(map[int64]models.Claim, len(found))
	for _, c := range found {
		claims[c.DropID] = c
	}
	return claims, nil
}

// ClaimsOfDrop lists the claims to a drop, latest first: at most limit with ids below before (0 for the first page). It
// includes ended ones, and those to drops of deleted posts.
func (s *Store) ClaimsOfDrop(ctx context.Context, dropID, before int64, limit int) ([]models.ClaimOfDrop, error) {
	where := db.Matching("c.drop_id=?", dropID)
	where.AddIf(before > 0, "c.id<?", before)
	query := `
		SELECT ` + claimColumns + `, ` + accounts.AuthorColumns + `
		FROM claims c FORCE INDEX (idx_drop_id)
		STRAIGHT_JOIN users u FORCE INDEX (PRIMARY) ON u.id=c.user_id
		` + where.Clause() + `
		ORDER BY c.id DESC
		LIMIT ?`
	list := []models.ClaimOfDrop{}
	if err := s.Read(ctx).Raw(query, append(where.Args, limit)...).Scan(&list).Error; err != nil {
		return nil, fmt.Errorf("list claims to drop %d: %w", dropID, err)
	}
	return list, nil
}

// ConfirmClaim confirms a reserved claim of a user and returns it. A confirmed claim stays as it is. The conditional
// UPDATE decides between a confirmation and the expiry of the same moment.
//
// CodeNotFound: the user has no such claim, or it is not in MySQL yet. CodeTooLate: it has expired. CodeConflict: it
// has ended.
func (s *Store) ConfirmClaim(ctx context.Context, userID, id int64) (*models.Claim, error) {
	const find = `
		SELECT ` + claimColumns + `
		FROM claims c FORCE INDEX (idx_id)
		WHERE c.id=? AND c.user_id=?`
	const update = `
		UPDATE claims FORCE INDEX (PRIMARY)
		SET state=?, confirmed_at=?, due_at=NULL
		WHERE drop_id=? AND user_id=? AND id=? AND state=? AND expires_at>?`
	var c models.Claim
	now := s.ClaimTime(ctx)
	err := s.Transact(ctx, func(tx *db.Tx) error {
		c = models.Claim{}
		if err := tx.Raw(find, id, userID).Scan(&c).Error; err != nil {
			return err
		}
		if c.State == 0 {
			return errNoClaim() // also if the like writer inserts it only now: it was not too late
		}
		confirmed := tx.Exec(update, models.StateConfirmed, now, c.DropID, userID, id, models.StateReserved, now)
		if confirmed.Error != nil {
			return confirmed.Error
		}
		if confirmed.RowsAffected == 1 {
			c.State, c.ConfirmedAt = models.StateConfirmed, &now
			tx.Announce(models.ClaimConfirmed, id)
			return people.NotifyClaims(tx, []int64{id}, now)
		}
		c = models.Claim{} // as it is after any transaction that the UPDATE waited for
		if err := tx.Raw(find, id, userID).Scan(&c).Error; err != nil {
			return err
		}
		switch c.State {
		case 0:
			return errNoClaim()
		case models.StateConfirmed:
			return nil
		case models.StateReserved, models.StateExpired:
			return models.Errorf(models.CodeTooLate, "The time to confirm the claim is over, and it is back in stock.")
		}
		return models.Errorf(models.CodeConflict, "The claim is %s and cannot be confirmed.", c.State)
	})
	if err != nil {
		return nil, fmt.Errorf("confirm claim %d: %w", id, err)
	}
	return &c, nil
}

// dueClaims is the number of claims that one run of ExpireClaims reads.
const dueClaims = 1000

// ExpireClaims ends the reserved claims whose time to confirm is over, and warns the users of those that expire soon.
// It returns how many it ended and warned; it reads a bounded number, so the caller repeats it while either is not 0.
// Each claim expires once, also if several processes call it at once or its user confirms it in the same moment.
func (s *Store) ExpireClaims(ctx context.Context) (expired, warned int, err error) {
	const find = `
		SELECT drop_id, user_id, expires_at
		FROM claims FORCE INDEX (idx_due)
		WHERE due_at<=?
		ORDER BY due_at
		LIMIT ?`
	now := s.ClaimTime(ctx)
	var due []struct {
		DropID, UserID int64
		ExpiresAt      time.Time
	}
	if err := s.Read(ctx).Raw(find, now, dueClaims).Scan(&due).Error; err != nil {
		return 0, 0, fmt.Errorf("read claims that are due: %w", err)
	}
	over, soon := map[int64][]int64{}, map[int64][]int64{} // users by drop
	for _, c := range due {
		if c.ExpiresAt.After(now) {
			soon[c.DropID] = append(soon[c.DropID], c.UserID)
		} else {
			over[c.DropID] = append(over[c.DropID], c.UserID)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(over)) {
		where := db.Matching("user_id IN (" + db.JoinIDs(db.Ascending(over[id])) + ")")
		where.Add("state=? AND expires_at<=?", models.StateReserved, now)
		n, err := s.endClaims(ctx, id, models.StateExpired, "", where)
		if expired += n; err != nil {
			return expired, warned, fmt.Errorf("expire claims to drop %d: %w", id, err)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(soon)) {
		n, err := s.warnClaims(ctx, id, soon[id], now)
		if warned += n; err != nil {
			return expired, warned, fmt.Errorf("warn of claims to drop %d: %w", id, err)
		}
	}
	return expired, warned, nil
}

// endClaims ends those live claims to a drop that meet the conditions, in a transaction, and returns their number.
func (s *Store) endClaims(
	ctx context.Context, dropID int64, state models.ClaimState, reason string, where db.Conditions,
) (n int, err error) {
	err = s.Transact(ctx, func(tx *db.Tx) error {
		if err := db.HoldMode(tx); err != nil {
			return err
		}
		if _, err := lockDrops(tx, []int64{dropID}); err != nil {
			return err
		}
		n, err = endLocked(tx, dropID, state, reason, where)
		return err
	})
	return n, err
}

// endLocked is endClaims for a drop that the transaction has locked. The count and the rows change by the same number.
// Without a gate, there is nothing to release.
func endLocked(
	tx *db.Tx, dropID int64, state models.ClaimState, reason string, where db.Conditions,
) (n int, err error) {
	now := tx.Now.Truncate(time.Millisecond)
	where = where.Clone()
	where.Add("drop_id=? AND state IN (?,?)", dropID, models.StateReserved, models.StateConfirmed)
	end := `
		UPDATE claims FORCE INDEX (PRIMARY)
		SET state=?, reason=?, ended_at=?, due_at=NULL, to_release=?
		` + where.Clause()
	ended := tx.Exec(end, where.Between([]any{state, reason, now, !tx.Direct()})...)
	if ended.Error != nil || ended.RowsAffected == 0 {
		return 0, ended.Error
	}
	const release = `
		UPDATE drops FORCE INDEX (PRIMARY)
		SET claimed=claimed-?
		WHERE id=? AND claimed>=?`
	count := tx.Exec(release, ended.RowsAffected, dropID, ended.RowsAffected)
	if count.Error == nil && count.RowsAffected == 0 {
		return 0, fmt.Errorf("drop %d has more live claims than it counts: %w", dropID, db.ErrBadClaim)
	}
	return int(ended.RowsAffected), count.Error
}

// warnClaims warns users that their claims to a drop expire soon, each once: the time of the warning is replaced by
// that of the expiry in the same transaction.
func (s *Store) warnClaims(ctx context.Context, dropID int64, users []int64, now time.Time) (n int, err error) {
	list := db.JoinIDs(db.Ascending(users))
	lock := `
		SELECT id
		FROM claims FORCE INDEX (PRIMARY)
		WHERE drop_id=? AND user_id IN (` + list + `) AND state=? AND due_at<=? AND due_at<expires_at
		ORDER BY user_id
		FOR UPDATE`
	err = s.Transact(ctx, func(tx *db.Tx) error {
		var ids []int64
		if err := tx.Raw(lock, dropID, models.StateReserved, now).Scan(&ids).Error; err != nil || len(ids) == 0 {
			return err
		}
		n = len(ids)
		update := `
			UPDATE claims FORCE INDEX (PRIMARY)
			SET due_at=expires_at
			WHERE drop_id=? AND user_id IN (` + list + `) AND id IN (` + db.JoinIDs(ids) + `)`
		if err := tx.Exec(update, dropID).Error; err != nil {
			return err
		}
		notify := `
			INSERT INTO notifications (user_id, kind, post_id, claim_id, created_at)
			SELECT c.user_id, ?, d.post_id, c.id, ?
			FROM claims c FORCE INDEX (idx_id)
			JOIN drops d ON d.id=c.drop_id
			JOIN users u ON u.id=c.user_id AND u.deleted_at IS NULL
			WHERE c.id IN (` + db.JoinIDs(ids) + `)` + people.NotificationOnce
		return tx.Exec(notify, models.NotifyExpiring, models.WholeSeconds(now)).Error
	})
	return n, err
}

// VoidClaims ends live claims of a user that MySQL has, at most MaxVoided, and returns their number. The act is logged
// in the same transaction, and the number is the kept answer of an idempotent request. Claims on their way to MySQL are
// not among them: the caller flushes the pipeline before.
//
// CodeInvalid: the reason breaks a rule. CodeNotFound: the user does not exist. CodeForbidden: the actor does not
// outrank the user (see Outranks).
func (s *Store) VoidClaims(ctx context.Context, v models.ClaimVoid) (voided int, err error) {
	if err := models.ValidateReason(v.Reason); err != nil {
		return 0, err
	}
	where := db.Matching("user_id=? AND state IN (?,?)", v.UserID, models.StateReserved, models.StateConfirmed)
	where.AddIf(v.DropID != 0, "drop_id=?", v.DropID)
	find := `
		SELECT drop_id
		FROM claims FORCE INDEX (idx_user_id)
		` + where.Clause() + `
		ORDER BY id DESC
		LIMIT ?`
	err = s.Transact(ctx, func(tx *db.Tx) error {
		voided = 0
		if err := db.HoldMode(tx); err != nil {
			return err
		}
		if _, err := accounts.LockOutranked(tx, v.ActorID, v.UserID); err != nil {
			return err
		}
		var drops []int64
		if err := tx.Raw(find, where.Between(nil, models.MaxVoided)...).Scan(&drops).Error; err != nil {
			return err
		}
		if _, err := lockDrops(tx, drops); err != nil {
			return err
		}
		for _, id := range db.Ascending(drops) {
			n, err := endLocked(tx, id, models.StateVoided, models.ReasonModerator, db.Matching("user_id=?", v.UserID))
			if voided += n; err != nil {
				return err
			}
		}
		err := accounts.LogModeration(tx, accounts.ModerationAct{
			ActorID: v.ActorID, Action: "user.void_claims", TargetType: "user", TargetID: v.UserID, Reason: v.Reason,
			After: map[string]any{"drop_id": v.DropID, "voided": voided},
		})
		if err != nil {
			return err
		}
		return db.KeepAnswer(ctx, voided)
	})
	if err != nil {
		return 0, fmt.Errorf("void claims of user %d: %w", v.UserID, err)
	}
	return voided, nil
}

// EndClaimsOf voids all live claims of a user, in one transaction for each drop.
func (s *Store) EndClaimsOf(ctx context.Context, userID int64, reason string) (n int, err error) {
	const find = `
		SELECT id, drop_id
		FROM claims FORCE INDEX (idx_user_id)
		WHERE user_id=? AND state IN (?,?) AND id>?
		ORDER BY id
		LIMIT ?`
	for after := int64(0); ; {
		var found []struct{ ID, DropID int64 }
		read := s.Read(ctx).Raw(find, userID, models.StateReserved, models.StateConfirmed, after,
			db.PurgeBatch).Scan(&found)
		if read.Error != nil {
			return n, read.Error
		}
		for _, f := range found {
			batch, err := s.endClaims(ctx, f.DropID, models.StateVoided, reason, db.Matching("user_id=?", userID))
			if n += batch; err != nil {
				return n, err
			}
			after = f.ID
		}
		if len(found) < db.PurgeBatch {
			return n, nil
		}
	}
}

// ClaimsToRelease returns claims that the gate may still hold after MySQL ended them, in the order of their drops and
// users: at most limit after one (the zero EndedClaim for the first). A claim stays in the list until ClaimReturned is
// applied, or ClearCold finds its drop cold.
func (s *Store) ClaimsToRelease(ctx context.Context, after models.EndedClaim, limit int) ([]models.EndedClaim, error) {
	const query = `
		SELECT drop_id, user_id, id
		FROM claims FORCE INDEX (idx_release)
		WHERE to_release=1 AND (drop_id>? OR drop_id=? AND user_id>?)
		ORDER BY drop_id, user_id
		LIMIT ?`
	var list []models.EndedClaim
	read := s.Read(ctx).Raw(query, after.DropID, after.DropID, after.UserID, limit).Scan(&list)
	if read.Error != nil {
		return nil, fmt.Errorf("read claims to release: %w", read.Error)
	}
	return list, nil
}

// ClearCold records that what had to be sent to the gate about a drop need not be sent, because the gate holds nothing
// of the drop. It reports whether it did: if cold reports false, it changes nothing. Claims and settings that changed
// after the caller had found the drop cold are left: Redis may have had the drop again in the meantime, and a crash can
// bring that state back.
//
// ClearCold calls cold under the lock of the drop's row, as WithdrawLike does under that of its target. It must report
// whether the gate holds nothing of the drop and will not load it from rows read before. A process that warms the drop
// later reads its present settings and the live claims. Without a gate, cold reports true.
func (s *Store) ClearCold(ctx context.Context, drop models.ColdDrop, cold func() (bool, error)) (done bool, err error) {
	const settings = `
		UPDATE drops FORCE INDEX (PRIMARY)
		SET sent_version=GREATEST(sent_version, LEAST(version, ?))
		WHERE id=?`
	err = s.Transact(ctx, func(tx *db.Tx) error {
		done = false
		if err := db.HoldMode(tx); err != nil {
			return err
		}
		if _, err := lockDrops(tx, []int64{drop.ID}); err != nil {
			return err
		}
		if done, err = cold(); err != nil || !done {
			return err
		}
		for batch := range slices.Chunk(drop.Claims, db.WrittenClaims) {
			users, ids := make([]int64, len(batch)), make([]int64, len(batch))
			for i, c := range batch {
				users[i], ids[i] = c.UserID, c.ID
			}
			released := `
				UPDATE claims FORCE INDEX (PRIMARY)
				SET to_release=0
				WHERE drop_id=? AND user_id IN (` + db.JoinIDs(db.Ascending(users)) + `) AND id IN (` +
				db.JoinIDs(ids) + `)`
			if err := tx.Exec(released, drop.ID).Error; err != nil {
				return err
			}
		}
		return tx.Exec(settings, drop.Version, drop.ID).Error
	})
	if err != nil {
		return false, fmt.Errorf("clear cold drop %d: %w", drop.ID, err)
	}
	return done, nil
}
