package content

import (
	"fmt"
	"maps"
	"slices"

	"likewise/models"
	"likewise/models/db"
	"likewise/models/search"
)

// HidePosts deletes those posts that are not deleted and returns their ids.
func HidePosts(tx *db.Tx, ids []int64, d models.Deletion) (hidden []int64, err error) {
	if hidden, err = lockThose(tx, "posts", ids, models.StatusNormal); err != nil || len(hidden) == 0 {
		return nil, err
	}
	update := `
		UPDATE posts
		SET status=?, deleted_at=?, deleted_by=NULLIF(?,0), delete_reason=?, operation_id=NULLIF(?,0), terms_version=0,
			excerpt='', excerpt_version=0, updated_at=updated_at
		WHERE id IN (` + db.JoinIDs(hidden) + `)`
	err = tx.Exec(update, models.StatusDeleted, models.WholeSeconds(d.At), d.By.ID, d.Reason, d.Operation).Error
	if err != nil {
		return nil, err
	}
	tx.Announce(models.PostDeleted, hidden...)
	if err := deleteTerms(tx, models.KindPost, hidden...); err != nil {
		return nil, err
	}
	if err := db.AskClosing(tx, models.KindPost, hidden, d); err != nil {
		return nil, err
	}
	drops, err := DropsOf(tx.DB, hidden)
	if err != nil {
		return nil, err
	}
	if err := db.RecordClosings(tx, models.KindDrop, drops, d.At, false); err != nil {
		return nil, err
	}
	return hidden, MoveTags(tx, hidden...)
}

// ShowPosts restores those posts that are deleted and returns their ids.
func ShowPosts(tx *db.Tx, ids []int64) (shown []int64, err error) {
	if shown, err = lockThose(tx, "posts", ids, models.StatusDeleted); err != nil || len(shown) == 0 {
		return nil, err
	}
	list := db.JoinIDs(shown)
	update := `
		UPDATE posts
		SET status=?, deleted_at=NULL, deleted_by=NULL, delete_reason='', operation_id=NULL, terms_version=?,
			updated_at=updated_at
		WHERE id IN (` + list + `)`
	if err := tx.Exec(update, models.StatusNormal, search.Version).Error; err != nil {
		return nil, err
	}
	tx.Announce(models.PostRestored, shown...)
	read := `
		SELECT id, title, content
		FROM posts
		WHERE id IN (` + list + `)
		ORDER BY id`
	var texts []struct {
		ID             int64
		Title, Content string
	}
	if err := tx.Raw(read).Scan(&texts).Error; err != nil {
		return nil, err
	}
	for _, p := range texts {
		d := derive(models.PostText{Title: p.Title, Content: p.Content}, tx.Excerpt(p.Content))
		if err := writeTerms(tx, models.Target{Kind: models.KindPost, ID: p.ID}, d.weights); err != nil {
			return nil, err
		}
		if err := writeExcerpt(tx, p.ID, d.excerpt); err != nil {
			return nil, err
		}
	}
	return shown, MoveTags(tx, shown...)
}

// lockedContent is a post or comment whose row is locked.
type lockedContent struct {
	ID     int64
	Status models.Status
}

// lockThose locks posts or comments in the order of their ids, and returns the ids of those with the status in that
// order.
func lockThose(tx *db.Tx, table string, ids []int64, status models.Status) ([]int64, error) {
	rows, err := db.LockRows[lockedContent](tx, table, "id, status", ids)
	var found []int64
	for _, r := range rows {
		if r.Status == status {
			found = append(found, r.ID)
		}
	}
	return found, err
}

// HideComments deletes those comments that are not deleted, subtracts them from the counts and returns their ids. Their
// replies stay.
func HideComments(tx *db.Tx, ids []int64, d models.Deletion) ([]int64, error) {
	hidden, err := countComments(tx, ids, models.StatusNormal, "-")
	if err != nil || len(hidden) == 0 {
		return nil, err
	}
	update := `
		UPDATE comments
		SET status=?, deleted_at=?, deleted_by=NULLIF(?,0), delete_reason=?, operation_id=NULLIF(?,0), terms_version=0,
			updated_at=updated_at
		WHERE id IN (` + db.JoinIDs(hidden) + `)`
	err = tx.Exec(update, models.StatusDeleted, models.WholeSeconds(d.At), d.By.ID, d.Reason, d.Operation).Error
	if err != nil {
		return nil, err
	}
	tx.Announce(models.CommentDeleted, hidden...)
	if err := deleteTerms(tx, models.KindComment, hidden...); err != nil {
		return nil, err
	}
	if err := db.AskClosing(tx, models.KindComment, hidden, d); err != nil {
		return nil, err
	}
	return hidden, refreshActiveAt(tx, hidden)
}

// ShowComments restores those comments that are deleted, adds them to the counts and returns their ids. Their posts and
// parents may be deleted.
func ShowComments(tx *db.Tx, ids []int64) ([]int64, error) {
	shown, err := countComments(tx, ids, models.StatusDeleted, "+")
	if err != nil || len(shown) == 0 {
		return nil, err
	}
	update := `
		UPDATE comments
		SET status=?, deleted_at=NULL, deleted_by=NULL, delete_reason='', operation_id=NULL, terms_version=?,
			updated_at=updated_at
		WHERE id IN (` + db.JoinIDs(shown) + `)`
	if err := tx.Exec(update, models.StatusNormal, search.Version).Error; err != nil {
		return nil, err
	}
	tx.Announce(models.CommentRestored, shown...)
	read := `
		SELECT id, content
		FROM comments
		WHERE id IN (` + db.JoinIDs(shown) + `)
		ORDER BY id`
	var texts []struct {
		ID      int64
		Content string
	}
	if err := tx.Raw(read).Scan(&texts).Error; err != nil {
		return nil, err
	}
	for _, c := range texts {
		if err := writeTerms(tx, models.Target{Kind: models.KindComment, ID: c.ID}, search.Weights("",
			c.Content)); err != nil {
			return nil, err
		}
	}
	return shown, refreshActiveAt(tx, shown)
}

