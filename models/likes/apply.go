package likes

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"likewise/models"
	"likewise/models/db"
	"likewise/models/stock"
)

// ApplyLikes is the like writer's transaction: rows, counts and watermarks change together or not at all.
//
// The like_shards rows are locked first, in order, so that writers that both claim a shard take turns, and
// the second one finds the watermark moved. Of each shard only what comes after the watermark is applied. A position
// that does not follow the last one is applied over and recorded in like_gaps for the reconciler. Of each (target,
// user) only the last event counts. If it is a like that replaces an unlike of the same batch, an existing row gets its
// time, so that the row is of the period in which the like was accepted (see LikeVoid). Counts change by the rows that
// changed; neither version nor updated_at moves. An author is notified of each milestone that the likes of others reach
// for the first time (see Notification). Events of claims are applied in their order: see ApplyClaims.
//
// Running it again with the same records changes nothing, so an unknown COMMIT is retried by the caller. IsBadData
// errors mean that some record in the batch cannot be stored.
func (s *Store) ApplyLikes(ctx context.Context, records []models.LikeRecord) (models.LikesApplied, error) {
	var done models.LikesApplied
	err := s.Transact(ctx, func(tx *db.Tx) error {
		done = models.LikesApplied{}
		return applyLikes(tx, records, &s.users, &done)
	})
	if err != nil {
		return models.LikesApplied{}, fmt.Errorf("apply likes: %w", err)
	}
	return done, nil
}

// watermark is a like_shards row while a batch works on it.
type watermark struct {
	Shard                  int
	AppliedEpoch           int64
	AppliedSeq             int64
	SealedEpoch, SealedSeq int64
	moved                  bool
}

func (m *watermark) pos() models.Position {
	return models.Position{Epoch: m.AppliedEpoch, Seq: m.AppliedSeq}
}

// move moves the watermark to p. If an epoch ends with that, its last event is kept as sealed. An epoch that never had
// one, because its opening was given up, leaves the last event of an earlier epoch there: everything that MySQL has and
// Redis may have lost is at or before it.
func (m *watermark) move(p models.Position) {
	if p.Epoch > m.AppliedEpoch && m.AppliedSeq > 0 {
		m.SealedEpoch, m.SealedSeq = m.AppliedEpoch, m.AppliedSeq
	}
	m.AppliedEpoch, m.AppliedSeq, m.moved = p.Epoch, p.Seq, true
}

func applyLikes(tx *db.Tx, records []models.LikeRecord, known *userRows, done *models.LikesApplied) error {
	now := tx.Now
	marks, err := lockShards(tx, records)
	if err != nil {
		return err
	}

	last := map[models.LikeKey]models.Event{}
	var ofDrops []models.Event
	var dead []models.LikeRecord
	var gaps []string
	for _, r := range records {
		mark := marks[r.Shard]
		if mark == nil && r.Problem == "" {
			r.Problem = fmt.Sprintf("shard %d is not installed", r.Shard)
		}
		if mark != nil && !r.Pos.IsZero() {
			before := mark.pos()
			if !r.Pos.After(before) {
				done.Duplicates += max(1, len(r.Events))
				continue
			}
			if !r.Part && !r.Follows(before) {
				gaps = append(gaps, fmt.Sprintf("(%d,%d,%d,%d,%d,'%s')",
					r.Shard, before.Epoch, before.Seq, r.Pos.Epoch, r.Pos.Seq, now.Format(db.SQLMillis)))
			}
			if !r.Part {
				mark.move(r.Pos)
			}
		}
		if r.Problem != "" {
			dead = append(dead, r)
			continue
		}
		done.Accepted += len(r.Events)
		for _, e := range r.Events {
			if e.Type == models.ShardOpened || e.Type == models.ShardProbed {
				continue
			}
			if e.OfDrop() {
				ofDrops = append(ofDrops, e)
				continue
			}
			key := models.LikeKey{Target: e.Target(), UserID: e.UserID}
			e.Again = e.Repeats(last[key])
			last[key] = e
		}
	}

	if ofDrops, err = dropStrangers(tx, last, ofDrops, known, done); err != nil {
		return err
	}
	for _, kind := range []models.TargetKind{models.KindPost, models.KindComment} {
		if err := applyKind(tx, kind, last, now, done); err != nil {
			return err
		}
	}
	if err := stock.ApplyClaims(tx, ofDrops, now, done); err != nil {
		return err
	}
	if err := insertDeadLetters(tx, dead, now); err != nil {
		return err
	}
	if len(gaps) > 0 {
		insert := `
			INSERT INTO like_gaps (shard, after_epoch, after_seq, before_epoch, before_seq, created_at)
			VALUES ` + strings.Join(gaps, ",")
		if err := tx.Exec(insert).Error; err != nil {
			return fmt.Errorf("record gaps: %w", err)
		}
	}
	done.DeadLetters, done.Gaps = len(dead), len(gaps)
	done.Accepted -= done.Vanished + done.Strangers
	return moveWatermarks(tx, marks, now, done)
}

