package models

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"gorm.io/gorm"
)

// Deletion is how something was deleted.
type Deletion struct {
	At        time.Time // the zero time: it is not known
	By        Author    `gorm:"embedded;embeddedPrefix:by_"` // the zero Author: it is not known
	Reason    string    // "" where an author deleted their own
	Operation int64     // the ContentOperation that did it, else 0
	Purged    bool      // the text was deleted, too, and nothing can be restored
}

// ascending gives what an IN list holds, each once and in the order in which rows are locked.
func ascending(ids []int64) []int64 { return slices.Compact(slices.Sorted(slices.Values(ids))) }

// hidePosts deletes those of the posts that are not deleted, and gives their ids and what the caller has to give to
// countTags as its last statement.
func hidePosts(tx *gorm.DB, ids []int64, d Deletion) (hidden []int64, tags map[int64]int, err error) {
	if hidden, err = lockPosts(tx, ids, StatusNormal); err != nil || len(hidden) == 0 {
		return nil, nil, err
	}
	list := joinIDs(hidden)
	err = tx.Exec("UPDATE posts SET status=2, deleted_at=?, deleted_by=NULLIF(?,0), delete_reason=?, operation_id=NULLIF(?,0), terms_version=0, updated_at=updated_at"+
		" WHERE id IN ("+list+")", second(d.At), d.By.ID, d.Reason, d.Operation).Error
	if err != nil {
		return nil, nil, err
	}
	if err := tx.Exec("DELETE t FROM post_terms t FORCE INDEX (idx_post_id) WHERE t.post_id IN (" + list + ")").Error; err != nil {
		return nil, nil, fmt.Errorf("take posts out of the index: %w", err)
	}
	if err := askClosing(tx, KindPost, hidden, d); err != nil {
		return nil, nil, err
	}
	tags, err = moveTags(tx, hidden...)
	return hidden, tags, err
}

// showPosts takes the deletion of those of the posts back that are deleted; otherwise as hidePosts.
func showPosts(tx *gorm.DB, ids []int64) (shown []int64, tags map[int64]int, err error) {
	if shown, err = lockPosts(tx, ids, StatusDeleted); err != nil || len(shown) == 0 {
		return nil, nil, err
	}
	list := joinIDs(shown)
	err = tx.Exec("UPDATE posts SET status=1, deleted_at=NULL, deleted_by=NULL, delete_reason='', operation_id=NULL, terms_version=?, updated_at=updated_at"+
		" WHERE id IN ("+list+")", termsVersion).Error
	if err != nil {
		return nil, nil, err
	}
	var texts []struct {
		ID             int64
		Title, Content string
	}
	if err := tx.Raw("SELECT id, title, content FROM posts WHERE id IN (" + list + ") ORDER BY id").Scan(&texts).Error; err != nil {
		return nil, nil, err
	}
	for _, p := range texts {
		if err := writeTerms(tx, p.ID, termWeights(PostText{Title: p.Title, Content: p.Content})); err != nil {
			return nil, nil, err
		}
	}
	tags, err = moveTags(tx, shown...)
	return shown, tags, err
}

// lockPosts locks posts in the order of their ids, and gives those that have the status.
func lockPosts(tx *gorm.DB, ids []int64, status Status) ([]int64, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	var rows []struct {
		ID     int64
		Status Status
	}
	if err := tx.Raw("SELECT id, status FROM posts FORCE INDEX (PRIMARY) WHERE id IN (" + joinIDs(ascending(ids)) + ") ORDER BY id FOR UPDATE").Scan(&rows).Error; err != nil {
		return nil, err
	}
	var found []int64
	for _, r := range rows {
		if r.Status == status {
			found = append(found, r.ID)
		}
	}
	return found, nil
}

// hideComments deletes those of the comments that are not deleted, takes them out of the counts and gives their ids.
// Their replies stay.
func hideComments(tx *gorm.DB, ids []int64, d Deletion) ([]int64, error) {
	hidden, err := countComments(tx, ids, StatusNormal, "-")
	if err != nil || len(hidden) == 0 {
		return nil, err
	}
	err = tx.Exec("UPDATE comments SET status=2, deleted_at=?, deleted_by=NULLIF(?,0), delete_reason=?, operation_id=NULLIF(?,0), updated_at=updated_at"+
		" WHERE id IN ("+joinIDs(hidden)+")", second(d.At), d.By.ID, d.Reason, d.Operation).Error
	if err != nil {
		return nil, err
	}
	if err := askClosing(tx, KindComment, hidden, d); err != nil {
		return nil, err
	}
	return hidden, refreshActivity(tx, hidden)
}

