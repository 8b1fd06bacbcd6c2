package moderation

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/media"
)

func errNoRedaction() *models.Error {
	return models.Errorf(models.CodeNotFound, "There is no such request.")
}

// redactionQuery returns the query of the requests k whose ids the query keys selects.
func redactionQuery(keys, order string) string {
	return `
		SELECT k.id, k.target_type, k.target_id, k.version, ` + accounts.AuthorColumns + `,
			k.reason, k.requested_at, k.resolved_at, k.outcome, k.note,
			d.id AS resolver_id, d.username AS resolver_username,
			d.display_name AS resolver_display_name, d.avatar_url AS resolver_avatar_url,
			COALESCE((
				SELECT r.id
				FROM report_cases r
				WHERE r.is_open=1 AND r.target_type=k.target_type AND r.target_id=k.target_id),0) AS report_id
		FROM (` + keys + `) o
		STRAIGHT_JOIN redactions k ON k.id=o.id
		STRAIGHT_JOIN users u FORCE INDEX (PRIMARY) ON u.id=k.requested_by
		LEFT JOIN users d ON d.id=k.resolved_by
		ORDER BY k.id ` + order
}

// Redactions lists requests after an id (0 for the first page): open ones the earliest first, resolved ones the latest
// first. One query.
func (s *Store) Redactions(ctx context.Context, resolved bool, after int64, limit int) ([]models.Redaction, error) {
	open, order, later := "is_open=1", "ASC", ">"
	if resolved {
		open, order, later = "is_open IS NULL", "DESC", "<"
	}
	where := db.Matching(open)
	where.AddIf(after != 0, "id"+later+"?", after)
	keys := `
			SELECT id
			FROM redactions FORCE INDEX (idx_open)
			` + where.Clause() + `
			ORDER BY id ` + order + `
			LIMIT ?`
	var list []models.Redaction
	err := s.Read(ctx).Raw(redactionQuery(keys, order), append(where.Args, limit)...).Scan(&list).Error
	if err != nil {
		return nil, fmt.Errorf("list redactions: %w", err)
	}
	return list, nil
}

// RedactionsBy lists the requests of a user, latest first: at most limit before the id (0 for the first page). One
// query.
func (s *Store) RedactionsBy(ctx context.Context, requester, before int64, limit int) ([]models.Redaction, error) {
	where := db.Matching("requested_by=?", requester)
	where.AddIf(before != 0, "id<?", before)
	keys := `
			SELECT id
			FROM redactions FORCE INDEX (idx_requester)
			` + where.Clause() + `
			ORDER BY id DESC
			LIMIT ?`
	var list []models.Redaction
	err := s.Read(ctx).Raw(redactionQuery(keys, "DESC"), append(where.Args, limit)...).Scan(&list).Error
	if err != nil {
		return nil, fmt.Errorf("list redactions of user %d: %w", requester, err)
	}
	return list, nil
}

// RedactionByID reads a request. CodeNotFound: it does not exist.
func (s *Store) RedactionByID(ctx context.Context, id int64) (*models.Redaction, error) {
	return readRedaction(s.Read(ctx), id)
}

func readRedaction(conn *gorm.DB, id int64) (*models.Redaction, error) {
	var r models.Redaction
	read := conn.Raw(redactionQuery("SELECT ? AS id", "ASC"), id).Scan(&r)
	if read.Error != nil {
		return nil, fmt.Errorf("read redaction %d: %w", id, read.Error)
	}
	if read.RowsAffected == 0 {
		return nil, errNoRedaction()
	}
	return &r, nil
}

