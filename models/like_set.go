package models

import (
	"context"
	"fmt"
	"strings"
	"time"

	"gorm.io/gorm"
)

// likeTable names the two tables and the column that a kind of target uses. open is what a query reads the target t
// from, so that t.status=1 is all that is left to ask: a comment is closed under a deleted post.
type likeTable struct {
	targets, likes, column, open string
}

var likeTables = map[TargetKind]likeTable{
	KindPost:    {"posts", "post_likes", "post_id", "posts t"},
	KindComment: {"comments", "comment_likes", "comment_id", "comments t JOIN posts p ON p.id=t.post_id AND p.status=1"},
}

// adding is the SET clause that adds delta, an expression, to the count, and keeps what depends on it. The score comes
// first and says what the count will be: MySQL assigns from left to right, TiDB and the standard all at once.
func (t likeTable) adding(delta string) string {
	set := "likes_count=likes_count+(" + delta + "), updated_at=updated_at"
	if t.targets == "posts" {
		set = "hot_score=" + hotScoreSQL("likes_count+("+delta+")") + ", " + set
	}
	return set
}

// counted copies the new counts to where else they are kept, after adding in the same transaction.
func (t likeTable) counted(tx *gorm.DB, ids ...int64) error {
	if t.targets != "posts" {
		return nil
	}
	return syncTags(tx, ids...)
}

func notFound(kind TargetKind) *Error {
	return Errorf(CodeNotFound, "There is no such %s.", kind)
}

// SetLike is direct mode: one transaction that writes the row and, if a row really changed, the count. Setting what
// is already set changes nothing. A target that is deleted or was never there gives CodeNotFound.
func (s *Store) SetLike(ctx context.Context, target Target, userID int64, liked bool) (LikeState, error) {
	t := likeTables[target.Kind]
	state := LikeState{Liked: liked}
	err := s.transact(ctx, func(tx *gorm.DB) error {
		// The like writer and deletions lock the target before its likes, too.
		locked, err := lockTargets(tx, t, []int64{target.ID})
		if err != nil {
			return err
		}
		if len(locked) == 0 {
			return notFound(target.Kind)
		}
		// Under the lock nobody else writes these rows, so a plain INSERT does. Where a like was taken back shortly before, the
		// unique key still has its deleted entry: ON DUPLICATE KEY UPDATE would lock that entry and the next one, which may be
		// another target's, so exclusively that two such inserts deadlock.
		rows, err := readLikes(tx, t, []int64{target.ID}, map[int64][]int64{target.ID: {userID}})
		if err != nil {
			return err
		}
		row, there := rows[likeKey{target, userID}]
		changed := there != liked
		if changed {
			var change *gorm.DB
			delta := "1"
			if liked {
				change = tx.Exec("INSERT INTO "+t.likes+" ("+t.column+", user_id, created_at) VALUES (?, ?, ?)", target.ID, userID, second(s.now()))
			} else {
				delta = "-1"
				change = tx.Exec("DELETE FROM "+t.likes+" WHERE id=?", row)
			}
			if mysqlCode(change.Error) == errDuplicateKey {
				return errChangedMeanwhile
			}
			if change.Error != nil {
				return change.Error
			}
			count := tx.Exec("UPDATE "+t.targets+" SET "+t.adding(delta)+" WHERE id=? AND status=?", target.ID, StatusNormal)
			if count.Error != nil {
				return count.Error
			}
			if count.RowsAffected == 0 {
				return notFound(target.Kind)
			}
			if err := t.counted(tx, target.ID); err != nil {
				return err
			}
		}
		var now likedRow
		read := tx.Raw("SELECT t.likes_count, t.milestone FROM "+t.open+" WHERE t.id=? AND t.status=1", target.ID).Scan(&now)
		if read.Error == nil && read.RowsAffected == 0 {
			return notFound(target.Kind)
		}
		if state.Count = now.LikesCount; read.Error != nil || !liked || !changed {
			return read.Error
		}
		return s.reachMilestone(tx, target, now)
	})
	if err != nil {
		return LikeState{}, fmt.Errorf("set like of %s: %w", target, err)
	}
	return state, nil
}