// showComments takes the deletion of those of the comments back that are deleted, be their post or parent deleted or
// not; otherwise as hideComments.
func showComments(tx *gorm.DB, ids []int64) ([]int64, error) {
	shown, err := countComments(tx, ids, StatusDeleted, "+")
	if err != nil || len(shown) == 0 {
		return nil, err
	}
	err = tx.Exec("UPDATE comments SET status=1, deleted_at=NULL, deleted_by=NULL, delete_reason='', operation_id=NULL, updated_at=updated_at" +
		" WHERE id IN (" + joinIDs(shown) + ")").Error
	if err != nil {
		return nil, err
	}
	return shown, refreshActivity(tx, shown)
}

// refreshActivity makes active_at of the posts of these comments, which are locked, that of their latest comment. So a
// comment that was deleted lifts its post no longer.
//
// The times are read by themselves: inside the UPDATE, the comments that they are read from would be locked.
func refreshActivity(tx *gorm.DB, comments []int64) error {
	var posts []struct{ ID, Was, At int64 }
	err := tx.Raw("SELECT p.id, UNIX_TIMESTAMP(p.active_at) AS was, UNIX_TIMESTAMP(COALESCE((SELECT c.created_at FROM comments c FORCE INDEX (idx_post_status_created)" +
		" WHERE c.post_id=p.id AND c.status=1 ORDER BY c.created_at DESC LIMIT 1), p.created_at)) AS at" +
		" FROM (SELECT DISTINCT post_id FROM comments WHERE id IN (" + joinIDs(comments) + ")) h STRAIGHT_JOIN posts p ON p.id=h.post_id ORDER BY p.id").Scan(&posts).Error
	if err != nil {
		return fmt.Errorf("read the activity of posts: %w", err)
	}
	var ids []int64
	cases := ""
	for _, p := range posts {
		if p.Was != p.At {
			ids = append(ids, p.ID)
			cases += fmt.Sprintf(" WHEN %d THEN %d", p.ID, p.At)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	if err := tx.Exec("UPDATE posts SET active_at=FROM_UNIXTIME(CASE id" + cases + " END), updated_at=updated_at WHERE id IN (" + joinIDs(ids) + ")").Error; err != nil {
		return err
	}
	return syncTags(tx, ids...)
}

// countComments locks comments with their posts and parents, posts first, adds those that have the status to the counts
// of the latter or subtracts them, and gives their ids.
func countComments(tx *gorm.DB, ids []int64, status Status, sign string) ([]int64, error) {
	type place struct {
		ID, PostID int64
		ParentID   *int64
		Status     Status
	}
	var places []place // none of it but the status ever changes
	if err := tx.Raw("SELECT id, post_id, parent_id FROM comments WHERE id IN (" + joinIDs(ascending(append(ids, 0))) + ")").Scan(&places).Error; err != nil {
		return nil, err
	}
	var posts, comments []int64
	for _, p := range places {
		posts, comments = append(posts, p.PostID), append(comments, p.ID)
		if p.ParentID != nil {
			comments = append(comments, *p.ParentID)
		}
	}
	if len(places) == 0 {
		return nil, nil
	}
	if _, err := lockPosts(tx, posts, StatusNormal); err != nil {
		return nil, err
	}
	var rows []place
	if err := tx.Raw("SELECT id, status FROM comments FORCE INDEX (PRIMARY) WHERE id IN (" + joinIDs(ascending(comments)) + ") ORDER BY id FOR UPDATE").Scan(&rows).Error; err != nil {
		return nil, err
	}
	now := map[int64]Status{}
	for _, r := range rows {
		now[r.ID] = r.Status
	}
	var changed []int64
	ofPost, ofParent := map[int64]int{}, map[int64]int{}
	for _, p := range places {
		if now[p.ID] != status {
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
	return ascending(changed), addCounts(tx, "comments", "replies_count", sign, ofParent)
}

// addCounts adds to a count of each of these rows, or subtracts.
func addCounts(tx *gorm.DB, table, column, sign string, by map[int64]int) error {
	if len(by) == 0 {
		return nil
	}
	ids := slices.Sorted(maps.Keys(by))
	cases := ""
	for _, id := range ids {
		cases += " WHEN " + strconv.FormatInt(id, 10) + " THEN " + strconv.Itoa(by[id])
	}
	return tx.Exec("UPDATE " + table + " SET " + column + "=" + column + sign + "CASE id" + cases + " END, updated_at=updated_at WHERE id IN (" + joinIDs(ids) + ")").Error
}

// hide deletes a post or comment; see hidePosts and hideComments.
func hide(tx *gorm.DB, target Target, d Deletion) (tags map[int64]int, err error) {
	if target.Kind == KindComment {
		_, err = hideComments(tx, []int64{target.ID}, d)
		return nil, err
	}
	_, tags, err = hidePosts(tx, []int64{target.ID}, d)
	return tags, err
}

// show takes the deletion of a post or comment back; see showPosts and showComments.
func show(tx *gorm.DB, target Target) (tags map[int64]int, err error) {
	if target.Kind == KindComment {
		_, err = showComments(tx, []int64{target.ID})
		return nil, err
	}
	_, tags, err = showPosts(tx, []int64{target.ID})
	return tags, err
}
