package likes

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"gorm.io/gorm"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/content"
	"likewise/models/db"
)

// maxLoggedDifferences is the maximum number of differences in an entry of the log.
const maxLoggedDifferences = 100

// LogReconcile logs the differences that a comparison found and that are to be repaired: their number and the first
// ones.
func (s *Store) LogReconcile(ctx context.Context, r models.Reconciliation, found []models.Difference) error {
	problems := make([]string, 0, len(found))
	for _, d := range found[:min(len(found), maxLoggedDifferences)] {
		problems = append(problems, d.String())
	}
	err := s.Transact(ctx, func(tx *db.Tx) error {
		if err := accounts.LockActor(tx, r.ActorID, models.RoleAdmin); err != nil {
			return err
		}
		before := map[string]any{"found": len(found), "differences": problems}
		return accounts.LogModeration(tx, reconciles(&r, accounts.ModerationAct{Action: "pipeline.reconcile",
			Before: before}))
	})
	if err != nil {
		return fmt.Errorf("log reconcile: %w", err)
	}
	return nil
}

// reconciles returns an act of the log as one of a reconciliation.
func reconciles(r *models.Reconciliation, act accounts.ModerationAct) accounts.ModerationAct {
	act.ActorID, act.TargetType, act.TargetID, act.Reason = r.ActorID, r.TargetType, r.TargetID, r.Reason
	return act
}

// LogReconciled logs the result of a repair, as far as it is known if the repair was interrupted.
func (s *Store) LogReconciled(
	ctx context.Context, r models.Reconciliation, found []models.Difference, interrupted bool,
) error {
	repaired, undecided := 0, 0
	for _, d := range found {
		switch {
		case d.Repaired:
			repaired++
		case d.Undecided:
			undecided++
		}
	}
	after := map[string]any{
		"found": len(found), "repaired": repaired, "undecided": undecided, "failed": len(found) - repaired - undecided,
	}
	if interrupted {
		after["interrupted"] = true
	}
	err := s.Transact(ctx, func(tx *db.Tx) error {
		return accounts.LogModeration(tx, reconciles(&r, accounts.ModerationAct{Action: "pipeline.reconciled",
			After: after}))
	})
	if err != nil {
		return fmt.Errorf("log reconciled: %w", err)
	}
	return nil
}

// Tally counts the rows of at most limit targets of a kind with ids above after, in the order of their ids. It may show
// a difference between counts and rows that never was, so LockedTally has to confirm one.
//
// Tally is one statement, but that is not enough on MariaDB, which visits the running transactions one by one to take a
// snapshot. If a transaction commits after it was visited, and one that waited for its locks commits before its turn,
// the snapshot has the second transaction without the first.
func (s *Store) Tally(
	ctx context.Context, kind models.TargetKind, after int64, limit int,
) ([]models.TargetTally, error) {
	return tally(s.Read(ctx), kind, db.Matching("t.id>?", after), limit)
}

// TallyShard is Tally for the targets of one shard.
func (s *Store) TallyShard(ctx context.Context, kind models.TargetKind, shard int, after int64, limit int,
) ([]models.TargetTally, error) {
	return tally(s.Read(ctx), kind, db.Matching("t.id>? AND MOD(t.id,?)=?", after, s.Shards(), shard), limit)
}

// TallyOf is Tally for one target. ok is false if the target has no row.
func (s *Store) TallyOf(ctx context.Context, target models.Target) (t models.TargetTally, ok bool, err error) {
	return tallyOf(s.Read(ctx), target)
}

// LockedTally counts the rows of one target while its row is locked. ok is false if the target has no row. Transactions
// that change the counts hold the same lock until they have committed, so a difference is real.
func (s *Store) LockedTally(ctx context.Context, target models.Target) (t models.TargetTally, ok bool, err error) {
	err = s.Transact(db.Aside(ctx), func(tx *db.Tx) error {
		if _, err := lockTarget(tx, target); err != nil {
			return err
		}
		t, ok, err = tallyOf(tx.DB, target)
		return err
	})
	return t, ok, err
}

func tallyOf(conn *gorm.DB, target models.Target) (t models.TargetTally, ok bool, err error) {
	list, err := tally(conn, target.Kind, db.Matching("t.id=?", target.ID), 1)
	if err != nil || len(list) == 0 {
		return models.TargetTally{}, false, err
	}
	return list[0], true, nil
}