// RequestRedaction requests that a version of the author's own post or comment, deleted or not, be redacted. As long as
// the request is open, requesting it again changes nothing and returns the request that there is. CodeInvalid for the
// reason; CodeNotFound if there is no such version, or the target is somebody else's; CodeConflict if it is redacted.
func (s *Store) RequestRedaction(
	ctx context.Context, author int64, target models.Target, version int64, reason string,
) (r *models.Redaction, err error) {
	if err := models.ValidateReason(reason); err != nil {
		return nil, err
	}
	const insert = `
		INSERT INTO redactions (target_type, target_id, version, requested_by, reason, requested_at)
		VALUES (?,?,?,?,?,?)
		ON DUPLICATE KEY UPDATE redactions.id=redactions.id`
	const find = `
		SELECT id
		FROM redactions
		WHERE is_open=1 AND target_type=? AND target_id=? AND version=?`
	err = s.Transact(ctx, func(tx *db.Tx) error {
		m, err := content.LockModerated(tx, target)
		if err != nil {
			return err
		}
		if m.AuthorID != author {
			return models.NotFound(target.Kind)
		}
		if redacted, err := isRedacted(tx, target, m, version); err != nil {
			return err
		} else if redacted {
			return models.Errorf(models.CodeConflict, "The version is redacted.")
		}
		if err := tx.Exec(insert, target.Kind, target.ID, version, author, reason,
			models.WholeSeconds(tx.Now)).Error; err != nil {
			return err
		}
		var id int64
		if err := tx.Raw(find, target.Kind, target.ID, version).Scan(&id).Error; err != nil {
			return err
		}
		tx.AnswerHas(id)
		r, err = readRedaction(tx.DB, id)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("request redaction of version %d of %s: %w", version, target, err)
	}
	return r, nil
}

// isRedacted reports whether a version of m, which is target, has no text left. CodeNotFound: there is no such version.
func isRedacted(tx *db.Tx, target models.Target, m *content.Moderated, version int64) (bool, error) {
	if m.Purged {
		return false, content.ErrNoRevision()
	}
	if version == m.Version {
		return false, nil
	}
	table := content.RevisionTables[target.Kind]
	query := `
		SELECT redacted_at IS NOT NULL
		FROM ` + table.Name + `
		WHERE ` + table.ID + `=? AND version=?`
	var redacted bool
	read := tx.Raw(query, target.ID, version).Scan(&redacted)
	if read.Error == nil && read.RowsAffected == 0 {
		return false, content.ErrNoRevision()
	}
	return redacted, read.Error
}

// RedactVersion overwrites the text of one version of a post or comment, deleted or not, as a moderator, and resolves
// the author's request if there is one. If it is the present version, RedactedText stands for it in a version of its
// own. A version that is redacted stays as it is, and nothing is logged. CodeInvalid for the reason; CodeNotFound if
// there is no such version; CodeForbidden if the actor is the author, or not a moderator by now.
func (s *Store) RedactVersion(
	ctx context.Context, actor int64, target models.Target, version int64, reason string,
) error {
	if err := models.ValidateReason(reason); err != nil {
		return err
	}
	err := s.Transact(ctx, func(tx *db.Tx) error {
		if err := accounts.LockActor(tx, actor, models.RoleModerator); err != nil {
			return err
		}
		return redact(tx, actor, target, version, reason)
	})
	if err != nil {
		return fmt.Errorf("redact version %d of %s: %w", version, target, err)
	}
	return nil
}

// redact does what RedactVersion describes.
func redact(tx *db.Tx, actor int64, target models.Target, version int64, reason string) error {
	m, err := content.LockModerated(tx, target)
	if err != nil {
		return err
	}
	if m.AuthorID == actor {
		return content.ErrOwnCase()
	}
	redacted, err := isRedacted(tx, target, m, version)
	if err != nil {
		return err
	}
	now := models.WholeSeconds(tx.Now)
	const resolve = `
		UPDATE redactions
		SET is_open=NULL, resolved_by=?, resolved_at=?, outcome=?, note=?
		WHERE is_open=1 AND target_type=? AND target_id=? AND version=?`
	err = tx.Exec(resolve, actor, now, models.OutcomeRedacted, reason, target.Kind, target.ID, version).Error
	if err != nil || redacted {
		return err
	}
	if version == m.Version {
		if err := replaceByPlaceholder(tx, target); err != nil {
			return err
		}
	}
	table := content.RevisionTables[target.Kind]
	overwrite := `
		UPDATE ` + table.Name + `
		SET ` + table.NoText + `, size=0, redacted_at=?
		WHERE ` + table.ID + `=? AND version=?`
	if err := tx.Exec(overwrite, now, target.ID, version).Error; err != nil {
		return err
	}
	if err := content.EraseImagesOf(tx, target); err != nil {
		return err
	}
	if err := db.RedactEvents(tx, target); err != nil {
		return err
	}
	return accounts.LogModeration(tx, act(actor, "redact", target, reason,
		map[string]any{"version": version, "redacted": false}, map[string]any{"version": version, "redacted": true}))
}

// replaceByPlaceholder turns the present version of a target into an old one, and RedactedText into the present one. It
// increments the version, so that an edit of the old text fails, and caches made of that text are not used.
func replaceByPlaceholder(tx *db.Tx, target models.Target) error {
	const readCommentVersion = `
		SELECT id, version, status
		FROM comments
		WHERE id=?`
	const readPostText = `
		SELECT p.id, p.title, p.content, ` + content.TagNames + ` AS tags, p.version, p.status, p.created_at
		FROM posts p
		WHERE p.id=?`
	if target.Kind == models.KindComment {
		var c models.Comment
		if err := tx.Raw(readCommentVersion, target.ID).Scan(&c).Error; err != nil {
			return err
		}
		return content.ReplaceComment(tx, &c, 0, models.RedactedText)
	}
	p := models.Post{}
	if err := tx.Raw(readPostText, target.ID).Scan(&p).Error; err != nil {
		return err
	}
	return content.RedactPost(tx, &p)
}

// ResolveRedaction ends a request: with OutcomeRedacted as RedactVersion does, with OutcomeDeclined by leaving the
// text. The author reads the reason. CodeInvalid; CodeNotFound; CodeConflict if it is resolved; CodeForbidden if the
// actor made the request, or is not a moderator by now.
func (s *Store) ResolveRedaction(ctx context.Context, actor, id int64, outcome, reason string) error {
	var f models.FieldErrors
	f.Check(outcome == models.OutcomeRedacted || outcome == models.OutcomeDeclined, "outcome",
		models.NotOneOf(models.OutcomeRedacted, models.OutcomeDeclined))
	f.CheckReason("reason", reason)
	if err := f.Err(); err != nil {
		return err
	}
	const lock = `
		SELECT is_open
		FROM redactions FORCE INDEX (PRIMARY)
		WHERE id=?
		FOR UPDATE`
	const decline = `
		UPDATE redactions
		SET is_open=NULL, resolved_by=?, resolved_at=?, outcome=?, note=?
		WHERE id=?`
	err := s.Transact(ctx, func(tx *db.Tx) error {
		if err := accounts.LockActor(tx, actor, models.RoleModerator); err != nil {
			return err
		}
		r, err := readRedaction(tx.DB, id) // the fields that are used here never change
		if err != nil {
			return err
		}
		target := models.Target{Kind: r.TargetType, ID: r.TargetID}
		if r.Requester.ID == actor {
			return content.ErrOwnCase()
		}
		if _, err := content.LockModerated(tx, target); err != nil {
			return err
		}
		var open *bool
		if err := tx.Raw(lock, id).Scan(&open).Error; err != nil {
			return err
		}
		if open == nil {
			return models.Errorf(models.CodeConflict, "The request is resolved.")
		}
		if outcome == models.OutcomeRedacted {
			return redact(tx, actor, target, r.Version, reason)
		}
		if err := tx.Exec(decline, actor, models.WholeSeconds(tx.Now), outcome, reason, id).Error; err != nil {
			return err
		}
		after := map[string]any{"version": r.Version, "redaction_id": id}
		return accounts.LogModeration(tx, act(actor, "decline_redaction", target, reason, nil, after))
	})
	if err != nil {
		return fmt.Errorf("resolve redaction %d: %w", id, err)
	}
	return nil
}

func errPurged(kind models.TargetKind) *models.Error {
	return models.Errorf(models.CodeConflict, "The %s was purged: there is nothing left to restore.", kind)
}

// PurgeContent deletes a post or comment as an admin, with all that is kept of its text: title, content, tags,
// versions, search index, the details of reports of it and the reasons of requests to redact it. What remains is a row
// without text, so that ids, counts, likes and trees stay exact; it can never be restored. Comments on a post are
// hidden with it and keep their texts. One that was purged stays as it is, and nothing is logged. CodeInvalid for the
// reason; CodeNotFound if it was never there; CodeForbidden if the actor is the author, or not an admin by now.
func (s *Store) PurgeContent(ctx context.Context, actor int64, target models.Target, reason string) error {
	if err := models.ValidateReason(reason); err != nil {
		return err
	}
	err := s.Transact(ctx, func(tx *db.Tx) error {
		if err := accounts.LockActor(tx, actor, models.RoleAdmin); err != nil {
			return err
		}
		m, err := content.LockModerated(tx, target)
		if err == nil && m.AuthorID == actor {
			err = content.ErrOwnCase()
		}
		if err != nil || m.Purged {
			return err
		}
		if m.Status == models.StatusNormal {
			if err := content.Hide(tx, target, models.Deletion{At: tx.Now, By: models.Author{ID: actor},
				Reason: reason}); err != nil {
				return err
			}
		}
		if err := purge(tx, target, actor, reason, models.WholeSeconds(tx.Now)); err != nil {
			return err
		}
		now := &content.Moderated{Status: models.StatusDeleted, DeletedBy: actor}
		after := now.State()
		after["purged"] = true
		return accounts.LogModeration(tx, act(actor, "purge", target, reason, m.State(), after))
	})
	if err != nil {
		return fmt.Errorf("purge %s: %w", target, err)
	}
	return nil
}

// purge deletes the text of a deleted target whose post's row is held.
func purge(tx *db.Tx, target models.Target, actor int64, reason string, now time.Time) error {
	table := content.RevisionTables[target.Kind]
	id, kind := target.ID, target.Kind
	// The version is incremented, so that caches made of the text are not used.
	empty := `
		UPDATE ` + db.TargetTables[kind].Targets + `
		SET ` + table.NoPresentText + `, version=version+1, edited_by=0, purged=1,
			deleted_at=?, deleted_by=?, delete_reason=?, operation_id=NULL, updated_at=updated_at
		WHERE id=?`
	deleteRevisions := `
		DELETE FROM ` + table.Name + `
		WHERE ` + table.ID + `=?`
	const emptyDrops = `
		UPDATE drops
		SET title=''
		WHERE post_id=?`
	const deleteTags = `
		DELETE FROM post_tags
		WHERE post_id=?`
	const findCases = `
		SELECT id
		FROM report_cases
		WHERE (is_open=1 OR is_open IS NULL) AND target_type=? AND target_id=?`
	const closeRequests = `
		UPDATE redactions
		SET reason='', resolved_by=IF(is_open=1,?,resolved_by), resolved_at=IF(is_open=1,?,resolved_at),
			outcome=IF(is_open=1,?,outcome), note=IF(is_open=1,?,note), is_open=NULL
		WHERE target_type=? AND target_id=?`
	if err := tx.Exec(empty, now, actor, reason, id).Error; err != nil {
		return err
	}
	if err := tx.Exec(deleteRevisions, id).Error; err != nil {
		return err
	}
	if err := media.EraseImageUses(tx, media.TargetSubject(target)); err != nil {
		return err
	}
	if err := db.RedactEvents(tx, target); err != nil {
		return err
	}
	if kind == models.KindPost {
		if err := tx.Exec(emptyDrops, id).Error; err != nil {
			return err
		}
		if err := tx.Exec(deleteTags, id).Error; err != nil {
			return err
		}
	}
	var cases []int64
	if err := tx.Raw(findCases, kind, id).Scan(&cases).Error; err != nil {
		return err
	}
	if len(cases) > 0 {
		emptyReports := `
			UPDATE reports
			SET detail=''
			WHERE case_id IN (` + db.JoinIDs(cases) + `)`
		if err := tx.Exec(emptyReports).Error; err != nil {
			return err
		}
	}
	return tx.Exec(closeRequests, actor, now, models.OutcomeRedacted, reason, kind, id).Error
}
