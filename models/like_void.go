package models

import (
	"context"
	"fmt"
	"slices"
	"time"

	"gorm.io/gorm"
)

// LikeVoid is a request to take back likes of a user: all of them, or those accepted in a time. It is a row, so that it
// is carried out to its end whatever dies on the way; see workers.Voider.
type LikeVoid struct {
	ID          int64
	UserID      int64
	RequestedBy int64
	RequestedAt time.Time
	LikedSince  *time.Time // nil: from the first
	LikedUntil  *time.Time // nil: to the last; of a deleted account alone
	Reason      string     // a moderator's
	DoneAt      *time.Time // nil: it is not carried out to its end yet
}

const voidColumns = "id, user_id, requested_by, requested_at, liked_since, liked_until, reason, done_at"

// lateLikes is how much longer a like may be accepted than the session that it came with is believed: the deadline of a
// request, and what the clocks of two machines may differ by.
const lateLikes = time.Minute

// LastLike is when the last like that the request is about may be accepted. A user whose sessions have ended is still
// believed by processes that cannot ask, for SessionStale.
func (v *LikeVoid) LastLike() time.Time {
	if v.LikedUntil != nil {
		return v.LikedUntil.Add(lateLikes)
	}
	return v.RequestedAt.Add(SessionStale + lateLikes)
}

// OpenLikeVoids gives the requests that are not done and whose last turn was before a time, at most limit: first those
// that had none yet, then those that have waited longest.
func (s *Store) OpenLikeVoids(ctx context.Context, before time.Time, limit int) ([]LikeVoid, error) {
	var list []LikeVoid
	err := s.db.WithContext(ctx).Raw("SELECT "+voidColumns+" FROM like_voids FORCE INDEX (idx_done_turn)"+
		" WHERE done_at IS NULL AND (turn_at IS NULL OR turn_at<?) ORDER BY turn_at, id LIMIT ?", turnTime(before), limit).Scan(&list).Error
	if err != nil {
		return nil, fmt.Errorf("read like voids: %w", err)
	}
	return list, nil
}

// TakeLikeVoidTurn records that a request has its turn in the run that began at a time.
func (s *Store) TakeLikeVoidTurn(ctx context.Context, id int64, run time.Time) error {
	if _, err := s.write(ctx, "UPDATE like_voids SET turn_at=? WHERE id=?", turnTime(run), id); err != nil {
		return fmt.Errorf("work on like void %d: %w", id, err)
	}
	return nil
}

