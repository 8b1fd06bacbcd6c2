package moderation

import (
	"context"
	"fmt"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/content"
	"likewise/models/db"
)

const operationColumns = `id, user_id, state, requested_by, requested_at, reason, last_post_id, last_comment_id,
			done_post_id, done_comment_id, posts_deleted, comments_deleted, posts_restored, comments_restored,
			undone_by, finished_at`

// A batch of an operation is small, so that its locks are held for a short time: a post includes its search index.
const (
	operationPosts    = 20
	operationComments = 100
)

// RemoveAll requests the deletion of all content of a user. CodeInvalid: the reason breaks a rule. The other errors are
// those of BanUser.
func (s *Store) RemoveAll(ctx context.Context, actor, userID int64, reason string) (*models.ContentOperation, error) {
	if err := models.ValidateReason(reason); err != nil {
		return nil, err
	}
	const readLast = `
		SELECT
			COALESCE((SELECT MAX(id) FROM posts WHERE user_id=?),0) AS post,
			COALESCE((SELECT MAX(id) FROM comments WHERE user_id=?),0) AS comment`
	const insert = `
		INSERT INTO content_operations (user_id, state, requested_by, requested_at, reason,
			last_post_id, last_comment_id)
		VALUES (?,?,?,?,?,?,?)`
	var id int64
	err := s.Transact(ctx, func(tx *db.Tx) error {
		if err := lockAuthor(tx, actor, userID); err != nil {
			return err
		}
		var last struct{ Post, Comment int64 }
		err := tx.Raw(readLast, userID, userID).Scan(&last).Error
		if err != nil {
			return err
		}
		id, err = tx.Insert(insert,
			userID, models.OperationDeleting, actor, tx.Now, reason, last.Post, last.Comment)
		if err != nil {
			return err
		}
		return accounts.LogModeration(tx, accounts.ModerationAct{
			ActorID: actor, Action: "user.delete_content", TargetType: "user", TargetID: userID, Reason: reason,
			After: map[string]any{"operation_id": id, "state": models.OperationDeleting.String()},
		})
	})
	if err != nil {
		return nil, fmt.Errorf("remove content of user %d: %w", userID, err)
	}
	return s.OperationByID(ctx, id)
}

// lockAuthor is LockOutranked for an author who may have deleted their account: their content still exists.
func lockAuthor(tx *db.Tx, actor, userID int64) error {
	_, err := accounts.LockOutranked(tx, actor, userID)
	if models.ErrorCode(err) != models.CodeNotFound {
		return err
	}
	const query = `
		SELECT COUNT(*)
		FROM users
		WHERE id=? AND deleted_at IS NOT NULL`
	var deleted int
	if read := tx.Raw(query, userID).Scan(&deleted).Error; read != nil {
		return read
	}
	if deleted > 0 {
		return nil
	}
	return err
}

// UndoOperation requests the restoration of the content that an operation deleted, whether the operation is finished or
// not. If it is being undone already, nothing changes and nothing is logged.
//
// CodeInvalid: the reason breaks a rule. CodeNotFound: the operation does not exist. CodeForbidden: it was requested by
// a user whose role is above the actor's. The other errors are those of BanUser.
func (s *Store) UndoOperation(ctx context.Context, actor, id int64, reason string) (*models.ContentOperation, error) {
	if err := models.ValidateReason(reason); err != nil {
		return nil, err
	}
	o, err := s.OperationByID(ctx, id)
	if err != nil {
		return nil, err
	}
	const update = `
		UPDATE content_operations
		SET state=?, undone_by=?, finished_at=NULL
		WHERE id=?`
	err = s.Transact(ctx, func(tx *db.Tx) error {
		if err := lockAuthor(tx, actor, o.UserID); err != nil {
			return err
		}
		tx.AnswerHas(id)
		now, err := lockOperation(tx, id)
		if err != nil || now.State >= models.OperationUndoing {
			return err
		}
		if err := accounts.MayOverrule(tx, actor, now.RequestedBy); err != nil {
			return err
		}
		if err := tx.Exec(update, models.OperationUndoing, actor, id).Error; err != nil {
			return err
		}
		return accounts.LogModeration(tx, accounts.ModerationAct{
			ActorID: actor, Action: "user.restore_content", TargetType: "user", TargetID: o.UserID, Reason: reason,
			Before: map[string]any{"operation_id": id, "state": now.State.String()},
			After:  map[string]any{"operation_id": id, "state": models.OperationUndoing.String()},
		})
	})
	if err != nil {
		return nil, fmt.Errorf("undo operation %d: %w", id, err)
	}
	return s.OperationByID(ctx, id)
}

