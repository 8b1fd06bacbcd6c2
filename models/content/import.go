package content

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/db"
	"likewise/models/search"
)

// Imported returns the local ids of all rows of one kind that were imported from source, by external id.
func (s *Store) Imported(ctx context.Context, source, kind string) (map[int64]int64, error) {
	const query = `
		SELECT external_id, local_id
		FROM imports
		WHERE source=? AND kind=?`
	rows, err := s.Read(ctx).Raw(query, source, kind).Rows()
	if err != nil {
		return nil, fmt.Errorf("read imports: %w", err)
	}
	defer rows.Close()
	ids := map[int64]int64{}
	for rows.Next() {
		var external, local int64
		if err := rows.Scan(&external, &local); err != nil {
			return nil, fmt.Errorf("read imports: %w", err)
		}
		ids[external] = local
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read imports: %w", err)
	}
	return ids, nil
}

// ImportSources compares accounts of a forum, times of their creation by ids there, with the imports whose source
// begins with prefix. It returns those that know any of them.
func (s *Store) ImportSources(
	ctx context.Context, prefix, kind string, accounts map[int64]time.Time,
) ([]models.ImportSource, error) {
	const list = `
		SELECT DISTINCT source
		FROM imports
		WHERE source LIKE CONCAT(?, '%')
		ORDER BY source`
	if len(accounts) == 0 {
		return nil, nil
	}
	var names []string
	if err := s.Read(ctx).Raw(list, prefix).Scan(&names).Error; err != nil {
		return nil, fmt.Errorf("list imports: %w", err)
	}
	find := `
		SELECT i.external_id, u.created_at
		FROM imports i
		JOIN users u ON u.id=i.local_id
		WHERE i.source=? AND i.kind=? AND i.external_id IN (` + db.JoinIDs(slices.Collect(maps.Keys(accounts))) + `)`
	var sources []models.ImportSource
	for _, name := range names {
		var found []struct {
			ExternalID int64
			CreatedAt  time.Time
		}
		if err := s.Read(ctx).Raw(find, name, kind).Scan(&found).Error; err != nil {
			return nil, fmt.Errorf("compare with import %s: %w", name, err)
		}
		source := models.ImportSource{Name: name, Known: len(found)}
		for _, f := range found {
			if f.CreatedAt.Equal(models.WholeSeconds(accounts[f.ExternalID])) {
				source.Same++
			}
		}
		if source.Known > 0 {
			sources = append(sources, source)
		}
	}
	return sources, nil
}

// RecordImported records the import of something without a row of its own, such as the likes of a post. Marking it
// again changes nothing.
func (s *Store) RecordImported(ctx context.Context, source, kind string, externalID, localID int64) error {
	const insert = `
		INSERT INTO imports (source, kind, external_id, local_id)
		VALUES (?, ?, ?, ?)
		ON DUPLICATE KEY UPDATE local_id=local_id`
	if _, err := s.Write(ctx, insert, source, kind, externalID, localID); err != nil {
		return fmt.Errorf("mark %s %d as imported: %w", kind, externalID, err)
	}
	return nil
}

// ImportUsers writes accounts in their order and returns their ids. If one of them was imported meanwhile, or its
// address or all of its usernames are taken, ImportUsers writes nothing and returns CodeConflict.
func (s *Store) ImportUsers(ctx context.Context, source, kind string, users []models.ImportedUser) ([]int64, error) {
	return s.importBatch(ctx, source, kind, len(users), func(tx *db.Tx, record func(externalID, id int64)) error {
		for _, u := range users {
			id, err := importUser(tx, u)
			if err != nil {
				return err
			}
			record(u.ExternalID, id)
		}
		return nil
	})
}

