package models

import (
	"context"
	"fmt"
	"slices"
	"time"

	"gorm.io/gorm"
)

// Drop is limited stock that is attached to a post: vouchers, tickets, badges. A user has at most one live Claim to it.
// The users of a drop can claim it from BeginsAt until Ends, while claims are left and its post is not deleted.
type Drop struct {
	ID            int64
	PostID        int64
	Author        Author `gorm:"embedded;embeddedPrefix:author_"` // who made it
	Title         string
	Stock         int64
	Claimed       int64      // live claims that MySQL has; at most Stock
	BeginsAt      *time.Time // nil: at once
	EndsAt        *time.Time // nil: never
	ClosedAt      *time.Time // nil: it was not closed
	ConfirmWithin int64      // the time to confirm a claim, in seconds; 0: claims need no confirmation
	Version       int64      // grows with each change of the settings, from 1
	CreatedAt     time.Time
	UpdatedAt     time.Time
}

// Target returns the drop as a target of the gate.
func (d *Drop) Target() Target { return Target{KindDrop, d.ID} }

// Remaining returns the number of claims that are left.
func (d *Drop) Remaining() int64 { return d.Stock - d.Claimed }

// Ended reports whether the drop has ended at a time, or was closed. A closed drop stays closed on every clock.
func (d *Drop) Ended(at time.Time) bool {
	return d.ClosedAt != nil || d.EndsAt != nil && !at.Before(*d.EndsAt)
}

// GateDrop is the part of a drop that the gate needs.
type GateDrop struct {
	ID      int64
	Stock   int64
	Begins  *time.Time // nil: at once
	Ends    *time.Time // nil: never; a drop that was closed has ended in 1970
	Version int64      // of these settings
	Claimed int64      // the number of live claims
	// Claims are the live claims in the order of their users. DropGate leaves them out if there are too many.
	Claims []LiveClaim `gorm:"-"`
}

// Target returns the drop as a target of the gate.
func (d *GateDrop) Target() Target { return Target{KindDrop, d.ID} }

// LiveClaim is a claim that is reserved or confirmed.
type LiveClaim struct {
	UserID int64
	ID     int64
}

// gateDropColumns are the columns of a GateDrop. If a closed drop ended when it was closed, it would be open again on a
// clock that steps back, so it has ended a millisecond after the beginning of time. To the gate, 0 means none.
const gateDropColumns = `
	d.id, d.stock, IF(d.closed_at IS NULL, d.begins_at, NULL) AS begins,
	IF(d.closed_at IS NULL, d.ends_at, TIMESTAMP('1970-01-01 00:00:00.001')) AS ends, d.version, d.claimed`

// DropGate returns the settings of drops and their live claims, as of one commit. Drops that do not exist, and those
// whose post is deleted, are left out. A drop with more than most live claims comes without them, for LiveClaims.
func (s *Store) DropGate(ctx context.Context, ids []int64, most int) (map[int64]*GateDrop, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	query := `
		SELECT ` + gateDropColumns + `, c.user_id, c.id AS claim_id
		FROM drops d
		STRAIGHT_JOIN posts p ON p.id=d.post_id AND p.status=?
		LEFT JOIN claims c FORCE INDEX (PRIMARY) ON c.drop_id=d.id AND c.state IN (?,?) AND d.claimed<=?
		WHERE d.id IN (` + joinIDs(ascending(ids)) + `)
		ORDER BY d.id, c.user_id`
	rows, err := s.db.WithContext(ctx).Raw(query, StatusNormal, StateReserved, StateConfirmed, most).Rows()
	if err != nil {
		return nil, fmt.Errorf("read %d drops for the gate: %w", len(ids), err)
	}
	defer rows.Close()
	drops := make(map[int64]*GateDrop, len(ids))
	for rows.Next() {
		var d GateDrop
		var userID, claimID *int64
		err := rows.Scan(&d.ID, &d.Stock, &d.Begins, &d.Ends, &d.Version, &d.Claimed, &userID, &claimID)
		if err != nil {
			return nil, fmt.Errorf("read %d drops for the gate: %w", len(ids), err)
		}
		if drops[d.ID] == nil {
			drops[d.ID] = &d
		}
		if userID != nil {
			drops[d.ID].Claims = append(drops[d.ID].Claims, LiveClaim{*userID, *claimID})
		}
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read %d drops for the gate: %w", len(ids), err)
	}
	return drops, nil
}