// turnTime is what turn_at holds of a time.
func turnTime(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// CloseLikeVoid records that none of the likes is left and none can come.
func (s *Store) CloseLikeVoid(ctx context.Context, id int64) error {
	if _, err := s.write(ctx, "UPDATE like_voids FORCE INDEX (PRIMARY) SET done_at=? WHERE id=? AND done_at IS NULL", s.now().UTC(), id); err != nil {
		return fmt.Errorf("close like void %d: %w", id, err)
	}
	return nil
}

// where is the condition of the likes that the request is about, with its arguments.
func (v *LikeVoid) where() (string, []any) {
	where, args := "user_id=?", []any{v.UserID}
	if v.LikedSince != nil {
		where, args = where+" AND created_at>=?", append(args, *v.LikedSince)
	}
	if v.LikedUntil != nil {
		where, args = where+" AND created_at<=?", append(args, *v.LikedUntil)
	}
	return where, args
}

// MaxLikesLeft is how far LikesLeft counts.
const MaxLikesLeft = 10_000

// LikesLeft counts the likes that the request is about and that MySQL still has, up to MaxLikesLeft. What is on its way
// to MySQL is not among them.
func (s *Store) LikesLeft(ctx context.Context, v LikeVoid) (int, error) {
	where, args := v.where()
	left := 0
	for _, kind := range []TargetKind{KindPost, KindComment} {
		var n int
		err := s.db.WithContext(ctx).Raw("SELECT COUNT(*) FROM (SELECT 1 FROM "+likeTables[kind].likes+" FORCE INDEX (idx_user_id) WHERE "+where+" LIMIT ?) l",
			append(slices.Clone(args), MaxLikesLeft)...).Scan(&n).Error
		if err != nil {
			return 0, fmt.Errorf("count likes of user %d: %w", v.UserID, err)
		}
		left += n
	}
	return min(left, MaxLikesLeft), nil
}

// VoidLikes asks for likes of a user to be taken back, in the name of a moderator: those accepted from LikedSince to
// LikedUntil, both to the second. Without an end it is all up to now, and of a user who is banned also those that sessions
// still cached elsewhere may bring. It fills in the rest. CodeInvalid for a request that breaks a rule, CodeNotFound when
// there is no such user, CodeForbidden when the actor does not outrank them (see Outranks).
func (s *Store) VoidLikes(ctx context.Context, v *LikeVoid) error {
	now := s.now().UTC()
	if err := v.validate(now); err != nil {
		return err
	}
	err := s.transact(ctx, func(tx *gorm.DB) error {
		if err := s.voidLikes(tx, v, now); err != nil {
			return err
		}
		return s.logModeration(tx, Act{ActorID: v.RequestedBy, Action: "user.void_likes", TargetType: "user", TargetID: v.UserID, Reason: v.Reason,
			After: map[string]any{"void_id": v.ID, "since": v.LikedSince, "until": v.LikedUntil}})
	})
	if err != nil {
		return fmt.Errorf("void likes of user %d: %w", v.UserID, err)
	}
	return nil
}

func (v *LikeVoid) validate(now time.Time) error {
	var f fieldErrors
	f.checkReason("reason", v.Reason)
	for field, at := range map[string]*time.Time{"since": v.LikedSince, "until": v.LikedUntil} {
		if at != nil {
			*at = second(*at)
			f.check(at.Year() >= 1970 && !at.After(now), field, "must be a time in the past")
		}
	}
	f.check(v.LikedSince == nil || v.LikedUntil == nil || !v.LikedSince.After(*v.LikedUntil), "since", "must not be after until")
	return f.err()
}

// voidLikes writes the request; the caller logs it.
func (s *Store) voidLikes(tx *gorm.DB, v *LikeVoid, now time.Time) error {
	user, err := s.lockOutranked(tx, v.RequestedBy, v.UserID)
	if err != nil {
		return err
	}
	if v.LikedUntil == nil {
		until := now // whoever is not banned goes on liking, and may
		if ban := user.ban(now); ban != nil {
			// So long some process may believe a session that has ended. What comes after the ban is the user's again.
			if until = now.Add(SessionStale + lateLikes); ban.Until.Before(until) {
				until = ban.Until
			}
		}
		until = second(until)
		v.LikedUntil = &until
	}
	v.RequestedAt, v.DoneAt = now.Truncate(time.Millisecond), nil
	v.ID, err = s.insert(tx, "INSERT INTO like_voids (user_id, requested_by, requested_at, liked_since, liked_until, reason) VALUES (?,?,?,?,?,?)",
		v.UserID, v.RequestedBy, v.RequestedAt, v.LikedSince, v.LikedUntil, v.Reason)
	return err
}

// endVoids keeps open requests away from likes that a user gives after a ban has ended. The user is there: requests about a
// deleted account have no end.
func endVoids(tx *gorm.DB, userID int64, banEnds time.Time) error {
	at := second(banEnds)
	return tx.Exec("UPDATE like_voids SET liked_until=? WHERE user_id=? AND done_at IS NULL AND (liked_until IS NULL OR liked_until>?)", at, userID, at).Error
}

// LikeVoid reads a request that a moderator made; CodeNotFound when there is none.
func (s *Store) LikeVoid(ctx context.Context, id int64) (*LikeVoid, error) {
	var v LikeVoid
	read := s.db.WithContext(ctx).Raw("SELECT "+voidColumns+" FROM like_voids WHERE id=? AND reason<>''", id).Scan(&v)
	if read.Error != nil {
		return nil, fmt.Errorf("read like void %d: %w", id, read.Error)
	}
	if read.RowsAffected == 0 {
		return nil, Errorf(CodeNotFound, "There is no such request.")
	}
	return &v, nil
}

// GivenLike is a row of a like, as moderators see it.
type GivenLike struct {
	RowID     int64
	TargetID  int64
	LikedAt   time.Time // when it was accepted
	Status    Status    // of the target; 0 when it is gone
	AuthorID  int64     // of the target; 0 when it is gone
	Author    string    // their username
	PostTitle string    // of the post, or of the one that the comment is on
}

// LikesGiven lists the rows of the likes that a user gave, the latest first, whatever became of what was liked: at most
// limit rows older than row before (0 for the first page).
func (s *Store) LikesGiven(ctx context.Context, kind TargetKind, userID, before int64, limit int) ([]GivenLike, error) {
	t := likeTables[kind]
	where, args := "l.user_id=?", []any{userID}
	if before > 0 {
		where, args = where+" AND l.id<?", append(args, before)
	}
	title := ""
	if kind == KindComment {
		title = " LEFT JOIN posts p ON p.id=t.post_id"
	}
	titleColumn := map[TargetKind]string{KindPost: "t.title", KindComment: "p.title"}[kind]
	var list []GivenLike
	err := s.db.WithContext(ctx).Raw("SELECT l.id AS row_id, l."+t.column+" AS target_id, l.created_at AS liked_at, COALESCE(t.status,0) AS status,"+
		" COALESCE(t.user_id,0) AS author_id, COALESCE(u.username,'') AS author, COALESCE("+titleColumn+",'') AS post_title FROM "+t.likes+" l FORCE INDEX (idx_user_id)"+
		" LEFT JOIN "+t.targets+" t ON t.id=l."+t.column+title+" LEFT JOIN users u ON u.id=t.user_id WHERE "+where+
		" ORDER BY l.id DESC LIMIT ?", append(args, limit)...).Scan(&list).Error
	if err != nil {
		return nil, fmt.Errorf("list likes given by user %d: %w", userID, err)
	}
	return list, nil
}

// VoidedLike is a like that a LikeVoid takes back.
type VoidedLike struct {
	RowID    int64
	TargetID int64
}

// VoidedLikes gives the likes of a kind of target that the request is about and that MySQL has, in the order of their
// rows: at most limit after row after.
func (s *Store) VoidedLikes(ctx context.Context, v LikeVoid, kind TargetKind, after int64, limit int) ([]VoidedLike, error) {
	t := likeTables[kind]
	where, args := v.where()
	where, args = where+" AND id>?", append(args, after)
	var list []VoidedLike
	err := s.db.WithContext(ctx).Raw("SELECT id AS row_id, "+t.column+" AS target_id FROM "+t.likes+" FORCE INDEX (idx_user_id) WHERE "+where+" ORDER BY id LIMIT ?",
		append(args, limit)...).Scan(&list).Error
	if err != nil {
		return nil, fmt.Errorf("read likes of user %d: %w", v.UserID, err)
	}
	return list, nil
}

// WithdrawLike takes back a like of a target that is deleted, row and count in one transaction; it reports whether the
// target is deleted. No gate may hold the target: it would not hear of it. The target cannot be restored meanwhile, and
// whoever warms it after that reads what is left.
func (s *Store) WithdrawLike(ctx context.Context, target Target, userID int64) (deleted bool, err error) {
	t := likeTables[target.Kind]
	err = s.transact(ctx, func(tx *gorm.DB) error {
		open, err := lockTarget(tx, target)
		if deleted = !open; err != nil || open {
			return err
		}
		remove := tx.Exec("DELETE FROM "+t.likes+" WHERE "+t.column+"=? AND user_id=?", target.ID, userID)
		if remove.Error != nil || remove.RowsAffected == 0 {
			return remove.Error
		}
		if err := tx.Exec("UPDATE "+t.targets+" SET "+t.adding("-1")+" WHERE id=?", target.ID).Error; err != nil {
			return err
		}
		return t.counted(tx, target.ID)
	})
	if err != nil {
		return false, fmt.Errorf("withdraw like of %s: %w", target, err)
	}
	return deleted, nil
}

// lockTarget locks a target, a comment after its post, and reports whether it is open.
func lockTarget(tx *gorm.DB, target Target) (open bool, err error) {
	postID := target.ID
	if target.Kind == KindComment {
		if err := tx.Raw("SELECT COALESCE(MAX(post_id),0) FROM comments WHERE id=?", target.ID).Scan(&postID).Error; err != nil {
			return false, err
		}
	}
	var status Status // stays 0 when there is no row
	if err := tx.Raw("SELECT status FROM posts FORCE INDEX (PRIMARY) WHERE id=? FOR UPDATE", postID).Scan(&status).Error; err != nil {
		return false, err
	}
	open = status == StatusNormal
	if target.Kind == KindComment {
		status = 0
		if err := tx.Raw("SELECT status FROM comments FORCE INDEX (PRIMARY) WHERE id=? FOR UPDATE", target.ID).Scan(&status).Error; err != nil {
			return false, err
		}
		open = open && status == StatusNormal
	}
	return open, nil
}
