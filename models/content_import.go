package models

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"
)

// What an import writes is recorded in the imports table in the transaction that writes it, under (source, kind,
// external id). A source is at most 100 characters and a kind at most 20, both compared without regard to case.

// ImportedUser is an account from elsewhere. It has no password, so nobody can log in to it.
type ImportedUser struct {
	ExternalID int64
	Usernames  []string // in order of preference: the first that nobody has is taken
	Email      string   // ends in NoEmailDomain
	CreatedAt  time.Time
}

// ImportedPost is a post from elsewhere.
type ImportedPost struct {
	ExternalID int64
	AuthorID   int64
	Text       PostText
	CreatedAt  time.Time
	UpdatedAt  time.Time // the last edit; CreatedAt when there was none
}

// ImportedComment is a comment or reply from elsewhere. Its parent is imported already.
type ImportedComment struct {
	ExternalID int64
	PostID     int64
	ParentID   int64 // 0 at the top level
	AuthorID   int64
	Text       CommentText
	CreatedAt  time.Time
	UpdatedAt  time.Time
}

// Imported gives the id here of everything of one kind that was imported from source, by external id.
func (s *Store) Imported(ctx context.Context, source, kind string) (map[int64]int64, error) {
	rows, err := s.guarded.QueryContext(ctx, "SELECT external_id, local_id FROM imports WHERE source=? AND kind=?", source, kind)
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

// MarkImported records what has no row of its own, such as "the likes of this post". Marking twice is no error.
func (s *Store) MarkImported(ctx context.Context, source, kind string, externalID, localID int64) error {
	_, err := s.write(ctx, "INSERT INTO imports (source, kind, external_id, local_id) VALUES (?,?,?,?)"+
		" ON DUPLICATE KEY UPDATE local_id=local_id", source, kind, externalID, localID)
	if err != nil {
		return fmt.Errorf("mark %s %d as imported: %w", kind, externalID, err)
	}
	return nil
}

// ImportUsers writes accounts in their order and gives their ids. CodeConflict: one of them was imported meanwhile, or
// all its usernames or its address are taken; nothing is written then.
func (s *Store) ImportUsers(ctx context.Context, source, kind string, users []ImportedUser) ([]int64, error) {
	return s.importBatch(ctx, source, kind, len(users), func(tx *gorm.DB, record func(externalID, id int64)) error {
		for _, u := range users {
			id, err := s.importUser(tx, u)
			if err != nil {
				return err
			}
			record(u.ExternalID, id)
		}
		return nil
	})
}

// importUser leaves it to the unique key which names are the same, because only the server knows its collation. The
// server undoes a refused INSERT alone, not the transaction.
func (s *Store) importUser(tx *gorm.DB, u ImportedUser) (int64, error) {
	at := second(u.CreatedAt)
	for _, name := range u.Usernames {
		id, err := s.insert(tx, "INSERT INTO users (username, email, password_hash, created_at, updated_at) VALUES (?,?,'',?,?)",
			name, u.Email, at, at)
		if mysqlCode(err) != errDuplicateKey {
			return id, err
		}
	}
	return 0, Errorf(CodeConflict, "User %d can have none of the names %s with the address %s: they are taken.",
		u.ExternalID, strings.Join(u.Usernames, ", "), u.Email)
}

// ImportPosts writes posts in their order and gives their ids. CodeConflict: one of them was imported meanwhile;
// nothing is written then.
func (s *Store) ImportPosts(ctx context.Context, source, kind string, posts []ImportedPost) ([]int64, error) {
	var names Tags
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
	return s.importBatch(ctx, source, kind, len(posts), func(tx *gorm.DB, record func(externalID, id int64)) error {
		delta := map[int64]int{}
		for _, p := range posts {
			id, err := s.insertPost(tx, p.AuthorID, p.Text, second(p.CreatedAt), second(p.UpdatedAt), tags, termWeights(p.Text))
			if err != nil {
				return err
			}
			for _, name := range p.Text.Tags {
				delta[tags[name]]++
			}
			record(p.ExternalID, id)
		}
		return countTags(tx, delta)
	})
}

// ImportComments writes comments in their order, counts them on their posts and parents, and gives their ids: 0 for
// one whose post or parent is deleted, which is not written. A reply to a comment at MaxDepth is written beside that
// comment. CodeConflict: one of them was imported meanwhile; nothing is written then.
func (s *Store) ImportComments(ctx context.Context, source, kind string, comments []ImportedComment) ([]int64, error) {
	return s.importBatch(ctx, source, kind, len(comments), func(tx *gorm.DB, record func(externalID, id int64)) error {
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
		places, err := importPlaces(tx, parentIDs)
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
			place := importPlace{Depth: 1}
			if c.ParentID != 0 {
				place = places[c.ParentID]
			}
			if !posts[c.PostID] || c.ParentID != 0 && !parents[place.ParentID] {
				record(c.ExternalID, 0)
				continue
			}
			var parent *int64
			if c.ParentID != 0 {
				parent = &place.ParentID
				replies[place.ParentID]++
			}
			added[c.PostID]++
			at := second(c.CreatedAt)
			if at.After(latest[c.PostID]) {
				latest[c.PostID] = at
			}
			id, err := s.insert(tx, "INSERT INTO comments (post_id, user_id, parent_id, depth, content, created_at, updated_at) VALUES (?,?,?,?,?,?,?)",
				c.PostID, c.AuthorID, parent, place.Depth, c.Text.Content, at, second(c.UpdatedAt))
			if err != nil {
				return err
			}
			record(c.ExternalID, id)
		}
		for id, n := range added {
			if err := tx.Exec("UPDATE posts SET comments_count=comments_count+?, active_at=GREATEST(active_at,?), updated_at=updated_at WHERE id=?",
				n, latest[id], id).Error; err != nil {
				return err
			}
		}
		if err := syncTags(tx, slices.Collect(maps.Keys(added))...); err != nil {
			return err
		}
		for id, n := range replies {
			if err := tx.Exec("UPDATE comments SET replies_count=replies_count+?, updated_at=updated_at WHERE id=?", n, id).Error; err != nil {
				return err
			}
		}
		return nil
	})
}

