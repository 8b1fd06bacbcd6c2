package content

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"likewise/models"
	"likewise/models/db"
)

// TagNames is the column with the tags of the post p, as Tags scans it.
const TagNames = `(
		SELECT GROUP_CONCAT(t.name ORDER BY g.position SEPARATOR ' ')
		FROM post_tags g
		JOIN tags t ON t.id=g.tag_id
		WHERE g.post_id=p.id
	)`

// tagIDs returns the ids of tags and creates those that are new.
//
// It runs before the transaction that uses the ids, each statement by itself. So nobody who uses the same new tag waits
// for that transaction. If the transaction fails, a tag without posts remains, which no list shows.
func (s *Store) tagIDs(ctx context.Context, names models.Tags) (map[string]int64, error) {
	ids := make(map[string]int64, len(names))
	if len(names) == 0 {
		return ids, nil
	}
	if err := s.readTagIDs(ctx, names, ids); err != nil || len(ids) == len(names) {
		return ids, err
	}
	const insert = `
		INSERT INTO tags (name, created_at)
		VALUES (?, ?)
		ON DUPLICATE KEY UPDATE id=id`
	for _, name := range slices.Sorted(slices.Values(names)) {
		if _, known := ids[name]; known {
			continue
		}
		if _, err := s.Write(db.Aside(ctx), insert, name, models.WholeSeconds(s.Now())); err != nil {
			return nil, fmt.Errorf("create tag: %w", err)
		}
	}
	if err := s.readTagIDs(ctx, names, ids); err != nil {
		return nil, err
	}
	if len(ids) != len(names) {
		return nil, fmt.Errorf("%d of %d tags are missing although they were created", len(names)-len(ids), len(names))
	}
	return ids, nil
}

// readTagIDs adds the ids of those tags that exist.
func (s *Store) readTagIDs(ctx context.Context, names models.Tags, ids map[string]int64) error {
	const query = `
		SELECT id, name
		FROM tags
		WHERE name IN ?`
	var rows []struct {
		ID   int64
		Name string
	}
	if err := s.Read(ctx).Raw(query, []string(names)).Scan(&rows).Error; err != nil {
		return fmt.Errorf("read tags: %w", err)
	}
	for _, r := range rows {
		ids[r.Name] = r.ID
	}
	return nil
}

// insertTags writes the tags of a post that has none. The caller has written the post, and counts the tags.
func insertTags(tx *db.Tx, postID int64, createdAt time.Time, tags models.Tags, ids map[string]int64) error {
	if len(tags) == 0 {
		return nil
	}
	var values []string
	var args []any
	for i, name := range tags {
		values = append(values, fmt.Sprintf("(%d,%d,%d,?)", postID, ids[name], i))
		args = append(args, createdAt)
	}
	insert := `
		INSERT INTO post_tags (post_id, tag_id, position, created_at)
		VALUES ` + strings.Join(values, ",")
	if err := tx.Exec(insert, args...).Error; err != nil {
		return fmt.Errorf("tag post %d: %w", postID, err)
	}
	return SyncTags(tx, postID)
}

// SyncTags copies the columns that lists of a tag are ordered and filtered by from posts to their rows of post_tags.
// Every transaction that changes one of these columns calls it. The caller has locked the rows of the posts.
func SyncTags(tx *db.Tx, posts ...int64) error {
	if len(posts) == 0 {
		return nil
	}
	update := `
		UPDATE post_tags g
		JOIN posts p ON p.id=g.post_id
		SET g.status=p.status, g.user_id=p.user_id, g.created_at=p.created_at,
			g.likes_count=p.likes_count, g.hot_score=p.hot_score, g.active_at=p.active_at
		WHERE g.post_id IN (` + db.JoinIDs(posts) + `)`
	if err := tx.Exec(update).Error; err != nil {
		return fmt.Errorf("update tags of posts: %w", err)
	}
	return nil
}

// StaleTags is the column with the number of rows of post_tags that differ from their post t.
const StaleTags = `(
		SELECT COUNT(*)
		FROM post_tags g
		WHERE g.post_id=t.id AND (
			g.status<>t.status OR g.user_id<>t.user_id OR g.created_at<>t.created_at OR
			g.likes_count<>t.likes_count OR g.hot_score<>t.hot_score OR g.active_at<>t.active_at
		)
	)`

// MoveTags hides or shows the tags of posts as the posts are, and counts them.
func MoveTags(tx *db.Tx, posts ...int64) error {
	query := `
		SELECT g.tag_id, p.status=? AS shown
		FROM post_tags g
		JOIN posts p ON p.id=g.post_id
		WHERE g.post_id IN (` + db.JoinIDs(posts) + `) AND g.status<>p.status`
	var changes []struct {
		TagID int64
		Shown bool
	}
	if err := tx.Raw(query, models.StatusNormal).Scan(&changes).Error; err != nil {
		return fmt.Errorf("read tags of posts: %w", err)
	}
	for _, c := range changes {
		if c.Shown {
			tx.CountTag(c.TagID, 1)
		} else {
			tx.CountTag(c.TagID, -1)
		}
	}
	return SyncTags(tx, posts...)
}

