package reader

import (
	"context"
	"fmt"
	"slices"

	"gorm.io/gorm"

	"likewise/models"
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/people"
)

// maxNews bounds the posts with later comments that are examined for a page of UnreadPosts.
const maxNews = 500

// unreadPost is a post with comments after the viewer's mark.
type unreadPost struct {
	Post   models.Post `gorm:"embedded"`
	ReadTo int64       // the comment of the mark; 0 without one
	Fresh  bool        // the latest of the comments is unread; otherwise, one before it may be
}

// UnreadPosts lists summaries of the posts with comments that the user has not read, as ReaderStates counts them: those
// that the user has read before or follows, and does not mute. Of a followed post without a mark, all comments are
// unread. The latest comment comes first. Deleted posts, and posts of authors whom the user blocks, are left out.
// examined is the number of comments that were counted. If the page is short, rest is where the list continues; nil at
// its end.
//
// The order is that of idx_status_active. No table has it for each user: a comment would write a row for each of the
// readers of its post. Up to maxPassed posts that the user has read or follows are looked up and sorted. With more of
// them, UnreadPosts walks the index, and looks up the user's mark of each post.
func (s *Store) UnreadPosts(
	ctx context.Context, userID int64, after *models.ListKey, limit int,
) (list []models.Post, rest *models.ListKey, examined int, err error) {
	kept, err := s.countFollowed(ctx, userID)
	if err != nil || kept == 0 {
		return nil, nil, 0, err
	}
	for asked, seen := limit, 0; ; asked *= 4 {
		asked = min(asked, maxNews-seen)
		posts, rest, err := s.postsUnread(ctx, userID, kept <= db.MaxPassed, after, asked)
		if err != nil {
			return nil, nil, examined, err
		}
		seen += len(posts)
		unread, n, err := s.unreadAmong(ctx, userID, posts)
		examined += n
		if err != nil {
			return nil, nil, examined, err
		}
		for i := range posts {
			if p := &posts[i].Post; posts[i].Fresh || unread[p.ID].Mark != nil && unread[p.ID].Mark.Unread > 0 {
				list = append(list, *p)
			}
		}
		switch {
		case len(list) >= limit:
			return list[:limit], nil, examined, nil
		case rest != nil || len(posts) < asked:
			return list, rest, examined, nil
		}
		last := posts[len(posts)-1].Post.Key(models.PostsActive)
		if after = &last; seen >= maxNews || examined >= db.MaxExamined {
			return list, after, examined, nil
		}
	}
}

// countFollowed counts the user's read marks and subscriptions, up to a number above maxPassed.
func (s *Store) countFollowed(ctx context.Context, userID int64) (n int, err error) {
	const query = `
		SELECT
			(SELECT COUNT(*) FROM (SELECT 1 FROM read_marks FORCE INDEX (PRIMARY) WHERE user_id=? LIMIT ?) m) +
			(SELECT COUNT(*) FROM (SELECT 1 FROM subscriptions FORCE INDEX (idx_user_id) WHERE user_id=? LIMIT ?) q)`
	err = s.Read(ctx).Raw(query, userID, db.MaxPassed+1, userID, db.MaxPassed+1).Scan(&n).Error
	if err != nil {
		return 0, fmt.Errorf("count read marks of user %d: %w", userID, err)
	}
	return n, nil
}

// postsUnread lists posts with comments after the user's marks, as UnreadPosts does, by any author. gather
// selects between its two plans.
func (s *Store) postsUnread(
	ctx context.Context, userID int64, gather bool, after *models.ListKey, limit int,
) (posts []unreadPost, rest *models.ListKey, err error) {
	active := db.Trail{
		From:  "posts p FORCE INDEX (idx_status_active)",
		Where: db.Matching("p.status=?", models.StatusNormal),
		Time:  "p.active_at",
		ID:    "p.id",
	}
	source, sourceArgs := active.From, []any(nil)
	if gather {
		source = `(
				SELECT post_id
				FROM read_marks FORCE INDEX (PRIMARY)
				WHERE user_id=?
				UNION
				SELECT post_id
				FROM subscriptions FORCE INDEX (idx_user_post)
				WHERE user_id=?
			) k
			STRAIGHT_JOIN posts p FORCE INDEX (PRIMARY) ON p.id=k.post_id`
		sourceArgs = []any{userID, userID}
	}
	visible := func(where db.Conditions, limit int) *gorm.DB {
		where.Add(db.NotBlocked("p.user_id"), userID)
		where.Add("COALESCE(q.level, " + db.Literal(models.NotSubscribed) + ")<>" + people.SQLMuted)
		where.Add("(m.post_id IS NOT NULL OR q.level=" + people.SQLFollowing + ")")
		query := `
		SELECT ` + content.ViewSummary.Columns() + `, o.read_to, o.fresh
		FROM (
			SELECT p.id, p.active_at AS place, COALESCE(m.comment_id, 0) AS read_to,
				n.status=` + db.SQLNormal + ` AND n.user_id<>? AND ` + db.NotBlocked("n.user_id") + ` AS fresh
			FROM ` + source + `
			LEFT JOIN read_marks m FORCE INDEX (PRIMARY) ON m.user_id=? AND m.post_id=p.id
			LEFT JOIN subscriptions q FORCE INDEX (idx_user_post) ON q.user_id=? AND q.post_id=p.id
			STRAIGHT_JOIN comments n FORCE INDEX (PRIMARY) ON n.id=(
				SELECT c.id
				FROM comments c FORCE INDEX (idx_post_id)
				WHERE c.post_id=p.id
				ORDER BY c.post_id DESC, c.id DESC
				LIMIT 1) AND n.id>COALESCE(m.comment_id, 0)
			` + where.Clause() + `
			ORDER BY p.active_at DESC, p.id DESC
			LIMIT ?
		) o
		STRAIGHT_JOIN posts p ON p.id=o.id
		STRAIGHT_JOIN ` + content.ListedUsers + `
		` + content.ViewSummary.Join(userID) + `
		ORDER BY o.place DESC, o.id DESC`
		args := slices.Concat([]any{userID, userID, userID}, sourceArgs, []any{userID, userID})
		return s.Read(ctx).Raw(query, where.Between(args, limit)...)
	}
	size := func(n *unreadPost) int { return db.PostSize(&n.Post) }
	if gather {
		posts, _, err = db.ScanPage(visible(active.Segment(after, nil), limit), db.PageBytes, size)
	} else {
		posts, rest, err = db.Sift(ctx, s.DB, active, after, limit, visible, size)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("list posts with unread comments for user %d: %w", userID, err)
	}
	return posts, rest, nil
}

// unreadAmong counts the unread comments of posts whose latest comment is not unread.
func (s *Store) unreadAmong(
	ctx context.Context, userID int64, posts []unreadPost,
) (unread map[int64]models.ReaderState, examined int, err error) {
	unread = map[int64]models.ReaderState{}
	var doubtful []int64
	for _, n := range posts {
		if !n.Fresh {
			unread[n.Post.ID] = models.ReaderState{Mark: &models.ReadMark{CommentID: n.ReadTo}}
			doubtful = append(doubtful, n.Post.ID)
		}
	}
	for batch := range slices.Chunk(doubtful, 100) {
		n, err := s.countUnread(ctx, userID, batch, unread)
		examined += n
		if err != nil {
			return nil, examined, err
		}
	}
	return unread, examined, nil
}