// reachMilestone tells the author if the like that was just counted took the count to a power of ten for the first time.
func (s *Store) reachMilestone(tx *gorm.DB, target Target, now likedRow) error {
	reached := milestones(max(now.LikesCount-1, now.Milestone), now.LikesCount)
	if len(reached) == 0 {
		return nil
	}
	err := tx.Exec("UPDATE "+likeTables[target.Kind].targets+" SET milestone=?, updated_at=updated_at WHERE id=?", reached[0], target.ID).Error
	if err != nil {
		return err
	}
	return notifyMilestone(tx, target.Kind, reached[0], []int64{target.ID}, s.now())
}

// LikeStates gives what viewer (0 for the anonymous) sees of rows, in their order: the counts as they came, and the
// viewer's own likes in at most one query.
func (s *Store) LikeStates(ctx context.Context, viewer int64, rows []TargetCount) ([]LikeState, error) {
	targets := make([]Target, len(rows))
	for i, r := range rows {
		targets[i] = r.Target
	}
	liked, err := s.LikedBy(ctx, viewer, targets)
	if err != nil {
		return nil, err
	}
	states := make([]LikeState, len(rows))
	for i, r := range rows {
		states[i] = LikeState{Liked: liked[r.Target], Count: r.Count}
	}
	return states, nil
}

// StatesOf gives what viewer (0 for the anonymous) sees of the likes of targets, in one query. What is deleted or was
// never there has no state.
func (s *Store) StatesOf(ctx context.Context, viewer int64, targets []Target) (map[Target]LikeState, error) {
	if len(targets) == 0 {
		return nil, nil
	}
	ids := map[TargetKind][]int64{}
	for _, t := range targets {
		ids[t.Kind] = append(ids[t.Kind], t.ID)
	}
	var parts []string
	var args []any
	for kind, list := range ids {
		t := likeTables[kind]
		parts = append(parts, "SELECT '"+string(kind)+"' AS kind, t.id, t.likes_count AS count, EXISTS (SELECT 1 FROM "+t.likes+
			" l WHERE l."+t.column+"=t.id AND l.user_id=?) AS liked FROM "+t.open+" WHERE t.id IN ("+joinIDs(list)+") AND t.status=1")
		args = append(args, viewer)
	}
	var found []struct {
		Target Target    `gorm:"embedded"`
		State  LikeState `gorm:"embedded"`
	}
	if err := s.db.WithContext(ctx).Raw(strings.Join(parts, " UNION ALL "), args...).Scan(&found).Error; err != nil {
		return nil, fmt.Errorf("read likes of %d targets: %w", len(targets), err)
	}
	states := make(map[Target]LikeState, len(found))
	for _, f := range found {
		states[f.Target] = f.State
	}
	return states, nil
}

// LikedBy tells which of targets the user likes, in one query; in none for user 0.
func (s *Store) LikedBy(ctx context.Context, userID int64, targets []Target) (map[Target]bool, error) {
	if userID == 0 || len(targets) == 0 {
		return nil, nil
	}
	ids := map[TargetKind][]int64{}
	for _, t := range targets {
		ids[t.Kind] = append(ids[t.Kind], t.ID)
	}
	var parts []string
	var args []any
	for kind, list := range ids {
		t := likeTables[kind]
		parts = append(parts, "SELECT '"+string(kind)+"' AS kind, "+t.column+" AS id FROM "+t.likes+
			" WHERE user_id=? AND "+t.column+" IN ("+joinIDs(list)+")")
		args = append(args, userID)
	}
	var found []Target
	if err := s.db.WithContext(ctx).Raw(strings.Join(parts, " UNION ALL "), args...).Scan(&found).Error; err != nil {
		return nil, fmt.Errorf("read likes of user %d: %w", userID, err)
	}
	liked := make(map[Target]bool, len(found))
	for _, t := range found {
		liked[t] = true
	}
	return liked, nil
}

