package content

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"likewise/models"
	"likewise/models/db"
)

// NewsItems is how many of the latest comments or posts are read of a thread, a tag or the site.
const NewsItems = 20

// ThreadVersions returns the versions of those posts that are not deleted, by id. It reads two index entries of each.
// MySQL would sort all entries of a post without post_id in the orders.
func (s *Store) ThreadVersions(ctx context.Context, posts []int64) (map[int64]models.NewsVersion, error) {
	return s.newsVersions(ctx, `
		SELECT p.id, p.comments_count AS count,
			COALESCE((
				SELECT c.id
				FROM comments c FORCE INDEX (idx_post_id)
				WHERE c.post_id=p.id
				ORDER BY c.post_id DESC, c.id DESC
				LIMIT 1), 0) AS latest,
			COALESCE((
				SELECT d.id
				FROM drops d FORCE INDEX (idx_post_id)
				WHERE d.post_id=p.id
				ORDER BY d.post_id DESC, d.id DESC
				LIMIT 1), 0) AS latest_drop
		FROM posts p FORCE INDEX (PRIMARY)
		WHERE p.status=`+db.SQLNormal+` AND p.id IN (`+db.JoinIDs(posts)+`)`)
}

// TagVersions returns the versions of tags, by id. It reads an index entry of each.
func (s *Store) TagVersions(ctx context.Context, tags []int64) (map[int64]models.NewsVersion, error) {
	return s.newsVersions(ctx, `
		SELECT t.id, t.name, t.posts_count AS count,
			COALESCE((
				SELECT g.post_id
				FROM post_tags g FORCE INDEX (idx_tag_status_created)
				WHERE g.tag_id=t.id AND g.status=`+db.SQLNormal+`
				ORDER BY g.tag_id DESC, g.status DESC, g.created_at DESC, g.post_id DESC
				LIMIT 1), 0) AS latest
		FROM tags t FORCE INDEX (PRIMARY)
		WHERE t.id IN (`+db.JoinIDs(tags)+`)`)
}

func (s *Store) newsVersions(ctx context.Context, query string) (map[int64]models.NewsVersion, error) {
	var rows []struct {
		ID      int64
		Version models.NewsVersion `gorm:"embedded"`
	}
	if err := s.Read(ctx).Raw(query).Scan(&rows).Error; err != nil {
		return nil, fmt.Errorf("look for news: %w", err)
	}
	versions := make(map[int64]models.NewsVersion, len(rows))
	for _, row := range rows {
		versions[row.ID] = row.Version
	}
	return versions, nil
}

// CommentNews returns the latest NewsItems comments on each of the posts that are not deleted, latest first.
func (s *Store) CommentNews(ctx context.Context, posts []int64) (map[int64][]models.NewsItem, error) {
	return s.latest(ctx, posts, `
		SELECT c.post_id AS of_id, c.id, c.user_id
		FROM comments c FORCE INDEX (idx_post_id)
		WHERE c.post_id=%d AND c.status=`+db.SQLNormal+`
		ORDER BY c.post_id DESC, c.id DESC`)
}

// TagNews returns the latest NewsItems posts of each of the tags that are not deleted, latest first.
func (s *Store) TagNews(ctx context.Context, tags []int64) (map[int64][]models.NewsItem, error) {
	return s.latest(ctx, tags, `
		SELECT g.tag_id AS of_id, g.post_id AS id, g.user_id
		FROM post_tags g FORCE INDEX (idx_tag_status_created)
		WHERE g.tag_id=%d AND g.status=`+db.SQLNormal+`
		ORDER BY g.tag_id DESC, g.status DESC, g.created_at DESC, g.post_id DESC`)
}

// PostNews returns the latest NewsItems posts of the site that are not deleted, latest first.
func (s *Store) PostNews(ctx context.Context) ([]models.NewsItem, error) {
	found, err := s.latest(ctx, []int64{0}, `
		SELECT %d AS of_id, p.id, p.user_id
		FROM posts p FORCE INDEX (idx_status_created)
		WHERE p.status=`+db.SQLNormal+`
		ORDER BY p.status DESC, p.created_at DESC, p.id DESC`)
	return found[0], err
}

// latest runs a query for each id, all in one statement.
func (s *Store) latest(ctx context.Context, ids []int64, query string) (map[int64][]models.NewsItem, error) {
	latest := make(map[int64][]models.NewsItem, len(ids))
	parts := make([]string, len(ids))
	for i, id := range ids {
		parts[i] = fmt.Sprintf("("+query+" LIMIT %d)", id, NewsItems)
	}
	var rows []struct {
		OfID int64
		Item models.NewsItem `gorm:"embedded"`
	}
	if len(ids) == 0 {
		return latest, nil
	}
	if err := s.Read(ctx).Raw(strings.Join(parts, " UNION ALL ")).Scan(&rows).Error; err != nil {
		return nil, fmt.Errorf("read the latest comments or posts of %d: %w", len(ids), err)
	}
	for _, row := range rows {
		latest[row.OfID] = append(latest[row.OfID], row.Item)
	}
	return latest, nil
}

// DropsByPost returns the ids of the drops of posts, in ascending order.
func (s *Store) DropsByPost(ctx context.Context, posts []int64) (map[int64][]int64, error) {
	drops := map[int64][]int64{}
	if len(posts) == 0 {
		return drops, nil
	}
	query := `
		SELECT d.id, d.post_id
		FROM drops d FORCE INDEX (idx_post_id)
		WHERE d.post_id IN (` + db.JoinIDs(posts) + `)
		ORDER BY d.post_id, d.id`
	var rows []struct{ ID, PostID int64 }
	if err := s.Read(ctx).Raw(query).Scan(&rows).Error; err != nil {
		return nil, fmt.Errorf("read drops of %d posts: %w", len(posts), err)
	}
	for _, row := range rows {
		drops[row.PostID] = append(drops[row.PostID], row.ID)
	}
	return drops, nil
}

// TagIDs returns the ids of those tags that exist, in ascending order. The names are in normal form.
func (s *Store) TagIDs(ctx context.Context, names []string) ([]int64, error) {
	const query = `
		SELECT id
		FROM tags
		WHERE name IN ?`
	var ids []int64
	if err := s.Read(ctx).Raw(query, names).Scan(&ids).Error; err != nil {
		return nil, fmt.Errorf("look up %d tags: %w", len(names), err)
	}
	slices.Sort(ids)
	return ids, nil
}
