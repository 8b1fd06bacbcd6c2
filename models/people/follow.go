package people

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"gorm.io/gorm"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/db"
)

// Follow adds the posts of other to the user's feed and returns the number of other's followers. Following twice
// changes nothing. CodeNotFound: the other user does not exist. CodeForbidden: the two are the same, or one of them has
// blocked the other. CodeConflict: the user follows MaxFollows users.
func (s *Store) Follow(ctx context.Context, userID, other int64) (followers int64, err error) {
	if userID == other {
		return 0, models.Errorf(models.CodeForbidden, "You cannot follow yourself.")
	}
	const read = `
		SELECT
			EXISTS (SELECT 1 FROM follows WHERE user_id=? AND followed_id=?) AS followed,
			EXISTS (SELECT 1 FROM blocks WHERE user_id=? AND blocked_id=?) AS blocks,
			EXISTS (SELECT 1 FROM blocks WHERE user_id=? AND blocked_id=?) AS blocked,
			(SELECT COUNT(*) FROM follows WHERE user_id=?) AS follows`
	const insert = `
		INSERT INTO follows (user_id, followed_id, created_at)
		VALUES (?,?,?)`
	const count = `
		UPDATE users
		SET followers_count=followers_count+1, updated_at=updated_at
		WHERE id=?`
	err = s.Transact(ctx, func(tx *db.Tx) error {
		// Follows, blocks and deletions of the two users wait for this lock, so the values read here hold.
		if err := lockPair(tx, userID, other); err != nil {
			return err
		}
		var now struct {
			Followed, Blocks, Blocked bool
			Follows                   int
		}
		err := tx.Raw(read, userID, other, userID, other, other, userID, userID).Scan(&now).Error
		if err != nil {
			return err
		}
		switch {
		case now.Followed:
		case now.Blocks:
			return models.Errorf(models.CodeForbidden, "You have blocked this user.")
		case now.Blocked:
			return models.Errorf(models.CodeForbidden, "This user has blocked you.")
		case now.Follows >= models.MaxFollows:
			return models.Errorf(models.CodeConflict, "You follow %d users, and more is not possible.", now.Follows)
		default:
			if err := tx.Exec(insert, userID, other, models.WholeSeconds(tx.Now)).Error; err != nil {
				return err
			}
			if err := tx.Exec(count, other).Error; err != nil {
				return err
			}
		}
		followers, err = followersOf(tx, other)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("follow user %d: %w", other, err)
	}
	return followers, nil
}

// Unfollow ends a follow and returns the number of other's followers. Without a follow it changes nothing.
// CodeNotFound: the other user does not exist.
func (s *Store) Unfollow(ctx context.Context, userID, other int64) (followers int64, err error) {
	err = s.Transact(ctx, func(tx *db.Tx) error {
		if err := lockPair(tx, userID, other); err != nil {
			return err
		}
		if err := unfollow(tx, userID, other); err != nil {
			return err
		}
		followers, err = followersOf(tx, other)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("unfollow user %d: %w", other, err)
	}
	return followers, nil
}

func followersOf(tx *db.Tx, userID int64) (n int64, err error) {
	const query = `
		SELECT followers_count
		FROM users
		WHERE id=?`
	return n, tx.Raw(query, userID).Scan(&n).Error
}

// unfollow deletes one follow and counts it; both users are locked.
func unfollow(tx *db.Tx, userID, other int64) error {
	const remove = `
		DELETE FROM follows
		WHERE user_id=? AND followed_id=?`
	const count = `
		UPDATE users
		SET followers_count=followers_count-1, updated_at=updated_at
		WHERE id=?`
	removed := tx.Exec(remove, userID, other)
	if removed.Error != nil || removed.RowsAffected == 0 {
		return removed.Error
	}
	return tx.Exec(count, other).Error
}

// Followers lists the followers of the user, latest first, without deleted users and those whom the viewer (0 for the
// anonymous) blocks: at most limit after the key (nil for the first page). If skipped users make the page short, rest
// is where the list continues; nil at its end.
func (s *Store) Followers(
	ctx context.Context, viewer, userID int64, after *models.ListKey, limit int,
) (list []models.ListedUser, rest *models.ListKey, err error) {
	followers := db.Trail{
		From:  "follows f FORCE INDEX (idx_followed_id)",
		Where: db.Matching("f.followed_id=?", userID),
		ID:    "f.id",
	}
	return s.follows(ctx, followers, "f.user_id", viewer, after, limit)
}

// Following lists the users whom the user follows, as Followers does.
func (s *Store) Following(
	ctx context.Context, viewer, userID int64, after *models.ListKey, limit int,
) (list []models.ListedUser, rest *models.ListKey, err error) {
	followed := db.Trail{
		From:  "follows f FORCE INDEX (idx_user_id)",
		Where: db.Matching("f.user_id=?", userID),
		ID:    "f.id",
	}
	return s.follows(ctx, followed, "f.followed_id", viewer, after, limit)
}

// follows lists the users in a column of a trail of follows f. The trail names its index: left alone, the optimizer
// takes the unique one and sorts all follows of the user.
func (s *Store) follows(
	ctx context.Context, follows db.Trail, column string, viewer int64, after *models.ListKey, limit int,
) (list []models.ListedUser, rest *models.ListKey, err error) {
	visible := func(where db.Conditions, limit int) *gorm.DB {
		where.Add(db.NotBlocked(column), viewer)
		query := `
			SELECT ` + accounts.AuthorColumns + `, f.created_at AS since, f.id AS list_order
			FROM ` + follows.From + `
			STRAIGHT_JOIN users u FORCE INDEX (PRIMARY) ON u.id=` + column + ` AND u.deleted_at IS NULL
			` + where.Clause() + `
			ORDER BY ` + follows.Order() + `
			LIMIT ?`
		return s.Read(ctx).Raw(query, append(where.Args, limit)...)
	}
	list, rest, err = db.Sift(ctx, s.DB, follows, after, limit, visible, db.NoContent[models.ListedUser])
	if err != nil {
		return nil, nil, fmt.Errorf("list follows: %w", err)
	}
	return list, rest, nil
}

const (
	// FeedTries bounds how often Feed begins again because posts were deleted between its queries.
	FeedTries = 3
	// feedChunk stays below 1,000 values. From there on MariaDB turns an IN list into a join and reads the whole index.
	feedChunk = 900
)

// FeedAuthors returns the followed users who may have written one of the newest posts after the key.
func (s *Store) FeedAuthors(ctx context.Context, userID int64, after *models.ListKey, limit int) ([]int64, error) {
	const read = `
		SELECT followed_id
		FROM follows
		WHERE user_id=?
		ORDER BY followed_id`
	var followed []int64
	if err := s.Read(ctx).Raw(read, userID).Scan(&followed).Error; err != nil {
		return nil, fmt.Errorf("read follows of user %d: %w", userID, err)
	}
	if len(followed) <= limit {
		return followed, nil
	}
	var parts []string
	var args []any
	for chunk := range slices.Chunk(followed, feedChunk) {
		where := db.Matching("user_id IN (" + db.JoinIDs(chunk) + ")")
		where.Add("status=?", models.StatusNormal)
		if after != nil {
			where.Add("created_at<=FROM_UNIXTIME(?)", after.Value)
		}
		parts = append(parts, `
			SELECT user_id, UNIX_TIMESTAMP(MAX(created_at)) AS at
			FROM posts FORCE INDEX (idx_user_status_created)
			`+where.Clause()+`
			GROUP BY user_id`)
		args = append(args, where.Args...)
	}
	query := `
		SELECT user_id, at
		FROM (` + strings.Join(parts, " UNION ALL ") + `) a
		ORDER BY at DESC`
	var latest []latestPost
	if err := s.Read(ctx).Raw(query, args...).Scan(&latest).Error; err != nil {
		return nil, fmt.Errorf("read authors of the feed of user %d: %w", userID, err)
	}
	return neededAuthors(latest, after, limit), nil
}

// latestPost is the second in which a user wrote their latest post up to a key.
type latestPost struct{ UserID, At int64 }

// neededAuthors returns the users whose posts may be among the next limit after the key. latest is in descending order
// of time. A post in the key's own second may come before or after the key: such users are returned without being
// counted.
func neededAuthors(latest []latestPost, after *models.ListKey, limit int) []int64 {
	var authors []int64
	var last int64 // the second of the latest post of the last author who is counted
	counted := 0
	for _, l := range latest {
		switch {
		case after != nil && l.At == after.Value:
		case counted < limit:
			counted++
			last = l.At
		case l.At < last: // authors of the same second are all needed, because the order of their ids is not known here
			return authors
		}
		authors = append(authors, l.UserID)
	}
	return authors
}