// OperationByID reads an operation. CodeNotFound: it does not exist.
func (s *Store) OperationByID(ctx context.Context, id int64) (*models.ContentOperation, error) {
	const query = `
		SELECT ` + operationColumns + `
		FROM content_operations
		WHERE id=?`
	var o models.ContentOperation
	read := s.Read(ctx).Raw(query, id).Scan(&o)
	if read.Error != nil {
		return nil, fmt.Errorf("read operation %d: %w", id, read.Error)
	}
	if read.RowsAffected == 0 {
		return nil, errNoOperation()
	}
	return &o, nil
}

func errNoOperation() *models.Error {
	return models.Errorf(models.CodeNotFound, "There is no such operation.")
}

func lockOperation(tx *db.Tx, id int64) (*models.ContentOperation, error) {
	const query = `
		SELECT ` + operationColumns + `
		FROM content_operations
		WHERE id=?
		FOR UPDATE`
	var o models.ContentOperation
	read := tx.Raw(query, id).Scan(&o)
	if read.Error == nil && read.RowsAffected == 0 {
		return nil, errNoOperation()
	}
	return &o, read.Error
}

// OpenOperations returns the ids of the oldest unfinished operations, at most limit.
func (s *Store) OpenOperations(ctx context.Context, limit int) ([]int64, error) {
	const query = `
		SELECT id
		FROM content_operations FORCE INDEX (idx_state)
		WHERE state IN (?,?)
		ORDER BY id
		LIMIT ?`
	var ids []int64
	err := s.Read(ctx).Raw(query, models.OperationDeleting, models.OperationUndoing, limit).Scan(&ids).Error
	if err != nil {
		return nil, fmt.Errorf("read operations: %w", err)
	}
	return ids, nil
}

// OperationStep is the result of one batch of an operation.
type OperationStep struct {
	Changed int  // number of targets that were deleted or restored
	Done    bool // the operation is finished
	// Close are deleted targets that the caller has to close in the gate, with all comments on the posts among them.
	// Then it calls CloseStep with the step; until that, the next step returns the same targets again.
	Close  []models.Target
	passed models.Target
}

// StepOperation deletes or restores a batch. It is safe for concurrent calls on one operation, which take turns.
func (s *Store) StepOperation(ctx context.Context, id int64) (OperationStep, error) {
	const finish = `
		UPDATE content_operations
		SET state=?, finished_at=?
		WHERE id=?`
	var step OperationStep
	err := s.Transact(ctx, func(tx *db.Tx) error {
		step = OperationStep{}
		o, err := lockOperation(tx, id)
		if err != nil {
			return err
		}
		switch o.State {
		case models.OperationDeleting:
			err = deleteSome(tx, o, &step)
		case models.OperationUndoing:
			err = restoreSome(tx, o, &step)
		default:
			step.Done = true
			return nil
		}
		if err != nil || !step.Done {
			return err
		}
		return tx.Exec(finish, o.State+1, tx.Now, id).Error
	})
	if err != nil {
		return step, fmt.Errorf("operation %d: %w", id, err)
	}
	return step, nil
}

