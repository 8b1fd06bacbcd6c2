package stock

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"likewise/models"
	"likewise/models/db"
	"likewise/models/people"
)

// dropUser is the primary key of a claim.
type dropUser struct{ DropID, UserID int64 }

// claimRow is a row of claims while a batch works on it.
type claimRow struct {
	models.Claim `gorm:"embedded"`
	DueAt        *time.Time
	ToRelease    bool
	changed      bool
}

// lockedDrop is a row of drops while a batch works on it.
type lockedDrop struct {
	ID, PostID                       int64
	Stock, Claimed, ConfirmWithin    int64
	Version, SentVersion             int64
	claimedBefore, sentVersionBefore int64
}

// lockDrops locks and reads drops in the order of their ids. Every transaction that changes the claims of a drop, or
// their number, holds this lock.
func lockDrops(tx *db.Tx, ids []int64) (map[int64]*lockedDrop, error) {
	const columns = "id, post_id, stock, claimed, confirm_within, version, sent_version"
	rows, err := db.LockRows[*lockedDrop](tx, "drops", columns, ids)
	drops := make(map[int64]*lockedDrop, len(rows))
	for _, d := range rows {
		d.claimedBefore, d.sentVersionBefore = d.Claimed, d.SentVersion
		drops[d.ID] = d
	}
	return drops, err
}

// claimBatch is what a batch of events changes in drops and their claims.
type claimBatch struct {
	now    time.Time
	drops  map[int64]*lockedDrop
	rows   map[dropUser]*claimRow
	owners map[int64]dropUser // of the claims that the events take
	posts  map[int64]bool     // the ids of posts that are not deleted
	users  map[int64]bool     // the ids of accounts that are not deleted
}

// ApplyClaims applies the events of drops and claims in their order. The shards are locked.
//
// A claim is written if the drop has stock left, and neither the post nor the account is deleted. Otherwise it becomes
// StateRejected, and the gate has to release it. Each event names its claim, so one that is in the row already changes
// nothing. Events whose drop has no row are dropped.
func ApplyClaims(tx *db.Tx, events []models.Event, now time.Time, done *models.LikesApplied) error {
	if len(events) == 0 {
		return nil
	}
	var ids []int64
	for _, e := range events {
		ids = append(ids, e.ID)
	}
	b := &claimBatch{now: now.Truncate(time.Millisecond), owners: map[int64]dropUser{}}
	var err error
	if b.drops, err = lockDrops(tx, ids); err != nil {
		return err
	}
	known := slices.DeleteFunc(slices.Clone(events), func(e models.Event) bool { return b.drops[e.ID] == nil })
	done.Vanished += len(events) - len(known)
	if err := b.read(tx, known); err != nil {
		return err
	}
	for _, e := range known {
		if err := b.apply(e, done); err != nil {
			return err
		}
	}
	if err := b.write(tx); err != nil {
		return err
	}
	return b.count(tx)
}

// read reads the rows that the events are about, and which posts and accounts exist.
func (b *claimBatch) read(tx *db.Tx, events []models.Event) error {
	users := map[int64][]int64{} // by drop
	var taken, takers []int64
	for _, e := range events {
		if e.Type == models.DropSet {
			continue
		}
		users[e.ID] = append(users[e.ID], e.UserID)
		if e.Type == models.ClaimTaken {
			key, owner := dropUser{e.ID, e.UserID}, b.owners[e.ClaimID]
			if owner != (dropUser{}) && owner != key {
				return fmt.Errorf("claim %d of two users: %w", e.ClaimID, db.ErrBadClaim)
			}
			b.owners[e.ClaimID] = key
			taken, takers = append(taken, e.ClaimID), append(takers, e.UserID)
		}
	}
	var err error
	if b.rows, err = readClaims(tx.DB, users); err != nil {
		return err
	}
	if err := b.checkOwners(tx, db.Ascending(taken)); err != nil {
		return err
	}
	var posts []int64
	for _, d := range b.drops {
		posts = append(posts, d.PostID)
	}
	if b.posts, err = db.IDsWhere(tx, "posts", db.Matching("status=?", models.StatusNormal),
		db.Ascending(posts)); err != nil {
		return err
	}
	b.users, err = db.IDsWhere(tx, "users", db.Matching("deleted_at IS NULL"), db.Ascending(takers))
	return err
}

