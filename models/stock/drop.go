package stock

import (
	"context"
	"fmt"
	"slices"
	"time"

	"gorm.io/gorm"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/content"
	"likewise/models/db"
)

// gateDropColumns are the columns of a GateDrop. If a closed drop ended when it was closed, it would be open again on a
// clock that steps back, so it has ended a millisecond after the beginning of time. To the gate, 0 means none.
const gateDropColumns = `
	d.id, d.stock, IF(d.closed_at IS NULL, d.begins_at, NULL) AS begins,
	IF(d.closed_at IS NULL, d.ends_at, TIMESTAMP('1970-01-01 00:00:00.001')) AS ends, d.version, d.claimed`

// DropGate returns the settings of drops and their live claims, as of one commit. Drops that do not exist, and those
// whose post is deleted, are left out. A drop with more than most live claims comes without them, for LiveClaims.
func (s *Store) DropGate(ctx context.Context, ids []int64, limit int) (map[int64]*models.GateDrop, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	query := `
		SELECT ` + gateDropColumns + `, c.user_id, c.id AS claim_id
		FROM drops d
		STRAIGHT_JOIN posts p ON p.id=d.post_id AND p.status=?
		LEFT JOIN claims c FORCE INDEX (PRIMARY) ON c.drop_id=d.id AND c.state IN (?,?) AND d.claimed<=?
		WHERE d.id IN (` + db.JoinIDs(db.Ascending(ids)) + `)
		ORDER BY d.id, c.user_id`
	rows, err := s.Read(ctx).Raw(query, models.StatusNormal, models.StateReserved, models.StateConfirmed,
		limit).Rows()
	if err != nil {
		return nil, fmt.Errorf("read %d drops for the gate: %w", len(ids), err)
	}
	defer rows.Close()
	drops := make(map[int64]*models.GateDrop, len(ids))
	for rows.Next() {
		var d models.GateDrop
		var userID, claimID *int64
		err := rows.Scan(&d.ID, &d.Stock, &d.Begins, &d.Ends, &d.Version, &d.Claimed, &userID, &claimID)
		if err != nil {
			return nil, fmt.Errorf("read %d drops for the gate: %w", len(ids), err)
		}
		if drops[d.ID] == nil {
			drops[d.ID] = &d
		}
		if userID != nil {
			drops[d.ID].Claims = append(drops[d.ID].Claims, models.LiveClaim{UserID: *userID, ID: *claimID})
		}
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read %d drops for the gate: %w", len(ids), err)
	}
	return drops, nil
}

// LiveClaims returns live claims of a drop in the order of their users: at most limit with users above after.
func (s *Store) LiveClaims(ctx context.Context, dropID, after int64, limit int) ([]models.LiveClaim, error) {
	const query = `
		SELECT user_id, id
		FROM claims FORCE INDEX (PRIMARY)
		WHERE drop_id=? AND user_id>? AND state IN (?,?)
		ORDER BY user_id
		LIMIT ?`
	// Row by row: Scan takes a multiple of the time.
	rows, err := s.Read(ctx).Raw(query, dropID, after, models.StateReserved, models.StateConfirmed,
		limit).Rows()
	if err != nil {
		return nil, fmt.Errorf("read claims of drop %d: %w", dropID, err)
	}
	defer rows.Close()
	list := make([]models.LiveClaim, 0, min(limit, 1024))
	for rows.Next() {
		var c models.LiveClaim
		if err := rows.Scan(&c.UserID, &c.ID); err != nil {
			return nil, fmt.Errorf("read claims of drop %d: %w", dropID, err)
		}
		list = append(list, c)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read claims of drop %d: %w", dropID, err)
	}
	return list, nil
}

// dropColumns are the columns of a Drop d with its maker u.
const dropColumns = `d.id, d.post_id, ` + accounts.AuthorColumns +
	`, d.title, d.stock, d.claimed, d.begins_at, d.ends_at,
			d.closed_at, d.confirm_within, d.version, d.created_at, d.updated_at`

