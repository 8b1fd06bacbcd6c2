package likes

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gorm.io/gorm"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/content"
	"likewise/models/db"
)

// SetLike sets a like in direct mode: one transaction writes the row and, if a row changed, the count. Setting a like
// to the state that it has changes nothing. If the target is deleted or never existed, SetLike returns CodeNotFound. If
// the site is not in direct mode, SetLike returns CodeUnavailable.
func (s *Store) SetLike(ctx context.Context, target models.Target, userID int64, liked bool) (models.LikeState, error) {
	t := db.TargetTables[target.Kind]
	state := models.LikeState{Liked: liked}
	err := s.Transact(ctx, func(tx *db.Tx) error {
		if err := db.HoldDirect(tx); err != nil {
			return err
		}
		// The like writer and deletions lock the target before its likes, too.
		locked, err := lockTargets(tx, t, []int64{target.ID})
		if err != nil {
			return err
		}
		if len(locked) == 0 {
			return models.NotFound(target.Kind)
		}
		changed, err := setLikeRow(tx, target, userID, liked)
		if err != nil {
			return err
		}
		query := `
			SELECT t.id, t.user_id, t.likes_count, t.milestone
			FROM ` + t.FromOpen + `
			WHERE t.id=? AND t.status=?`
		var now likedRow
		read := tx.Raw(query, target.ID, models.StatusNormal).Scan(&now)
		if read.Error == nil && read.RowsAffected == 0 {
			return models.NotFound(target.Kind)
		}
		if state.Count = now.LikesCount; read.Error != nil || !liked || !changed {
			return read.Error
		}
		return reachMilestone(tx, target, userID, now)
	})
	if err != nil {
		return models.LikeState{}, fmt.Errorf("set like of %s: %w", target, err)
	}
	return state, nil
}

// setLikeRow writes or deletes the row of a like and counts it, and reports whether the row changed. The target is
// locked.
//
// Nobody else writes the row under this lock, so a plain INSERT is enough. Shortly after an unlike, the unique key
// still has a deleted entry. ON DUPLICATE KEY UPDATE would lock this entry and the next one exclusively. The next entry
// can belong to another target, so two such inserts could deadlock.
func setLikeRow(tx *db.Tx, target models.Target, userID int64, liked bool) (changed bool, err error) {
	t := db.TargetTables[target.Kind]
	rows, err := readLikes(tx, t, []int64{target.ID}, map[int64][]int64{target.ID: {userID}})
	if err != nil {
		return false, err
	}
	row, exists := rows[models.LikeKey{Target: target, UserID: userID}]
	if exists == liked {
		return false, nil
	}
	var change *gorm.DB
	delta := "1"
	if liked {
		change = tx.Exec(`
			INSERT INTO `+t.Likes+` (`+t.Column+`, user_id, created_at)
			VALUES (?, ?, CURRENT_TIMESTAMP)`, target.ID, userID)
	} else {
		delta = "-1"
		change = tx.Exec(`
			DELETE FROM `+t.Likes+`
			WHERE id=?`, row)
	}
	if models.MySQLCode(change.Error) == db.DuplicateKey {
		return false, db.ErrChangedMeanwhile
	}
	if change.Error != nil {
		return false, change.Error
	}
	count := tx.Exec(`
		UPDATE `+t.Targets+`
		SET `+adding(t, delta)+`
		WHERE id=? AND status=?`, target.ID, models.StatusNormal)
	if count.Error != nil {
		return false, count.Error
	}
	if count.RowsAffected == 0 {
		return false, models.NotFound(target.Kind)
	}
	return true, counted(tx, t, target.ID)
}

// reachMilestone notifies the author if the like of a user took the likes of others to a milestone for the first time.
func reachMilestone(tx *db.Tx, target models.Target, userID int64, now likedRow) error {
	if userID == now.UserID {
		return nil
	}
	before := now
	before.LikesCount--
	delta := map[int64]int64{target.ID: 1}
	reached, err := reachedMilestones(tx, target.Kind, map[int64]likedRow{target.ID: before}, delta, nil)
	if err != nil || len(reached) == 0 {
		return err
	}
	update := `
		UPDATE ` + db.TargetTables[target.Kind].Targets + `
		SET milestone=?, updated_at=updated_at
		WHERE id=?`
	if err := tx.Exec(update, slices.Max(slices.Collect(maps.Keys(reached))), target.ID).Error; err != nil {
		return err
	}
	for _, m := range slices.Sorted(maps.Keys(reached)) {
		if err := notifyMilestone(tx, target.Kind, m, reached[m], tx.Now); err != nil {
			return err
		}
	}
	return nil
}