// readClaims returns the rows of those (drop, user) pairs that have one.
func readClaims(conn *gorm.DB, users map[int64][]int64) (map[dropUser]*claimRow, error) {
	rows := map[dropUser]*claimRow{}
	var where []string
	pairs := 0
	read := func() error {
		if len(where) == 0 {
			return nil
		}
		query := `
			SELECT ` + claimColumns + `, c.due_at, c.to_release
			FROM claims c FORCE INDEX (PRIMARY)
			WHERE ` + strings.Join(where, " OR ")
		var found []*claimRow
		if err := conn.Raw(query).Scan(&found).Error; err != nil {
			return fmt.Errorf("read claims: %w", err)
		}
		for _, row := range found {
			rows[dropUser{row.DropID, row.UserID}] = row
		}
		where, pairs = where[:0], 0
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(users)) {
		for batch := range slices.Chunk(db.Ascending(users[id]), db.ReadUsers) {
			if pairs > 0 && pairs+len(batch) > db.ReadPairs {
				if err := read(); err != nil {
					return nil, err
				}
			}
			where = append(where, fmt.Sprintf("(c.drop_id=%d AND c.user_id IN (%s))", id, db.JoinIDs(batch)))
			pairs += len(batch)
		}
	}
	return rows, read()
}

// checkOwners returns ErrBadClaim if one of the claims that the events take is that of another user or drop. The row
// would otherwise be overwritten.
func (b *claimBatch) checkOwners(tx *db.Tx, taken []int64) error {
	for batch := range slices.Chunk(taken, db.ReadUsers) {
		query := `
			SELECT id, drop_id, user_id
			FROM claims FORCE INDEX (idx_id)
			WHERE id IN (` + db.JoinIDs(batch) + `)`
		var found []struct {
			ID  int64
			Key dropUser `gorm:"embedded"`
		}
		if err := tx.Raw(query).Scan(&found).Error; err != nil {
			return fmt.Errorf("read owners of claims: %w", err)
		}
		for _, f := range found {
			if f.Key != b.owners[f.ID] {
				return fmt.Errorf("claim %d of user %d has a row of user %d: %w",
					f.ID, b.owners[f.ID].UserID, f.Key.UserID, db.ErrBadClaim)
			}
		}
	}
	return nil
}

// apply applies one event to the rows in memory.
func (b *claimBatch) apply(e models.Event, done *models.LikesApplied) error {
	d, key := b.drops[e.ID], dropUser{e.ID, e.UserID}
	row := b.rows[key]
	switch e.Type {
	case models.DropSet:
		// The log is ahead of a MySQL that was restored from a backup: its next version is another one.
		d.SentVersion = max(d.SentVersion, min(e.Version, d.Version))
	case models.ClaimReturned:
		if row == nil || row.ID != e.ClaimID {
			return nil
		}
		if row.State.Live() {
			if d.Claimed == 0 {
				return fmt.Errorf("drop %d has a live claim and counts none: %w", d.ID, db.ErrBadClaim)
			}
			d.Claimed--
			row.end(models.StateReturned, "", time.UnixMilli(e.At).UTC())
			done.Returned++
		}
		row.changed, row.ToRelease = true, false // the gate does not hold it
	case models.ClaimTaken:
		if row != nil && row.ID == e.ClaimID {
			return nil
		}
		reason := ""
		switch {
		case row != nil && row.State.Live(): // its return was lost; this claim has its place
		case !b.users[e.UserID]:
			reason = models.ReasonAccountDeleted
		case !b.posts[d.PostID]:
			reason = models.ReasonPostDeleted
		case d.Claimed >= d.Stock:
			reason = models.ReasonStockLowered
		default:
			d.Claimed++
		}
		row = newClaimRow(d, e.UserID, e.ClaimID, time.UnixMilli(e.At).UTC())
		b.rows[key] = row
		if reason == "" {
			done.Claimed++
			return nil
		}
		row.end(models.StateRejected, reason, b.now)
		row.ToRelease = true
		done.Rejected++
	}
	return nil
}

// newClaimRow returns the row of a new live claim. Without a time to confirm it, it is confirmed.
func newClaimRow(d *lockedDrop, userID, id int64, at time.Time) *claimRow {
	row := &claimRow{changed: true}
	row.ID, row.DropID, row.UserID, row.CreatedAt = id, d.ID, userID, at
	if d.ConfirmWithin == 0 {
		row.State, row.ConfirmedAt = models.StateConfirmed, &at
		return row
	}
	within := time.Duration(d.ConfirmWithin) * time.Second
	expires := at.Add(within)
	due := expires.Add(-warnBefore(within))
	row.State, row.ExpiresAt, row.DueAt = models.StateReserved, &expires, &due
	return row
}

// warnBefore returns how long before a claim expires its user is warned: a quarter of the time to confirm it, at most
// an hour, and not at all (0) if that is less than a minute.
func warnBefore(within time.Duration) time.Duration {
	before := min(within/4, time.Hour)
	if before < time.Minute {
		return 0
	}
	return before
}