// lockDropPost locks the actor and a post that is not deleted, and reports whether the actor is a moderator who is not
// its author. CodeNotFound: the post is deleted or does not exist. CodeForbidden: the actor is neither the author nor a
// moderator. CodeLocked: a moderator has locked the post, and the actor is not one.
func lockDropPost(tx *db.Tx, actor, postID int64, kind models.TargetKind) (moderates bool, err error) {
	found, err := accounts.LockStandings(tx, actor)
	if err != nil {
		return false, err
	}
	const query = `
		SELECT user_id AS author_id, status, locked
		FROM posts FORCE INDEX (PRIMARY)
		WHERE id=?
		FOR UPDATE`
	var post content.Moderated
	if err := tx.Raw(query, postID).Scan(&post).Error; err != nil {
		return false, err
	}
	user := found[actor]
	moderator := accounts.RequireRole(tx, user, models.RoleModerator) == nil
	switch {
	case post.Status != models.StatusNormal:
		return false, models.NotFound(kind)
	case user == nil || accounts.RequireRole(tx, user, models.RoleUser) != nil:
		return false, models.Errorf(models.CodeUnauthorized, "The token is not valid.")
	case post.AuthorID != actor && !moderator:
		return false, models.Errorf(models.CodeForbidden, "Only the author of the post or a moderator can do this.")
	case post.Locked && !moderator:
		return false, models.Errorf(models.CodeLocked, "A moderator has locked the post: its drops cannot be changed.")
	}
	return post.AuthorID != actor, nil
}

// CreateDrop attaches a drop to a post, in the name of its author or of a moderator. For its errors, see lockDropPost;
// CodeInvalid: a field breaks a rule; CodeConflict: the post has MaxDrops drops.
func (s *Store) CreateDrop(
	ctx context.Context, actor, postID int64, settings models.DropSettings,
) (*models.Drop, error) {
	if err := settings.Validate(); err != nil {
		return nil, err
	}
	settings = settings.InMillis()
	var d *models.Drop
	err := s.Transact(ctx, func(tx *db.Tx) error {
		moderates, err := lockDropPost(tx, actor, postID, models.KindPost)
		if err != nil {
			return err
		}
		ids, err := content.DropsOf(tx.DB, []int64{postID})
		if err != nil {
			return err
		}
		if len(ids) >= models.MaxDrops {
			return models.Errorf(models.CodeConflict, "The post has %d drops. It cannot have more.", models.MaxDrops)
		}
		now := tx.Now.Truncate(time.Millisecond)
		id, err := tx.Insert(`
			INSERT INTO drops
				(post_id, user_id, title, stock, begins_at, ends_at, confirm_within, created_at, updated_at)
			VALUES (?,?,?,?,?,?,?,?,?)`, postID, actor, settings.Title, settings.Stock, settings.BeginsAt,
			settings.EndsAt, settings.ConfirmWithin, now, now)
		if err != nil {
			return err
		}
		if d, err = readDrop(tx.DB, id); err != nil || !moderates {
			return err
		}
		return accounts.LogModeration(tx, accounts.ModerationAct{
			ActorID: actor, Action: "drop.create", TargetType: "drop", TargetID: id, After: settings.Logged(),
		})
	})
	if err != nil {
		return nil, fmt.Errorf("create drop of post %d: %w", postID, err)
	}
	return d, nil
}

