package models

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"gorm.io/gorm"
)

// TargetTally is a post or comment with its stored counts beside what its rows say, as of one instant.
type TargetTally struct {
	ID        int64
	Status    Status
	Likes     int64 // likes_count
	LikeRows  int64
	Children  int64 // comments_count or replies_count
	ChildRows int64
	HotScore  int64 // hot_score; 0 for comments, which have none
	HotWant   int64 // what it has to be with this likes_count
	Depth     int64 // depth; 0 for posts, which have none
	DepthWant int64 // what it has to be with the parent's
	TagsStale int64 // rows of post_tags that differ from the post; 0 for comments
}

// Difference is something of a target that does not agree with something else.
type Difference struct {
	Target   Target
	Problem  string
	Repaired bool
	// Undecided means that nothing can be said: the target's last change is still on its way, or the next one always is.
	Undecided bool
}

func (d Difference) String() string {
	s := d.Target.String() + ": " + d.Problem
	if d.Repaired {
		s += " (repaired)"
	}
	return s
}

// TallyShard is Tally for the targets of one shard.
func (s *Store) TallyShard(ctx context.Context, kind TargetKind, shard int, after int64, limit int) ([]TargetTally, error) {
	return s.tally(ctx, kind, "t.id>? AND MOD(t.id,?)=? ORDER BY t.id LIMIT ?", after, s.shards, shard, limit)
}

// Reconciliation is what a moderator has compared and mended: a target, or what a shard has after a certain target.
type Reconciliation struct {
	ActorID    int64
	TargetType string // "post", "comment" or "shard"
	TargetID   int64  // of a shard, its number
	Reason     string
}

// maxLoggedDifferences is for how many differences an entry of the log has room.
const maxLoggedDifferences = 100

// LogReconcile keeps what a comparison has found that is to be mended: how much, and the beginning of it.
func (s *Store) LogReconcile(ctx context.Context, r Reconciliation, found []Difference) error {
	problems := make([]string, 0, len(found))
	for _, d := range found[:min(len(found), maxLoggedDifferences)] {
		problems = append(problems, d.String())
	}
	err := s.transact(ctx, func(tx *gorm.DB) error {
		if err := s.lockActor(tx, r.ActorID, RoleAdmin); err != nil {
			return err
		}
		return s.logModeration(tx, r.act(Act{Action: "pipeline.reconcile", Before: map[string]any{"found": len(found), "differences": problems}}))
	})
	if err != nil {
		return fmt.Errorf("log reconcile: %w", err)
	}
	return nil
}

func (r *Reconciliation) act(act Act) Act {
	act.ActorID, act.TargetType, act.TargetID, act.Reason = r.ActorID, r.TargetType, r.TargetID, r.Reason
	return act
}

// LogReconciled keeps what became of what was to be mended. Interrupted, it is what is known.
func (s *Store) LogReconciled(ctx context.Context, r Reconciliation, found []Difference, interrupted bool) error {
	repaired, undecided := 0, 0
	for _, d := range found {
		switch {
		case d.Repaired:
			repaired++
		case d.Undecided:
			undecided++
		}
	}
	after := map[string]any{"found": len(found), "repaired": repaired, "undecided": undecided, "failed": len(found) - repaired - undecided}
	if interrupted {
		after["interrupted"] = true
	}
	err := s.transact(ctx, func(tx *gorm.DB) error {
		return s.logModeration(tx, r.act(Act{Action: "pipeline.reconciled", After: after}))
	})
	if err != nil {
		return fmt.Errorf("log reconciled: %w", err)
	}
	return nil
}

// Tally counts the rows of at most limit targets of a kind with ids above after, in the order of id. It is one
// statement, so the counts and the rows of a target belong to the same commit.
func (s *Store) Tally(ctx context.Context, kind TargetKind, after int64, limit int) ([]TargetTally, error) {
	return s.tally(ctx, kind, "t.id>? ORDER BY t.id LIMIT ?", after, limit)
}

