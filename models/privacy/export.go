package privacy

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/db"
)

// exportLife is the time for which an archive is kept after it was built, and for which a request for one is valid. A
// user has one export at a time, so it is also the minimum time between two builds.
const exportLife = 24 * time.Hour

// maxExportChunk is the maximum size of a chunk in bytes.
const maxExportChunk = 1<<20 - 1

const exportColumns = `id, COALESCE(user_id,0) AS user_id, state, section, part, after_value, after_id,
			chunks, size, requested_at, ready_at, expires_at`

// RequestExport returns the export of a user. If there is none, or it has expired, it requests one. CodeUnauthorized:
// the user is banned or the account was deleted, and the session is still cached.
func (s *Store) RequestExport(ctx context.Context, userID int64) (*models.Export, error) {
	const read = `
		SELECT ` + exportColumns + `
		FROM exports
		WHERE user_id=?
		FOR UPDATE`
	const insert = `
		INSERT INTO exports (user_id, state, section, part, after_value, after_id, requested_at, expires_at)
		VALUES (?,?,?,?,0,0,?,?)`
	var e *models.Export
	err := s.Transact(ctx, func(tx *db.Tx) error {
		found, err := accounts.LockStandings(tx, userID) // two requests take turns
		if err != nil {
			return err
		}
		now := tx.Now.Truncate(time.Millisecond)
		user := found[userID]
		if user == nil || user.Ban(now) != nil {
			return models.Errorf(models.CodeUnauthorized, "The token is not valid.")
		}
		var rows []models.Export
		if err := tx.Raw(read, userID).Scan(&rows).Error; err != nil {
			return err
		}
		if len(rows) > 0 && rows[0].ExpiresAt.After(now) {
			e = &rows[0]
			return nil
		}
		if err := dropExport(tx, userID); err != nil {
			return err
		}
		e = &models.Export{
			UserID: userID, State: models.ExportBuilding, Place: models.ExportCursor{Section: exportSections[0].name,
				Part: 1},
			RequestedAt: now, ExpiresAt: now.Add(exportLife),
		}
		err = tx.Exec(insert, userID, e.State, e.Place.Section, e.Place.Part, e.RequestedAt, e.ExpiresAt).Error
		if err != nil {
			return err
		}
		return tx.Raw("SELECT LAST_INSERT_ID()").Scan(&e.ID).Error
	})
	if err != nil {
		return nil, fmt.Errorf("request export of user %d: %w", userID, err)
	}
	return e, nil
}

// dropExport makes a user's export unavailable at once. RemoveExports deletes its chunks, which may be many.
func dropExport(tx *db.Tx, userID int64) error {
	const update = `
		UPDATE exports
		SET user_id=NULL
		WHERE user_id=?`
	return tx.Exec(update, userID).Error
}

// ExportChunk reads one chunk of a user's export. CodeNotFound: the export has expired or was dropped meanwhile.
func (s *Store) ExportChunk(ctx context.Context, e *models.Export, number int) ([]byte, error) {
	var rows []struct{ Data []byte }
	const read = `
		SELECT c.data
		FROM exports e
		JOIN export_chunks c ON c.export_id=e.id AND c.number=?
		WHERE e.id=? AND e.user_id=? AND e.expires_at>?`
	if err := s.Read(ctx).Raw(read, number, e.ID, e.UserID, s.Now().UTC()).Scan(&rows).Error; err != nil {
		return nil, fmt.Errorf("read export %d: %w", e.ID, err)
	}
	if len(rows) == 0 {
		return nil, models.Errorf(models.CodeNotFound, "The export has expired.")
	}
	return rows[0].Data, nil
}