// Liker is a user who likes a target, and since when.
type Liker struct {
	Author    Author `gorm:"embedded;embeddedPrefix:author_"`
	RowID     int64  // grows with the time the like was written; the list's order
	CreatedAt time.Time
}

// Likers lists who likes a target, latest first, without those whom the viewer (0 for the anonymous) blocks: at most limit
// likes older than row before (0 for the first page). If what is passed over makes the page short, rest is where the list
// continues; nil for its end.
func (s *Store) Likers(ctx context.Context, viewer int64, target Target, before int64, limit int) (list []Liker, rest *ListKey, err error) {
	t := likeTables[target.Kind]
	// The index has to be named: for the latest few of a target the servers like to read the latest of all.
	likes := trail{
		from:  t.likes + " l FORCE INDEX (idx_" + t.column + "_desc)",
		where: matching("l."+t.column+"=?", target.ID),
		id:    "l.id",
	}
	visible := func(where conditions, limit int) *gorm.DB {
		// Reading the likes through the target leaves out deleted targets without a query of its own.
		where.add("t.id=? AND t.status=?", target.ID, StatusNormal)
		where.add(notBlocked("l.user_id"), viewer)
		query := `
			SELECT ` + authorColumns + `, l.id AS row_id, l.created_at
			FROM ` + t.open + `
			STRAIGHT_JOIN ` + likes.from + `
			STRAIGHT_JOIN users u FORCE INDEX (PRIMARY) ON u.id=l.user_id
			` + where.clause() + `
			ORDER BY ` + likes.order() + `
			LIMIT ?`
		return s.db.WithContext(ctx).Raw(query, append(where.args, limit)...)
	}
	list, rest, err = sift(ctx, s, likes, beforeID(before), limit, visible, noContent[Liker])
	if err != nil {
		return nil, nil, fmt.Errorf("list likers of %s: %w", target, err)
	}
	if len(list) == 0 {
		open, err := s.TargetOpen(ctx, target)
		if err != nil {
			return nil, nil, err
		}
		if !open {
			return nil, nil, notFound(target.Kind)
		}
	}
	return list, rest, nil
}

// TargetOpen reports whether the target exists and is not deleted. A comment under a deleted post is closed too.
func (s *Store) TargetOpen(ctx context.Context, target Target) (bool, error) {
	var n int
	query := "SELECT COUNT(*) FROM " + likeTables[target.Kind].open + " WHERE t.id=? AND t.status=1"
	if err := s.db.WithContext(ctx).Raw(query, target.ID).Scan(&n).Error; err != nil {
		return false, fmt.Errorf("read %s: %w", target, err)
	}
	return n > 0, nil
}

// LikerIDs gives the users who like a target in ascending order, at most limit of them with ids above after.
func (s *Store) LikerIDs(ctx context.Context, target Target, after int64, limit int) ([]int64, error) {
	t := likeTables[target.Kind]
	var ids []int64
	err := s.db.WithContext(ctx).Raw("SELECT user_id FROM "+t.likes+" WHERE "+t.column+"=? AND user_id>? ORDER BY user_id LIMIT ?",
		target.ID, after, limit).Scan(&ids).Error
	if err != nil {
		return nil, fmt.Errorf("read likers of %s: %w", target, err)
	}
	return ids, nil
}

// LikedAmong tells which of users like a target, in one query.
func (s *Store) LikedAmong(ctx context.Context, target Target, users []int64) (map[int64]bool, error) {
	if len(users) == 0 {
		return nil, nil
	}
	t := likeTables[target.Kind]
	var ids []int64
	err := s.db.WithContext(ctx).Raw("SELECT user_id FROM "+t.likes+" WHERE "+t.column+"=? AND user_id IN ("+joinIDs(users)+")", target.ID).Scan(&ids).Error
	if err != nil {
		return nil, fmt.Errorf("read likers of %s: %w", target, err)
	}
	liked := make(map[int64]bool, len(ids))
	for _, id := range ids {
		liked[id] = true
	}
	return liked, nil
}