// UpdateDrop replaces the settings of a drop that has the given version, and returns the drop as this change left it. A
// change that changes nothing makes no version. A time to confirm applies to later claims. For its errors, see
// lockDropPost; CodePrecondition: the drop has another version; CodeConflict: the drop is closed, or the stock would be
// less than what MySQL has as claimed.
//
// The gate has the settings later: see SettingsToSend. Until then it may accept claims to a stock that is lowered, and
// the like writer rejects them.
func (s *Store) UpdateDrop(
	ctx context.Context, actor, id, version int64, settings models.DropSettings,
) (d *models.Drop, err error) {
	if err := settings.Validate(); err != nil {
		return nil, err
	}
	settings = settings.InMillis()
	err = s.changeDrop(ctx, actor, id, "drop.update", func(tx *db.Tx, is *models.Drop) (map[string]any, error) {
		d = is
		switch {
		case d.Version != version:
			return nil, models.VersionMismatch(d.Version)
		case d.Settings().Equal(settings):
			return nil, nil
		case d.ClosedAt != nil:
			return nil, models.Errorf(models.CodeConflict, "The drop is closed.")
		}
		update := tx.Exec(`
			UPDATE drops FORCE INDEX (PRIMARY)
			SET title=?, stock=?, begins_at=?, ends_at=?, confirm_within=?, version=version+1, updated_at=?
			WHERE id=? AND version=? AND claimed<=?`, settings.Title, settings.Stock, settings.BeginsAt,
			settings.EndsAt, settings.ConfirmWithin, tx.Now, id, version, settings.Stock)
		if update.Error == nil && update.RowsAffected == 0 {
			return nil, models.Errorf(models.CodeConflict, "%d are claimed already. The stock cannot be less.",
				d.Claimed)
		}
		return settings.Logged(), update.Error
	}, &d)
	if err != nil {
		return nil, fmt.Errorf("update drop %d: %w", id, err)
	}
	return d, nil
}

// CloseDrop ends a drop at once and for good. Claims to it stay. A drop that is closed stays as it is. For its errors,
// see lockDropPost.
func (s *Store) CloseDrop(ctx context.Context, actor, id int64) (d *models.Drop, err error) {
	err = s.changeDrop(ctx, actor, id, "drop.close", func(tx *db.Tx, is *models.Drop) (map[string]any, error) {
		if d = is; d.ClosedAt != nil {
			return nil, nil
		}
		now := tx.Now.Truncate(time.Millisecond)
		const update = `
			UPDATE drops FORCE INDEX (PRIMARY)
			SET closed_at=?, version=version+1, updated_at=?
			WHERE id=? AND closed_at IS NULL`
		return map[string]any{"closed_at": now}, tx.Exec(update, now, now, id).Error
	}, &d)
	if err != nil {
		return nil, fmt.Errorf("close drop %d: %w", id, err)
	}
	return d, nil
}

// changeDrop changes a drop under the locks of the actor, the post and the drop, and reads it again. change returns
// what the moderation log keeps, or nil if it changed nothing.
func (s *Store) changeDrop(
	ctx context.Context, actor, id int64, action string,
	change func(tx *db.Tx, d *models.Drop) (logged map[string]any, err error), changed **models.Drop,
) error {
	return s.Transact(ctx, func(tx *db.Tx) error {
		const find = `
			SELECT post_id
			FROM drops
			WHERE id=?`
		var postID int64
		if err := tx.Raw(find, id).Scan(&postID).Error; err != nil {
			return err
		}
		moderates, err := lockDropPost(tx, actor, postID, models.KindDrop)
		if err != nil {
			return err
		}
		if _, err := lockDrops(tx, []int64{id}); err != nil {
			return err
		}
		before, err := readDrop(tx.DB, id)
		if err != nil {
			return err
		}
		state := before.Settings().Logged()
		after, err := change(tx, before)
		if err != nil || after == nil {
			return err
		}
		if *changed, err = readDrop(tx.DB, id); err != nil || !moderates {
			return err
		}
		return accounts.LogModeration(tx, accounts.ModerationAct{
			ActorID: actor, Action: action, TargetType: "drop", TargetID: id, Before: state, After: after,
		})
	})
}

// Drop reads a drop. If it does not exist, or its post is deleted, Drop returns CodeNotFound.
func (s *Store) Drop(ctx context.Context, id int64) (*models.Drop, error) {
	return readDrop(s.Read(ctx), id)
}

func readDrop(conn *gorm.DB, id int64) (*models.Drop, error) {
	const query = `
		SELECT ` + dropColumns + `
		FROM drops d
		JOIN posts p ON p.id=d.post_id AND p.status=?
		JOIN users u ON u.id=d.user_id
		WHERE d.id=?`
	var d models.Drop
	read := conn.Raw(query, models.StatusNormal, id).Scan(&d)
	if read.Error != nil {
		return nil, fmt.Errorf("read drop %d: %w", id, read.Error)
	}
	if read.RowsAffected == 0 {
		return nil, models.NotFound(models.KindDrop)
	}
	return &d, nil
}

