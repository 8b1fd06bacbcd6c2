package likes

import (
	"context"
	"fmt"
	"slices"
	"time"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/content"
	"likewise/models/db"
)

// LikeVoid is a request to void likes of a user: all of them, or those accepted in a period. It is a row, so that it is
// completed even if a process dies; see workers.Voider.
type LikeVoid struct {
	ID          int64
	UserID      int64
	RequestedBy int64
	RequestedAt time.Time
	LikedSince  *time.Time // nil: from the first
	LikedUntil  *time.Time // nil: to the last; only of a deleted account
	Reason      string     // of a moderator; "" for a deleted account
	DoneAt      *time.Time // nil until it is completed
}

// OpenLikeVoid is a LikeVoid that is not completed.
type OpenLikeVoid struct {
	LikeVoid
	SessionsOver bool // no process accepts likes in a session that the request's account had
}

const voidColumns = "id, user_id, requested_by, requested_at, liked_since, liked_until, reason, done_at"

// LikesOver reports whether no further like of the request can be accepted. Those accepted earlier may be on their way.
func (s *Store) LikesOver(ctx context.Context, v OpenLikeVoid) (bool, error) {
	if v.LikedUntil == nil {
		return v.SessionsOver, nil
	}
	earliest, _, err := s.LikeTime(ctx)
	return !earliest.Before(v.LikedUntil.Add(time.Second)), err // the times of likes in MySQL are whole seconds
}

// OpenLikeVoids returns requests that are not completed and whose last turn was before a ServerTime, at most limit.
// Those without a turn come first, then those that have waited longest.
//
// For SessionStale after an account was deleted, processes that cannot read its sessions accept its likes. MySQL alone
// measures that time.
func (s *Store) OpenLikeVoids(ctx context.Context, before time.Time, limit int) ([]OpenLikeVoid, error) {
	const query = `
		SELECT ` + voidColumns + `,
			requested_at < CURRENT_TIMESTAMP(3) - INTERVAL ? SECOND AS sessions_over
		FROM like_voids FORCE INDEX (idx_done_turn)
		WHERE done_at IS NULL AND (turn_at IS NULL OR turn_at<?)
		ORDER BY turn_at, id
		LIMIT ?`
	var list []OpenLikeVoid
	over := int((models.SessionStale + db.LateLikes) / time.Second)
	if err := s.Read(ctx).Raw(query, over, before, limit).Scan(&list).Error; err != nil {
		return nil, fmt.Errorf("read like voids: %w", err)
	}
	return list, nil
}

// ScheduleLikeVoid records that a request has its turn in the run that began at a ServerTime.
func (s *Store) ScheduleLikeVoid(ctx context.Context, id int64, run time.Time) error {
	const update = `
		UPDATE like_voids
		SET turn_at=?
		WHERE id=?`
	if _, err := s.Write(ctx, update, run, id); err != nil {
		return fmt.Errorf("work on like void %d: %w", id, err)
	}
	return nil
}

// CloseLikeVoid records that a request is completed: no like of it is left, and none can be accepted.
func (s *Store) CloseLikeVoid(ctx context.Context, id int64) error {
	const update = `
		UPDATE like_voids FORCE INDEX (PRIMARY)
		SET done_at=?
		WHERE id=? AND done_at IS NULL`
	err := s.Transact(ctx, func(tx *db.Tx) error {
		if err := db.HoldMode(tx); err != nil {
			return err
		}
		return tx.Exec(update, tx.Now, id).Error
	})
	if err != nil {
		return fmt.Errorf("close like void %d: %w", id, err)
	}
	return nil
}

// where returns the conditions of the likes of the request.
func (v *LikeVoid) where() db.Conditions {
	where := db.Matching("user_id=?", v.UserID)
	if v.LikedSince != nil {
		where.Add("created_at>=?", *v.LikedSince)
	}
	if v.LikedUntil != nil {
		where.Add("created_at<=?", *v.LikedUntil)
	}
	return where
}

