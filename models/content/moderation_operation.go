package content

import (
	"likewise/models"
	"likewise/models/db"
)

// sweptAway reports whether a post is in the range of an operation that was not undone. A post that its author had
// deleted before the operation was left as it was, and must stay deleted like the others.
func sweptAway(tx *db.Tx, userID, postID int64) (bool, error) {
	const query = `
		SELECT COUNT(*)
		FROM content_operations
		WHERE user_id=? AND state IN (?,?) AND last_post_id>=?`
	var n int
	err := tx.Raw(query, userID, models.OperationDeleting, models.OperationDeleted, postID).Scan(&n).Error
	return n > 0, err
}
