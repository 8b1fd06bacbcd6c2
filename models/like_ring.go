package models

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"gorm.io/gorm"
)

// LikeRing is a report of accounts that like the same author in the same seconds, again and again. What counts as one is
// decided by workers.RingFinder.
type LikeRing struct {
	ID           int64
	AuthorID     int64 // whose posts and comments they like
	Author       string
	Coincidences int // likes that at least two of them gave in the same seconds
	Occasions    int // different times at which they did
	FirstAt      time.Time
	LastAt       time.Time
	Evidence     []RingOccasion `gorm:"-"` // the latest, the latest first
	EvidenceJSON string         `gorm:"column:evidence"`
	FoundAt      time.Time
	Status       RingStatus
	ResolvedAt   *time.Time
	ResolvedBy   *int64
	Reason       string
	Members      []RingMember `gorm:"-"`
}

// Key gives the place of the ring in the list.
func (r *LikeRing) Key() ListKey { return ListKey{ID: r.ID} }

// RingStatus is what became of a ring.
type RingStatus string

// The statuses.
const (
	RingOpen      RingStatus = "open"
	RingDismissed RingStatus = "dismissed" // a moderator found nothing wrong
	RingVoided    RingStatus = "voided"    // a moderator had its members' likes taken back
)

// RingMember is an account of a ring.
type RingMember struct {
	RingID       int64
	UserID       int64
	Username     string
	Coincidences int // likes given in the same seconds as another member
	Likes        int // likes in all that the account gave the author in the days that were looked at
}

// RingOccasion is a time at which members of a ring liked something of the author together.
type RingOccasion struct {
	At    time.Time  `json:"at"`
	Likes []RingLike `json:"likes"`
}

// RingLike is a like at an occasion.
type RingLike struct {
	UserID int64      `json:"user_id"`
	Type   TargetKind `json:"type"`
	ID     int64      `json:"id"`
	At     time.Time  `json:"liked_at"`
}

// AuthoredLike is a row of a like with the author of what was liked.
type AuthoredLike struct {
	RowID, UserID, TargetID, AuthorID int64
	Kind                              TargetKind `gorm:"-"`
	LikedAt                           time.Time
}

// LastLikeID gives the highest row of the likes of a kind of target; 0 when there is none.
func (s *Store) LastLikeID(ctx context.Context, kind TargetKind) (int64, error) {
	var id int64
	if err := s.db.WithContext(ctx).Raw("SELECT COALESCE(MAX(id),0) FROM " + likeTables[kind].likes).Scan(&id).Error; err != nil {
		return 0, fmt.Errorf("last id of %s: %w", likeTables[kind].likes, err)
	}
	return id, nil
}

// LikesBetween gives the likes of a kind in the rows after and up to those ids that were accepted since a time.
func (s *Store) LikesBetween(ctx context.Context, kind TargetKind, after, upTo int64, since time.Time) ([]AuthoredLike, error) {
	t := likeTables[kind]
	return s.authoredLikes(ctx, kind, t.likes+" l", "l.id>? AND l.id<=? AND l.created_at>=?", after, upTo, since)
}

// LatestLikesOf gives the latest rows of a user's likes of a kind, at most limit, as far as they were accepted since a time.
func (s *Store) LatestLikesOf(ctx context.Context, kind TargetKind, userID int64, since time.Time, limit int) ([]AuthoredLike, error) {
	t := likeTables[kind]
	return s.authoredLikes(ctx, kind, "(SELECT id, user_id, "+t.column+", created_at FROM "+t.likes+" FORCE INDEX (idx_user_id) WHERE user_id="+
		strconv.FormatInt(userID, 10)+" ORDER BY id DESC LIMIT "+strconv.Itoa(limit)+") l", "l.created_at>=?", since)
}

func (s *Store) authoredLikes(ctx context.Context, kind TargetKind, from, where string, args ...any) ([]AuthoredLike, error) {
	t := likeTables[kind]
	var list []AuthoredLike
	err := s.db.WithContext(ctx).Raw("SELECT l.id AS row_id, l.user_id, l."+t.column+" AS target_id, t.user_id AS author_id, l.created_at AS liked_at FROM "+from+
		" JOIN "+t.targets+" t ON t.id=l."+t.column+" WHERE "+where, args...).Scan(&list).Error
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", t.likes, err)
	}
	for i := range list {
		list[i].Kind = kind
	}
	return list, nil
}