// LiveClaims returns live claims of a drop in the order of their users: at most limit with users above after.
func (s *Store) LiveClaims(ctx context.Context, dropID, after int64, limit int) ([]LiveClaim, error) {
	const query = `
		SELECT user_id, id
		FROM claims FORCE INDEX (PRIMARY)
		WHERE drop_id=? AND user_id>? AND state IN (?,?)
		ORDER BY user_id
		LIMIT ?`
	// Row by row: Scan takes a multiple of the time.
	rows, err := s.db.WithContext(ctx).Raw(query, dropID, after, StateReserved, StateConfirmed, limit).Rows()
	if err != nil {
		return nil, fmt.Errorf("read claims of drop %d: %w", dropID, err)
	}
	defer rows.Close()
	list := make([]LiveClaim, 0, min(limit, 1024))
	for rows.Next() {
		var c LiveClaim
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

// Limits on drops.
const (
	MaxStock         = 1_000_000
	MaxDrops         = 100            // of a post
	MaxConfirmWithin = 30 * 24 * 3600 // seconds
)

// lastDropTime bounds the times of drops: the gate compares them with its clock in milliseconds.
var lastDropTime = time.UnixMilli(maxEventTime)

// DropSettings are the part of a drop that its maker writes.
type DropSettings struct {
	Title         string
	Stock         int64
	BeginsAt      *time.Time // in whole milliseconds; nil: at once
	EndsAt        *time.Time // in whole milliseconds; nil: never
	ConfirmWithin int64      // seconds; 0: claims need no confirmation
}

// Settings returns the settings of the drop.
func (d *Drop) Settings() DropSettings {
	return DropSettings{d.Title, d.Stock, d.BeginsAt, d.EndsAt, d.ConfirmWithin}
}

// Validate returns CodeInvalid with every field that breaks a rule.
func (d DropSettings) Validate() error {
	var f fieldErrors
	f.checkTitle(d.Title)
	f.check(d.Stock >= 1 && d.Stock <= MaxStock, "stock", OutOfRange(1, MaxStock))
	f.check(d.ConfirmWithin >= 0 && d.ConfirmWithin <= MaxConfirmWithin, "confirm_within",
		OutOfRange(1, MaxConfirmWithin).Saying("must be between 1 and %d seconds", MaxConfirmWithin))
	for field, at := range map[string]*time.Time{"begins_at": d.BeginsAt, "ends_at": d.EndsAt} {
		f.check(at == nil || at.Year() >= 1970 && at.Before(lastDropTime), field, Fault{FieldNotBefore,
			Params{"before": lastDropTime.UTC()}, "must be a time from 1970 to 2037"})
	}
	f.check(d.BeginsAt == nil || d.EndsAt == nil || d.BeginsAt.Before(*d.EndsAt), "ends_at",
		About(FieldBadOrder, "begins_at", "must be after begins_at"))
	return f.err()
}

// inMillis returns the settings with times as the columns keep them.
func (d DropSettings) inMillis() DropSettings {
	for _, at := range []**time.Time{&d.BeginsAt, &d.EndsAt} {
		if *at != nil {
			t := (*at).UTC().Truncate(time.Millisecond)
			*at = &t
		}
	}
	return d
}

func (d DropSettings) equal(o DropSettings) bool {
	same := func(a, b *time.Time) bool { return a == nil && b == nil || a != nil && b != nil && a.Equal(*b) }
	return d.Title == o.Title && d.Stock == o.Stock && d.ConfirmWithin == o.ConfirmWithin &&
		same(d.BeginsAt, o.BeginsAt) && same(d.EndsAt, o.EndsAt)
}

// logged returns the settings as the moderation log keeps them.
func (d DropSettings) logged() map[string]any {
	return map[string]any{
		"title": d.Title, "stock": d.Stock, "begins_at": d.BeginsAt, "ends_at": d.EndsAt,
		"confirm_within": d.ConfirmWithin,
	}
}

// dropColumns are the columns of a Drop d with its maker u.
const dropColumns = `d.id, d.post_id, ` + authorColumns + `, d.title, d.stock, d.claimed, d.begins_at, d.ends_at,
			d.closed_at, d.confirm_within, d.version, d.created_at, d.updated_at`

// lockDropPost locks the actor and a post that is not deleted, and reports whether the actor is a moderator who is not
// its author. CodeNotFound: the post is deleted or does not exist. CodeForbidden: the actor is neither the author nor a
// moderator. CodeLocked: a moderator has locked the post, and the actor is not one.
func lockDropPost(tx *Tx, actor, postID int64, kind TargetKind) (moderates bool, err error) {
	found, err := lockStandings(tx, actor)
	if err != nil {
		return false, err
	}
	const query = `
		SELECT user_id AS author_id, status, locked
		FROM posts FORCE INDEX (PRIMARY)
		WHERE id=?
		FOR UPDATE`
	var post moderated
	if err := tx.Raw(query, postID).Scan(&post).Error; err != nil {
		return false, err
	}
	user := found[actor]
	moderator := requireRole(tx, user, RoleModerator) == nil
	switch {
	case post.Status != StatusNormal:
		return false, NotFound(kind)
	case user == nil || requireRole(tx, user, RoleUser) != nil:
		return false, Errorf(CodeUnauthorized, "The token is not valid.")
	case post.AuthorID != actor && !moderator:
		return false, Errorf(CodeForbidden, "Only the author of the post or a moderator can do this.")
	case post.Locked && !moderator:
		return false, Errorf(CodeLocked, "A moderator has locked the post: its drops cannot be changed.")
	}
	return post.AuthorID != actor, nil
}

// CreateDrop attaches a drop to a post, in the name of its author or of a moderator. For its errors, see lockDropPost;
// CodeInvalid: a field breaks a rule; CodeConflict: the post has MaxDrops drops.
func (s *Store) CreateDrop(ctx context.Context, actor, postID int64, settings DropSettings) (*Drop, error) {
	if err := settings.Validate(); err != nil {
		return nil, err
	}
	settings = settings.inMillis()
	var d *Drop
	err := s.transact(ctx, func(tx *Tx) error {
		moderates, err := lockDropPost(tx, actor, postID, KindPost)
		if err != nil {
			return err
		}
		ids, err := dropsOf(tx.DB, []int64{postID})
		if err != nil {
			return err
		}
		if len(ids) >= MaxDrops {
			return Errorf(CodeConflict, "The post has %d drops. It cannot have more.", MaxDrops)
		}
		now := tx.Now.Truncate(time.Millisecond)
		id, err := tx.insert(`
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
		return logModeration(tx, moderationAct{
			ActorID: actor, Action: "drop.create", TargetType: "drop", TargetID: id, After: settings.logged(),
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
	ctx context.Context, actor, id, version int64, settings DropSettings,
) (d *Drop, err error) {
	if err := settings.Validate(); err != nil {
		return nil, err
	}
	settings = settings.inMillis()
	err = s.changeDrop(ctx, actor, id, "drop.update", func(tx *Tx, is *Drop) (map[string]any, error) {
		d = is
		switch {
		case d.Version != version:
			return nil, VersionMismatch(d.Version)
		case d.Settings().equal(settings):
			return nil, nil
		case d.ClosedAt != nil:
			return nil, Errorf(CodeConflict, "The drop is closed.")
		}
		update := tx.Exec(`
			UPDATE drops FORCE INDEX (PRIMARY)
			SET title=?, stock=?, begins_at=?, ends_at=?, confirm_within=?, version=version+1, updated_at=?
			WHERE id=? AND version=? AND claimed<=?`, settings.Title, settings.Stock, settings.BeginsAt,
			settings.EndsAt, settings.ConfirmWithin, tx.Now, id, version, settings.Stock)
		if update.Error == nil && update.RowsAffected == 0 {
			return nil, Errorf(CodeConflict, "%d are claimed already. The stock cannot be less.", d.Claimed)
		}
		return settings.logged(), update.Error
	}, &d)
	if err != nil {
		return nil, fmt.Errorf("update drop %d: %w", id, err)
	}
	return d, nil
}

// CloseDrop ends a drop at once and for good. Claims to it stay. A drop that is closed stays as it is. For its errors,
// see lockDropPost.
func (s *Store) CloseDrop(ctx context.Context, actor, id int64) (d *Drop, err error) {
	err = s.changeDrop(ctx, actor, id, "drop.close", func(tx *Tx, is *Drop) (map[string]any, error) {
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
	change func(tx *Tx, d *Drop) (logged map[string]any, err error), changed **Drop,
) error {
	return s.transact(ctx, func(tx *Tx) error {
		const find = `
			SELECT post_id
			FROM drops
			WHERE id=?`
		var postID int64
		if err := tx.Raw(find, id).Scan(&postID).Error; err != nil {
			return err
		}
		moderates, err := lockDropPost(tx, actor, postID, KindDrop)
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
		state := before.Settings().logged()
		after, err := change(tx, before)
		if err != nil || after == nil {
			return err
		}
		if *changed, err = readDrop(tx.DB, id); err != nil || !moderates {
			return err
		}
		return logModeration(tx, moderationAct{
			ActorID: actor, Action: action, TargetType: "drop", TargetID: id, Before: state, After: after,
		})
	})
}

// Drop reads a drop. If it does not exist, or its post is deleted, Drop returns CodeNotFound.
func (s *Store) Drop(ctx context.Context, id int64) (*Drop, error) {
	return readDrop(s.db.WithContext(ctx), id)
}

func readDrop(db *gorm.DB, id int64) (*Drop, error) {
	const query = `
		SELECT ` + dropColumns + `
		FROM drops d
		JOIN posts p ON p.id=d.post_id AND p.status=?
		JOIN users u ON u.id=d.user_id
		WHERE d.id=?`
	var d Drop
	read := db.Raw(query, StatusNormal, id).Scan(&d)
	if read.Error != nil {
		return nil, fmt.Errorf("read drop %d: %w", id, read.Error)
	}
	if read.RowsAffected == 0 {
		return nil, NotFound(KindDrop)
	}
	return &d, nil
}

// Drops returns those of the drops with these ids that exist and whose post is not deleted, in the order of their ids.
// It runs one query for each thousand ids.
func (s *Store) Drops(ctx context.Context, ids []int64) ([]Drop, error) {
	var found []Drop
	for some := range slices.Chunk(ascending(ids), liveCountsChunk) {
		query := `
		SELECT ` + dropColumns + `
		FROM drops d FORCE INDEX (PRIMARY)
		STRAIGHT_JOIN posts p FORCE INDEX (PRIMARY) ON p.id=d.post_id AND p.status=?
		STRAIGHT_JOIN users u FORCE INDEX (PRIMARY) ON u.id=d.user_id
		WHERE d.id IN (` + joinIDs(some) + `)
		ORDER BY d.id`
		var rows []Drop
		if err := s.db.WithContext(ctx).Raw(query, StatusNormal).Scan(&rows).Error; err != nil {
			return nil, fmt.Errorf("read %d drops: %w", len(some), err)
		}
		found = append(found, rows...)
	}
	return found, nil
}

// DropsOfPost lists the drops of a post, latest first: at most limit with ids below before (0 for the first page). If
// the post is deleted or does not exist, DropsOfPost returns CodeNotFound.
func (s *Store) DropsOfPost(ctx context.Context, postID, before int64, limit int) ([]Drop, error) {
	where := matching("d.post_id=?", postID)
	where.addIf(before > 0, "d.id<?", before)
	query := `
		SELECT ` + dropColumns + `
		FROM posts p
		STRAIGHT_JOIN drops d FORCE INDEX (idx_post_id)
		STRAIGHT_JOIN users u FORCE INDEX (PRIMARY) ON u.id=d.user_id
		` + where.clause() + ` AND p.id=? AND p.status=?
		ORDER BY d.id DESC
		LIMIT ?`
	list := []Drop{}
	err := s.db.WithContext(ctx).Raw(query, where.between(nil, postID, StatusNormal, limit)...).Scan(&list).Error
	if err == nil && len(list) == 0 {
		var open bool
		if open, err = s.TargetOpen(ctx, Target{KindPost, postID}); err == nil && !open {
			err = NotFound(KindPost)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("list drops of post %d: %w", postID, err)
	}
	return list, nil
}

// dropsOf returns the ids of the drops of posts, in their order.
func dropsOf(db *gorm.DB, posts []int64) ([]int64, error) {
	if len(posts) == 0 {
		return nil, nil
	}
	query := `
		SELECT id
		FROM drops FORCE INDEX (idx_post_id)
		WHERE post_id IN (` + joinIDs(ascending(posts)) + `)`
	var ids []int64
	if err := db.Raw(query).Scan(&ids).Error; err != nil {
		return nil, fmt.Errorf("read drops of posts: %w", err)
	}
	return ascending(ids), nil
}

// SettingsToSend returns the settings that the gate may not have yet, of drops whose post is not deleted, in the order
// of their ids: at most limit above after. A drop stays in the list until DropSet of its version is applied, or
// ClearCold finds it cold.
func (s *Store) SettingsToSend(ctx context.Context, after int64, limit int) ([]GateDrop, error) {
	const query = `
		SELECT ` + gateDropColumns + `
		FROM drops d FORCE INDEX (idx_unsent)
		STRAIGHT_JOIN posts p ON p.id=d.post_id AND p.status=?
		WHERE d.unsent=1 AND d.id>?
		ORDER BY d.id
		LIMIT ?`
	var list []GateDrop
	if err := s.db.WithContext(ctx).Raw(query, StatusNormal, after, limit).Scan(&list).Error; err != nil {
		return nil, fmt.Errorf("read settings to send: %w", err)
	}
	return list, nil
}
