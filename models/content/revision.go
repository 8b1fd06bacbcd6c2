package content

import (
	"context"
	"fmt"
	"slices"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/db"
)

// tagNamesOfX is TagNames of the post x.
const tagNamesOfX = `(
		SELECT GROUP_CONCAT(t.name ORDER BY g.position SEPARATOR ' ')
		FROM post_tags g
		JOIN tags t ON t.id=g.tag_id
		WHERE g.post_id=x.id
	)`

// keepRevision copies the current version of a target before an edit replaces it, and deletes old ones that exceed the
// bounds. Counting never moves updated_at, so it is the time when the version was written.
func keepRevision(tx *db.Tx, target models.Target) error {
	if err := tx.Exec(RevisionTables[target.Kind].keep, target.ID).Error; err != nil {
		return fmt.Errorf("keep revision of %s: %w", target, err)
	}
	return pruneRevisions(tx, target)
}

// pruneRevisions deletes the versions of a target that exceed MaxRevisions or MaxRevisionBytes.
func pruneRevisions(tx *db.Tx, target models.Target) error {
	table := RevisionTables[target.Kind]
	var kept []struct{ Version, Size int64 }
	query := `
		SELECT version, size
		FROM ` + table.Name + `
		WHERE ` + table.ID + `=?
		ORDER BY version DESC`
	if err := tx.Raw(query, target.ID).Scan(&kept).Error; err != nil {
		return fmt.Errorf("read revisions of %s: %w", target, err)
	}
	var size int64
	var excess []int64
	for i, r := range kept[:max(0, len(kept)-1)] { // without the first version, which is the last row
		if size += r.Size; i >= models.MaxRevisions-1 || size > models.MaxRevisionBytes {
			excess = append(excess, r.Version)
		}
	}
	if len(excess) == 0 {
		return nil
	}
	// A query of its own: inside the DELETE, the reports would be locked.
	const reported = `
		SELECT DISTINCT q.version
		FROM report_cases k
		JOIN reports q ON q.case_id=k.id
		WHERE (k.is_open=1 OR k.is_open IS NULL) AND k.target_type=? AND k.target_id=? AND q.version IS NOT NULL`
	var evidence []int64
	if err := tx.Raw(reported, target.Kind, target.ID).Scan(&evidence).Error; err != nil {
		return fmt.Errorf("read reported versions of %s: %w", target, err)
	}
	excess = slices.DeleteFunc(excess, func(version int64) bool { return slices.Contains(evidence, version) })
	if len(excess) == 0 {
		return nil
	}
	prune := `
		DELETE
		FROM ` + table.Name + `
		WHERE ` + table.ID + `=? AND version IN (` + db.JoinIDs(excess) + `)`
	if err := tx.Exec(prune, target.ID).Error; err != nil {
		return fmt.Errorf("prune revisions of %s: %w", target, err)
	}
	return nil
}

// RevisionQuery selects versions of a post or comment.
type RevisionQuery struct {
	Target  models.Target
	Deleted bool  // also if the target is deleted
	Before  int64 // only versions with lower numbers; 0 for the first page
	Limit   int
}

// shown returns the join and the condition that limit the target x to those that a reader may see.
func (q RevisionQuery) shown() (join, where string) {
	if q.Deleted {
		return "", ""
	}
	return RevisionTables[q.Target.Kind].open, " AND x.status=" + db.SQLNormal
}

// ListRevisions lists the versions of a post or comment without their texts, latest first, including the current one.
// It runs two queries. If the target is deleted or never existed, ListRevisions returns CodeNotFound.
func (s *Store) ListRevisions(ctx context.Context, q RevisionQuery) ([]models.Revision, error) {
	now, err := s.presentRevision(ctx, q, "")
	if err != nil {
		return nil, fmt.Errorf("list revisions of %s: %w", q.Target, err)
	}
	list := []models.Revision{}
	if q.Before == 0 || q.Before > now.Version {
		q.Before, list = now.Version, append(list, *now)
	}
	table := RevisionTables[q.Target.Kind]
	query := `
		SELECT r.version, ` + accounts.AuthorColumns + `, r.size, ` + table.oldEdit + ` AS changed,
			r.created_at, r.redacted_at
		FROM ` + table.Name + ` r
		STRAIGHT_JOIN ` + db.TargetTables[q.Target.Kind].Targets + ` x ON x.id=r.` + table.ID + `
		LEFT JOIN users u ON u.id=COALESCE(r.editor_id,x.user_id)
		WHERE r.` + table.ID + `=? AND r.version<?
		ORDER BY r.version DESC
		LIMIT ?`
	var old []models.Revision
	if err := s.Read(ctx).Raw(query, q.Target.ID, q.Before, q.Limit-len(list)).Scan(&old).Error; err != nil {
		return nil, fmt.Errorf("list revisions of %s: %w", q.Target, err)
	}
	return append(list, old...), nil
}

