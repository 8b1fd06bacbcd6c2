package models

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"gorm.io/gorm"
)

// MaxFollows is how many users one can follow. A page of the feed looks at each of them once.
const MaxFollows = 5000

// Follow makes other's posts part of the user's feed and gives the number of other's followers. Following twice changes
// nothing. CodeNotFound when there is no such user; CodeForbidden for oneself, and when one of the two has blocked the
// other; CodeConflict at MaxFollows.
func (s *Store) Follow(ctx context.Context, userID, other int64) (followers int64, err error) {
	if userID == other {
		return 0, Errorf(CodeForbidden, "You cannot follow yourself.")
	}
	err = s.transact(ctx, func(tx *gorm.DB) error {
		// Whoever follows, blocks or deletes one of the two waits for this lock, so what is read here holds.
		if err := lockPair(tx, userID, other); err != nil {
			return err
		}
		var now struct {
			Followed, Blocks, Blocked bool
			Follows                   int
		}
		if err := tx.Raw("SELECT EXISTS (SELECT 1 FROM follows WHERE user_id=? AND followed_id=?) AS followed,"+
			" EXISTS (SELECT 1 FROM blocks WHERE user_id=? AND blocked_id=?) AS blocks,"+
			" EXISTS (SELECT 1 FROM blocks WHERE user_id=? AND blocked_id=?) AS blocked,"+
			" (SELECT COUNT(*) FROM follows WHERE user_id=?) AS follows",
			userID, other, userID, other, other, userID, userID).Scan(&now).Error; err != nil {
			return err
		}
		switch {
		case now.Followed:
		case now.Blocks:
			return Errorf(CodeForbidden, "You have blocked this user.")
		case now.Blocked:
			return Errorf(CodeForbidden, "This user has blocked you.")
		case now.Follows >= MaxFollows:
			return Errorf(CodeConflict, "You follow %d users, and more is not possible.", now.Follows)
		default:
			if err := tx.Exec("INSERT INTO follows (user_id, followed_id, created_at) VALUES (?,?,?)", userID, other, second(s.now())).Error; err != nil {
				return err
			}
			if err := tx.Exec("UPDATE users SET followers_count=followers_count+1, updated_at=updated_at WHERE id=?", other).Error; err != nil {
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

// Unfollow ends following and gives the number of other's followers; ending what is not there is no error. CodeNotFound
// when there is no such user.
func (s *Store) Unfollow(ctx context.Context, userID, other int64) (followers int64, err error) {
	err = s.transact(ctx, func(tx *gorm.DB) error {
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

func followersOf(tx *gorm.DB, userID int64) (n int64, err error) {
	return n, tx.Raw("SELECT followers_count FROM users WHERE id=?", userID).Scan(&n).Error
}

// unfollow deletes one follow and counts it; both users are locked.
func unfollow(tx *gorm.DB, userID, other int64) error {
	remove := tx.Exec("DELETE FROM follows WHERE user_id=? AND followed_id=?", userID, other)
	if remove.Error != nil || remove.RowsAffected == 0 {
		return remove.Error
	}
	return tx.Exec("UPDATE users SET followers_count=followers_count-1, updated_at=updated_at WHERE id=?", other).Error
}

// Followers lists who follows the user, latest first, without those whom the viewer (0 for the anonymous) blocks and those
// who are deleted: at most limit after the key (nil for the first page). If what is passed over makes the page short, rest
// is where the list continues; nil for its end.
func (s *Store) Followers(ctx context.Context, viewer, userID int64, after *ListKey, limit int) (list []ListedUser, rest *ListKey, err error) {
	followers := trail{from: "follows f FORCE INDEX (idx_followed_id)", where: "f.followed_id=?", args: []any{userID}, id: "f.id"}
	return s.follows(ctx, followers, "f.user_id", viewer, after, limit)
}

// Following lists whom the user follows, as Followers does.
func (s *Store) Following(ctx context.Context, viewer, userID int64, after *ListKey, limit int) (list []ListedUser, rest *ListKey, err error) {
	followed := trail{from: "follows f FORCE INDEX (idx_user_id)", where: "f.user_id=?", args: []any{userID}, id: "f.id"}
	return s.follows(ctx, followed, "f.followed_id", viewer, after, limit)
}

// follows lists the users in a column of a trail of follows f. The trail names its index: left alone, the optimizer takes
// the unique one and sorts all that the user follows.
func (s *Store) follows(ctx context.Context, follows trail, column string, viewer int64, after *ListKey, limit int) (list []ListedUser, rest *ListKey, err error) {
	list, rest, err = sift(ctx, s, follows, after, limit, func(where string, args []any, limit int) *gorm.DB {
		return s.db.WithContext(ctx).Raw(`
SELECT `+authorColumns+`, f.created_at AS since, f.id AS list_order
FROM `+follows.from+`
STRAIGHT_JOIN users u FORCE INDEX (PRIMARY) ON u.id=`+column+` AND u.deleted_at IS NULL
WHERE `+where+` AND `+notBlocked(column)+`
ORDER BY `+follows.order()+`
LIMIT ?`, append(args, viewer, limit)...)
	}, noContent[ListedUser])
	if err != nil {
		return nil, nil, fmt.Errorf("list follows: %w", err)
	}
	return list, rest, nil
}

const (
	// feedTries bounds how often Feed begins again because posts went between its queries.
	feedTries = 3
	// feedChunk stays below the 1,000 values at which MariaDB makes a join of an IN list, and reads the whole index.
	feedChunk = 900
)

// Feed lists the posts of those whom the user follows, latest first: at most limit after the key (nil for the first
// page). It takes three queries. It passes over nothing: deleted posts are apart in the index, and a block ends follows.
//
// Its cost depends neither on how many posts there are nor on how far back the page is. The newest n posts after the key
// are by n authors at most, and those are the n whose own newest post after the key is newest: of every author left out,
// n others have something newer. So one query finds the newest post of each user followed, in three steps in an index
// each, and another takes n entries of the index for each of n authors.
func (s *Store) Feed(ctx context.Context, userID int64, after *ListKey, limit int) ([]Post, error) {
	for try := 1; ; try++ {
		authors, err := s.feedAuthors(ctx, userID, after, limit)
		if err != nil || len(authors) == 0 {
			return nil, err
		}
		posts, left, err := s.newestOf(ctx, userID, authors, after, limit)
		// A full set of authors makes a full page, unless some of their posts were deleted in between.
		if err != nil || left < 0 || len(posts) == limit || len(authors) < limit || try == feedTries {
			return posts, err
		}
	}
}

// feedAuthors gives those followed who may have written one of the newest posts after the key.
func (s *Store) feedAuthors(ctx context.Context, userID int64, after *ListKey, limit int) ([]int64, error) {
	var followed []int64
	if err := s.db.WithContext(ctx).Raw("SELECT followed_id FROM follows WHERE user_id=? ORDER BY followed_id", userID).Scan(&followed).Error; err != nil {
		return nil, fmt.Errorf("read follows of user %d: %w", userID, err)
	}
	if len(followed) <= limit {
		return followed, nil
	}
	var parts []string
	var args []any
	for chunk := range slices.Chunk(followed, feedChunk) {
		part := "SELECT user_id, UNIX_TIMESTAMP(MAX(created_at)) AS at FROM posts FORCE INDEX (idx_user_status_created) WHERE user_id IN (" + joinIDs(chunk) + ") AND status=1"
		if after != nil {
			part, args = part+" AND created_at<=FROM_UNIXTIME(?)", append(args, after.Value)
		}
		parts = append(parts, part+" GROUP BY user_id")
	}
	var latest []struct{ UserID, At int64 }
	err := s.db.WithContext(ctx).Raw("SELECT user_id, at FROM ("+strings.Join(parts, " UNION ALL ")+") a ORDER BY at DESC", args...).Scan(&latest).Error
	if err != nil {
		return nil, fmt.Errorf("read authors of the feed of user %d: %w", userID, err)
	}
	var authors []int64
	var last int64 // the second of the latest post of the last author who is needed
	for needed := 0; len(latest) > 0; latest = latest[1:] {
		switch l := latest[0]; {
		case after != nil && l.At == after.Value: // whether this post comes after the key is not known, and so not what place the author has
		case needed < limit:
			needed++
			last = l.At
		case l.At < last: // those of the same second are all needed: nothing tells here whose id is higher
			return authors, nil
		}
		authors = append(authors, latest[0].UserID)
	}
	return authors, nil
}

// feedKey is the condition that post p comes after the key in the order of created_at and id, latest first.
func feedKey(after *ListKey) (where string, args []any) {
	if after == nil {
		return "", nil
	}
	return " AND p.created_at<=FROM_UNIXTIME(?) AND (p.created_at<FROM_UNIXTIME(?) OR p.id<?)", []any{after.Value, after.Value, after.ID}
}

func (s *Store) newestOf(ctx context.Context, viewer int64, authors []int64, after *ListKey, limit int) (posts []Post, left int, err error) {
	where, keyArgs := feedKey(after)
	parts := make([]string, len(authors))
	args := []any{viewer}
	for i, author := range authors {
		parts[i] = "(SELECT p.id, p.created_at FROM posts p FORCE INDEX (idx_user_status_created) WHERE p.user_id=? AND p.status=1" + where + " ORDER BY p.created_at DESC, p.id DESC LIMIT ?)"
		args = append(append(append(args, author), keyArgs...), limit)
	}
	posts, left, err = scanPage(s.db.WithContext(ctx).Raw("SELECT "+postColumns+" FROM (SELECT n.id FROM ("+strings.Join(parts, " UNION ALL ")+") n ORDER BY n.created_at DESC, n.id DESC LIMIT ?) k"+
		" JOIN posts p ON p.id=k.id JOIN users u ON u.id=p.user_id WHERE p.status=1 ORDER BY p.created_at DESC, p.id DESC", append(args, limit)...), PageBytes, postSize)
	if err != nil {
		return nil, 0, fmt.Errorf("read feed of user %d: %w", viewer, err)
	}
	return posts, left, nil
}