// postTallyColumns are the columns of a tally that depend on the kind of target.
var postTallyColumns = `
			t.comments_count AS children,
			(SELECT COUNT(*) FROM comments c WHERE c.post_id=t.id AND c.status=` + db.SQLNormal + `) AS child_rows,
			t.hot_score, ` + content.HotScoreSQL("t.likes_count") + ` AS hot_want, ` + content.StaleTags +
	` AS tags_stale`

var commentTallyColumns = `
			t.replies_count AS children,
			(SELECT COUNT(*) FROM comments c WHERE c.parent_id=t.id AND c.status=` + db.SQLNormal + `) AS child_rows,
			t.depth, ` + depthSQL + ` AS depth_want`

func tally(conn *gorm.DB, kind models.TargetKind, where db.Conditions, limit int) ([]models.TargetTally, error) {
	t := db.TargetTables[kind]
	columns := postTallyColumns
	if kind == models.KindComment {
		columns = commentTallyColumns
	}
	query := `
		SELECT t.id, t.status, t.likes_count AS likes,
			(SELECT COUNT(*) FROM ` + t.Likes + ` l WHERE l.` + t.Column + `=t.id) AS like_rows,` + columns + `
		FROM ` + t.Targets + ` t
		` + where.Clause() + `
		ORDER BY t.id
		LIMIT ?`
	var list []models.TargetTally
	if err := conn.Raw(query, append(where.Args, limit)...).Scan(&list).Error; err != nil {
		return nil, fmt.Errorf("tally %s: %w", t.Targets, err)
	}
	return list, nil
}

// maxStoredDepth is the maximum of comments.depth. As the right depth it means a deeper comment, or a missing parent.
const maxStoredDepth = 255

// depthSQL is the right depth of comment t by the depth of its parent.
var depthSQL = fmt.Sprintf(`IF(t.parent_id IS NULL, 1, COALESCE(
				(SELECT LEAST(a.depth+1, %[1]d) FROM comments a WHERE a.id=t.parent_id),
				%[1]d
			))`, maxStoredDepth)

// LastID returns the highest id of a kind of target; 0 if there is none.
func (s *Store) LastID(ctx context.Context, kind models.TargetKind) (int64, error) {
	table := db.TableOf(kind)
	query := `
		SELECT COALESCE(MAX(id), 0)
		FROM ` + table
	var id int64
	if err := s.Read(ctx).Raw(query).Scan(&id).Error; err != nil {
		return 0, fmt.Errorf("last id of %s: %w", table, err)
	}
	return id, nil
}

// OrphanLikes returns at most limit targets of a kind that have likes but no row.
func (s *Store) OrphanLikes(ctx context.Context, kind models.TargetKind, limit int) ([]models.TargetCount, error) {
	t := db.TargetTables[kind]
	query := `
		SELECT l.` + t.Column + ` AS id, COUNT(*) AS count
		FROM ` + t.Likes + ` l
		LEFT JOIN ` + t.Targets + ` t ON t.id=l.` + t.Column + `
		WHERE t.id IS NULL
		GROUP BY l.` + t.Column + `
		LIMIT ?`
	var list []struct{ ID, Count int64 }
	if err := s.Read(ctx).Raw(query, limit).Scan(&list).Error; err != nil {
		return nil, fmt.Errorf("find orphans in %s: %w", t.Likes, err)
	}
	orphans := make([]models.TargetCount, len(list))
	for i, o := range list {
		orphans[i] = models.TargetCount{Target: models.Target{Kind: kind, ID: o.ID}, Count: o.Count}
	}
	return orphans, nil
}

// Missing returns those targets that have no row. It runs one query for each kind.
func (s *Store) Missing(ctx context.Context, targets []models.Target) ([]models.Target, error) {
	present := map[models.Target]bool{}
	for kind, list := range db.IDsByKind(targets) {
		query := `
			SELECT id
			FROM ` + db.TableOf(kind) + `
			WHERE id IN (` + db.JoinIDs(list) + `)`
		var found []int64
		if err := s.Read(ctx).Raw(query).Scan(&found).Error; err != nil {
			return nil, fmt.Errorf("read %s: %w", db.TableOf(kind), err)
		}
		for _, id := range found {
			present[models.Target{Kind: kind, ID: id}] = true
		}
	}
	var missing []models.Target
	for _, t := range targets {
		if !present[t] {
			missing = append(missing, t)
		}
	}
	return missing, nil
}

