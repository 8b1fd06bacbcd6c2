package accounts

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"likewise/models"
	"likewise/models/db"
)

// sessionChangeLife is how long a change is kept. A process that has not read changes for SessionStale has no session
// left that it would still trust.
const sessionChangeLife = 6 * models.SessionStale

// SessionsChanged makes all processes read the sessions of a user again, once the transaction is committed.
func SessionsChanged(tx *db.Tx, userID int64) error {
	const insert = `
		INSERT INTO session_changes (user_id)
		VALUES (?)`
	return tx.Exec(insert, userID).Error
}

// LastSessionChange returns the number of the latest change; 0 if there is none.
func (s *Store) LastSessionChange(ctx context.Context) (int64, error) {
	const query = `
		SELECT COALESCE(MAX(id), 0)
		FROM session_changes`
	var last int64
	if err := s.Read(ctx).Raw(query).Scan(&last).Error; err != nil {
		return 0, fmt.Errorf("read the last change of sessions: %w", err)
	}
	return last, nil
}

// SessionChanges returns the first limit changes from a number on, and those of the numbers in missing that are there
// by now, in ascending order.
func (s *Store) SessionChanges(
	ctx context.Context, from int64, missing []int64, limit int,
) ([]models.SessionChange, error) {
	const query = `
		SELECT id, user_id
		FROM session_changes
		WHERE id>=?
		ORDER BY id
		LIMIT ?`
	var changes []models.SessionChange
	// The missing ones first: what is committed between the two queries then counts as missing, and not as read.
	if len(missing) > 0 {
		late := `
			SELECT id, user_id
			FROM session_changes
			WHERE id IN (` + db.JoinIDs(missing) + `)
			ORDER BY id`
		if err := s.Read(ctx).Raw(late).Scan(&changes).Error; err != nil {
			return nil, fmt.Errorf("read late changes of sessions: %w", err)
		}
	}
	var next []models.SessionChange
	if err := s.Read(ctx).Raw(query, from, limit).Scan(&next).Error; err != nil {
		return nil, fmt.Errorf("read changes of sessions: %w", err)
	}
	return append(changes, next...), nil
}

// PurgeSessionChanges deletes at most limit changes that every process has read, and returns how many it deleted. The
// latest change stays: a process that misses it knows that the database was restored from a backup.
func (s *Store) PurgeSessionChanges(ctx context.Context, limit int) (int64, error) {
	const remove = `
		DELETE FROM session_changes
		WHERE id<=?`
	const find = `
		SELECT id
		FROM session_changes
		WHERE changed_at<? AND id<(SELECT MAX(id) FROM session_changes)
		ORDER BY id
		LIMIT ?`
	var old []int64
	before := s.Now().UTC().Add(-sessionChangeLife)
	if err := s.Read(ctx).Raw(find, before, limit).Scan(&old).Error; err != nil {
		return 0, fmt.Errorf("find old changes of sessions: %w", err)
	}
	if len(old) == 0 {
		return 0, nil
	}
	purged, err := s.Write(ctx, remove, old[len(old)-1])
	if err != nil {
		return 0, fmt.Errorf("purge changes of sessions: %w", err)
	}
	return purged, nil
}

// SessionsByHash returns the sessions of those token hashes that are valid. The others are unknown, ended or expired,
// or the account is banned or was deleted.
func (s *Store) SessionsByHash(ctx context.Context, hashes [][32]byte) (map[[32]byte]*models.Session, error) {
	query := `
		SELECT s.token_hash, s.user_id, u.username, u.display_name, u.avatar_url, u.role, u.created_at AS since,
			s.expires_at, s.proven_at, s.is_token, s.scopes, s.second_factor, s.last_used_at,
			EXISTS (SELECT 1 FROM blocks b WHERE b.blocked_id=s.user_id) AS blocked
		FROM sessions s
		JOIN users u ON u.id=s.user_id
			AND u.deleted_at IS NULL
			AND (u.banned_until IS NULL OR u.banned_until<=?)
		WHERE s.token_hash IN (` + hashList(hashes) + `) AND s.expires_at>?`
	now := s.Now().UTC()
	rows, err := s.Read(ctx).Raw(query, now, now).Rows()
	if err != nil {
		return nil, fmt.Errorf("read sessions: %w", err)
	}
	defer rows.Close()
	found := make(map[[32]byte]*models.Session, len(hashes))
	for rows.Next() {
		// While a post goes viral, most likes read a session. GORM takes twice as long to scan one.
		var hash sql.RawBytes
		item := &models.Session{}
		err := rows.Scan(&hash, &item.UserID, &item.Username, &item.DisplayName, &item.AvatarURL, &item.Role,
			&item.Since, &item.ExpiresAt, &item.ProvenAt, &item.IsToken, &item.Scopes, &item.SecondFactor,
			&item.LastUsedAt, &item.Blocked)
		if err != nil {
			return nil, fmt.Errorf("read sessions: %w", err)
		}
		found[[32]byte(hash)] = item
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read sessions: %w", err)
	}
	return found, nil
}

// UseTokens records that API tokens are used now, except for those with a recorded use less than a minute ago.
func (s *Store) UseTokens(ctx context.Context, hashes [][32]byte) error {
	if len(hashes) == 0 {
		return nil
	}
	update := `
		UPDATE sessions FORCE INDEX (PRIMARY)
		SET last_used_at=?
		WHERE token_hash IN (` + hashList(hashes) + `) AND (last_used_at IS NULL OR last_used_at<=?)`
	now := models.WholeSeconds(s.Now())
	if _, err := s.Write(ctx, update, now, now.Add(-models.TokenUsedEvery)); err != nil {
		return fmt.Errorf("record use of tokens: %w", err)
	}
	return nil
}

// hashList returns the hashes as hexadecimal literals for IN, in ascending order, which is that of locks.
func hashList(hashes [][32]byte) string {
	literals := make([]string, len(hashes))
	for i, hash := range hashes {
		literals[i] = "x'" + db.HexOf(hash) + "'"
	}
	slices.Sort(literals)
	return strings.Join(literals, ",")
}
