package models

import (
	"context"
	"fmt"
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
		if _, err := unfollow(tx, userID, other); err != nil {
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
func unfollow(tx *gorm.DB, userID, other int64) (deleted bool, err error) {
	remove := tx.Exec("DELETE FROM follows WHERE user_id=? AND followed_id=?", userID, other)
	if remove.Error != nil || remove.RowsAffected == 0 {
		return false, remove.Error
	}
	return true, tx.Exec("UPDATE users SET followers_count=followers_count-1, updated_at=updated_at WHERE id=?", other).Error
}

// Followers lists who follows the user, latest first: at most limit after the key (nil for the first page).
func (s *Store) Followers(ctx context.Context, userID int64, after *ListKey, limit int) ([]ListedUser, error) {
	return s.follows(ctx, "followed_id", "user_id", userID, after, limit)
}

// Following lists whom the user follows, as Followers does.
func (s *Store) Following(ctx context.Context, userID int64, after *ListKey, limit int) ([]ListedUser, error) {
	return s.follows(ctx, "user_id", "followed_id", userID, after, limit)
}

func (s *Store) follows(ctx context.Context, of, shown string, userID int64, after *ListKey, limit int) ([]ListedUser, error) {
	where, args := "f."+of+"=?", []any{userID}
	if after != nil {
		where, args = where+" AND f.id<?", append(args, after.ID)
	}
	var list []ListedUser
	err := s.db.WithContext(ctx).Raw("SELECT "+authorColumns+", f.created_at AS since, f.id AS list_order FROM follows f"+
		" JOIN users u ON u.id=f."+shown+" AND u.deleted_at IS NULL WHERE "+where+" ORDER BY f.id DESC LIMIT ?", append(args, limit)...).Scan(&list).Error
	if err != nil {
		return nil, fmt.Errorf("list follows of user %d: %w", userID, err)
	}
	return list, nil
}

// feedTries bounds how often Feed begins again because posts went between its two queries.
const feedTries = 3

// Feed lists the posts of those whom the user follows, latest first: at most limit after the key (nil for the first
// page).
//
// Its cost does not depend on how many posts there are. The newest n posts after the key are by n authors at most, and
// those are the n whose own newest post after the key is newest: of every author left out, n others have something
// newer. So the first query takes one entry of an index for each user followed, and the second n entries for each of
// n authors.
func (s *Store) Feed(ctx context.Context, userID int64, after *ListKey, limit int) ([]Post, error) {
	for try := 1; ; try++ {
		authors, err := s.feedAuthors(ctx, userID, after, limit)
		if err != nil || len(authors) == 0 {
			return nil, err
		}
		posts, err := s.newestOf(ctx, userID, authors, after, limit)
		// A full set of authors makes a full page, unless some of their posts were deleted in between.
		if err != nil || len(posts) == limit || len(authors) < limit || try == feedTries {
			return posts, err
		}
	}
}

// feedKey is the condition that post p comes after the key in the order of created_at and id, latest first.
func feedKey(after *ListKey) (where string, args []any) {
	if after == nil {
		return "", nil
	}
	return " AND p.created_at<=FROM_UNIXTIME(?) AND (p.created_at<FROM_UNIXTIME(?) OR p.id<?)", []any{after.Value, after.Value, after.ID}
}

func (s *Store) feedAuthors(ctx context.Context, userID int64, after *ListKey, limit int) ([]int64, error) {
	where, args := feedKey(after)
	args = append(args, userID, limit)
	var authors []int64
	err := s.db.WithContext(ctx).Raw("SELECT l.user_id FROM (SELECT (SELECT p.id FROM posts p WHERE p.user_id=f.followed_id AND p.status=1"+where+
		" ORDER BY p.created_at DESC, p.id DESC LIMIT 1) AS latest FROM follows f WHERE f.user_id=?) a JOIN posts l ON l.id=a.latest"+
		" ORDER BY l.created_at DESC, l.id DESC LIMIT ?", args...).Scan(&authors).Error
	if err != nil {
		return nil, fmt.Errorf("read authors of the feed of user %d: %w", userID, err)
	}
	return authors, nil
}

func (s *Store) newestOf(ctx context.Context, viewer int64, authors []int64, after *ListKey, limit int) ([]Post, error) {
	where, keyArgs := feedKey(after)
	parts := make([]string, len(authors))
	args := []any{viewer}
	for i, author := range authors {
		parts[i] = "(SELECT p.id, p.created_at FROM posts p WHERE p.user_id=? AND p.status=1" + where + " ORDER BY p.created_at DESC, p.id DESC LIMIT ?)"
		args = append(append(append(args, author), keyArgs...), limit)
	}
	var posts []Post
	err := s.db.WithContext(ctx).Raw("SELECT "+postColumns+" FROM (SELECT n.id FROM ("+strings.Join(parts, " UNION ALL ")+") n ORDER BY n.created_at DESC, n.id DESC LIMIT ?) k"+
		" JOIN posts p ON p.id=k.id JOIN users u ON u.id=p.user_id WHERE p.status=1 ORDER BY p.created_at DESC, p.id DESC", append(args, limit)...).Scan(&posts).Error
	if err != nil {
		return nil, fmt.Errorf("read feed of user %d: %w", viewer, err)
	}
	return posts, nil
}