// ListTags lists tags that some post has. A list by name passes over tags that no post has, and a list by popularity
// over tags with another prefix. If that makes the page short, rest is the place where the list continues; nil at its
// end.
//
// A list by popularity with a prefix sorts all tags with the prefix if these are few. Otherwise it walks the index of
// all tags by popularity.
func (s *Store) ListTags(ctx context.Context, q models.TagQuery) (tags []models.Tag, rest *models.ListKey, err error) {
	read := s.popularTags
	if q.Sort == models.TagsName {
		read = func(ctx context.Context, after *models.ListKey, limit int) ([]models.Tag, error) {
			return s.tagsByName(ctx, q.Prefix, after, limit)
		}
	} else if q.Prefix != "" {
		few, err := s.fewTags(ctx, q.Prefix)
		if err != nil {
			return nil, nil, err
		}
		if few {
			tags, err := s.tagsOf(ctx, q)
			return tags, nil, err
		}
	}
	for entries, budget := q.Limit, db.MaxPassed; budget > 0; entries *= 4 {
		entries = min(entries, budget)
		budget -= entries
		segment, err := read(ctx, q.After, entries)
		if err != nil {
			return nil, nil, err
		}
		for _, t := range segment {
			if t.PostsCount > 0 && strings.HasPrefix(t.Name, q.Prefix) {
				if tags = append(tags, t); len(tags) == q.Limit {
					return tags, nil, nil
				}
			}
		}
		if len(segment) < entries {
			return tags, nil, nil
		}
		key := segment[len(segment)-1].Key(q.Sort)
		q.After = &key
	}
	return tags, q.After, nil
}

// tagsByName reads tags in the order of their names, including those that no post has.
func (s *Store) tagsByName(ctx context.Context, prefix string, after *models.ListKey, limit int) ([]models.Tag, error) {
	where := db.Matching("t.name LIKE ?", prefix+"%") // a valid tag has no wildcard
	if after != nil {
		where.Add("t.name>(SELECT a.name FROM tags a WHERE a.id=?)", after.ID)
	}
	return s.readTags(ctx, `
		SELECT t.id, t.name, t.posts_count
		FROM tags t FORCE INDEX (idx_name)
		`+where.Clause()+`
		ORDER BY t.name
		LIMIT ?`, append(where.Args, limit)...)
}

// popularTags reads tags that some post has, most posts first.
func (s *Store) popularTags(ctx context.Context, after *models.ListKey, limit int) ([]models.Tag, error) {
	where := db.Matching("t.posts_count>0")
	if key, keys := db.KeyRange("t.posts_count", "?", "t.id", after, nil); key != "" {
		where.Add(key, keys...)
	}
	return s.readTags(ctx, `
		SELECT t.id, t.name, t.posts_count
		FROM tags t FORCE INDEX (idx_posts_count)
		`+where.Clause()+`
		ORDER BY t.posts_count DESC, t.id DESC
		LIMIT ?`, append(where.Args, limit)...)
}

// fewTags reports whether all tags with a prefix are few enough to be sorted for a page.
func (s *Store) fewTags(ctx context.Context, prefix string) (bool, error) {
	const query = `
		SELECT COUNT(*)
		FROM (SELECT 1 FROM tags FORCE INDEX (idx_name) WHERE name LIKE ? LIMIT ?) n`
	var n int
	if err := s.Read(ctx).Raw(query, prefix+"%", db.MaxPassed+1).Scan(&n).Error; err != nil {
		return false, fmt.Errorf("count tags: %w", err)
	}
	return n <= db.MaxPassed, nil
}

// tagsOf sorts all tags with a prefix, most posts first.
func (s *Store) tagsOf(ctx context.Context, q models.TagQuery) ([]models.Tag, error) {
	where := db.Matching("t.name LIKE ? AND t.posts_count>0", q.Prefix+"%")
	if key, keys := db.KeyRange("t.posts_count", "?", "t.id", q.After, nil); key != "" {
		where.Add(key, keys...)
	}
	return s.readTags(ctx, `
		SELECT t.id, t.name, t.posts_count
		FROM tags t FORCE INDEX (idx_name)
		`+where.Clause()+`
		ORDER BY t.posts_count DESC, t.id DESC
		LIMIT ?`, append(where.Args, q.Limit)...)
}

func (s *Store) readTags(ctx context.Context, query string, args ...any) (tags []models.Tag, err error) {
	if err := s.Read(ctx).Raw(query, args...).Scan(&tags).Error; err != nil {
		return nil, fmt.Errorf("list tags: %w", err)
	}
	return tags, nil
}
