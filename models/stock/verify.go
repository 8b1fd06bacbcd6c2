package stock

import (
	"context"
	"fmt"

	"gorm.io/gorm"

	"likewise/models"
	"likewise/models/db"
)

// TallyDrops counts the live claims of at most limit drops with ids above after, in the order of their ids. As with
// Tally, LockedDropTally has to confirm a difference.
func (s *Store) TallyDrops(ctx context.Context, after int64, limit int) ([]models.DropTally, error) {
	return tallyDrops(s.Read(ctx), db.Matching("d.id>?", after), limit)
}

// TallyDrop is TallyDrops for one drop. ok is false if the drop has no row.
func (s *Store) TallyDrop(ctx context.Context, id int64) (t models.DropTally, ok bool, err error) {
	return tallyDrop(s.Read(ctx), id)
}

// LockedDropTally counts the live claims of one drop while its row is locked, as LockedTally does.
func (s *Store) LockedDropTally(ctx context.Context, id int64) (t models.DropTally, ok bool, err error) {
	err = s.Transact(db.Aside(ctx), func(tx *db.Tx) error {
		if _, err := lockDrops(tx, []int64{id}); err != nil {
			return err
		}
		t, ok, err = tallyDrop(tx.DB, id)
		return err
	})
	return t, ok, err
}

func tallyDrop(conn *gorm.DB, id int64) (t models.DropTally, ok bool, err error) {
	list, err := tallyDrops(conn, db.Matching("d.id=?", id), 1)
	if err != nil || len(list) == 0 {
		return models.DropTally{}, false, err
	}
	return list[0], true, nil
}

// TallyDropsOfShard is TallyDrops for the drops of one shard.
func (s *Store) TallyDropsOfShard(ctx context.Context, shard int, after int64, limit int) ([]models.DropTally, error) {
	return tallyDrops(s.Read(ctx), db.Matching("d.id>? AND MOD(d.id,?)=?", after, s.Shards(), shard), limit)
}

func tallyDrops(conn *gorm.DB, where db.Conditions, limit int) ([]models.DropTally, error) {
	query := `
		SELECT d.id, p.status=? AS open, d.stock, d.claimed, d.unsent,
			(SELECT COUNT(*) FROM claims c WHERE c.drop_id=d.id AND c.state IN (?,?)) AS live_rows
		FROM drops d FORCE INDEX (PRIMARY)
		STRAIGHT_JOIN posts p ON p.id=d.post_id
		` + where.Clause() + `
		ORDER BY d.id
		LIMIT ?`
	var list []models.DropTally
	args := where.Between([]any{models.StatusNormal, models.StateReserved, models.StateConfirmed}, limit)
	if err := conn.Raw(query, args...).Scan(&list).Error; err != nil {
		return nil, fmt.Errorf("tally drops: %w", err)
	}
	return list, nil
}

// RecountDrop sets claimed of a drop to the number of its live claims. If the stock is less than that, RecountDrop
// raises the stock, too, with a new version: the claims were promised to their users.
func (s *Store) RecountDrop(ctx context.Context, id int64) error {
	const read = `
		SELECT COUNT(*)
		FROM claims FORCE INDEX (PRIMARY)
		WHERE drop_id=? AND state IN (?,?)`
	const update = `
		UPDATE drops FORCE INDEX (PRIMARY)
		SET version=IF(stock<?, version+1, version), stock=GREATEST(stock, ?), claimed=?
		WHERE id=?`
	err := s.Transact(ctx, func(tx *db.Tx) error {
		if _, err := lockDrops(tx, []int64{id}); err != nil {
			return err
		}
		var n int64
		if err := tx.Raw(read, id, models.StateReserved, models.StateConfirmed).Scan(&n).Error; err != nil {
			return err
		}
		return tx.Exec(update, n, n, n, id).Error
	})
	if err != nil {
		return fmt.Errorf("recount drop %d: %w", id, err)
	}
	return nil
}

// comparedClaims is the number of live claims that one query of CompareClaims reads.
const comparedClaims = 5000