// WaitingExports lists at most limit unfinished exports. Those with the fewest chunks come first, so that a large one
// does not delay the others.
func (s *Store) WaitingExports(ctx context.Context, limit int) ([]models.Export, error) {
	var list []models.Export
	const read = `
		SELECT ` + exportColumns + `
		FROM exports FORCE INDEX (idx_state_chunks)
		WHERE state=? AND user_id IS NOT NULL AND expires_at>?
		ORDER BY chunks, id
		LIMIT ?`
	if err := s.Read(ctx).Raw(read, models.ExportBuilding, s.Now().UTC(),
		limit).Scan(&list).Error; err != nil {
		return nil, fmt.Errorf("read exports: %w", err)
	}
	return list, nil
}

// AppendExport adds a chunk to an export and advances it to the next place; with done, it finishes the export. If
// another process has continued the export since e was read, or it was dropped, AppendExport changes nothing and
// returns false.
func (s *Store) AppendExport(
	ctx context.Context, e *models.Export, chunk []byte, next models.ExportCursor, done bool,
) (ok bool, err error) {
	if len(chunk) > maxExportChunk {
		return false, fmt.Errorf("export %d: a chunk of %d bytes", e.ID, len(chunk))
	}
	const update = `
		UPDATE exports
		SET state=?, section=?, part=?, after_value=?, after_id=?, chunks=?, size=?, ready_at=?, expires_at=?
		WHERE id=? AND user_id=? AND state=? AND chunks=?`
	const insert = `
		INSERT INTO export_chunks (export_id, number, data)
		VALUES (?,?,UNHEX(?))`
	after := *e
	after.Place, after.Chunks, after.Size = next, e.Chunks+1, e.Size+int64(len(chunk))
	if done {
		now := s.Now().UTC().Truncate(time.Millisecond)
		after.State, after.ReadyAt, after.ExpiresAt = models.ExportReady, &now, now.Add(exportLife)
	}
	err = s.Transact(ctx, func(tx *db.Tx) error {
		moved := tx.Exec(update, after.State, next.Section, next.Part, next.AfterValue, next.AfterID, after.Chunks,
			after.Size, after.ReadyAt, after.ExpiresAt,
			e.ID, e.UserID, models.ExportBuilding, e.Chunks)
		ok = moved.RowsAffected == 1
		if moved.Error != nil || !ok {
			return moved.Error
		}
		return tx.Exec(insert, e.ID, e.Chunks, hex.EncodeToString(chunk)).Error
	})
	if err != nil {
		return false, fmt.Errorf("write export %d: %w", e.ID, err)
	}
	if ok {
		*e = after
	}
	return ok, nil
}

const (
	removeExports = 100 // exports per query
	removeChunks  = 16  // chunks per statement, of up to 1 MiB each
)

// RemoveExports deletes the exports that have expired and those that were dropped, with their chunks, and returns the
// number of deleted exports.
func (s *Store) RemoveExports(ctx context.Context) (removed int, err error) {
	const expire = `
		UPDATE exports
		SET user_id=NULL
		WHERE expires_at<=? AND user_id IS NOT NULL`
	const find = `
		SELECT id
		FROM exports
		WHERE user_id IS NULL
		LIMIT ?`
	const deleteChunks = `
		DELETE FROM export_chunks
		WHERE export_id=?
		ORDER BY number
		LIMIT ?`
	const deleteExport = `
		DELETE FROM exports
		WHERE id=? AND user_id IS NULL`
	if _, err := s.Write(ctx, expire, s.Now().UTC()); err != nil {
		return 0, fmt.Errorf("expire exports: %w", err)
	}
	for {
		var ids []int64
		if err := s.Read(ctx).Raw(find, removeExports).Scan(&ids).Error; err != nil {
			return removed, fmt.Errorf("read dropped exports: %w", err)
		}
		for _, id := range ids {
			for more := true; more; {
				n, err := s.Write(ctx, deleteChunks, id, removeChunks)
				if err != nil {
					return removed, fmt.Errorf("remove chunks of export %d: %w", id, err)
				}
				more = n == removeChunks
			}
			n, err := s.Write(ctx, deleteExport, id)
			if err != nil {
				return removed, fmt.Errorf("remove export %d: %w", id, err)
			}
			removed += int(n)
		}
		if len(ids) < removeExports {
			return removed, nil
		}
	}
}