// Recount sets the stored counts of a target to the counts of its rows. It also sets the score of a post and the
// columns of its tags, and the depths of a comment and of its replies.
func (s *Store) Recount(ctx context.Context, target models.Target) error {
	err := s.Transact(ctx, func(tx *db.Tx) error {
		// Transactions that change the counts, and those that write comments, wait for this lock.
		if _, err := lockTarget(tx, target); err != nil {
			return err
		}
		if err := storeCounts(tx, target); err != nil {
			return err
		}
		if target.Kind == models.KindPost {
			return content.MoveTags(tx, target.ID)
		}
		return repairDepths(tx, target.ID)
	})
	if err != nil {
		return fmt.Errorf("recount %s: %w", target, err)
	}
	return nil
}

// storeCounts counts the rows of a target, which is locked, and stores the counts and the score of a post.
func storeCounts(tx *db.Tx, target models.Target) error {
	t := db.TargetTables[target.Kind]
	children, parent := "comments_count", "post_id"
	if target.Kind == models.KindComment {
		children, parent = "replies_count", "parent_id"
	}
	countLikes := `
		SELECT COUNT(*)
		FROM ` + t.Likes + `
		WHERE ` + t.Column + `=?`
	var likes int64
	if err := tx.Raw(countLikes, target.ID).Scan(&likes).Error; err != nil {
		return err
	}
	countChildren := `
		SELECT COUNT(*)
		FROM comments
		WHERE ` + parent + `=? AND status=?`
	var childRows int64
	if err := tx.Raw(countChildren, target.ID, models.StatusNormal).Scan(&childRows).Error; err != nil {
		return err
	}
	set := children + "=?, updated_at=updated_at, likes_count=?"
	args := []any{childRows, likes}
	if target.Kind == models.KindPost {
		set, args = set+", hot_score="+content.HotScoreSQL("?"), append(args, likes)
	}
	update := `
		UPDATE ` + t.Targets + `
		SET ` + set + `
		WHERE id=?`
	return tx.Exec(update, append(args, target.ID)...).Error
}

// repairDepths corrects the depth of a comment by that of its parent, and the depths of its replies if this changes
// them. The post is locked, so no comment is written meanwhile.
func repairDepths(tx *db.Tx, id int64) error {
	type depth struct{ ID, ParentID, Depth, Want int64 }
	query := `
		SELECT t.id, t.depth, ` + depthSQL + ` AS want
		FROM comments t
		WHERE t.id=?`
	var level []depth
	if err := tx.Raw(query, id).Scan(&level).Error; err != nil {
		return err
	}
	wrong := map[int64]int64{} // the right depths of comments with a wrong one
	for len(level) > 0 {
		var parents []int64
		for _, c := range level {
			if c.Depth != c.Want {
				wrong[c.ID] = c.Want
				parents = append(parents, c.ID)
			}
		}
		level = nil
		if len(parents) == 0 {
			break
		}
		query := `
			SELECT id, parent_id, depth
			FROM comments
			WHERE parent_id IN (` + db.JoinIDs(parents) + `)`
		if err := tx.Raw(query).Scan(&level).Error; err != nil {
			return err
		}
		for i := range level {
			level[i].Want = min(wrong[level[i].ParentID]+1, maxStoredDepth)
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	ids := slices.Sorted(maps.Keys(wrong))
	if _, err := lockTargets(tx, db.TargetTables[models.KindComment], ids); err != nil {
		return err
	}
	update := `
		UPDATE comments FORCE INDEX (PRIMARY)
		SET depth=` + db.CaseOf(wrong, "depth") + `, updated_at=updated_at
		WHERE id IN (` + db.JoinIDs(ids) + `)`
	return tx.Exec(update).Error
}

// DeleteOrphanLikes deletes the likes of a target that has no row.
func (s *Store) DeleteOrphanLikes(ctx context.Context, target models.Target) error {
	t := db.TargetTables[target.Kind]
	err := s.Transact(ctx, func(tx *db.Tx) error {
		existing, err := lockTargets(tx, t, []int64{target.ID})
		if err != nil || len(existing) > 0 {
			return err
		}
		return tx.Exec(`
			DELETE FROM `+t.Likes+`
			WHERE `+t.Column+`=?`, target.ID).Error
	})
	if err != nil {
		return fmt.Errorf("delete likes of %s: %w", target, err)
	}
	return nil
}