// importPlace is where a reply is written, and how deep that is.
type importPlace struct {
	ParentID int64
	Depth    int
}

// importPlaces gives the places of replies to each of parents. Neither a comment's parent nor its depth ever changes,
// so nothing needs a lock.
func importPlaces(tx *gorm.DB, parents []int64) (map[int64]importPlace, error) {
	if len(parents) == 0 {
		return nil, nil
	}
	var found []struct {
		ID, ParentID int64
		Depth        int
	}
	err := tx.Raw("SELECT id, COALESCE(parent_id,0) AS parent_id, depth FROM comments WHERE id IN (" + joinIDs(parents) + ")").Scan(&found).Error
	if err != nil {
		return nil, err
	}
	places := make(map[int64]importPlace, len(found))
	for _, c := range found {
		places[c.ID] = importPlace{c.ID, c.Depth + 1}
		if c.Depth >= MaxDepth {
			places[c.ID] = importPlace{c.ParentID, c.Depth}
		}
	}
	return places, nil
}

// lockOpen locks the rows of table among ids that are not deleted, and tells which those are.
func lockOpen(tx *gorm.DB, table string, ids []int64) (map[int64]bool, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	slices.Sort(ids)
	var found []int64
	err := tx.Raw("SELECT id FROM " + table + " FORCE INDEX (PRIMARY) WHERE id IN (" + joinIDs(slices.Compact(ids)) + ") AND status=1 ORDER BY id FOR UPDATE").Scan(&found).Error
	if err != nil {
		return nil, err
	}
	open := make(map[int64]bool, len(found))
	for _, id := range found {
		open[id] = true
	}
	return open, nil
}

// importBatch runs write and records in the imports table, in the same transaction, each thing that write made. It
// gives the n ids in the order in which write recorded them; what has id 0 was not made.
func (s *Store) importBatch(ctx context.Context, source, kind string, n int,
	write func(tx *gorm.DB, record func(externalID, id int64)) error) ([]int64, error) {
	if n == 0 {
		return nil, nil
	}
	ids := make([]int64, 0, n)
	err := s.transact(ctx, func(tx *gorm.DB) error {
		ids = ids[:0] // the transaction may run again
		var values []string
		var args []any
		err := write(tx, func(externalID, id int64) {
			ids = append(ids, id)
			if id != 0 {
				values = append(values, "(?,?,?,?)")
				args = append(args, source, kind, externalID, id)
			}
		})
		if err != nil || len(values) == 0 {
			return err
		}
		err = tx.Exec("INSERT INTO imports (source, kind, external_id, local_id) VALUES "+strings.Join(values, ","), args...).Error
		if mysqlCode(err) == errDuplicateKey {
			return &Error{Code: CodeConflict, Message: "Another import of the same source is running.", Err: err}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("import %s: %w", kind, err)
	}
	return ids, nil
}
