package models

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"
)

// OperationState says how far a ContentOperation has got.
type OperationState int8

// The states. An operation can be undone from each of the first two.
const (
	OperationDeleting OperationState = 1
	OperationDeleted  OperationState = 2
	OperationUndoing  OperationState = 3
	OperationUndone   OperationState = 4
)

func (o OperationState) String() string {
	return [...]string{"", "deleting", "deleted", "undoing", "undone"}[o]
}

// ContentOperation deletes all that a user had written when it was requested, and takes exactly that back when it is
// undone: what it deleted is marked with its id until somebody restores it, or deletes it by itself. It is a row, worked off a batch at a time by
// whoever gets to it, so that it comes to its end whatever dies on the way.
type ContentOperation struct {
	ID                              int64
	UserID                          int64
	State                           OperationState
	RequestedBy                     int64
	RequestedAt                     time.Time
	Reason                          string
	LastPostID, LastCommentID       int64 // the user's latest when it was requested
	DonePostID, DoneCommentID       int64 // everything up to here is deleted, and closed in the gate
	PostsDeleted, CommentsDeleted   int64
	PostsRestored, CommentsRestored int64
	UndoneBy                        *int64
	FinishedAt                      *time.Time // of the deleting, then of the undoing
}

const operationColumns = "id, user_id, state, requested_by, requested_at, reason, last_post_id, last_comment_id, done_post_id, done_comment_id," +
	" posts_deleted, comments_deleted, posts_restored, comments_restored, undone_by, finished_at"

// A batch of an operation is so small that nobody waits for its locks for long: a post brings its search index along.
const (
	operationPosts    = 20
	operationComments = 100
)

// RemoveAll requests that everything a user wrote is deleted. CodeInvalid for the reason; the errors of BanUser.
func (s *Store) RemoveAll(ctx context.Context, actor, userID int64, reason string) (*ContentOperation, error) {
	if err := ValidateReason(reason); err != nil {
		return nil, err
	}
	var id int64
	err := s.transact(ctx, func(tx *gorm.DB) error {
		if err := s.lockAuthor(tx, actor, userID); err != nil {
			return err
		}
		var last struct{ Post, Comment int64 }
		err := tx.Raw("SELECT COALESCE((SELECT MAX(id) FROM posts WHERE user_id=?),0) AS post, COALESCE((SELECT MAX(id) FROM comments WHERE user_id=?),0) AS comment", userID, userID).Scan(&last).Error
		if err != nil {
			return err
		}
		id, err = s.insert(tx, "INSERT INTO content_operations (user_id, state, requested_by, requested_at, reason, last_post_id, last_comment_id) VALUES (?,?,?,?,?,?,?)",
			userID, OperationDeleting, actor, s.now().UTC(), reason, last.Post, last.Comment)
		if err != nil {
			return err
		}
		return s.logModeration(tx, Act{ActorID: actor, Action: "user.delete_content", TargetType: "user", TargetID: userID, Reason: reason,
			After: map[string]any{"operation_id": id, "state": OperationDeleting.String()}})
	})
	if err != nil {
		return nil, fmt.Errorf("remove content of user %d: %w", userID, err)
	}
	return s.OperationByID(ctx, id)
}

// lockAuthor is lockOutranked for who may have deleted their account since: what they wrote is still there.
func (s *Store) lockAuthor(tx *gorm.DB, actor, userID int64) error {
	_, err := s.lockOutranked(tx, actor, userID)
	if ErrorCode(err) != CodeNotFound {
		return err
	}
	var gone int
	if read := tx.Raw("SELECT COUNT(*) FROM users WHERE id=? AND deleted_at IS NOT NULL", userID).Scan(&gone).Error; read != nil {
		return read
	}
	if gone > 0 {
		return nil
	}
	return err
}

