package moderation

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"likewise/models"
	"likewise/models/db"
)

// LastLikeID returns the highest row id of the likes of a kind of target; 0 if there is none.
func (s *Store) LastLikeID(ctx context.Context, kind models.TargetKind) (int64, error) {
	table := db.TargetTables[kind].Likes
	query := `
		SELECT COALESCE(MAX(id), 0)
		FROM ` + table
	var id int64
	if err := s.Read(ctx).Raw(query).Scan(&id).Error; err != nil {
		return 0, fmt.Errorf("last id of %s: %w", table, err)
	}
	return id, nil
}

// LikesBetween returns the likes of a kind with row ids above after, up to upTo, that were accepted since a time.
func (s *Store) LikesBetween(ctx context.Context, kind models.TargetKind, after, upTo int64, since time.Time,
) ([]models.AuthoredLike, error) {
	where := db.Matching("l.id>? AND l.id<=? AND l.created_at>=?", after, upTo, since)
	return s.authoredLikes(ctx, kind, db.TargetTables[kind].Likes, where)
}

// LatestLikesOf returns those of the latest likes of a kind by a user that were accepted since a time. It examines at
// most limit rows.
func (s *Store) LatestLikesOf(ctx context.Context, kind models.TargetKind, userID int64, since time.Time, limit int,
) ([]models.AuthoredLike, error) {
	t := db.TargetTables[kind]
	latest := fmt.Sprintf(`(
			SELECT id, user_id, %s, created_at
			FROM %s FORCE INDEX (idx_user_id)
			WHERE user_id=%d
			ORDER BY id DESC
			LIMIT %d
		)`, t.Column, t.Likes, userID, limit)
	return s.authoredLikes(ctx, kind, latest, db.Matching("l.created_at>=?", since))
}

// authoredLikes reads the likes l of a table that match where.
func (s *Store) authoredLikes(ctx context.Context, kind models.TargetKind, table string, where db.Conditions,
) ([]models.AuthoredLike, error) {
	t := db.TargetTables[kind]
	query := `
		SELECT l.id AS row_id, l.user_id, l.` + t.Column + ` AS target_id, t.user_id AS author_id,
			l.created_at AS liked_at
		FROM ` + table + ` l
		JOIN ` + t.Targets + ` t ON t.id=l.` + t.Column + `
		` + where.Clause()
	var list []models.AuthoredLike
	if err := s.Read(ctx).Raw(query, where.Args...).Scan(&list).Error; err != nil {
		return nil, fmt.Errorf("read %s: %w", t.Likes, err)
	}
	for i := range list {
		list[i].Kind = kind
	}
	return list, nil
}