// RevisionOf returns one version of q's target with its text. If the target is deleted or never existed, or if the
// version was deleted or never existed, RevisionOf returns CodeNotFound.
func (s *Store) RevisionOf(ctx context.Context, q RevisionQuery, version int64) (*models.Revision, error) {
	table := RevisionTables[q.Target.Kind]
	r, err := s.presentRevision(ctx, q, table.presentText)
	if err != nil || r.Version == version {
		return r, err
	}
	query := `
		SELECT r.version, ` + accounts.AuthorColumns + `, r.size, ` + table.oldEdit + ` AS changed,
			r.created_at, r.redacted_at` + table.oldText + `
		FROM ` + table.Name + ` r
		STRAIGHT_JOIN ` + db.TargetTables[q.Target.Kind].Targets + ` x ON x.id=r.` + table.ID + `
		LEFT JOIN users u ON u.id=COALESCE(r.editor_id,x.user_id)
		WHERE r.` + table.ID + `=? AND r.version=?`
	var old models.Revision
	read := s.Read(ctx).Raw(query, q.Target.ID, version).Scan(&old)
	if read.Error != nil {
		return nil, fmt.Errorf("read revision %d of %s: %w", version, q.Target, read.Error)
	}
	if read.RowsAffected == 0 {
		return nil, ErrNoRevision()
	}
	return &old, nil
}

// ErrNoRevision returns the error of a version that there is not.
func ErrNoRevision() *models.Error {
	return models.Errorf(models.CodeNotFound, "There is no such version.")
}

// presentRevision reads the current version of q's target, with the columns of text.
func (s *Store) presentRevision(ctx context.Context, q RevisionQuery, text string) (*models.Revision, error) {
	join, where := q.shown()
	query := `
		SELECT x.version, ` + accounts.AuthorColumns + `, LENGTH(x.content) AS size,
			` + RevisionTables[q.Target.Kind].presentEdit + ` AS changed,
			x.updated_at AS created_at` + text + `
		FROM ` + db.TargetTables[q.Target.Kind].Targets + ` x
		` + join + `
		LEFT JOIN users u ON u.id=COALESCE(x.edited_by,x.user_id)
		WHERE x.id=?` + where
	var r models.Revision
	read := s.Read(ctx).Raw(query, q.Target.ID).Scan(&r)
	if read.Error != nil {
		return nil, fmt.Errorf("read %s: %w", q.Target, read.Error)
	}
	if read.RowsAffected == 0 {
		return nil, models.NotFound(q.Target.Kind)
	}
	return &r, nil
}

// revisionTable is the table with the old versions r of posts or comments x, which an edit or a redaction has replaced.
type revisionTable struct {
	Name, ID    string // the table, and its column with the id of x
	open        string // the join that limits x to those that are shown
	presentText string // the columns of the text of x
	oldText     string // the columns of the text of r
	presentEdit string // the Changes of x
	oldEdit     string // the Changes of r
	keep        string // the statement that copies x to r; its placeholder is the id of x

	NoText, NoPresentText string // SET clauses that overwrite the text of r, and of x
}

// RevisionTables are the tables of the kinds that have revisions.
var RevisionTables = map[models.TargetKind]revisionTable{
	models.KindPost: {
		Name: "post_revisions", ID: "post_id",
		presentText: ", x.title, x.content, " + tagNamesOfX + " AS tags", presentEdit: "x.changed",
		oldText: ", r.title, r.content, r.tags", oldEdit: "r.changed",
		NoText: "title='', content='', tags=''", NoPresentText: "title='', content='', excerpt='', changed=0, pinned=0",
		keep: `
			INSERT INTO post_revisions (post_id, version, editor_id, title, content, tags, size, changed, created_at)
			SELECT x.id, x.version, x.edited_by, x.title, x.content, COALESCE(` + tagNamesOfX + `, ''),
				LENGTH(x.content), x.changed, x.updated_at
			FROM posts x
			WHERE x.id=?`,
	},
	models.KindComment: {
		Name: "comment_revisions", ID: "comment_id", open: "JOIN posts p ON p.id=x.post_id AND p.status=" +
			db.SQLNormal,
		presentText: ", x.content", presentEdit: fmt.Sprintf("IF(x.version=0, 0, %d)", models.ChangedContent),
		oldText: ", r.content", oldEdit: fmt.Sprintf("IF(r.version=0, 0, %d)", models.ChangedContent),
		NoText: "content=''", NoPresentText: "content=''",
		keep: `
			INSERT INTO comment_revisions (comment_id, version, editor_id, content, size, created_at)
			SELECT x.id, x.version, x.edited_by, x.content, LENGTH(x.content), x.updated_at
			FROM comments x
			WHERE x.id=?`,
	},
}