// TallyOf counts the rows of one target; false when it has no row.
func (s *Store) TallyOf(ctx context.Context, target Target) (TargetTally, bool, error) {
	list, err := s.tally(ctx, target.Kind, "t.id=?", target.ID)
	if err != nil || len(list) == 0 {
		return TargetTally{}, false, err
	}
	return list[0], true, nil
}

func (s *Store) tally(ctx context.Context, kind TargetKind, where string, args ...any) ([]TargetTally, error) {
	t := likeTables[kind]
	children, rows := "t.comments_count", "(SELECT COUNT(*) FROM comments c WHERE c.post_id=t.id AND c.status=1)"
	derived := "t.hot_score, " + hotScoreSQL("t.likes_count") + " AS hot_want, " + staleTags + " AS tags_stale"
	if kind == KindComment {
		children, rows = "t.replies_count", "(SELECT COUNT(*) FROM comments c WHERE c.parent_id=t.id AND c.status=1)"
		derived = "t.depth, " + depthSQL + " AS depth_want"
	}
	var list []TargetTally
	err := s.db.WithContext(ctx).Raw("SELECT t.id, t.status, t.likes_count AS likes,"+
		" (SELECT COUNT(*) FROM "+t.likes+" l WHERE l."+t.column+"=t.id) AS like_rows, "+
		children+" AS children, "+rows+" AS child_rows, "+derived+" FROM "+t.targets+" t WHERE "+where, args...).Scan(&list).Error
	if err != nil {
		return nil, fmt.Errorf("tally %s: %w", t.targets, err)
	}
	return list, nil
}

// depthSQL is the depth of comment t by its parent's; 255 stands for more, and for a parent that is not there.
const depthSQL = "IF(t.parent_id IS NULL, 1, COALESCE((SELECT LEAST(a.depth+1,255) FROM comments a WHERE a.id=t.parent_id), 255))"

// LastID gives the highest id of a kind; 0 when there is none.
func (s *Store) LastID(ctx context.Context, kind TargetKind) (int64, error) {
	var id int64
	if err := s.db.WithContext(ctx).Raw("SELECT COALESCE(MAX(id),0) FROM " + likeTables[kind].targets).Scan(&id).Error; err != nil {
		return 0, fmt.Errorf("last id of %s: %w", likeTables[kind].targets, err)
	}
	return id, nil
}

// OrphanLikes gives at most limit targets of a kind that have likes and no row of their own.
func (s *Store) OrphanLikes(ctx context.Context, kind TargetKind, limit int) ([]TargetCount, error) {
	t := likeTables[kind]
	var list []struct{ ID, Count int64 }
	err := s.db.WithContext(ctx).Raw("SELECT l."+t.column+" AS id, COUNT(*) AS count FROM "+t.likes+" l LEFT JOIN "+t.targets+
		" t ON t.id=l."+t.column+" WHERE t.id IS NULL GROUP BY l."+t.column+" LIMIT ?", limit).Scan(&list).Error
	if err != nil {
		return nil, fmt.Errorf("find orphans in %s: %w", t.likes, err)
	}
	orphans := make([]TargetCount, len(list))
	for i, o := range list {
		orphans[i] = TargetCount{Target: Target{kind, o.ID}, Count: o.Count}
	}
	return orphans, nil
}

// Missing gives those of targets that have no row, in at most two queries.
func (s *Store) Missing(ctx context.Context, targets []Target) ([]Target, error) {
	ids := map[TargetKind][]int64{}
	for _, t := range targets {
		ids[t.Kind] = append(ids[t.Kind], t.ID)
	}
	present := map[Target]bool{}
	for kind, list := range ids {
		var found []int64
		if err := s.db.WithContext(ctx).Raw("SELECT id FROM " + likeTables[kind].targets + " WHERE id IN (" + joinIDs(list) + ")").Scan(&found).Error; err != nil {
			return nil, fmt.Errorf("read %s: %w", likeTables[kind].targets, err)
		}
		for _, id := range found {
			present[Target{kind, id}] = true
		}
	}
	var missing []Target
	for _, t := range targets {
		if !present[t] {
			missing = append(missing, t)
		}
	}
	return missing, nil
}

