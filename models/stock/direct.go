package stock

import (
	"context"
	"fmt"
	"time"

	"likewise/models"
	"likewise/models/db"
	"likewise/models/people"
)

// The conditions that a drop has begun, and that it has neither ended nor been closed. Each placeholder takes the time.
const (
	dropBegun    = "(begins_at IS NULL OR begins_at<=?)"
	dropNotEnded = "(ends_at IS NULL OR ends_at>?) AND closed_at IS NULL"
)

// ClaimDirect claims a share of a drop in direct mode, in one transaction: the conditional UPDATE counts the claim, and
// the row has the id. If the user has a live claim, ClaimDirect returns it and reports false.
//
// CodeNotFound: the drop does not exist, or its post is deleted. CodeNotStarted, CodeEnded, CodeSoldOut: see
// Drop.Refusal. If the site is not in direct mode, ClaimDirect returns CodeUnavailable.
func (s *Store) ClaimDirect(ctx context.Context, dropID, userID, id int64) (c *models.Claim, taken bool, err error) {
	const read = `
		SELECT d.id AS drop_id, d.stock, d.claimed, d.begins_at, d.ends_at, d.closed_at, d.confirm_within,
			COALESCE(c.id, 0) AS id, COALESCE(c.state, 0) AS state, c.reason, c.created_at, c.expires_at,
			c.confirmed_at, c.ended_at
		FROM drops d
		JOIN posts p ON p.id=d.post_id AND p.status=?
		LEFT JOIN claims c FORCE INDEX (PRIMARY) ON c.drop_id=d.id AND c.user_id=?
		WHERE d.id=?`
	const count = `
		UPDATE drops FORCE INDEX (PRIMARY)
		SET claimed=claimed+1
		WHERE id=? AND claimed<stock AND ` + dropBegun + ` AND ` + dropNotEnded
	err = s.Transact(ctx, func(tx *db.Tx) error {
		taken = false
		if err := db.HoldDirect(tx); err != nil {
			return err
		}
		var has struct {
			models.Claim                  `gorm:"embedded"`
			Stock, Claimed, ConfirmWithin int64
			BeginsAt, EndsAt, ClosedAt    *time.Time
		}
		found := tx.Raw(read, models.StatusNormal, userID, dropID).Scan(&has)
		if found.Error != nil {
			return found.Error
		}
		if found.RowsAffected == 0 {
			return models.NotFound(models.KindDrop)
		}
		if has.State.Live() {
			has.UserID = userID
			c = &has.Claim
			return nil
		}
		now := tx.Now.Truncate(time.Millisecond)
		is := models.Drop{Stock: has.Stock, Claimed: has.Claimed, BeginsAt: has.BeginsAt, EndsAt: has.EndsAt,
			ClosedAt: has.ClosedAt}
		if err := is.Refusal(now); err != nil {
			return err // without a lock, so a crowd that comes too late does not queue
		}
		counted := tx.Exec(count, dropID, now, now)
		if counted.Error != nil {
			return counted.Error
		}
		if counted.RowsAffected == 0 {
			return refusal(tx, dropID, now)
		}
		row := newClaimRow(&lockedDrop{ID: dropID, ConfirmWithin: has.ConfirmWithin}, userID, id, now)
		if err := takeRow(tx, row, has.ID); err != nil {
			return err
		}
		c, taken = &row.Claim, true
		if row.State != models.StateConfirmed {
			return nil
		}
		tx.Announce(models.ClaimConfirmed, id)
		return people.NotifyClaims(tx, []int64{id}, now)
	})
	if err != nil {
		return nil, false, fmt.Errorf("claim drop %d: %w", dropID, err)
	}
	return c, taken, nil
}

// refusal returns the reason for which a drop refuses a claim.
func refusal(tx *db.Tx, dropID int64, at time.Time) error {
	d, err := readDrop(tx.DB, dropID)
	if err != nil {
		return err
	}
	if err := d.Refusal(at); err != nil {
		return err
	}
	return db.ErrChangedMeanwhile // it has room again
}