// CompareClaims compares the live claims that MySQL has of a drop with those of the gate, and calls fn with each batch
// of differences, in the order of their users. gate returns, in the order of their users, all claims that the gate
// holds of users above after and up to upTo (0: without end). Changes on their way to MySQL are differences, too: the
// caller compares again after they have arrived.
func (s *Store) CompareClaims(
	ctx context.Context, dropID int64,
	gate func(ctx context.Context, after, upTo int64) ([]models.LiveClaim, error),
	fn func([]models.ClaimDrift) error,
) error {
	for after := int64(0); ; {
		rows, err := s.LiveClaims(ctx, dropID, after, comparedClaims)
		if err != nil {
			return err
		}
		upTo := int64(0)
		if len(rows) == comparedClaims {
			upTo = rows[len(rows)-1].UserID
		}
		held, err := gate(ctx, after, upTo)
		if err != nil {
			return err
		}
		found := compareClaims(rows, held)
		if err := s.markEnded(ctx, dropID, found); err != nil {
			return err
		}
		if len(found) > 0 {
			if err := fn(found); err != nil {
				return err
			}
		}
		if upTo == 0 {
			return nil
		}
		after = upTo
	}
}

// compareClaims compares two lists in the order of their users.
func compareClaims(rows, gate []models.LiveClaim) []models.ClaimDrift {
	var found []models.ClaimDrift
	for len(rows) > 0 || len(gate) > 0 {
		switch {
		case len(gate) == 0 || len(rows) > 0 && rows[0].UserID < gate[0].UserID:
			found = append(found, models.ClaimDrift{UserID: rows[0].UserID, Row: rows[0].ID})
			rows = rows[1:]
		case len(rows) == 0 || gate[0].UserID < rows[0].UserID:
			found = append(found, models.ClaimDrift{UserID: gate[0].UserID, Gate: gate[0].ID})
			gate = gate[1:]
		default:
			if rows[0].ID != gate[0].ID {
				found = append(found, models.ClaimDrift{UserID: rows[0].UserID, Row: rows[0].ID, Gate: gate[0].ID})
			}
			rows, gate = rows[1:], gate[1:]
		}
	}
	return found
}

// markEnded marks the differences of claims that MySQL has ended.
func (s *Store) markEnded(ctx context.Context, dropID int64, drifts []models.ClaimDrift) error {
	var users []int64
	for _, d := range drifts {
		if d.Row == 0 {
			users = append(users, d.UserID)
		}
	}
	if len(users) == 0 {
		return nil
	}
	rows, err := readClaims(s.Read(ctx), map[int64][]int64{dropID: users})
	if err != nil {
		return err
	}
	for i := range drifts {
		row := rows[dropUser{dropID, drifts[i].UserID}]
		drifts[i].Ended = row != nil && drifts[i].Row == 0 && row.ID == drifts[i].Gate && !row.State.Live()
		drifts[i].Leaves = drifts[i].Ended && row.ToRelease
	}
	return nil
}

// ReleaseClaim marks an ended claim as one that the gate has to release. It reports whether the row has this claim and
// it has ended.
func (s *Store) ReleaseClaim(ctx context.Context, dropID, userID, id int64) (ok bool, err error) {
	const read = `
		SELECT COUNT(*)
		FROM claims FORCE INDEX (PRIMARY)
		WHERE drop_id=? AND user_id=? AND id=? AND state NOT IN (?,?)`
	const update = `
		UPDATE claims FORCE INDEX (PRIMARY)
		SET to_release=1
		WHERE drop_id=? AND user_id=? AND id=? AND state NOT IN (?,?)`
	args := []any{dropID, userID, id, models.StateReserved, models.StateConfirmed}
	err = s.Transact(ctx, func(tx *db.Tx) error {
		if _, err := lockDrops(tx, []int64{dropID}); err != nil {
			return err
		}
		var n int
		if err := tx.Raw(read, args...).Scan(&n).Error; err != nil {
			return err
		}
		ok = n == 1
		return tx.Exec(update, args...).Error
	})
	if err != nil {
		return false, fmt.Errorf("release claim %d: %w", id, err)
	}
	return ok, nil
}