// Recount sets a target's stored counts, the score of a post with what its tags keep of it, and the depth of a comment and of what is below it, to what
// the rows say.
func (s *Store) Recount(ctx context.Context, target Target) error {
	t := likeTables[target.Kind]
	children, rows := "comments_count", "c.post_id=? AND c.status=1"
	if target.Kind == KindComment {
		children, rows = "replies_count", "c.parent_id=? AND c.status=1"
	}
	err := s.transact(ctx, func(tx *gorm.DB) error {
		// Transactions that change the counts wait for this lock, so the rows stay as they are counted. Those that write
		// comments wait for the post's.
		if _, err := lockTarget(tx, target); err != nil {
			return err
		}
		var likes, childRows int64
		if err := tx.Raw("SELECT COUNT(*) FROM "+t.likes+" WHERE "+t.column+"=?", target.ID).Scan(&likes).Error; err != nil {
			return err
		}
		if err := tx.Raw("SELECT COUNT(*) FROM comments c WHERE "+rows, target.ID).Scan(&childRows).Error; err != nil {
			return err
		}
		set := children + "=?, updated_at=updated_at, likes_count=?"
		args := []any{childRows, likes}
		if target.Kind == KindPost {
			set, args = set+", hot_score="+hotScoreSQL("?"), append(args, likes)
		}
		if err := tx.Exec("UPDATE "+t.targets+" SET "+set+" WHERE id=?", append(args, target.ID)...).Error; err != nil {
			return err
		}
		if target.Kind == KindPost {
			tags, err := moveTags(tx, target.ID)
			if err != nil {
				return err
			}
			return countTags(tx, tags)
		}
		return sinkComments(tx, target.ID)
	})
	if err != nil {
		return fmt.Errorf("recount %s: %w", target, err)
	}
	return nil
}

// sinkComments makes the depth of a comment right by its parent's, and that of what is below it where this changes it. Its
// post is locked: no comment is written meanwhile.
func sinkComments(tx *gorm.DB, id int64) error {
	type depth struct{ ID, ParentID, Depth, Want int64 }
	var level []depth
	if err := tx.Raw("SELECT t.id, t.depth, "+depthSQL+" AS want FROM comments t WHERE t.id=?", id).Scan(&level).Error; err != nil {
		return err
	}
	wrong := map[int64]int64{} // what the depths have to be
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
		if err := tx.Raw("SELECT id, parent_id, depth FROM comments WHERE parent_id IN (" + joinIDs(parents) + ")").Scan(&level).Error; err != nil {
			return err
		}
		for i := range level {
			level[i].Want = min(wrong[level[i].ParentID]+1, 255)
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	ids := slices.Sorted(maps.Keys(wrong))
	if _, err := lockTargets(tx, likeTables[KindComment], ids); err != nil {
		return err
	}
	return tx.Exec("UPDATE comments FORCE INDEX (PRIMARY) SET depth=" + caseOf(wrong, "depth") + ", updated_at=updated_at WHERE id IN (" + joinIDs(ids) + ")").Error
}

// DeleteOrphanLikes deletes the likes of a target that has no row.
func (s *Store) DeleteOrphanLikes(ctx context.Context, target Target) error {
	t := likeTables[target.Kind]
	err := s.transact(ctx, func(tx *gorm.DB) error {
		there, err := lockTargets(tx, t, []int64{target.ID})
		if err != nil || len(there) > 0 {
			return err
		}
		return tx.Exec("DELETE FROM "+t.likes+" WHERE "+t.column+"=?", target.ID).Error
	})
	if err != nil {
		return fmt.Errorf("delete likes of %s: %w", target, err)
	}
	return nil
}