// takeRow writes the row of a new claim: a new one, or that of the user's ended claim old. The count is changed, so the
// drop is locked. If the row is no longer as it was read before the lock, takeRow returns ErrChangedMeanwhile.
func takeRow(tx *db.Tx, r *claimRow, old int64) error {
	const insert = `
		INSERT INTO claims (drop_id, user_id, id, state, created_at, expires_at, confirmed_at, due_at)
		VALUES (?,?,?,?,?,?,?,?)`
	const takeOver = `
		UPDATE claims FORCE INDEX (PRIMARY)
		SET id=?, state=?, reason='', created_at=?, expires_at=?, confirmed_at=?, ended_at=NULL, due_at=?, to_release=0
		WHERE drop_id=? AND user_id=? AND id=? AND state NOT IN (?,?)`
	if old == 0 {
		err := tx.Exec(insert,
			r.DropID, r.UserID, r.ID, r.State, r.CreatedAt, r.ExpiresAt, r.ConfirmedAt, r.DueAt).Error
		if models.MySQLCode(err) == db.DuplicateKey {
			return db.ErrChangedMeanwhile
		}
		return err
	}
	update := tx.Exec(takeOver, r.ID, r.State, r.CreatedAt, r.ExpiresAt, r.ConfirmedAt, r.DueAt,
		r.DropID, r.UserID, old, models.StateReserved, models.StateConfirmed)
	if update.Error == nil && update.RowsAffected == 0 {
		return db.ErrChangedMeanwhile
	}
	return update.Error
}

// ReturnDirect returns a live claim of a user to the stock in direct mode, until the drop ends. A claim that was
// returned stays as it is.
//
// CodeNotFound: the user has no such claim. CodeConflict: it has ended in another way. CodeEnded: the drop has ended.
// If the site is not in direct mode, ReturnDirect returns CodeUnavailable.
func (s *Store) ReturnDirect(ctx context.Context, userID, id int64) (*models.Claim, error) {
	const find = `
		SELECT ` + claimColumns + `
		FROM claims c FORCE INDEX (idx_id)
		WHERE c.id=? AND c.user_id=?`
	const count = `
		UPDATE drops FORCE INDEX (PRIMARY)
		SET claimed=claimed-1
		WHERE id=? AND claimed>0 AND ` + dropNotEnded
	const stillOpen = `
		SELECT COUNT(*)>0
		FROM drops
		WHERE id=? AND ` + dropNotEnded
	const end = `
		UPDATE claims FORCE INDEX (PRIMARY)
		SET state=?, ended_at=?, due_at=NULL
		WHERE drop_id=? AND user_id=? AND id=? AND state IN (?,?)`
	var c models.Claim
	err := s.Transact(ctx, func(tx *db.Tx) error {
		if err := db.HoldDirect(tx); err != nil {
			return err
		}
		c = models.Claim{}
		if err := tx.Raw(find, id, userID).Scan(&c).Error; err != nil {
			return err
		}
		switch {
		case c.ID == 0:
			return errNoClaim()
		case c.State == models.StateReturned:
			return nil
		case !c.State.Live():
			return models.Errorf(models.CodeConflict, "The claim is %s and cannot be returned.", c.State)
		}
		now := tx.Now.Truncate(time.Millisecond)
		counted := tx.Exec(count, c.DropID, now)
		if counted.Error != nil {
			return counted.Error
		}
		if counted.RowsAffected == 0 {
			var open bool
			if err := tx.Raw(stillOpen, c.DropID, now).Scan(&open).Error; err != nil {
				return err
			}
			if open {
				return db.ErrChangedMeanwhile // another request has returned the last claim
			}
			return models.ErrDropEnded()
		}
		ended := tx.Exec(end, models.StateReturned, now, c.DropID, userID, id, models.StateReserved,
			models.StateConfirmed)
		if ended.Error == nil && ended.RowsAffected == 0 {
			return db.ErrChangedMeanwhile
		}
		c.State, c.EndedAt = models.StateReturned, &now
		return ended.Error
	})
	if err != nil {
		return nil, fmt.Errorf("return claim %d: %w", id, err)
	}
	return &c, nil
}
