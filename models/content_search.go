package models

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gorm.io/gorm"

	"likewise/models/search"
)

// writeTerms adds a post to the search index. The index has no terms of the post yet; the caller sets terms_version.
func writeTerms(tx *gorm.DB, postID int64, weights map[string]int) error {
	const maxRows = 1000
	id := strconv.FormatInt(postID, 10)
	terms := slices.Sorted(maps.Keys(weights)) // the order of the primary key
	for chunk := range slices.Chunk(terms, maxRows) {
		rows, args := make([]string, len(chunk)), make([]any, len(chunk))
		for i, term := range chunk {
			rows[i] = "(" + id + ",?," + strconv.Itoa(weights[term]) + ")"
			args[i] = term
		}
		insert := `
			INSERT INTO post_terms (post_id, term, weight)
			VALUES ` + strings.Join(rows, ",")
		if err := tx.Exec(insert, args...).Error; err != nil {
			return fmt.Errorf("index post %d: %w", postID, err)
		}
	}
	return nil
}

// deleteTerms removes posts from the search index. The caller sets terms_version.
func deleteTerms(tx *gorm.DB, postIDs ...int64) error {
	remove := `
		DELETE t
		FROM post_terms t FORCE INDEX (idx_post_id)
		WHERE t.post_id IN (` + joinIDs(postIDs) + `)`
	if err := tx.Exec(remove).Error; err != nil {
		return fmt.Errorf("remove posts from the index: %w", err)
	}
	return nil
}

// IndexPosts indexes at most limit posts that are not in the search index, or are there by an earlier search.Version.
// It returns their number: fewer than limit if none is left. Each post is indexed in a transaction of its own, and
// several callers may run at once. A post that is written now is indexed by the transaction that writes it.
func (s *Store) IndexPosts(ctx context.Context, limit int) (int, error) {
	const query = `
		SELECT id
		FROM posts FORCE INDEX (idx_status_terms)
		WHERE status=? AND terms_version<?
		ORDER BY status, terms_version, id
		LIMIT ?`
	var ids []int64
	err := s.db.WithContext(ctx).Raw(query, StatusNormal, search.Version, limit).Scan(&ids).Error
	if err != nil {
		return 0, fmt.Errorf("find posts to index: %w", err)
	}
	for _, id := range ids {
		if err := s.indexPost(ctx, id); err != nil {
			return 0, err
		}
	}
	return len(ids), nil
}

func (s *Store) indexPost(ctx context.Context, id int64) error {
	return s.transact(ctx, func(tx *gorm.DB) error {
		var text struct{ Title, Content string }
		read := tx.Raw(`
			SELECT title, content
			FROM posts FORCE INDEX (PRIMARY)
			WHERE id=? AND status=? AND terms_version<?
			FOR UPDATE`, id, StatusNormal, search.Version).Scan(&text)
		if read.Error != nil || read.RowsAffected == 0 {
			return read.Error // without a row, another process has indexed the post
		}
		if err := deleteTerms(tx, id); err != nil {
			return err
		}
		if err := writeTerms(tx, id, search.Weights(text.Title, text.Content)); err != nil {
			return err
		}
		return tx.Exec(`
			UPDATE posts
			SET terms_version=?, updated_at=updated_at
			WHERE id=?`, search.Version, id).Error
	})
}