// Drops returns those of the drops with these ids that exist and whose post is not deleted, in the order of their ids.
// It runs one query for each thousand ids.
func (s *Store) Drops(ctx context.Context, ids []int64) ([]models.Drop, error) {
	var found []models.Drop
	for batch := range slices.Chunk(db.Ascending(ids), content.LiveCountsChunk) {
		query := `
		SELECT ` + dropColumns + `
		FROM drops d FORCE INDEX (PRIMARY)
		STRAIGHT_JOIN posts p FORCE INDEX (PRIMARY) ON p.id=d.post_id AND p.status=?
		STRAIGHT_JOIN users u FORCE INDEX (PRIMARY) ON u.id=d.user_id
		WHERE d.id IN (` + db.JoinIDs(batch) + `)
		ORDER BY d.id`
		var rows []models.Drop
		if err := s.Read(ctx).Raw(query, models.StatusNormal).Scan(&rows).Error; err != nil {
			return nil, fmt.Errorf("read %d drops: %w", len(batch), err)
		}
		found = append(found, rows...)
	}
	return found, nil
}

// DropsOfPost lists the drops of a post, latest first: at most limit with ids below before (0 for the first page). If
// the post is deleted or does not exist, DropsOfPost returns CodeNotFound.
func (s *Store) DropsOfPost(ctx context.Context, postID, before int64, limit int) ([]models.Drop, error) {
	where := db.Matching("d.post_id=?", postID)
	where.AddIf(before > 0, "d.id<?", before)
	query := `
		SELECT ` + dropColumns + `
		FROM posts p
		STRAIGHT_JOIN drops d FORCE INDEX (idx_post_id)
		STRAIGHT_JOIN users u FORCE INDEX (PRIMARY) ON u.id=d.user_id
		` + where.Clause() + ` AND p.id=? AND p.status=?
		ORDER BY d.id DESC
		LIMIT ?`
	list := []models.Drop{}
	err := s.Read(ctx).Raw(query, where.Between(nil, postID, models.StatusNormal, limit)...).Scan(&list).Error
	if err == nil && len(list) == 0 {
		var open bool
		if open, err = s.TargetOpen(ctx, models.Target{Kind: models.KindPost, ID: postID}); err == nil && !open {
			err = models.NotFound(models.KindPost)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("list drops of post %d: %w", postID, err)
	}
	return list, nil
}

// SettingsToSend returns the settings that the gate may not have yet, of drops whose post is not deleted, in the order
// of their ids: at most limit above after. A drop stays in the list until DropSet of its version is applied, or
// ClearCold finds it cold.
func (s *Store) SettingsToSend(ctx context.Context, after int64, limit int) ([]models.GateDrop, error) {
	const query = `
		SELECT ` + gateDropColumns + `
		FROM drops d FORCE INDEX (idx_unsent)
		STRAIGHT_JOIN posts p ON p.id=d.post_id AND p.status=?
		WHERE d.unsent=1 AND d.id>?
		ORDER BY d.id
		LIMIT ?`
	var list []models.GateDrop
	if err := s.Read(ctx).Raw(query, models.StatusNormal, after, limit).Scan(&list).Error; err != nil {
		return nil, fmt.Errorf("read settings to send: %w", err)
	}
	return list, nil
}

// ConfirmWithin returns the time to confirm a claim of a drop, in seconds; 0: claims need no confirmation. It never
// changes. Unlike Drop, ConfirmWithin reads drops of deleted posts, too: the gate may have accepted a claim just before
// the deletion. If the drop does not exist, it returns CodeNotFound.
func (s *Store) ConfirmWithin(ctx context.Context, dropID int64) (seconds int64, err error) {
	const query = `
		SELECT confirm_within
		FROM drops FORCE INDEX (PRIMARY)
		WHERE id=?`
	read := s.Read(ctx).Raw(query, dropID).Scan(&seconds)
	if read.Error != nil {
		return 0, fmt.Errorf("read drop %d: %w", dropID, read.Error)
	}
	if read.RowsAffected == 0 {
		return 0, models.NotFound(models.KindDrop)
	}
	return seconds, nil
}