// RingCheckpoint returns the row id of the likes of a kind up to which the search for rings has come. ok is false if
// there was no search yet.
func (s *Store) RingCheckpoint(ctx context.Context, kind models.TargetKind) (id int64, ok bool, err error) {
	const query = `
		SELECT value
		FROM settings
		WHERE name=?`
	var value []byte
	err = s.Read(ctx).Raw(query, ringMarkName(kind)).Row().Scan(&value)
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

// SetRingCheckpoint stores the row id for RingCheckpoint.
func (s *Store) SetRingCheckpoint(ctx context.Context, kind models.TargetKind, id int64) error {
	const insert = `
		INSERT INTO settings (name, value)
		VALUES (?, ?)
		ON DUPLICATE KEY UPDATE value=VALUES(value)`
	if _, err := s.Write(ctx, insert, ringMarkName(kind), strconv.FormatInt(id, 10)); err != nil {
		return fmt.Errorf("store mark of rings: %w", err)
	}
	return nil
}

func ringMarkName(kind models.TargetKind) string { return "rings_" + string(kind) }

// JudgedUntil returns, for those users whose rings around an author a moderator has resolved, the time of the latest
// resolution. Their likes up to that time are not reported again.
func (s *Store) JudgedUntil(ctx context.Context, authorID int64, users []int64) (map[int64]time.Time, error) {
	query := `
		SELECT m.user_id, MAX(r.resolved_at) AS resolved_at
		FROM like_rings r
		JOIN like_ring_members m ON m.ring_id=r.id
		WHERE r.author_id=? AND r.status<>? AND m.user_id IN (` + db.JoinIDs(users) + `)
		GROUP BY m.user_id`
	var rows []struct {
		UserID     int64
		ResolvedAt time.Time
	}
	if err := s.Read(ctx).Raw(query, authorID, models.RingOpen).Scan(&rows).Error; err != nil {
		return nil, fmt.Errorf("read rings of author %d: %w", authorID, err)
	}
	judged := make(map[int64]time.Time, len(rows))
	for _, r := range rows {
		judged[r.UserID] = r.ResolvedAt
	}
	return judged, nil
}

// SaveRing stores a report of a ring and sets ring.ID. If an open report of the same author has a member in common, the
// ring replaces it. isNew reports whether there was none. A ring around an author without a row is not stored, nor is
// one whose members were all judged since its last occasion.
func (s *Store) SaveRing(ctx context.Context, ring *models.LikeRing) (isNew bool, err error) {
	evidence, err := json.Marshal(ring.Evidence)
	if err != nil {
		return false, fmt.Errorf("encode evidence: %w", err)
	}
	err = s.Transact(ctx, func(tx *db.Tx) error {
		isNew = false
		const lockAuthor = `
			SELECT id
			FROM users FORCE INDEX (PRIMARY)
			WHERE id=?
			FOR UPDATE`
		var author int64 // locked, so that two jobs do not report the same ring
		lock := tx.Raw(lockAuthor, ring.AuthorID).Scan(&author)
		if lock.Error != nil || lock.RowsAffected == 0 {
			return lock.Error
		}
		known, err := lockKnownRing(tx, ring)
		if err != nil {
			return err
		}
		if known == 0 {
			judged, err := isJudged(tx, ring)
			if err != nil || judged {
				return err
			}
		}
		if isNew = known == 0; isNew {
			err = insertRing(tx, ring, evidence, tx.Now)
		} else {
			ring.ID = known
			err = updateRing(tx, ring, evidence)
		}
		if err != nil {
			return err
		}
		return writeRingMembers(tx, ring)
	})
	if err != nil {
		return false, fmt.Errorf("report ring around author %d: %w", ring.AuthorID, err)
	}
	return isNew, nil
}

// lockKnownRing locks the open report of the same author with a member in common and returns its id; 0 if there is
// none. It waits for a moderator who is resolving the report, because a resolved report gets no more members.
func lockKnownRing(tx *db.Tx, ring *models.LikeRing) (id int64, err error) {
	find := `
		SELECT r.id
		FROM like_rings r
		JOIN like_ring_members m ON m.ring_id=r.id
		WHERE r.author_id=? AND r.status=? AND m.user_id IN (` + db.JoinIDs(ring.MemberIDs()) + `)
		ORDER BY r.id
		LIMIT 1`
	var known []int64
	if err := tx.Raw(find, ring.AuthorID, models.RingOpen).Scan(&known).Error; err != nil || len(known) == 0 {
		return 0, err
	}
	const lock = `
		SELECT status
		FROM like_rings FORCE INDEX (PRIMARY)
		WHERE id=?
		FOR UPDATE`
	var status models.RingStatus
	if err := tx.Raw(lock, known[0]).Scan(&status).Error; err != nil {
		return 0, err
	}
	if status != models.RingOpen {
		return 0, db.ErrChangedMeanwhile
	}
	return known[0], nil
}

// isJudged reports whether moderators have resolved rings of all members since the ring's last occasion (see
// JudgedUntil).
func isJudged(tx *db.Tx, ring *models.LikeRing) (bool, error) {
	query := `
		SELECT COUNT(DISTINCT m.user_id)
		FROM like_rings r
		JOIN like_ring_members m ON m.ring_id=r.id
		WHERE r.author_id=? AND r.status<>? AND r.resolved_at>=?
			AND m.user_id IN (` + db.JoinIDs(ring.MemberIDs()) + `)`
	var judged int
	err := tx.Raw(query, ring.AuthorID, models.RingOpen, ring.LastAt).Scan(&judged).Error
	return judged == len(ring.Members), err
}

func insertRing(tx *db.Tx, ring *models.LikeRing, evidence []byte, now time.Time) error {
	const insert = `
		INSERT INTO like_rings (author_id, coincidences, occasions, first_at, last_at, evidence, found_at)
		VALUES (?, ?, ?, ?, ?, ?, ?)`
	err := tx.Exec(insert, ring.AuthorID, ring.Coincidences, ring.Occasions, ring.FirstAt, ring.LastAt,
		string(evidence), now.UTC()).Error
	if err != nil {
		return err
	}
	return tx.Raw("SELECT LAST_INSERT_ID()").Scan(&ring.ID).Error
}

// updateRing replaces a report. The period that is examined moves on, so the first time is kept.
func updateRing(tx *db.Tx, ring *models.LikeRing, evidence []byte) error {
	const update = `
		UPDATE like_rings
		SET coincidences=?, occasions=?, first_at=LEAST(first_at,?), last_at=?, evidence=?
		WHERE id=?`
	return tx.Exec(update,
		ring.Coincidences, ring.Occasions, ring.FirstAt, ring.LastAt, string(evidence), ring.ID).Error
}

func writeRingMembers(tx *db.Tx, ring *models.LikeRing) error {
	args := make([]any, 0, 4*len(ring.Members))
	for _, m := range ring.Members {
		args = append(args, ring.ID, m.UserID, m.Coincidences, m.Likes)
	}
	insert := `
		INSERT INTO like_ring_members (ring_id, user_id, coincidences, likes)
		VALUES ` + strings.Repeat(",(?,?,?,?)", len(ring.Members))[1:] + `
		ON DUPLICATE KEY UPDATE coincidences=VALUES(coincidences), likes=VALUES(likes)`
	return tx.Exec(insert, args...).Error
}

// LikeRings lists the rings with a status, latest first, with members and evidence: at most limit with ids below before
// (0 for the first page). It runs two queries.
func (s *Store) LikeRings(
	ctx context.Context, status models.RingStatus, before int64, limit int,
) ([]models.LikeRing, error) {
	where := db.Matching("r.status=?", status)
	where.AddIf(before > 0, "r.id<?", before)
	return s.likeRings(ctx, where, limit)
}

// LikeRing reads one ring. If it does not exist, LikeRing returns CodeNotFound.
func (s *Store) LikeRing(ctx context.Context, id int64) (*models.LikeRing, error) {
	list, err := s.likeRings(ctx, db.Matching("r.id=?", id), 1)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, errNoRing()
	}
	return &list[0], nil
}

