package likes

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"likewise/models"
	"likewise/models/db"
	"likewise/models/people"
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

// reachedMilestones returns the targets of one kind by the milestones that the likes of others than their authors reach
// with a batch, for the first time. The batch has written its likes, of which last are the events, and delta is the
// change of each count. The targets are locked, and before are their rows before the batch.
//
// Whether the author likes a target matters only if its count is exactly a milestone. Then the author's like is read,
// unless it is in the batch or the batch has the first likes of the target.
func reachedMilestones(
	tx *db.Tx,
	kind models.TargetKind,
	before map[int64]likedRow,
	delta map[int64]int64,
	last map[models.LikeKey]models.Event,
) (map[int64][]int64, error) {
	reached := map[int64][]int64{}
	unknown, authors := map[int64]int64{}, map[int64][]int64{} // milestones, and the authors to read the likes of
	for _, id := range slices.Sorted(maps.Keys(delta)) {
		row := before[id]
		count := row.LikesCount + delta[id]
		for _, m := range milestones(row.Milestone, count) {
			event, inBatch := last[models.LikeKey{Target: models.Target{Kind: kind, ID: id}, UserID: row.UserID}]
			switch {
			case m < count, inBatch && !event.Liked(), !inBatch && row.LikesCount == 0:
				reached[m] = append(reached[m], id)
			case !inBatch:
				unknown[id], authors[id] = m, []int64{row.UserID}
			}
		}
	}
	if len(unknown) == 0 {
		return reached, nil
	}
	ids := slices.Sorted(maps.Keys(unknown))
	own, err := readLikes(tx, db.TargetTables[kind], ids, authors)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if own[models.LikeKey{Target: models.Target{Kind: kind, ID: id}, UserID: authors[id][0]}] == 0 {
			reached[unknown[id]] = append(reached[unknown[id]], id)
		}
	}
	return reached, nil
}

// notifyMilestone notifies the authors of targets of one kind that their likes reached a milestone, and announces it.
// It notifies nobody of deleted targets, of comments under deleted posts, and of posts that the author mutes.
func notifyMilestone(tx *db.Tx, kind models.TargetKind, milestone int64, ids []int64, at time.Time) error {
	tx.AnnounceAll(db.Announcement{Event: models.LikeMilestone, Kind: string(kind), IDs: ids, Milestone: milestone})
	post, about := "t.id", "t.id,0"
	if kind == models.KindComment {
		post, about = "t.post_id", "t.post_id,t.id"
	}
	insert := `
		INSERT INTO notifications (user_id, kind, post_id, comment_id, milestone, created_at)
		SELECT t.user_id,?,` + about + `,?,?
		FROM ` + db.TargetTables[kind].FromOpen + `
		JOIN users u ON u.id=t.user_id AND u.deleted_at IS NULL
		WHERE t.id IN (` + db.JoinIDs(ids) + `) AND t.status=? AND ` + people.NotMuted("t.user_id", post) +
		people.NotificationOnce
	if err := tx.Exec(insert, models.NotifyMilestone, milestone, models.WholeSeconds(at),
		models.StatusNormal).Error; err != nil {
		return fmt.Errorf("write milestones of %ss: %w", kind, err)
	}
	return nil
}

// PassMilestones marks the milestones up to this number of likes as passed, so that they notify nobody. It is for likes
// that were imported.
func (s *Store) PassMilestones(ctx context.Context, target models.Target, likes int64) error {
	reached := milestones(0, likes)
	if len(reached) == 0 {
		return nil
	}
	update := `
		UPDATE ` + db.TargetTables[target.Kind].Targets + ` FORCE INDEX (PRIMARY)
		SET milestone=GREATEST(milestone,?), updated_at=updated_at
		WHERE id=?`
	if _, err := s.Write(ctx, update, slices.Max(reached), target.ID); err != nil {
		return fmt.Errorf("pass milestones of %s: %w", target, err)
	}
	return nil
}
