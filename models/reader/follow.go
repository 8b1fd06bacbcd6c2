package reader

import (
	"context"
	"fmt"
	"strings"

	"likewise/models"
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/people"
)

// Feed lists the posts of the users whom the user follows, latest first: at most limit after the key (nil for the first
// page). It takes three queries. It skips nothing: deleted posts are apart in the index, and a block ends follows.
//
// Its cost depends neither on the number of posts nor on how far back the page is. The newest n posts after the key are
// by n authors at most. Those are the n authors whose own newest post after the key is newest: for every other author,
// n posts of others are newer. So one query finds the newest post of each followed user, in three steps in an index
// each, and another reads n entries of the index for each of n authors.
func (s *Store) Feed(
	ctx context.Context, userID int64, after *models.ListKey, limit int,
) ([]models.Post, error) {
	for try := 1; ; try++ {
		authors, err := people.New(s.DB).FeedAuthors(ctx, userID, after, limit)
		if err != nil || len(authors) == 0 {
			return nil, err
		}
		posts, left, err := s.newestOf(ctx, userID, authors, after, limit)
		// A full set of authors makes a full page, unless some of their posts were deleted in between.
		if err != nil || left < 0 || len(posts) == limit || len(authors) < limit || try == people.FeedTries {
			return posts, err
		}
	}
}

// newestOf reads the newest posts after the key of these authors, up to PageBytes of content.
func (s *Store) newestOf(
	ctx context.Context, viewer int64, authors []int64, after *models.ListKey, limit int,
) (posts []models.Post, left int, err error) {
	parts := make([]string, len(authors))
	args := []any{viewer}
	for i, author := range authors {
		where := db.Matching("p.user_id=? AND p.status=?", author, models.StatusNormal)
		if after != nil {
			where.Add("p.created_at<=FROM_UNIXTIME(?)", after.Value)
			where.Add("(p.created_at<FROM_UNIXTIME(?) OR p.id<?)", after.Value, after.ID)
		}
		parts[i] = `(
				SELECT p.id, p.created_at
				FROM posts p FORCE INDEX (idx_user_status_created)
				` + where.Clause() + `
				ORDER BY p.created_at DESC, p.id DESC
				LIMIT ?)`
		args = append(append(args, where.Args...), limit)
	}
	query := `
		SELECT ` + content.ViewSummary.Columns() + `
		FROM (
			SELECT n.id
			FROM (` + strings.Join(parts, " UNION ALL ") + `) n
			ORDER BY n.created_at DESC, n.id DESC
			LIMIT ?) k
		JOIN posts p ON p.id=k.id
		JOIN users u ON u.id=p.user_id
		` + content.ViewSummary.Join(viewer) + `
		WHERE p.status=?
		ORDER BY p.created_at DESC, p.id DESC`
	read := s.Read(ctx).Raw(query, append(args, limit, models.StatusNormal)...)
	posts, left, err = db.ScanPage(read, db.PageBytes, db.PostSize)
	if err != nil {
		return nil, 0, fmt.Errorf("read feed of user %d: %w", viewer, err)
	}
	return posts, left, nil
}
