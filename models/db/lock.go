package db

import (
	"fmt"
	"slices"
)

// LockRows locks those rows of a table whose id is among ids, in the order of their ids, and reads columns of each into
// a T. Ids without a row are left out.
func LockRows[T any](tx *Tx, table, columns string, ids []int64) ([]T, error) {
	var locked []T
	for batch := range slices.Chunk(Ascending(ids), LockedAtOnce) {
		query := `
			SELECT ` + columns + `
			FROM ` + table + ` FORCE INDEX (PRIMARY)
			WHERE id IN (` + JoinIDs(batch) + `)
			ORDER BY id
			FOR UPDATE`
		var rows []T
		if err := tx.Raw(query).Scan(&rows).Error; err != nil {
			return nil, fmt.Errorf("lock %s: %w", table, err)
		}
		locked = append(locked, rows...)
	}
	return locked, nil
}
