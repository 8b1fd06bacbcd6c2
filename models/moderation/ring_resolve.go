package moderation

import (
	"context"
	"fmt"
	"slices"
	"time"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/likes"
)

// DismissRing records that a moderator found nothing wrong with a ring. The likes that its members gave until now are
// not reported again. DismissRing returns CodeNotFound if the ring does not exist, CodeConflict if it is resolved
// already, and CodeForbidden if the actor is not a moderator, or is the author or a member.
func (s *Store) DismissRing(ctx context.Context, actor, id int64, reason string) error {
	resolution := ringResolution{models.RingDismissed, "like_ring.dismiss", reason}
	return s.resolveRing(ctx, actor, id, resolution, func(*db.Tx) (map[string]any, error) { return nil, nil })
}

// VoidRing requests that all likes are voided that the members of a ring gave since its first occasion (see VoidLikes),
// and returns the requests. It skips members whose account is deleted, because their likes are voided anyway. It
// returns CodeForbidden if the actor does not outrank a member, CodeUnavailable if the clock of likes cannot be read,
// and the errors of DismissRing.
func (s *Store) VoidRing(ctx context.Context, actor, id int64, reason string) (voids []likes.LikeVoid, err error) {
	resolution := ringResolution{models.RingVoided, "like_ring.void", reason}
	likeNow, err := likes.New(s.DB).VoidingFrom(ctx)
	if err != nil {
		return nil, err
	}
	err = s.resolveRing(ctx, actor, id, resolution, func(tx *db.Tx) (map[string]any, error) {
		voids = voids[:0]
		var members []struct {
			UserID  int64
			FirstAt time.Time
		}
		const query = `
			SELECT m.user_id, r.first_at
			FROM like_rings r
			JOIN like_ring_members m ON m.ring_id=r.id
			WHERE r.id=?
			ORDER BY m.user_id`
		if err := tx.Raw(query, id).Scan(&members).Error; err != nil {
			return nil, err
		}
		var ids []int64
		now := tx.Now
		for _, m := range members {
			v := likes.LikeVoid{UserID: m.UserID, RequestedBy: actor, LikedSince: &m.FirstAt, Reason: reason}
			err := likes.VoidLikes(tx, &v, now, likeNow)
			if models.ErrorCode(err) == models.CodeNotFound {
				continue
			}
			if err != nil {
				return nil, err
			}
			voids, ids = append(voids, v), append(ids, v.ID)
		}
		return map[string]any{"voids": ids}, nil
	})
	return voids, err
}

func ringMembers(tx *db.Tx, id int64) (users []int64, err error) {
	err = tx.Raw(`
		SELECT user_id
		FROM like_ring_members
		WHERE ring_id=?
		ORDER BY user_id`, id).Scan(&users).Error
	return users, err
}

// ringResolution is how a ring is resolved: its new status, the action in the moderation log, and the moderator's
// reason.
type ringResolution struct {
	status models.RingStatus
	action string
	reason string
}

// resolveRing resolves an open ring. act does what the resolution requires and returns what the log has of it.
func (s *Store) resolveRing(ctx context.Context, actor, id int64, r ringResolution,
	act func(*db.Tx) (map[string]any, error),
) error {
	if err := models.ValidateReason(r.reason); err != nil {
		return err
	}
	err := s.Transact(ctx, func(tx *db.Tx) error {
		members, err := ringMembers(tx, id)
		if err != nil {
			return err
		}
		users, err := accounts.LockStandings(tx, append(slices.Clone(members), actor)...)
		if err != nil {
			return err
		}
		if err := accounts.RequireRole(tx, users[actor], models.RoleModerator); err != nil {
			return err
		}
		if err := lockOpenRing(tx, actor, id); err != nil {
			return err
		}
		if now, err := ringMembers(tx, id); err != nil {
			return err
		} else if !slices.Equal(now, members) {
			return db.ErrChangedMeanwhile // the ring grew before it was locked
		}
		after, err := act(tx)
		if err != nil {
			return err
		}
		if after == nil {
			after = map[string]any{}
		}
		after["status"] = string(r.status)
		const update = `
			UPDATE like_rings
			SET status=?, resolved_at=?, resolved_by=?, reason=?
			WHERE id=?`
		if err := tx.Exec(update, r.status, tx.Now, actor, r.reason, id).Error; err != nil {
			return err
		}
		return accounts.LogModeration(tx, accounts.ModerationAct{
			ActorID: actor, Action: r.action, TargetType: "like_ring", TargetID: id, Reason: r.reason,
			Before: map[string]any{"status": string(models.RingOpen)}, After: after,
		})
	})
	if err != nil {
		return fmt.Errorf("resolve ring %d: %w", id, err)
	}
	return nil
}

// lockOpenRing locks a ring that the actor is about to resolve. It returns an error if the ring does not exist, is
// resolved already, or concerns the actor.
func lockOpenRing(tx *db.Tx, actor, id int64) error {
	const query = `
		SELECT status,
			author_id=? OR EXISTS (
				SELECT 1
				FROM like_ring_members m
				WHERE m.ring_id=like_rings.id AND m.user_id=?
			) AS own
		FROM like_rings FORCE INDEX (PRIMARY)
		WHERE id=?
		FOR UPDATE`
	var ring struct {
		Status models.RingStatus
		Own    bool
	}
	read := tx.Raw(query, actor, actor, id).Scan(&ring)
	switch {
	case read.Error != nil:
		return read.Error
	case read.RowsAffected == 0:
		return errNoRing()
	case ring.Own:
		return content.ErrOwnCase()
	case ring.Status != models.RingOpen:
		return models.Errorf(models.CodeConflict, "The ring was %s already.", ring.Status)
	}
	return nil
}