// LikeStates returns the likes of rows as viewer (0 for the anonymous) sees them, in their order. The counts are those
// of rows. At most one query reads the viewer's own likes.
func (s *Store) LikeStates(ctx context.Context, viewer int64, rows []models.TargetCount) ([]models.LikeState, error) {
	targets := make([]models.Target, len(rows))
	for i, r := range rows {
		targets[i] = r.Target
	}
	liked, err := s.LikedBy(ctx, viewer, targets)
	if err != nil {
		return nil, err
	}
	states := make([]models.LikeState, len(rows))
	for i, r := range rows {
		states[i] = models.LikeState{Liked: liked[r.Target], Count: r.Count}
	}
	return states, nil
}

// StatesOf returns the likes of targets as viewer (0 for the anonymous) sees them, in one query. Targets that are
// deleted or never existed have no state.
func (s *Store) StatesOf(
	ctx context.Context, viewer int64, targets []models.Target,
) (map[models.Target]models.LikeState, error) {
	if len(targets) == 0 {
		return nil, nil
	}
	var parts []string
	var args []any
	for kind, list := range db.IDsByKind(targets) {
		t, liked := db.TargetTables[kind], "FALSE"
		if viewer != 0 {
			liked = "EXISTS (SELECT 1 FROM " + t.Likes + " l WHERE l." + t.Column + "=t.id AND l.user_id=?)"
			args = append(args, viewer)
		}
		parts = append(parts, `
		SELECT '`+string(kind)+`' AS kind, t.id, t.likes_count AS count,
			`+liked+` AS liked
		FROM `+t.FromOpen+`
		WHERE t.id IN (`+db.JoinIDs(list)+`) AND t.status=?`)
		args = append(args, models.StatusNormal)
	}
	var found []struct {
		Target models.Target    `gorm:"embedded"`
		State  models.LikeState `gorm:"embedded"`
	}
	query := strings.Join(parts, `
		UNION ALL`)
	if err := s.Read(ctx).Raw(query, args...).Scan(&found).Error; err != nil {
		return nil, fmt.Errorf("read likes of %d targets: %w", len(targets), err)
	}
	states := make(map[models.Target]models.LikeState, len(found))
	for _, f := range found {
		states[f.Target] = f.State
	}
	return states, nil
}

// LikedBy returns the set of those targets that the user likes, in one query. For user 0 it runs no query.
func (s *Store) LikedBy(ctx context.Context, userID int64, targets []models.Target) (map[models.Target]bool, error) {
	if userID == 0 || len(targets) == 0 {
		return nil, nil
	}
	var parts []string
	var args []any
	for kind, list := range db.IDsByKind(targets) {
		t := db.TargetTables[kind]
		parts = append(parts, `
		SELECT '`+string(kind)+`' AS kind, `+t.Column+` AS id
		FROM `+t.Likes+`
		WHERE user_id=? AND `+t.Column+` IN (`+db.JoinIDs(list)+`)`)
		args = append(args, userID)
	}
	var found []models.Target
	query := strings.Join(parts, `
		UNION ALL`)
	if err := s.Read(ctx).Raw(query, args...).Scan(&found).Error; err != nil {
		return nil, fmt.Errorf("read likes of user %d: %w", userID, err)
	}
	liked := make(map[models.Target]bool, len(found))
	for _, t := range found {
		liked[t] = true
	}
	return liked, nil
}

// Likers lists the users who like a target, latest first, without those whom the viewer (0 for the anonymous) blocks:
// at most limit likes older than row before (0 for the first page). If blocked users make the page short, rest is the
// place where the list continues; nil at its end. If the target is deleted or never existed, Likers returns
// CodeNotFound.
func (s *Store) Likers(ctx context.Context, viewer int64, target models.Target, before int64, limit int,
) (list []models.Liker, rest *models.ListKey, err error) {
	t := db.TargetTables[target.Kind]
	// The index is forced: for the latest likes of a target, the servers tend to read the latest likes of all targets.
	likes := db.Trail{
		From:  t.Likes + " l FORCE INDEX (idx_" + t.Column + "_desc)",
		Where: db.Matching("l."+t.Column+"=?", target.ID),
		ID:    "l.id",
	}
	visible := func(where db.Conditions, limit int) *gorm.DB {
		// Reading the likes through the target leaves out deleted targets without a query of its own.
		where.Add("t.id=? AND t.status=?", target.ID, models.StatusNormal)
		where.Add(db.NotBlocked("l.user_id"), viewer)
		query := `
			SELECT ` + accounts.AuthorColumns + `, l.id AS row_id, l.created_at
			FROM ` + t.FromOpen + `
			STRAIGHT_JOIN ` + likes.From + `
			STRAIGHT_JOIN users u FORCE INDEX (PRIMARY) ON u.id=l.user_id
			` + where.Clause() + `
			ORDER BY ` + likes.Order() + `
			LIMIT ?`
		return s.Read(ctx).Raw(query, append(where.Args, limit)...)
	}
	list, rest, err = db.Sift(ctx, s.DB, likes, db.BeforeID(before), limit, visible, db.NoContent[models.Liker])
	if err != nil {
		return nil, nil, fmt.Errorf("list likers of %s: %w", target, err)
	}
	if len(list) == 0 {
		open, err := s.TargetOpen(ctx, target)
		if err != nil {
			return nil, nil, err
		}
		if !open {
			return nil, nil, models.NotFound(target.Kind)
		}
	}
	return list, rest, nil
}