// maxLikesLeft is the maximum result of LikesLeft.
const maxLikesLeft = 10_000

// LikesGivenCount counts the likes of a user in MySQL, up to maxLikesLeft.
func (s *Store) LikesGivenCount(ctx context.Context, user int64) (int, error) {
	return s.LikesLeft(ctx, LikeVoid{UserID: user})
}

// LikesLeft counts the likes of the request that are still in MySQL, up to maxLikesLeft. Likes on their way to MySQL
// are not counted.
func (s *Store) LikesLeft(ctx context.Context, v LikeVoid) (int, error) {
	where := v.where()
	where.Args = append(where.Args, maxLikesLeft)
	left := 0
	for _, kind := range []models.TargetKind{models.KindPost, models.KindComment} {
		query := `
			SELECT COUNT(*)
			FROM (
				SELECT 1
				FROM ` + db.TargetTables[kind].Likes + ` FORCE INDEX (idx_user_id)
				` + where.Clause() + `
				LIMIT ?
			) l`
		var n int
		if err := s.Read(ctx).Raw(query, where.Args...).Scan(&n).Error; err != nil {
			return 0, fmt.Errorf("count likes of user %d: %w", v.UserID, err)
		}
		left += n
	}
	return min(left, maxLikesLeft), nil
}

// VoidLikes requests, in the name of a moderator, that likes of a user are voided: those accepted from LikedSince to
// LikedUntil, in whole seconds. Without LikedUntil the period ends now, by the clock of likes. If the user is banned,
// it also has the likes that stale sessions may still bring. VoidLikes fills in the other fields of v.
//
// It returns CodeInvalid if a field breaks a rule, CodeNotFound if the user does not exist, CodeForbidden if the actor
// does not outrank the user (see Outranks), and CodeUnavailable if LikedUntil is missing and the clock of likes cannot
// be read.
func (s *Store) VoidLikes(ctx context.Context, v *LikeVoid) error {
	now := s.Now().UTC()
	if err := v.validate(now); err != nil {
		return err
	}
	var likeNow time.Time
	if v.LikedUntil == nil {
		var err error
		if likeNow, err = s.VoidingFrom(ctx); err != nil {
			return err
		}
	}
	err := s.Transact(ctx, func(tx *db.Tx) error {
		if err := VoidLikes(tx, v, now, likeNow); err != nil {
			return err
		}
		return accounts.LogModeration(tx, accounts.ModerationAct{
			ActorID: v.RequestedBy, Action: "user.void_likes", TargetType: "user", TargetID: v.UserID, Reason: v.Reason,
			After: map[string]any{"void_id": v.ID, "since": v.LikedSince, "until": v.LikedUntil},
		})
	})
	if err != nil {
		return fmt.Errorf("void likes of user %d: %w", v.UserID, err)
	}
	return nil
}

func (v *LikeVoid) validate(now time.Time) error {
	var f models.FieldErrors
	f.CheckReason("reason", v.Reason)
	for field, at := range map[string]*time.Time{"since": v.LikedSince, "until": v.LikedUntil} {
		if at != nil {
			*at = models.WholeSeconds(*at)
			f.Check(at.Year() >= 1970 && !at.After(now), field, models.Broken(models.FieldNotPast,
				"must be a time in the past"))
		}
	}
	ordered := v.LikedSince == nil || v.LikedUntil == nil || !v.LikedSince.After(*v.LikedUntil)
	f.Check(ordered, "since", models.About(models.FieldBadOrder, "until", "must not be after until"))
	return f.Err()
}

// VoidingFrom returns the time by which every like that was accepted before the call was accepted.
func (s *Store) VoidingFrom(ctx context.Context) (time.Time, error) {
	_, latest, err := s.LikeTime(ctx)
	if err != nil {
		s.Logger().WarnContext(ctx, "likes cannot be voided", "error", err)
		return latest, models.Errorf(models.CodeUnavailable, "Likes cannot be voided at the moment. Please try again.")
	}
	return latest.UTC(), nil
}