// RingMark gives the row of the likes of a kind up to which rings were looked for; ok is false when they never were.
func (s *Store) RingMark(ctx context.Context, kind TargetKind) (id int64, ok bool, err error) {
	var value []byte
	err = s.guarded.QueryRowContext(ctx, "SELECT value FROM settings WHERE name=?", "rings_"+string(kind)).Scan(&value)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, false, nil
	}
	if err == nil {
		id, err = strconv.ParseInt(string(value), 10, 64)
	}
	if err != nil {
		return 0, false, fmt.Errorf("read mark of rings: %w", err)
	}
	return id, true, nil
}

// SetRingMark keeps what RingMark gives.
func (s *Store) SetRingMark(ctx context.Context, kind TargetKind, id int64) error {
	_, err := s.write(ctx, "INSERT INTO settings (name, value) VALUES (?,?) ON DUPLICATE KEY UPDATE value=VALUES(value)",
		"rings_"+string(kind), strconv.FormatInt(id, 10))
	if err != nil {
		return fmt.Errorf("keep mark of rings: %w", err)
	}
	return nil
}

// JudgedUntil gives, of users whose rings around an author a moderator has dealt with, when that was last: what they did
// until then has been judged.
func (s *Store) JudgedUntil(ctx context.Context, authorID int64, users []int64) (map[int64]time.Time, error) {
	var rows []struct {
		UserID     int64
		ResolvedAt time.Time
	}
	err := s.db.WithContext(ctx).Raw("SELECT m.user_id, MAX(r.resolved_at) AS resolved_at FROM like_rings r JOIN like_ring_members m ON m.ring_id=r.id"+
		" WHERE r.author_id=? AND r.status<>'open' AND m.user_id IN ("+joinIDs(users)+") GROUP BY m.user_id", authorID).Scan(&rows).Error
	if err != nil {
		return nil, fmt.Errorf("read rings of author %d: %w", authorID, err)
	}
	judged := make(map[int64]time.Time, len(rows))
	for _, r := range rows {
		judged[r.UserID] = r.ResolvedAt
	}
	return judged, nil
}

// SaveRing reports a ring. An open report of the same author that has a member in common becomes this one: ring.ID says which
// it is. An author who is gone has no ring.
func (s *Store) SaveRing(ctx context.Context, ring *LikeRing) (isNew bool, err error) {
	evidence, err := json.Marshal(ring.Evidence)
	if err != nil {
		return false, fmt.Errorf("encode evidence: %w", err)
	}
	users := make([]int64, len(ring.Members))
	for i, m := range ring.Members {
		users[i] = m.UserID
	}
	err = s.transact(ctx, func(tx *gorm.DB) error {
		isNew = false
		var author int64 // two jobs at once must not report the same ring twice
		lock := tx.Raw("SELECT id FROM users FORCE INDEX (PRIMARY) WHERE id=? FOR UPDATE", ring.AuthorID).Scan(&author)
		if lock.Error != nil || lock.RowsAffected == 0 {
			return lock.Error
		}
		var known []int64
		// Whoever is dealing with it now is waited for: what they have judged gets no more members.
		err := tx.Raw("SELECT r.id FROM like_rings r JOIN like_ring_members m ON m.ring_id=r.id WHERE r.author_id=? AND r.status='open' AND m.user_id IN ("+
			joinIDs(users)+") ORDER BY r.id LIMIT 1", ring.AuthorID).Scan(&known).Error
		if err == nil && len(known) > 0 {
			var status RingStatus
			err = tx.Raw("SELECT status FROM like_rings FORCE INDEX (PRIMARY) WHERE id=? FOR UPDATE", known[0]).Scan(&status).Error
			if err == nil && status != RingOpen {
				err = errChangedMeanwhile
			}
		}
		if err != nil {
			return err
		}
		if len(known) == 0 {
			// Nor is reported again what was judged since the job asked (see JudgedUntil).
			var judged int
			err := tx.Raw("SELECT COUNT(DISTINCT m.user_id) FROM like_rings r JOIN like_ring_members m ON m.ring_id=r.id WHERE r.author_id=? AND r.status<>'open'"+
				" AND r.resolved_at>=? AND m.user_id IN ("+joinIDs(users)+")", ring.AuthorID, ring.LastAt).Scan(&judged).Error
			if err != nil || judged == len(users) {
				return err
			}
		}
		if isNew = len(known) == 0; isNew {
			err = tx.Exec("INSERT INTO like_rings (author_id, coincidences, occasions, first_at, last_at, evidence, found_at) VALUES (?,?,?,?,?,?,?)",
				ring.AuthorID, ring.Coincidences, ring.Occasions, ring.FirstAt, ring.LastAt, string(evidence), s.now().UTC()).Error
			if err == nil {
				err = tx.Raw("SELECT LAST_INSERT_ID()").Scan(&ring.ID).Error
			}
		} else {
			ring.ID = known[0]
			// The days that are looked at move on, so the first time is kept.
			err = tx.Exec("UPDATE like_rings SET coincidences=?, occasions=?, first_at=LEAST(first_at,?), last_at=?, evidence=? WHERE id=?",
				ring.Coincidences, ring.Occasions, ring.FirstAt, ring.LastAt, string(evidence), ring.ID).Error
		}
		if err != nil {
			return err
		}
		rows, args := strings.Repeat(",(?,?,?,?)", len(ring.Members))[1:], []any{}
		for _, m := range ring.Members {
			args = append(args, ring.ID, m.UserID, m.Coincidences, m.Likes)
		}
		return tx.Exec("INSERT INTO like_ring_members (ring_id, user_id, coincidences, likes) VALUES "+rows+
			" ON DUPLICATE KEY UPDATE coincidences=VALUES(coincidences), likes=VALUES(likes)", args...).Error
	})
	if err != nil {
		return false, fmt.Errorf("report ring around author %d: %w", ring.AuthorID, err)
	}
	return isNew, nil
}