// LikerIDs returns the ids of the users who like a target, in ascending order: at most limit ids above after.
func (s *Store) LikerIDs(ctx context.Context, target models.Target, after int64, limit int) ([]int64, error) {
	t := db.TargetTables[target.Kind]
	query := `
		SELECT user_id
		FROM ` + t.Likes + `
		WHERE ` + t.Column + `=? AND user_id>?
		ORDER BY user_id
		LIMIT ?`
	// Row by row: Scan takes a multiple of the time, and some targets have millions of likers.
	rows, err := s.Read(ctx).Raw(query, target.ID, after, limit).Rows()
	if err != nil {
		return nil, fmt.Errorf("read likers of %s: %w", target, err)
	}
	defer rows.Close()
	ids := make([]int64, 0, min(limit, 1024))
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, fmt.Errorf("read likers of %s: %w", target, err)
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read likers of %s: %w", target, err)
	}
	return ids, nil
}

// LikersOf returns the ids of the users who like each of some targets, in any order. It takes a query for each kind of
// target. Targets that nobody likes are left out.
func (s *Store) LikersOf(ctx context.Context, targets []models.Target) (map[models.Target][]int64, error) {
	users := make(map[models.Target][]int64, len(targets))
	for kind, list := range db.IDsByKind(targets) {
		if err := s.likersOf(ctx, kind, list, users); err != nil {
			return nil, fmt.Errorf("read likers of %d targets: %w", len(targets), err)
		}
	}
	return users, nil
}

// likersOf adds the users who like targets of one kind to users. GORM takes twice as long to read them.
func (s *Store) likersOf(
	ctx context.Context, kind models.TargetKind, ids []int64, users map[models.Target][]int64,
) error {
	t := db.TargetTables[kind]
	query := `
		SELECT ` + t.Column + `, user_id
		FROM ` + t.Likes + `
		WHERE ` + t.Column + ` IN (` + db.JoinIDs(ids) + `)`
	rows, err := s.Read(ctx).Raw(query).Rows()
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		target, user := models.Target{Kind: kind}, int64(0)
		if err := rows.Scan(&target.ID, &user); err != nil {
			return err
		}
		users[target] = append(users[target], user)
	}
	return rows.Err()
}

// LikedAmong returns the set of those users who like a target, in one query.
func (s *Store) LikedAmong(ctx context.Context, target models.Target, users []int64) (map[int64]bool, error) {
	if len(users) == 0 {
		return nil, nil
	}
	t := db.TargetTables[target.Kind]
	query := `
		SELECT user_id
		FROM ` + t.Likes + `
		WHERE ` + t.Column + `=? AND user_id IN (` + db.JoinIDs(users) + `)`
	var ids []int64
	if err := s.Read(ctx).Raw(query, target.ID).Scan(&ids).Error; err != nil {
		return nil, fmt.Errorf("read likers of %s: %w", target, err)
	}
	liked := make(map[int64]bool, len(ids))
	for _, id := range ids {
		liked[id] = true
	}
	return liked, nil
}

// adding returns the SET clause of targets that adds delta, an expression, to the count and updates the score of posts.
// The score comes first and is computed from the new count: MySQL assigns from left to right, the standard all at once.
func adding(t db.TargetTable, delta string) string {
	set := "likes_count=likes_count+(" + delta + "), updated_at=updated_at"
	if t.Targets == "posts" {
		set = "hot_score=" + content.HotScoreSQL("likes_count+("+delta+")") + ", " + set
	}
	return set
}

// counted copies the new counts of posts to post_tags, after adding, in the same transaction.
func counted(tx *db.Tx, t db.TargetTable, ids ...int64) error {
	if t.Targets != "posts" {
		return nil
	}
	return content.SyncTags(tx, ids...)
}