// lockShards locks the like_shards rows of the records, in order, and returns them by shard.
func lockShards(tx *db.Tx, records []models.LikeRecord) (map[int]*watermark, error) {
	var shards []int64
	for _, r := range records {
		shards = append(shards, int64(r.Shard))
	}
	shards = db.Ascending(shards)
	query := `
		SELECT shard, applied_epoch, applied_seq, sealed_epoch, sealed_seq
		FROM like_shards FORCE INDEX (PRIMARY)
		WHERE shard IN (` + db.JoinIDs(shards) + `)
		ORDER BY shard
		FOR UPDATE`
	var rows []*watermark
	if err := tx.Raw(query).Scan(&rows).Error; err != nil {
		return nil, fmt.Errorf("lock shards: %w", err)
	}
	marks := make(map[int]*watermark, len(rows))
	for _, row := range rows {
		marks[row.Shard] = row
	}
	return marks, nil
}

// moveWatermarks stores the watermarks that the batch has moved.
func moveWatermarks(tx *db.Tx, marks map[int]*watermark, now time.Time, done *models.LikesApplied) error {
	done.Watermarks = make(map[int]models.Position, len(marks))
	var rows []string
	for _, shard := range slices.Sorted(maps.Keys(marks)) {
		m := marks[shard]
		done.Watermarks[shard] = m.pos()
		if m.moved {
			rows = append(rows, fmt.Sprintf("(%d,%d,%d,'%s',%d,%d)",
				m.Shard, m.AppliedEpoch, m.AppliedSeq, now.Format(db.SQLMillis), m.SealedEpoch, m.SealedSeq))
		}
	}
	if len(rows) == 0 {
		return nil
	}
	// One statement for all shards. Their rows exist and are locked, so it only updates.
	update := `
		INSERT INTO like_shards (shard, applied_epoch, applied_seq, applied_at, sealed_epoch, sealed_seq)
		VALUES ` + strings.Join(rows, ",") + `
		ON DUPLICATE KEY UPDATE
			applied_epoch=VALUES(applied_epoch), applied_seq=VALUES(applied_seq), applied_at=VALUES(applied_at),
			sealed_epoch=VALUES(sealed_epoch), sealed_seq=VALUES(sealed_seq)`
	if err := tx.Exec(update).Error; err != nil {
		return fmt.Errorf("move watermarks: %w", err)
	}
	return nil
}