// VoidLikes writes the request; the caller logs it. likeNow is the present time by the clock of likes, which a
// request without LikedUntil needs.
func VoidLikes(tx *db.Tx, v *LikeVoid, now, likeNow time.Time) error {
	user, err := accounts.LockOutranked(tx, v.RequestedBy, v.UserID)
	if err != nil {
		return err
	}
	if v.LikedUntil == nil {
		until := likeNow // later likes of a user who is not banned are allowed
		if ban := user.Ban(now); ban != nil {
			// For so long, a process may accept likes of an ended session. Likes after the ban are allowed again.
			until = likeNow.Add(min(models.SessionStale+db.LateLikes, ban.Until.Sub(now))).Round(time.Second)
		}
		until = models.WholeSeconds(until)
		v.LikedUntil = &until
	}
	v.RequestedAt, v.DoneAt = now.Truncate(time.Millisecond), nil
	v.ID, err = tx.Insert(`
		INSERT INTO like_voids (user_id, requested_by, requested_at, liked_since, liked_until, reason)
		VALUES (?, ?, ?, ?, ?, ?)`,
		v.UserID, v.RequestedBy, v.RequestedAt, v.LikedSince, v.LikedUntil, v.Reason)
	return err
}

// likeTimeWait is how long a ban waits for the clock of likes.
const likeTimeWait = time.Second

// LikeTimeIn returns the time of the clock of likes in a while. A ban must not fail because that clock cannot be read:
// no like is accepted then, and the clock of this process takes its place.
func (s *Store) LikeTimeIn(ctx context.Context, d time.Duration) time.Time {
	reading, cancel := context.WithTimeout(ctx, likeTimeWait)
	defer cancel()
	_, latest, err := s.LikeTime(reading)
	if err != nil {
		s.Logger().WarnContext(ctx, "the time of likes is that of this process", "error", err)
		latest = s.Now()
	}
	return latest.Add(d)
}

// EndVoids ends open requests with a ban, so that they do not void likes after it. banEnds is by the clock of likes.
// The user exists: requests about a deleted account have no end.
func EndVoids(tx *db.Tx, userID int64, banEnds time.Time) error {
	at := models.WholeSeconds(banEnds)
	return tx.Exec(`
		UPDATE like_voids
		SET liked_until=?
		WHERE user_id=? AND done_at IS NULL AND (liked_until IS NULL OR liked_until>?)`, at, userID, at).Error
}

// LikeVoid reads a request of a moderator. If it does not exist, LikeVoid returns CodeNotFound.
func (s *Store) LikeVoid(ctx context.Context, id int64) (*LikeVoid, error) {
	const query = `
		SELECT ` + voidColumns + `
		FROM like_voids
		WHERE id=? AND reason<>''`
	var v LikeVoid
	read := s.Read(ctx).Raw(query, id).Scan(&v)
	if read.Error != nil {
		return nil, fmt.Errorf("read like void %d: %w", id, read.Error)
	}
	if read.RowsAffected == 0 {
		return nil, models.Errorf(models.CodeNotFound, "There is no such request.")
	}
	return &v, nil
}