// deleteSome deletes the next comments or, if there are none left, posts. Targets that are marked with the operation
// already were deleted in a step that was not completed.
func deleteSome(tx *db.Tx, o *models.ContentOperation, step *OperationStep) error {
	next := func(table string, done, last int64, limit int) (ids []int64, err error) {
		query := `
			SELECT id
			FROM ` + table + ` FORCE INDEX (idx_user_id)
			WHERE user_id=? AND id>? AND id<=? AND (status=? OR operation_id=?)
			ORDER BY id
			LIMIT ?`
		return ids, tx.Raw(query, o.UserID, done, last, models.StatusNormal, o.ID, limit).Scan(&ids).Error
	}
	d := models.Deletion{At: tx.Now, By: models.Author{ID: o.RequestedBy}, Reason: o.Reason, Operation: o.ID}
	kind, column := models.KindComment, "comments_deleted"
	ids, err := next("comments", o.DoneCommentID, o.LastCommentID, operationComments)
	if err != nil {
		return err
	}
	var hidden []int64
	if len(ids) > 0 {
		hidden, err = content.HideComments(tx, ids, d)
	} else {
		kind, column = models.KindPost, "posts_deleted"
		if ids, err = next("posts", o.DonePostID, o.LastPostID, operationPosts); err != nil {
			return err
		}
		hidden, err = content.HidePosts(tx, ids, d)
	}
	if err != nil {
		return err
	}
	if step.Done = len(ids) == 0; step.Done {
		return nil
	}
	step.Changed, step.passed = len(hidden), models.Target{Kind: kind, ID: ids[len(ids)-1]}
	for _, id := range ids {
		step.Close = append(step.Close, models.Target{Kind: kind, ID: id})
	}
	return countStep(tx, o, column, len(hidden))
}

// countStep adds to a counter of an operation.
func countStep(tx *db.Tx, o *models.ContentOperation, column string, n int) error {
	update := `
		UPDATE content_operations
		SET ` + column + `=` + column + `+?
		WHERE id=?`
	return tx.Exec(update, n, o.ID).Error
}

// restoreSome restores a batch of the targets that are still marked with the operation.
func restoreSome(tx *db.Tx, o *models.ContentOperation, step *OperationStep) error {
	next := func(table string, limit int) (ids []int64, err error) {
		query := `
			SELECT id
			FROM ` + table + ` FORCE INDEX (idx_user_status_created)
			WHERE user_id=? AND status=? AND operation_id=?
			ORDER BY created_at, id
			LIMIT ?`
		return ids, tx.Raw(query, o.UserID, models.StatusDeleted, o.ID, limit).Scan(&ids).Error
	}
	column := "comments_restored"
	ids, err := next("comments", operationComments)
	if err != nil {
		return err
	}
	var shown []int64
	if len(ids) > 0 {
		shown, err = content.ShowComments(tx, ids)
	} else {
		column = "posts_restored"
		if ids, err = next("posts", operationPosts); err != nil {
			return err
		}
		shown, err = content.ShowPosts(tx, ids)
	}
	if err != nil {
		return err
	}
	if step.Done = len(ids) == 0; step.Done {
		return nil
	}
	step.Changed = len(shown)
	return countStep(tx, o, column, len(shown))
}

// CloseStep records that the targets of a step are closed in the gate, and that they are to be closed a second time.
func (s *Store) CloseStep(ctx context.Context, id int64, step OperationStep) error {
	if step.passed.ID == 0 {
		return nil
	}
	column := "done_" + string(step.passed.Kind) + "_id"
	update := `
		UPDATE content_operations
		SET ` + column + `=GREATEST(` + column + `,?)
		WHERE id=?`
	ids := make([]int64, len(step.Close))
	for i, target := range step.Close {
		ids[i] = target.ID
	}
	err := s.Transact(ctx, func(tx *db.Tx) error {
		if err := tx.Exec(update, step.passed.ID, id).Error; err != nil {
			return err
		}
		return db.RecordClosings(tx, step.passed.Kind, ids, tx.Now, true)
	})
	if err != nil {
		return fmt.Errorf("operation %d: %w", id, err)
	}
	return nil
}