func errNoRing() *models.Error { return models.Errorf(models.CodeNotFound, "There is no such ring.") }

func (s *Store) likeRings(ctx context.Context, where db.Conditions, limit int) ([]models.LikeRing, error) {
	query := `
		SELECT r.id, r.author_id, COALESCE(u.username, '') AS author, r.coincidences, r.occasions,
			r.first_at, r.last_at, r.evidence, r.found_at, r.status, r.resolved_at, r.resolved_by, r.reason
		FROM like_rings r
		LEFT JOIN users u ON u.id=r.author_id
		` + where.Clause() + `
		ORDER BY r.id DESC
		LIMIT ?`
	var list []models.LikeRing
	if err := s.Read(ctx).Raw(query, append(where.Args, limit)...).Scan(&list).Error; err != nil {
		return nil, fmt.Errorf("read rings: %w", err)
	}
	if len(list) == 0 {
		return nil, nil
	}
	ids, byID := make([]int64, len(list)), map[int64]*models.LikeRing{}
	for i := range list {
		if err := json.Unmarshal([]byte(list[i].EvidenceJSON), &list[i].Evidence); err != nil {
			return nil, fmt.Errorf("read evidence of ring %d: %w", list[i].ID, err)
		}
		ids[i], byID[list[i].ID] = list[i].ID, &list[i]
	}
	readMembers := `
		SELECT m.ring_id, m.user_id, COALESCE(u.username, '') AS username, m.coincidences, m.likes
		FROM like_ring_members m
		LEFT JOIN users u ON u.id=m.user_id
		WHERE m.ring_id IN (` + db.JoinIDs(ids) + `)
		ORDER BY m.ring_id, m.coincidences DESC, m.user_id`
	var members []models.RingMember
	if err := s.Read(ctx).Raw(readMembers).Scan(&members).Error; err != nil {
		return nil, fmt.Errorf("read members of rings: %w", err)
	}
	for _, m := range members {
		ring := byID[m.RingID]
		ring.Members = append(ring.Members, m)
	}
	return list, nil
}