// UndoOperation requests that what an operation deleted is restored, be it done or still at it. One that is being undone
// stays so, and nothing is logged. CodeInvalid for the reason; CodeNotFound; the errors of BanUser; CodeForbidden also when
// somebody requested it whose role is above the actor's.
func (s *Store) UndoOperation(ctx context.Context, actor, id int64, reason string) (*ContentOperation, error) {
	if err := ValidateReason(reason); err != nil {
		return nil, err
	}
	o, err := s.OperationByID(ctx, id)
	if err != nil {
		return nil, err
	}
	err = s.transact(ctx, func(tx *gorm.DB) error {
		if err := s.lockAuthor(tx, actor, o.UserID); err != nil {
			return err
		}
		made(tx, id)
		now, err := lockOperation(tx, id)
		if err != nil || now.State >= OperationUndoing {
			return err
		}
		if err := mayOverrule(tx, actor, now.RequestedBy); err != nil {
			return err
		}
		err = tx.Exec("UPDATE content_operations SET state=?, undone_by=?, finished_at=NULL WHERE id=?", OperationUndoing, actor, id).Error
		if err != nil {
			return err
		}
		return s.logModeration(tx, Act{ActorID: actor, Action: "user.restore_content", TargetType: "user", TargetID: o.UserID, Reason: reason,
			Before: map[string]any{"operation_id": id, "state": now.State.String()}, After: map[string]any{"operation_id": id, "state": OperationUndoing.String()}})
	})
	if err != nil {
		return nil, fmt.Errorf("undo operation %d: %w", id, err)
	}
	return s.OperationByID(ctx, id)
}

// sweptAway reports whether a post is among what an operation that stands was to delete. One that its author had deleted
// before was left as it was, and has to stay away like the others.
func sweptAway(tx *gorm.DB, userID, postID int64) (bool, error) {
	var n int
	err := tx.Raw("SELECT COUNT(*) FROM content_operations WHERE user_id=? AND state IN (?,?) AND last_post_id>=?",
		userID, OperationDeleting, OperationDeleted, postID).Scan(&n).Error
	return n > 0, err
}

// OperationByID gives CodeNotFound when there is none.
func (s *Store) OperationByID(ctx context.Context, id int64) (*ContentOperation, error) {
	var o ContentOperation
	read := s.db.WithContext(ctx).Raw("SELECT "+operationColumns+" FROM content_operations WHERE id=?", id).Scan(&o)
	if read.Error != nil {
		return nil, fmt.Errorf("read operation %d: %w", id, read.Error)
	}
	if read.RowsAffected == 0 {
		return nil, errNoOperation()
	}
	return &o, nil
}

func errNoOperation() *Error { return Errorf(CodeNotFound, "There is no such operation.") }

func lockOperation(tx *gorm.DB, id int64) (*ContentOperation, error) {
	var o ContentOperation
	read := tx.Raw("SELECT "+operationColumns+" FROM content_operations WHERE id=? FOR UPDATE", id).Scan(&o)
	if read.Error == nil && read.RowsAffected == 0 {
		return nil, errNoOperation()
	}
	return &o, read.Error
}

// OpenOperations gives the ids of the oldest operations that are at work, at most limit.
func (s *Store) OpenOperations(ctx context.Context, limit int) ([]int64, error) {
	var ids []int64
	err := s.db.WithContext(ctx).Raw("SELECT id FROM content_operations FORCE INDEX (idx_state) WHERE state IN (?,?) ORDER BY id LIMIT ?",
		OperationDeleting, OperationUndoing, limit).Scan(&ids).Error
	if err != nil {
		return nil, fmt.Errorf("read operations: %w", err)
	}
	return ids, nil
}

// OperationStep is what one batch of an operation did.
type OperationStep struct {
	Changed int  // how many were deleted or restored
	Done    bool // there was nothing more to do
	// Close are targets that were deleted and that the gate has to hear of, with all comments on the posts among them. Then
	// CloseStep has to be called with the step: until that, the same targets are given again.
	Close  []Target
	passed Target
}

// StepOperation deletes or restores a batch. Any number of callers may work on one operation; they take turns.
func (s *Store) StepOperation(ctx context.Context, id int64) (OperationStep, error) {
	var step OperationStep
	err := s.transact(ctx, func(tx *gorm.DB) error {
		step = OperationStep{}
		o, err := lockOperation(tx, id)
		if err != nil {
			return err
		}
		var tags map[int64]int
		switch o.State {
		case OperationDeleting:
			tags, err = s.deleteSome(tx, o, &step)
		case OperationUndoing:
			tags, err = s.restoreSome(tx, o, &step)
		default:
			step.Done = true
			return nil
		}
		if err != nil {
			return err
		}
		if step.Done {
			return tx.Exec("UPDATE content_operations SET state=?, finished_at=? WHERE id=?", o.State+1, s.now().UTC(), id).Error
		}
		return countTags(tx, tags)
	})
	if err != nil {
		return step, fmt.Errorf("operation %d: %w", id, err)
	}
	return step, nil
}

