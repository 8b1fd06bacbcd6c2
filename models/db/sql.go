package db

import (
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// PurgeBatch bounds the rows that one transaction of PurgeUser deletes.
const PurgeBatch = 500

// WrittenClaims is the number of rows that one statement writes.
const WrittenClaims = 5000

// SQLTime formats a time as a literal of SQL.
func SQLTime(t *time.Time) string {
	if t == nil {
		return "NULL"
	}
	return "'" + t.UTC().Format(SQLMillis) + "'"
}

// Ascending returns ids, each once, in the order in which rows are locked.
func Ascending(ids []int64) []int64 { return slices.Compact(slices.Sorted(slices.Values(ids))) }

const (
	// MaxExamined is the maximum number of index entries that are read for one page of a list with conditions, lookups
	// included.
	MaxExamined = 20_000
	// FirstSegment is the number of index entries in the first segment of a list. Each further segment is four times as
	// long as the one before.
	FirstSegment = 256
)

// SQLMillis is the layout of a time in a statement, with milliseconds.
const SQLMillis = "2006-01-02 15:04:05.000"

// LockedAtOnce is the number of targets that one statement locks. For a much longer list, the range optimizer runs out
// of range_optimizer_max_mem_size, and the server would lock the whole table.
const LockedAtOnce = 5000

// ReadPairs is the number of (target, user) pairs that one query reads. The time to plan an OR grows with the square of
// its length. The users of one target are an IN, which may be longer.
const (
	ReadPairs = 500
	ReadUsers = 5000
)

// CaseOf returns an expression for the value of each id, or for otherwise. Ids of one value are one list, which the
// servers search by bisection. A WHEN for each id would be searched from the first to the last.
func CaseOf[N int | int64](values map[int64]N, otherwise string) string {
	ids := map[N][]int64{} // by value
	for _, id := range slices.Sorted(maps.Keys(values)) {
		ids[values[id]] = append(ids[values[id]], id)
	}
	var b strings.Builder
	b.WriteString("CASE")
	for _, value := range slices.Sorted(maps.Keys(ids)) {
		fmt.Fprintf(&b, " WHEN id IN (%s) THEN %d", JoinIDs(ids[value]), value)
	}
	b.WriteString(" ELSE " + otherwise + " END")
	return b.String()
}

// LikeEscape escapes a text for LIKE.
func LikeEscape(text string) string {
	return strings.NewReplacer(`\`, `\\`, "%", `\%`, "_", `\_`).Replace(text)
}

// JoinIDs formats ids for an IN list. Only numbers get in, so nothing needs quoting.
func JoinIDs(ids []int64) string {
	var b strings.Builder
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(id, 10))
	}
	return b.String()
}

// HexOf formats a hash for UNHEX(?). A statement must not contain bytes that are not text: MySQL fails every query of
// the process list while such a statement runs.
func HexOf(hash [32]byte) string { return hex.EncodeToString(hash[:]) }

// MaxPassed bounds the index entries that a page of a list examines. For each of them, a few rows are read to find out
// whether the viewer sees it.
const MaxPassed = MaxExamined / 4

// IDsWhere returns those ids of a table whose rows meet the conditions.
func IDsWhere(tx *Tx, table string, where Conditions, ids []int64) (map[int64]bool, error) {
	found := make(map[int64]bool, len(ids))
	for batch := range slices.Chunk(ids, ReadUsers) {
		where := where.Clone()
		where.Add("id IN (" + JoinIDs(batch) + ")")
		query := `
			SELECT id
			FROM ` + table + ` FORCE INDEX (PRIMARY)
			` + where.Clause()
		var list []int64
		if err := tx.Raw(query, where.Args...).Scan(&list).Error; err != nil {
			return nil, fmt.Errorf("read %s: %w", table, err)
		}
		for _, id := range list {
			found[id] = true
		}
	}
	return found, nil
}