// LikesGiven lists the rows of the likes that a user gave, latest first, including those of deleted targets: at most
// limit rows older than row before (0 for the first page).
func (s *Store) LikesGiven(ctx context.Context, kind models.TargetKind, userID, before int64, limit int,
) ([]models.GivenLike, error) {
	t := db.TargetTables[kind]
	where := db.Matching("l.user_id=?", userID)
	where.AddIf(before > 0, "l.id<?", before)
	title, joinPost := "t.title", ""
	if kind == models.KindComment {
		title, joinPost = "p.title", "LEFT JOIN posts p ON p.id=t.post_id"
	}
	query := `
		SELECT l.id AS row_id, l.` + t.Column + ` AS target_id, l.created_at AS liked_at,
			COALESCE(t.status, 0) AS status, COALESCE(t.user_id, 0) AS author_id, COALESCE(u.username, '') AS author,
			COALESCE(` + title + `, '') AS post_title
		FROM ` + t.Likes + ` l FORCE INDEX (idx_user_id)
		LEFT JOIN ` + t.Targets + ` t ON t.id=l.` + t.Column + `
		` + joinPost + `
		LEFT JOIN users u ON u.id=t.user_id
		` + where.Clause() + `
		ORDER BY l.id DESC
		LIMIT ?`
	var list []models.GivenLike
	if err := s.Read(ctx).Raw(query, append(where.Args, limit)...).Scan(&list).Error; err != nil {
		return nil, fmt.Errorf("list likes given by user %d: %w", userID, err)
	}
	return list, nil
}

// VoidedLikes returns the likes of the request, for a kind of target, that are in MySQL, in the order of their rows: at
// most limit after row after.
func (s *Store) VoidedLikes(ctx context.Context, v LikeVoid, kind models.TargetKind, after int64, limit int,
) ([]models.VoidedLike, error) {
	t := db.TargetTables[kind]
	where := v.where()
	where.Add("id>?", after)
	query := `
		SELECT id AS row_id, ` + t.Column + ` AS target_id
		FROM ` + t.Likes + ` FORCE INDEX (idx_user_id)
		` + where.Clause() + `
		ORDER BY id
		LIMIT ?`
	var list []models.VoidedLike
	if err := s.Read(ctx).Raw(query, append(where.Args, limit)...).Scan(&list).Error; err != nil {
		return nil, fmt.Errorf("read likes of user %d: %w", v.UserID, err)
	}
	return list, nil
}

// WithdrawLike deletes a like of a deleted target, row and count in one transaction. It reports whether it did: if the
// target is not deleted, or cold reports false, it changes nothing.
//
// WithdrawLike calls cold under the lock of the target's row. It must report whether the gate holds nothing of the
// target and will not load it from rows read before, because the gate would keep the like. The target cannot be
// restored meanwhile, and a process that warms it later reads the likes that are left. Without a gate, cold reports
// true: see StartLikes.
func (s *Store) WithdrawLike(
	ctx context.Context, target models.Target, userID int64, cold func() (bool, error),
) (done bool, err error) {
	t := db.TargetTables[target.Kind]
	err = s.Transact(ctx, func(tx *db.Tx) error {
		done = false
		if err := db.HoldMode(tx); err != nil {
			return err
		}
		open, err := lockTarget(tx, target)
		if err != nil || open {
			return err
		}
		if done, err = cold(); err != nil || !done {
			return err
		}
		remove := tx.Exec(`
			DELETE FROM `+t.Likes+`
			WHERE `+t.Column+`=? AND user_id=?`, target.ID, userID)
		if remove.Error != nil || remove.RowsAffected == 0 {
			return remove.Error
		}
		update := `
			UPDATE ` + t.Targets + `
			SET ` + adding(t, "-1") + `
			WHERE id=?`
		if err := tx.Exec(update, target.ID).Error; err != nil {
			return err
		}
		return counted(tx, t, target.ID)
	})
	if err != nil {
		return false, fmt.Errorf("withdraw like of %s: %w", target, err)
	}
	return done, nil
}

// lockTarget locks a target, a comment after its post, and reports whether it is open.
func lockTarget(tx *db.Tx, target models.Target) (open bool, err error) {
	post, err := content.LockTargetPost(tx, target)
	if err != nil || target.Kind == models.KindPost {
		return post.Status == models.StatusNormal, err
	}
	comments, err := db.LockRows[models.Status](tx, "comments", "status", []int64{target.ID})
	return slices.Equal(comments, []models.Status{models.StatusNormal}) && post.Status == models.StatusNormal, err
}