// deleteSome deletes the next comments or, when there are none left, posts. Those that are the operation's already were
// deleted in a step that did not come to its end.
func (s *Store) deleteSome(tx *gorm.DB, o *ContentOperation, step *OperationStep) (tags map[int64]int, err error) {
	next := func(table string, done, last int64, limit int) (ids []int64, err error) {
		err = tx.Raw("SELECT id FROM "+table+" FORCE INDEX (idx_user_id) WHERE user_id=? AND id>? AND id<=? AND (status=1 OR operation_id=?) ORDER BY id LIMIT ?",
			o.UserID, done, last, o.ID, limit).Scan(&ids).Error
		return ids, err
	}
	d := Deletion{At: s.now(), By: Author{ID: o.RequestedBy}, Reason: o.Reason, Operation: o.ID}
	kind, column := KindComment, "comments_deleted"
	ids, err := next("comments", o.DoneCommentID, o.LastCommentID, operationComments)
	if err != nil {
		return nil, err
	}
	var hidden []int64
	if len(ids) > 0 {
		hidden, err = hideComments(tx, ids, d)
	} else {
		kind, column = KindPost, "posts_deleted"
		if ids, err = next("posts", o.DonePostID, o.LastPostID, operationPosts); err != nil {
			return nil, err
		}
		hidden, tags, err = hidePosts(tx, ids, d)
	}
	if err != nil {
		return nil, err
	}
	if step.Done = len(ids) == 0; step.Done {
		return nil, nil
	}
	step.Changed, step.passed = len(hidden), Target{Kind: kind, ID: ids[len(ids)-1]}
	for _, id := range ids {
		step.Close = append(step.Close, Target{Kind: kind, ID: id})
	}
	return tags, tx.Exec("UPDATE content_operations SET "+column+"="+column+"+? WHERE id=?", len(hidden), o.ID).Error
}

// restoreSome restores some of what the operation deleted and nobody has restored since.
func (s *Store) restoreSome(tx *gorm.DB, o *ContentOperation, step *OperationStep) (tags map[int64]int, err error) {
	next := func(table string, limit int) (ids []int64, err error) {
		err = tx.Raw("SELECT id FROM "+table+" FORCE INDEX (idx_user_status_created) WHERE user_id=? AND status=2 AND operation_id=? ORDER BY created_at, id LIMIT ?",
			o.UserID, o.ID, limit).Scan(&ids).Error
		return ids, err
	}
	column := "comments_restored"
	ids, err := next("comments", operationComments)
	if err != nil {
		return nil, err
	}
	var shown []int64
	if len(ids) > 0 {
		shown, err = showComments(tx, ids)
	} else {
		column = "posts_restored"
		if ids, err = next("posts", operationPosts); err != nil {
			return nil, err
		}
		shown, tags, err = showPosts(tx, ids)
	}
	if err != nil {
		return nil, err
	}
	if step.Done = len(ids) == 0; step.Done {
		return nil, nil
	}
	step.Changed = len(shown)
	return tags, tx.Exec("UPDATE content_operations SET "+column+"="+column+"+? WHERE id=?", len(shown), o.ID).Error
}

// CloseStep records that the gate has heard of what a step deleted.
func (s *Store) CloseStep(ctx context.Context, id int64, step OperationStep) error {
	if step.passed.ID == 0 {
		return nil
	}
	column := "done_" + string(step.passed.Kind) + "_id"
	if _, err := s.write(ctx, "UPDATE content_operations SET "+column+"=GREATEST("+column+",?) WHERE id=?", step.passed.ID, id); err != nil {
		return fmt.Errorf("operation %d: %w", id, err)
	}
	return nil
}