// end ends the claim.
func (r *claimRow) end(state models.ClaimState, reason string, at time.Time) {
	r.State, r.Reason, r.EndedAt, r.DueAt, r.changed = state, reason, &at, nil, true
	if state == models.StateRejected {
		r.ExpiresAt, r.ConfirmedAt = nil, nil
	}
}

// write writes the rows that the events changed, and notifies the users of claims that are confirmed or rejected. The
// drops are locked, so no other transaction writes rows of theirs, except to confirm claims.
func (b *claimBatch) write(tx *db.Tx) error {
	var keys []dropUser
	for key, row := range b.rows {
		if row.changed {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, func(a, b dropUser) int {
		if a.DropID != b.DropID {
			return int(a.DropID - b.DropID)
		}
		return int(a.UserID - b.UserID)
	})
	var notified []int64
	byState := map[models.ClaimState][]int64{} // the same
	for batch := range slices.Chunk(keys, db.WrittenClaims) {
		rows := make([]*claimRow, len(batch))
		for i, key := range batch {
			rows[i] = b.rows[key]
			id, state := rows[i].ID, rows[i].State
			if b.owners[id] == key && (state == models.StateConfirmed || state == models.StateRejected) {
				notified = append(notified, id)
				byState[state] = append(byState[state], id)
			}
		}
		if err := writeClaims(tx, rows); err != nil {
			return err
		}
	}
	tx.Announce(models.ClaimConfirmed, byState[models.StateConfirmed]...)
	tx.Announce(models.ClaimRejected, byState[models.StateRejected]...)
	return people.NotifyClaims(tx, notified, b.now)
}

// writeClaims writes rows of claims, new ones and those that exist.
func writeClaims(tx *db.Tx, rows []*claimRow) error {
	values := make([]string, len(rows))
	for i, r := range rows {
		values[i] = fmt.Sprintf("(%d,%d,%d,%d,'%s',%s,%s,%s,%s,%s,%t)", r.DropID, r.UserID, r.ID, r.State, r.Reason,
			db.SQLTime(&r.CreatedAt), db.SQLTime(r.ExpiresAt), db.SQLTime(r.ConfirmedAt), db.SQLTime(r.EndedAt),
			db.SQLTime(r.DueAt), r.ToRelease)
	}
	insert := `
		INSERT INTO claims (drop_id, user_id, id, state, reason, created_at, expires_at, confirmed_at, ended_at, due_at,
			to_release)
		VALUES ` + strings.Join(values, ",") + `
		ON DUPLICATE KEY UPDATE
			id=VALUES(id), state=VALUES(state), reason=VALUES(reason), created_at=VALUES(created_at),
			expires_at=VALUES(expires_at), confirmed_at=VALUES(confirmed_at), ended_at=VALUES(ended_at),
			due_at=VALUES(due_at), to_release=VALUES(to_release)`
	if err := tx.Exec(insert).Error; err != nil {
		return fmt.Errorf("write claims: %w", err)
	}
	return nil
}

// count changes the counts and sent versions of the drops. The condition is the last line of defence: if any other
// writer broke the lock, the whole batch is rolled back rather than oversell.
func (b *claimBatch) count(tx *db.Tx) error {
	claimed, sent := map[int64]int64{}, map[int64]int64{}
	var ids []int64
	for id, d := range b.drops {
		if d.Claimed == d.claimedBefore && d.SentVersion == d.sentVersionBefore {
			continue
		}
		ids = append(ids, id)
		if d.Claimed != d.claimedBefore {
			claimed[id] = d.Claimed - d.claimedBefore
		}
		if d.SentVersion != d.sentVersionBefore {
			sent[id] = d.SentVersion
		}
	}
	if len(ids) == 0 {
		return nil
	}
	var set []string
	var where db.Conditions
	where.Add("id IN (" + db.JoinIDs(db.Ascending(ids)) + ")")
	if len(sent) > 0 {
		set = append(set, "sent_version=GREATEST(sent_version, "+db.CaseOf(sent, "0")+")")
	}
	if len(claimed) > 0 {
		n := db.CaseOf(claimed, "0")
		set = append(set, "claimed=claimed+"+n)
		where.Add("claimed+" + n + " BETWEEN 0 AND stock")
	}
	update := tx.Exec(`
		UPDATE drops FORCE INDEX (PRIMARY)
		SET ` + strings.Join(set, ", ") + `
		` + where.Clause())
	if update.Error != nil {
		return fmt.Errorf("count claims: %w", update.Error)
	}
	if update.RowsAffected != int64(len(ids)) {
		return fmt.Errorf("%d of %d drops can have these claims: %w", update.RowsAffected, len(ids), db.ErrBadClaim)
	}
	return nil
}