// refreshActiveAt sets active_at of the posts of these comments, whose rows are locked, to the time of their latest
// comment. So a deleted comment no longer moves its post up.
//
// The times are read by a query of their own: inside the UPDATE, the comments would be locked.
func refreshActiveAt(tx *db.Tx, comments []int64) error {
	query := `
		SELECT p.id,
			UNIX_TIMESTAMP(p.active_at) AS was,
			UNIX_TIMESTAMP(COALESCE((
				SELECT c.created_at
				FROM comments c FORCE INDEX (idx_post_status_created)
				WHERE c.post_id=p.id AND c.status=?
				ORDER BY c.created_at DESC
				LIMIT 1
			), p.created_at)) AS at
		FROM (SELECT DISTINCT post_id FROM comments WHERE id IN (` + db.JoinIDs(comments) + `)) h
		STRAIGHT_JOIN posts p ON p.id=h.post_id
		ORDER BY p.id`
	var posts []struct{ ID, Was, At int64 }
	if err := tx.Raw(query, models.StatusNormal).Scan(&posts).Error; err != nil {
		return fmt.Errorf("read active_at of posts: %w", err)
	}
	at := map[int64]int64{}
	for _, p := range posts {
		if p.Was != p.At {
			at[p.ID] = p.At
		}
	}
	if len(at) == 0 {
		return nil
	}
	ids := slices.Sorted(maps.Keys(at))
	update := `
		UPDATE posts
		SET active_at=FROM_UNIXTIME(` + db.CaseOf(at, "NULL") + `), updated_at=updated_at
		WHERE id IN (` + db.JoinIDs(ids) + `)`
	if err := tx.Exec(update).Error; err != nil {
		return err
	}
	return SyncTags(tx, ids...)
}

// commentPosition is where a comment is. It never changes.
type commentPosition struct {
	ID, PostID int64
	ParentID   *int64
}

// countComments locks comments with their posts and parents, posts first. It adds the comments that have the status to
// the counts of their posts and parents, or subtracts them, and returns their ids. sign is "+" or "-".
func countComments(tx *db.Tx, ids []int64, status models.Status, sign string) ([]int64, error) {
	find := `
		SELECT id, post_id, parent_id
		FROM comments
		WHERE id IN (` + db.JoinIDs(db.Ascending(append(ids, 0))) + `)`
	var places []commentPosition
	if err := tx.Raw(find).Scan(&places).Error; err != nil {
		return nil, err
	}
	if len(places) == 0 {
		return nil, nil
	}
	var posts, comments []int64
	for _, p := range places {
		posts, comments = append(posts, p.PostID), append(comments, p.ID)
		if p.ParentID != nil {
			comments = append(comments, *p.ParentID)
		}
	}
	if _, err := lockThose(tx, "posts", posts, models.StatusNormal); err != nil {
		return nil, err
	}
	found, err := lockThose(tx, "comments", comments, status)
	if err != nil {
		return nil, err
	}
	var changed []int64
	ofPost, ofParent := map[int64]int{}, map[int64]int{}
	for _, p := range places {
		if _, ok := slices.BinarySearch(found, p.ID); !ok {
			continue
		}
		changed = append(changed, p.ID)
		ofPost[p.PostID]++
		if p.ParentID != nil {
			ofParent[*p.ParentID]++
		}
	}
	if err := addCounts(tx, "posts", "comments_count", sign, ofPost); err != nil {
		return nil, err
	}
	return db.Ascending(changed), addCounts(tx, "comments", "replies_count", sign, ofParent)
}

// addCounts adds to a count of each of these rows, or subtracts from it. sign is "+" or "-".
func addCounts(tx *db.Tx, table, column, sign string, by map[int64]int) error {
	if len(by) == 0 {
		return nil
	}
	ids := slices.Sorted(maps.Keys(by))
	update := `
		UPDATE ` + table + `
		SET ` + column + `=` + column + sign + db.CaseOf(by, "0") + `, updated_at=updated_at
		WHERE id IN (` + db.JoinIDs(ids) + `)`
	return tx.Exec(update).Error
}

// Hide deletes a post or comment, as HidePosts and HideComments do.
func Hide(tx *db.Tx, target models.Target, d models.Deletion) (err error) {
	if target.Kind == models.KindComment {
		_, err = HideComments(tx, []int64{target.ID}, d)
	} else {
		_, err = HidePosts(tx, []int64{target.ID}, d)
	}
	return err
}

// Show restores a post or comment, as ShowPosts and ShowComments do.
func Show(tx *db.Tx, target models.Target) (err error) {
	if target.Kind == models.KindComment {
		_, err = ShowComments(tx, []int64{target.ID})
	} else {
		_, err = ShowPosts(tx, []int64{target.ID})
	}
	return err
}