// importUser tries the usernames one after the other. Only the unique key decides which names are equal, because the
// server has the collation. A duplicate key undoes the INSERT, not the transaction.
func importUser(tx *db.Tx, u models.ImportedUser) (int64, error) {
	const insert = `
		INSERT INTO users (username, email, password_hash, display_name, bio, avatar_url, created_at, updated_at)
		VALUES (?, ?, '', NULLIF(?,''), ?, NULLIF(?,''), ?, ?)`
	at := models.WholeSeconds(u.CreatedAt)
	for _, name := range u.Usernames {
		if err := accounts.NotFormer(tx, 0, name); models.ErrorCode(err) == models.CodeConflict {
			continue
		} else if err != nil {
			return 0, err
		}
		id, err := tx.Insert(insert, name, u.Email, u.Profile.DisplayName, u.Profile.Bio, u.Profile.AvatarURL, at, at)
		if models.MySQLCode(err) != db.DuplicateKey {
			return id, err
		}
	}
	return 0, models.Errorf(models.CodeConflict,
		"User %d can have none of the names %s with the address %s: they are taken.",
		u.ExternalID, strings.Join(u.Usernames, ", "), u.Email)
}

// ImportPosts writes posts in their order and returns their ids. If one of them was imported meanwhile, ImportPosts
// writes nothing and returns CodeConflict.
func (s *Store) ImportPosts(ctx context.Context, source, kind string, posts []models.ImportedPost) ([]int64, error) {
	var names models.Tags
	for _, p := range posts {
		for _, name := range p.Text.Tags {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	tags, err := s.tagIDs(ctx, names)
	if err != nil {
		return nil, fmt.Errorf("import %s: %w", kind, err)
	}
	return s.importBatch(ctx, source, kind, len(posts), func(tx *db.Tx, record func(externalID, id int64)) error {
		for _, p := range posts {
			post := newPost{p.AuthorID, p.Text, models.WholeSeconds(p.CreatedAt), models.WholeSeconds(p.UpdatedAt)}
			id, err := insertPost(tx, post, tags, derive(p.Text, s.Excerpt(p.Text.Content)))
			if err != nil {
				return err
			}
			record(p.ExternalID, id)
		}
		return nil
	})
}

// ImportComments writes comments in their order, counts them on their posts and parents, and returns their ids: 0 for a
// comment whose post or parent is deleted, which is not written. A reply to a comment at MaxDepth is written as a
// sibling of that comment. If one of the comments was imported meanwhile, ImportComments writes nothing and returns
// CodeConflict.
func (s *Store) ImportComments(
	ctx context.Context, source, kind string, comments []models.ImportedComment,
) ([]int64, error) {
	importAll := func(tx *db.Tx, record func(externalID, id int64)) error {
		return importComments(tx, comments, record)
	}
	return s.importBatch(ctx, source, kind, len(comments), importAll)
}

func importComments(tx *db.Tx, comments []models.ImportedComment, record func(externalID, id int64)) error {
	var postIDs, parentIDs []int64
	for _, c := range comments {
		postIDs = append(postIDs, c.PostID)
		if c.ParentID != 0 {
			parentIDs = append(parentIDs, c.ParentID)
		}
	}
	posts, err := lockOpen(tx, "posts", postIDs)
	if err != nil {
		return err
	}
	places, err := importParents(tx, parentIDs)
	if err != nil {
		return err
	}
	parentIDs = parentIDs[:0]
	for _, place := range places {
		parentIDs = append(parentIDs, place.ParentID)
	}
	parents, err := lockOpen(tx, "comments", parentIDs)
	if err != nil {
		return err
	}
	latest, added, replies := map[int64]time.Time{}, map[int64]int{}, map[int64]int{}
	for _, c := range comments {
		place := importParent{Depth: 1}
		if c.ParentID != 0 {
			place = places[c.ParentID]
		}
		if !posts[c.PostID] || c.ParentID != 0 && !parents[place.ParentID] {
			record(c.ExternalID, 0)
			continue
		}
		comment := models.Comment{
			PostID: c.PostID, Author: models.Author{ID: c.AuthorID}, Depth: place.Depth, Content: c.Text.Content,
			CreatedAt: models.WholeSeconds(c.CreatedAt), UpdatedAt: models.WholeSeconds(c.UpdatedAt),
		}
		if c.ParentID != 0 {
			comment.ParentID = &place.ParentID
			replies[place.ParentID]++
		}
		added[c.PostID]++
		if comment.CreatedAt.After(latest[c.PostID]) {
			latest[c.PostID] = comment.CreatedAt
		}
		id, err := insertComment(tx, &comment, search.Weights("", comment.Content))
		if err != nil {
			return err
		}
		record(c.ExternalID, id)
	}
	return countImported(tx, latest, added, replies)
}

// countImported counts imported comments on their posts and their parents. latest are the times of the latest comments.
func countImported(tx *db.Tx, latest map[int64]time.Time, added, replies map[int64]int) error {
	const countOnPost = `
		UPDATE posts
		SET comments_count=comments_count+?, active_at=GREATEST(active_at,?), updated_at=updated_at
		WHERE id=?`
	for id, n := range added {
		if err := tx.Exec(countOnPost, n, latest[id], id).Error; err != nil {
			return err
		}
	}
	if err := SyncTags(tx, slices.Collect(maps.Keys(added))...); err != nil {
		return err
	}
	const countOnParent = `
		UPDATE comments
		SET replies_count=replies_count+?, updated_at=updated_at
		WHERE id=?`
	for id, n := range replies {
		if err := tx.Exec(countOnParent, n, id).Error; err != nil {
			return err
		}
	}
	return nil
}

// importParent is the place of a reply: its parent and its depth.
type importParent struct {
	ParentID int64
	Depth    int
}

// importParents returns the places of replies to each of parents. Neither the parent nor the depth of a comment ever
// changes, so importParents locks nothing.
func importParents(tx *db.Tx, parents []int64) (map[int64]importParent, error) {
	if len(parents) == 0 {
		return nil, nil
	}
	var found []struct {
		ID, ParentID int64
		Depth        int
	}
	query := `
		SELECT id, COALESCE(parent_id, 0) AS parent_id, depth
		FROM comments
		WHERE id IN (` + db.JoinIDs(parents) + `)`
	if err := tx.Raw(query).Scan(&found).Error; err != nil {
		return nil, err
	}
	places := make(map[int64]importParent, len(found))
	for _, c := range found {
		places[c.ID] = importParent{c.ID, c.Depth + 1}
		if c.Depth >= models.MaxDepth {
			places[c.ID] = importParent{c.ParentID, c.Depth}
		}
	}
	return places, nil
}

// lockOpen locks those rows of table among ids that are not deleted, and returns the set of their ids.
func lockOpen(tx *db.Tx, table string, ids []int64) (map[int64]bool, error) {
	found, err := lockThose(tx, table, ids, models.StatusNormal)
	open := make(map[int64]bool, len(found))
	for _, id := range found {
		open[id] = true
	}
	return open, err
}

// importBatch runs write and stores each recorded id in the table imports, in the same transaction. It returns the n
// ids in the order in which write recorded them. An id of 0 means that nothing was written.
func (s *Store) importBatch(ctx context.Context, source, kind string, n int,
	write func(tx *db.Tx, record func(externalID, id int64)) error,
) ([]int64, error) {
	if n == 0 {
		return nil, nil
	}
	ids := make([]int64, 0, n)
	err := s.Transact(ctx, func(tx *db.Tx) error {
		ids = ids[:0] // the transaction may run again
		var values []string
		var args []any
		err := write(tx, func(externalID, id int64) {
			ids = append(ids, id)
			if id != 0 {
				values = append(values, "(?, ?, ?, ?)")
				args = append(args, source, kind, externalID, id)
			}
		})
		if err != nil || len(values) == 0 {
			return err
		}
		insert := `
			INSERT INTO imports (source, kind, external_id, local_id)
			VALUES ` + strings.Join(values, ", ")
		err = tx.Exec(insert, args...).Error
		if models.MySQLCode(err) == db.DuplicateKey {
			return &models.Error{Code: models.CodeConflict, Message: "Another import of the same source is running.",
				Err: err}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("import %s: %w", kind, err)
	}
	return ids, nil
}
