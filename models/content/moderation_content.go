package content

import (
	"fmt"

	"likewise/models"
	"likewise/models/db"
)

// Moderated is the part of a post or comment that acts of moderators depend on. It is read in a transaction that holds
// the row.
type Moderated struct {
	AuthorID    int64
	Status      models.Status
	DeletedBy   int64 // 0: it is not deleted, or the deleting user is not known
	OperationID int64 // the ContentOperation that deleted it, else 0
	Locked      bool  // of posts alone, as the next
	Pinned      bool
	Version     int64
	Purged      bool // its text was deleted, and it cannot be restored
}

// ErrOwnCase is the error of moderators who decide about themselves.
func ErrOwnCase() *models.Error {
	return models.Errorf(models.CodeForbidden, "You cannot decide about yourself. Another moderator has to do it.")
}

// State returns the properties that the moderation log keeps.
func (m *Moderated) State() map[string]any {
	state := map[string]any{"status": m.Status.String()}
	if m.Status == models.StatusDeleted && m.DeletedBy != 0 {
		state["deleted_by"] = m.DeletedBy
	}
	if m.OperationID != 0 {
		state["operation_id"] = m.OperationID
	}
	return state
}

// LockModerated reads a post or comment with the post's row locked: every deletion and restoration locks that row.
// CodeNotFound: it never existed.
func LockModerated(tx *db.Tx, target models.Target) (*Moderated, error) {
	if _, err := LockTargetPost(tx, target); err != nil {
		return nil, err
	}
	flags := ", locked, pinned"
	if target.Kind == models.KindComment {
		flags = ""
	}
	query := `
		SELECT user_id AS author_id, status, COALESCE(deleted_by,0) AS deleted_by,
			COALESCE(operation_id,0) AS operation_id, version, purged` + flags + `
		FROM ` + db.TargetTables[target.Kind].Targets + `
		WHERE id=?`
	var m Moderated
	read := tx.Raw(query, target.ID).Scan(&m)
	if read.Error == nil && read.RowsAffected == 0 {
		return nil, models.NotFound(target.Kind)
	}
	return &m, read.Error
}

// LockedPost is the post of a target whose row is locked.
type LockedPost struct {
	Status models.Status
	Locked bool // by a moderator
}

// LockTargetPost locks the post that is the target, or that the target is a comment on. Every transaction that changes
// the text or the status of a comment holds this row. It returns zero if there is none.
func LockTargetPost(tx *db.Tx, target models.Target) (post LockedPost, err error) {
	id := "?"
	if target.Kind == models.KindComment {
		id = "(SELECT post_id FROM comments WHERE id=?)"
	}
	query := `
		SELECT status, locked
		FROM posts FORCE INDEX (PRIMARY)
		WHERE id=` + id + `
		FOR UPDATE`
	if err := tx.Raw(query, target.ID).Scan(&post).Error; err != nil {
		return LockedPost{}, fmt.Errorf("lock the post of %s: %w", target, err)
	}
	return post, nil
}
