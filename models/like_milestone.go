package models

import (
	"context"
	"fmt"
	"slices"
	"time"

	"gorm.io/gorm"
)

// milestones returns the milestones in (above, upTo]: the powers of ten.
func milestones(above, upTo int64) []int64 {
	var list []int64
	for m := int64(1); m <= upTo; m *= 10 {
		if m > above {
			list = append(list, m)
		}
	}
	return list
}

// notifyMilestone notifies the authors of targets of one kind that their likes reached a milestone, and announces it.
// It notifies nobody of deleted targets, of comments under deleted posts, and of posts that the author mutes.
func notifyMilestone(tx *gorm.DB, kind TargetKind, milestone int64, ids []int64, at time.Time) error {
	announceAll(tx, announcement{event: LikeMilestone, kind: string(kind), ids: ids, milestone: milestone})
	post, about := "t.id", "t.id,0"
	if kind == KindComment {
		post, about = "t.post_id", "t.post_id,t.id"
	}
	insert := `
		INSERT INTO notifications (user_id, kind, post_id, comment_id, milestone, created_at)
		SELECT t.user_id,?,` + about + `,?,?
		FROM ` + likeTables[kind].open + `
		JOIN users u ON u.id=t.user_id AND u.deleted_at IS NULL
		WHERE t.id IN (` + joinIDs(ids) + `) AND t.status=? AND ` + notMuted("t.user_id", post) + notificationOnce
	if err := tx.Exec(insert, NotifyMilestone, milestone, second(at), StatusNormal).Error; err != nil {
		return fmt.Errorf("write milestones of %ss: %w", kind, err)
	}
	return nil
}

// PassMilestones marks the milestones up to this number of likes as passed, so that they notify nobody. It is for likes
// that were imported.
func (s *Store) PassMilestones(ctx context.Context, target Target, likes int64) error {
	reached := milestones(0, likes)
	if len(reached) == 0 {
		return nil
	}
	update := `
		UPDATE ` + likeTables[target.Kind].targets + ` FORCE INDEX (PRIMARY)
		SET milestone=GREATEST(milestone,?), updated_at=updated_at
		WHERE id=?`
	if _, err := s.write(ctx, update, slices.Max(reached), target.ID); err != nil {
		return fmt.Errorf("pass milestones of %s: %w", target, err)
	}
	return nil
}