// applyKind writes the last events of one kind of target.
func applyKind(
	tx *db.Tx, kind models.TargetKind, last map[models.LikeKey]models.Event, now time.Time, done *models.LikesApplied,
) error {
	t := db.TargetTables[kind]
	users := map[int64][]int64{} // by target
	for key := range last {
		if key.Kind == kind {
			users[key.ID] = append(users[key.ID], key.UserID)
		}
	}
	if len(users) == 0 {
		return nil
	}
	before, err := lockTargets(tx, t, slices.Sorted(maps.Keys(users)))
	if err != nil {
		return err
	}
	maps.DeleteFunc(users, func(id int64, list []int64) bool {
		_, exists := before[id]
		if !exists {
			done.Vanished += len(list)
		}
		return !exists
	})
	ids := slices.Sorted(maps.Keys(users))
	if len(ids) == 0 {
		return nil
	}

	change := newLikeChange()
	expected := true
	for _, id := range ids {
		slices.Sort(users[id])
		for _, user := range users[id] {
			event := last[models.LikeKey{Target: models.Target{Kind: kind, ID: id}, UserID: user}]
			expected = expected && event.Liked() && !event.Again
			change.add(event, 0)
		}
	}
	// Likes without an unlike among them have no row as a rule, and most of the time of a batch over many targets would
	// go into looking for one. If one of them has a row, the server takes back the whole statement.
	err = db.ErrChangedMeanwhile
	if expected {
		err = writeLikes(tx, t, change.insert, nil)
	}
	if errors.Is(err, db.ErrChangedMeanwhile) {
		change = newLikeChange()
		rows, err := readLikes(tx, t, ids, users)
		if err != nil {
			return err
		}
		for _, id := range ids {
			for _, user := range users[id] {
				key := models.LikeKey{Target: models.Target{Kind: kind, ID: id}, UserID: user}
				change.add(last[key], rows[key])
			}
		}
		if err := writeLikes(tx, t, change.insert, change.remove); err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	if err := renewLikes(tx, t, change.again); err != nil {
		return err
	}
	done.Inserted += len(change.insert)
	done.Deleted += len(change.remove)
	reached, err := reachedMilestones(tx, kind, before, change.delta, last)
	if err != nil {
		return err
	}
	return addToCounts(tx, kind, change.delta, reached, now)
}

// likeChange is what a batch changes in the likes of one kind of target.
type likeChange struct {
	insert []string           // rows of VALUES
	remove []int64            // ids of rows
	again  map[string][]int64 // ids of rows by their new time
	delta  map[int64]int64    // by target
}

func newLikeChange() likeChange {
	return likeChange{again: map[string][]int64{}, delta: map[int64]int64{}}
}

// add adds an event whose like has a row, or none if row is 0.
func (c *likeChange) add(e models.Event, row int64) {
	at := time.UnixMilli(e.At).UTC().Format(time.DateTime)
	switch {
	case e.Liked() && row != 0:
		if e.Again {
			c.again[at] = append(c.again[at], row)
		}
	case e.Liked():
		c.insert = append(c.insert, fmt.Sprintf("(%d,%d,'%s')", e.ID, e.UserID, at))
		c.delta[e.ID]++
	case row != 0:
		c.remove = append(c.remove, row)
		c.delta[e.ID]--
	}
}

// writeLikes inserts likes, as rows of VALUES, and deletes likes by their ids.
func writeLikes(tx *db.Tx, t db.TargetTable, insert []string, remove []int64) error {
	if len(insert) > 0 {
		added := tx.Exec(`
			INSERT INTO ` + t.Likes + ` (` + t.Column + `, user_id, created_at)
			VALUES ` + strings.Join(insert, ","))
		if models.MySQLCode(added.Error) == db.DuplicateKey {
			return db.ErrChangedMeanwhile
		}
		if added.Error != nil {
			return fmt.Errorf("insert likes: %w", added.Error)
		}
	}
	if len(remove) > 0 {
		removed := tx.Exec(`
			DELETE FROM ` + t.Likes + `
			WHERE id IN (` + db.JoinIDs(remove) + `)`)
		if removed.Error != nil {
			return fmt.Errorf("delete likes: %w", removed.Error)
		}
		if removed.RowsAffected != int64(len(remove)) {
			return db.ErrChangedMeanwhile
		}
	}
	return nil
}

// renewLikes sets the times of rows of likes, which are grouped by them.
func renewLikes(tx *db.Tx, t db.TargetTable, rows map[string][]int64) error {
	for _, at := range slices.Sorted(maps.Keys(rows)) {
		update := `
			UPDATE ` + t.Likes + ` FORCE INDEX (PRIMARY)
			SET created_at=?
			WHERE id IN (` + db.JoinIDs(db.Ascending(rows[at])) + `)`
		if err := tx.Exec(update, at).Error; err != nil {
			return fmt.Errorf("renew likes: %w", err)
		}
	}
	return nil
}

// likedRow is the part of a target's row that depends on its likes, and its author.
type likedRow struct {
	ID, UserID, LikesCount, Milestone int64
}

// lockTargets locks and reads those targets that have a row. Their ids are in ascending order. The locks come before
// any decision: in direct mode, another transaction could otherwise count a like meanwhile and take the count over a
// milestone unnoticed.
func lockTargets(tx *db.Tx, t db.TargetTable, ids []int64) (map[int64]likedRow, error) {
	rows, err := db.LockRows[likedRow](tx, t.Targets, "id, user_id, likes_count, milestone", ids)
	before := make(map[int64]likedRow, len(rows))
	for _, row := range rows {
		before[row.ID] = row
	}
	return before, err
}

// readLikes returns the ids of the rows of those (target, user) pairs that have one.
func readLikes(tx *db.Tx, t db.TargetTable, ids []int64, users map[int64][]int64) (map[models.LikeKey]int64, error) {
	type like struct{ ID, TargetID, UserID int64 }
	var list []like
	var where []string
	pairs := 0
	read := func() error {
		if len(where) == 0 {
			return nil
		}
		query := `
			SELECT id, ` + t.Column + ` AS target_id, user_id
			FROM ` + t.Likes + `
			WHERE ` + strings.Join(where, " OR ")
		var found []like
		if err := tx.Raw(query).Scan(&found).Error; err != nil {
			return fmt.Errorf("read likes: %w", err)
		}
		list, where, pairs = append(list, found...), where[:0], 0
		return nil
	}
	for _, id := range ids {
		for batch := range slices.Chunk(users[id], db.ReadUsers) {
			if pairs > 0 && pairs+len(batch) > db.ReadPairs {
				if err := read(); err != nil {
					return nil, err
				}
			}
			// One range of the unique key for each target. Both servers plan this form well, but not row constructors.
			where = append(where, fmt.Sprintf("(%s=%d AND user_id IN (%s))", t.Column, id, db.JoinIDs(batch)))
			pairs += len(batch)
		}
	}
	if err := read(); err != nil {
		return nil, err
	}
	kind := models.KindPost
	if t.Likes == "comment_likes" {
		kind = models.KindComment
	}
	rows := make(map[models.LikeKey]int64, len(list))
	for _, r := range list {
		rows[models.LikeKey{Target: models.Target{Kind: kind, ID: r.TargetID}, UserID: r.UserID}] = r.ID
	}
	return rows, nil
}

// addToCounts counts the rows that changed, marks the milestones that their targets reached, and notifies the authors.
func addToCounts(
	tx *db.Tx,
	kind models.TargetKind,
	delta map[int64]int64,
	reached map[int64][]int64,
	now time.Time,
) error {
	highest := map[int64]int64{} // milestones by target
	for _, m := range slices.Sorted(maps.Keys(reached)) {
		for _, id := range reached[m] {
			highest[id] = m
		}
	}
	maps.DeleteFunc(delta, func(id, d int64) bool { return d == 0 && highest[id] == 0 })
	if len(delta) == 0 {
		return nil
	}
	t, ids := db.TargetTables[kind], slices.Sorted(maps.Keys(delta))
	set := adding(t, db.CaseOf(delta, "0"))
	if len(reached) > 0 {
		set += ", milestone=" + db.CaseOf(highest, "milestone")
	}
	update := tx.Exec(`
		UPDATE ` + t.Targets + `
		SET ` + set + `
		WHERE id IN (` + db.JoinIDs(ids) + `)`)
	if update.Error != nil {
		return fmt.Errorf("update counts of %s: %w", t.Targets, update.Error)
	}
	if update.RowsAffected != int64(len(ids)) {
		return db.ErrChangedMeanwhile
	}
	if err := counted(tx, t, ids...); err != nil {
		return err
	}
	for _, m := range slices.Sorted(maps.Keys(reached)) {
		if err := notifyMilestone(tx, kind, m, reached[m], now); err != nil {
			return err
		}
	}
	return nil
}