const ringColumns = "r.id, r.author_id, COALESCE(u.username,'') AS author, r.coincidences, r.occasions, r.first_at, r.last_at, r.evidence, r.found_at, r.status," +
	" r.resolved_at, r.resolved_by, r.reason FROM like_rings r LEFT JOIN users u ON u.id=r.author_id"

// LikeRings lists the rings of a status, the latest first, with members and evidence: at most limit with ids below before
// (0 for the first page), in two queries.
func (s *Store) LikeRings(ctx context.Context, status RingStatus, before int64, limit int) ([]LikeRing, error) {
	where, args := "r.status=?", []any{string(status)}
	if before > 0 {
		where, args = where+" AND r.id<?", append(args, before)
	}
	return s.likeRings(ctx, where+" ORDER BY r.id DESC LIMIT ?", append(args, limit)...)
}

// LikeRing reads one ring; CodeNotFound when there is none.
func (s *Store) LikeRing(ctx context.Context, id int64) (*LikeRing, error) {
	list, err := s.likeRings(ctx, "r.id=?", id)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, errNoRing()
	}
	return &list[0], nil
}

func errNoRing() *Error { return Errorf(CodeNotFound, "There is no such ring.") }

func (s *Store) likeRings(ctx context.Context, where string, args ...any) ([]LikeRing, error) {
	var list []LikeRing
	if err := s.db.WithContext(ctx).Raw("SELECT "+ringColumns+" WHERE "+where, args...).Scan(&list).Error; err != nil {
		return nil, fmt.Errorf("read rings: %w", err)
	}
	if len(list) == 0 {
		return nil, nil
	}
	ids, at := make([]int64, len(list)), map[int64]*LikeRing{}
	for i := range list {
		if err := json.Unmarshal([]byte(list[i].EvidenceJSON), &list[i].Evidence); err != nil {
			return nil, fmt.Errorf("read evidence of ring %d: %w", list[i].ID, err)
		}
		ids[i], at[list[i].ID] = list[i].ID, &list[i]
	}
	var members []RingMember
	err := s.db.WithContext(ctx).Raw("SELECT m.ring_id, m.user_id, COALESCE(u.username,'') AS username, m.coincidences, m.likes FROM like_ring_members m" +
		" LEFT JOIN users u ON u.id=m.user_id WHERE m.ring_id IN (" + joinIDs(ids) + ") ORDER BY m.ring_id, m.coincidences DESC, m.user_id").Scan(&members).Error
	if err != nil {
		return nil, fmt.Errorf("read members of rings: %w", err)
	}
	for _, m := range members {
		ring := at[m.RingID]
		ring.Members = append(ring.Members, m)
	}
	return list, nil
}

