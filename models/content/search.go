package content

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"likewise/models"
	"likewise/models/db"
	"likewise/models/search"
)

// termTables hold the search index of each kind. Their columns are id, term and weight.
var termTables = map[models.TargetKind]struct{ name, id string }{
	models.KindPost:    {"post_terms", "post_id"},
	models.KindComment: {"comment_terms", "comment_id"},
}

// writeTerms adds a target to the search index. The index has no terms of the target yet; the caller sets
// terms_version.
func writeTerms(tx *db.Tx, target models.Target, weights map[string]int) error {
	const maxRows = 1000
	table := termTables[target.Kind]
	id := strconv.FormatInt(target.ID, 10)
	terms := slices.Sorted(maps.Keys(weights)) // the order of the primary key
	for chunk := range slices.Chunk(terms, maxRows) {
		rows, args := make([]string, len(chunk)), make([]any, len(chunk))
		for i, term := range chunk {
			rows[i] = "(" + id + ",?," + strconv.Itoa(weights[term]) + ")"
			args[i] = term
		}
		insert := `
			INSERT INTO ` + table.name + ` (` + table.id + `, term, weight)
			VALUES ` + strings.Join(rows, ",")
		if err := tx.Exec(insert, args...).Error; err != nil {
			return fmt.Errorf("index %s: %w", target, err)
		}
	}
	return nil
}

// deleteTerms removes targets from the search index. The caller sets terms_version.
func deleteTerms(tx *db.Tx, kind models.TargetKind, ids ...int64) error {
	table := termTables[kind]
	remove := `
		DELETE t
		FROM ` + table.name + ` t FORCE INDEX (idx_` + table.id + `)
		WHERE t.` + table.id + ` IN (` + db.JoinIDs(ids) + `)`
	if err := tx.Exec(remove).Error; err != nil {
		return fmt.Errorf("remove %ss from the index: %w", kind, err)
	}
	return nil
}

// IndexPosts indexes at most limit posts that are not in the search index, or are there by an earlier search.Version.
// It returns their number: fewer than limit if none is left. Each post is indexed in a transaction of its own, and
// several callers may run at once. A post that is written now is indexed by the transaction that writes it.
func (s *Store) IndexPosts(ctx context.Context, limit int) (int, error) {
	return s.index(ctx, models.KindPost, limit)
}

// IndexComments indexes comments as IndexPosts indexes posts.
func (s *Store) IndexComments(ctx context.Context, limit int) (int, error) {
	return s.index(ctx, models.KindComment, limit)
}

func (s *Store) index(ctx context.Context, kind models.TargetKind, limit int) (int, error) {
	query := `
		SELECT id
		FROM ` + db.TargetTables[kind].Targets + ` FORCE INDEX (idx_status_terms)
		WHERE status=? AND terms_version<?
		ORDER BY status, terms_version, id
		LIMIT ?`
	var ids []int64
	err := s.Read(ctx).Raw(query, models.StatusNormal, search.Version, limit).Scan(&ids).Error
	if err != nil {
		return 0, fmt.Errorf("find %ss to index: %w", kind, err)
	}
	for _, id := range ids {
		if err := s.indexOne(ctx, models.Target{Kind: kind, ID: id}); err != nil {
			return 0, err
		}
	}
	return len(ids), nil
}

func (s *Store) indexOne(ctx context.Context, target models.Target) error {
	table, columns := db.TargetTables[target.Kind].Targets, "title, content"
	if target.Kind == models.KindComment {
		columns = "content"
	}
	read := `
		SELECT ` + columns + `
		FROM ` + table + ` FORCE INDEX (PRIMARY)
		WHERE id=? AND status=? AND terms_version<?
		FOR UPDATE`
	update := `
		UPDATE ` + table + `
		SET terms_version=?, updated_at=updated_at
		WHERE id=?`
	return s.Transact(ctx, func(tx *db.Tx) error {
		if _, err := LockTargetPost(tx, target); err != nil {
			return err
		}
		var text struct{ Title, Content string }
		found := tx.Raw(read, target.ID, models.StatusNormal, search.Version).Scan(&text)
		if found.Error != nil || found.RowsAffected == 0 {
			return found.Error // without a row, another process has indexed it
		}
		if err := deleteTerms(tx, target.Kind, target.ID); err != nil {
			return err
		}
		if err := writeTerms(tx, target, search.Weights(text.Title, text.Content)); err != nil {
			return err
		}
		return tx.Exec(update, search.Version, target.ID).Error
	})
}