// DismissRing records that a moderator found nothing wrong with a ring. What its members did until now is not reported
// again. CodeNotFound when there is none, CodeConflict when it was dealt with already, CodeForbidden when the actor is no
// moderator any more, or is the author or a member.
func (s *Store) DismissRing(ctx context.Context, actor, id int64, reason string) error {
	return s.resolveRing(ctx, actor, id, RingDismissed, reason, func(*gorm.DB) (map[string]any, error) { return nil, nil })
}

// VoidRing asks for the likes of the members of a ring to be taken back that they gave anybody since the ring's first
// occasion (see VoidLikes), and gives the requests. Members whose account is gone are passed over: their likes are gone or
// going. CodeForbidden when the actor does not outrank a member; otherwise the errors are those of DismissRing.
func (s *Store) VoidRing(ctx context.Context, actor, id int64, reason string) (voids []LikeVoid, err error) {
	err = s.resolveRing(ctx, actor, id, RingVoided, reason, func(tx *gorm.DB) (map[string]any, error) {
		voids = voids[:0]
		var members []struct {
			UserID  int64
			FirstAt time.Time
		}
		err := tx.Raw("SELECT m.user_id, r.first_at FROM like_rings r JOIN like_ring_members m ON m.ring_id=r.id WHERE r.id=? ORDER BY m.user_id", id).Scan(&members).Error
		if err != nil {
			return nil, err
		}
		var ids []int64
		now := s.now().UTC()
		for _, m := range members {
			v := LikeVoid{UserID: m.UserID, RequestedBy: actor, LikedSince: &m.FirstAt, Reason: reason}
			err := s.voidLikes(tx, &v, now)
			if ErrorCode(err) == CodeNotFound {
				continue
			}
			if err != nil {
				return nil, err
			}
			voids, ids = append(voids, v), append(ids, v.ID)
		}
		return map[string]any{"voids": ids}, nil
	})
	return voids, err
}

func ringMembers(tx *gorm.DB, id int64) (users []int64, err error) {
	err = tx.Raw(`
		SELECT user_id
		FROM like_ring_members
		WHERE ring_id=?
		ORDER BY user_id`, id).Scan(&users).Error
	return users, err
}

// resolveRing deals with an open ring: act does what has to be done, and tells the log of it.
func (s *Store) resolveRing(ctx context.Context, actor, id int64, how RingStatus, reason string, act func(*gorm.DB) (map[string]any, error)) error {
	if err := ValidateReason(reason); err != nil {
		return err
	}
	err := s.transact(ctx, func(tx *gorm.DB) error {
		members, err := ringMembers(tx, id)
		if err != nil {
			return err
		}
		users, err := lockStandings(tx, append(slices.Clone(members), actor)...)
		if err != nil {
			return err
		}
		if err := s.requireRole(users[actor], RoleModerator); err != nil {
			return err
		}
		var ring struct {
			Status RingStatus
			Own    bool
		}
		read := tx.Raw("SELECT status, author_id=? OR EXISTS (SELECT 1 FROM like_ring_members m WHERE m.ring_id=like_rings.id AND m.user_id=?) AS own"+
			" FROM like_rings FORCE INDEX (PRIMARY) WHERE id=? FOR UPDATE", actor, actor, id).Scan(&ring)
		switch {
		case read.Error != nil:
			return read.Error
		case read.RowsAffected == 0:
			return errNoRing()
		case ring.Own:
			return errOwnCase()
		case ring.Status != RingOpen:
			return Errorf(CodeConflict, "The ring was %s already.", ring.Status)
		}
		if now, err := ringMembers(tx, id); err != nil {
			return err
		} else if !slices.Equal(now, members) {
			return errChangedMeanwhile // it grew until it was locked
		}
		after, err := act(tx)
		if err != nil {
			return err
		}
		if after == nil {
			after = map[string]any{}
		}
		after["status"] = string(how)
		if err := tx.Exec("UPDATE like_rings SET status=?, resolved_at=?, resolved_by=?, reason=? WHERE id=?", string(how), s.now().UTC(), actor, reason, id).Error; err != nil {
			return err
		}
		action := map[RingStatus]string{RingDismissed: "like_ring.dismiss", RingVoided: "like_ring.void"}[how]
		return s.logModeration(tx, Act{ActorID: actor, Action: action, TargetType: "like_ring", TargetID: id, Reason: reason,
			Before: map[string]any{"status": string(RingOpen)}, After: after})
	})
	if err != nil {
		return fmt.Errorf("resolve ring %d: %w", id, err)
	}
	return nil
}
