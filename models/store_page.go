package models

import (
	"context"
	"fmt"
	"slices"

	"gorm.io/gorm"
)

// PageBytes bounds a page of a list: its JSON, in bytes, and so the content of its rows.
const PageBytes = 1 << 20

// ListKey is the place in a list after which it continues: the value of the sort column and the id of the last item
// read. A time is in seconds since 1970 UTC.
type ListKey struct {
	Value int64
	ID    int64
}

type holdKey struct{}

// WithHold returns a context with which lists report the content that they read, in bytes, as they read it. They end
// with the error that hold returns.
func WithHold(ctx context.Context, hold func(bytes int) error) context.Context {
	return context.WithValue(ctx, holdKey{}, hold)
}

// hold reports content that was read.
func hold(ctx context.Context, bytes int) error {
	if report, ok := ctx.Value(holdKey{}).(func(int) error); ok && bytes > 0 {
		return report(bytes)
	}
	return nil
}

func postSize(p *Post) int { return len(p.Content) }

// noContent is the size of rows that are short and of bounded length.
func noContent[T any](*T) int { return 0 }

// commentSize leaves the content out that the viewer does not see.
func commentSize(c *Comment) int {
	if c.Hidden() {
		c.Content = ""
	}
	return len(c.Content)
}

// scanPage reads rows of a list until those it has read have more than room bytes of content, as size counts it. With
// room for PageBytes, the page of JSON is full before the last of them, because JSON is not shorter than the content; so
// nobody takes this for the list's end. left is what is left of room: scanPage stopped if it is negative.
func scanPage[T any](read *gorm.DB, room int, size func(*T) int) (page []T, left int, err error) {
	rows, err := read.Rows()
	if err != nil {
		return nil, 0, err
	}
	session := read.Session(&gorm.Session{NewDB: true})
	defer func() {
		if closing := rows.Close(); err == nil {
			err = closing
		}
	}()
	for room >= 0 && rows.Next() {
		var row T
		if err := session.ScanRows(rows, &row); err != nil {
			return nil, 0, err
		}
		page = append(page, row)
		n := size(&page[len(page)-1])
		if err := hold(read.Statement.Context, n); err != nil {
			return nil, 0, err
		}
		room -= n
	}
	return page, room, rows.Err()
}

// maxPassed bounds the entries of its index that a page of a list looks at, for each of which a few rows are read to find
// whether the viewer sees it.
const maxPassed = maxExamined / 4

// trail is an index that has a list in its order, the latest first, hidden rows included: those that are deleted, or by
// somebody whom the viewer blocks.
type trail struct {
	from  string // the table with its alias and index
	where string // the beginning of the index
	args  []any
	time  string // the column of the index that is before the id; "" if the order is that of ids
	id    string
}

func (t *trail) order() string {
	if t.time == "" {
		return t.id + " DESC"
	}
	return t.time + " DESC, " + t.id + " DESC"
}

// segment returns the condition of a piece of the index: after a key and up to another, either of which can be nil.
func (t *trail) segment(after, until *ListKey) (where string, args []any) {
	where, args = t.where, slices.Clone(t.args)
	if t.time != "" {
		if between, keys := keyRange(t.time, "FROM_UNIXTIME(?)", t.id, after, until); between != "" {
			where, args = where+" AND "+between, append(args, keys...)
		}
		return where, args
	}
	if after != nil {
		where, args = where+" AND "+t.id+"<?", append(args, after.ID)
	}
	if until != nil {
		where, args = where+" AND "+t.id+">=?", append(args, until.ID)
	}
	return where, args
}

// keyRange returns the condition that a row comes after one key and not after another, in the descending order of a
// column and then of id; "" without keys. value is the placeholder for a key's value. The condition is written as ranges
// that do not overlap, so that the server reads nothing else from the index.
func keyRange(column, value, id string, after, until *ListKey) (where string, args []any) {
	var format string
	switch {
	case after == nil && until == nil:
		return "", nil
	case until == nil:
		format = "(%[1]s<%[2]s OR %[1]s=%[2]s AND %[3]s<?)"
		args = []any{after.Value, after.Value, after.ID}
	case after == nil:
		format = "(%[1]s>%[2]s OR %[1]s=%[2]s AND %[3]s>=?)"
		args = []any{until.Value, until.Value, until.ID}
	case after.Value == until.Value:
		format = "%[1]s=%[2]s AND %[3]s<? AND %[3]s>=?"
		args = []any{after.Value, after.ID, until.ID}
	default:
		format = `(%[1]s>%[2]s AND %[1]s<%[2]s
			OR %[1]s=%[2]s AND %[3]s<?
			OR %[1]s=%[2]s AND %[3]s>=?)`
		args = []any{until.Value, after.Value, after.Value, after.ID, until.Value, until.ID}
	}
	return fmt.Sprintf(format, column, value, id), args
}

// boundary returns the last of the next size entries after a key; nil if there are fewer.
func (s *Store) boundary(ctx context.Context, t *trail, after *ListKey, size int) (*ListKey, error) {
	value := "0"
	if t.time != "" {
		value = "UNIX_TIMESTAMP(" + t.time + ")"
	}
	where, args := t.segment(after, nil)
	var keys []ListKey
	err := s.db.WithContext(ctx).Raw(`
SELECT `+value+` AS value, `+t.id+` AS id
FROM `+t.from+`
WHERE `+where+`
ORDER BY `+t.order()+`
LIMIT 1 OFFSET ?`, append(args, size-1)...).Scan(&keys).Error
	if err != nil || len(keys) == 0 {
		return nil, err
	}
	return &keys[0], nil
}

// sift reads a page of a list along a trail, in segments that grow, until it has limit rows or PageBytes of content, as
// size counts it, or until it has looked at maxPassed entries. query makes the query of the visible rows of a segment.
// rest is where the list continues after all entries that were looked at, if the page is not full; nil for its end.
func sift[T any](ctx context.Context, s *Store, t trail, after *ListKey, limit int,
	query func(where string, args []any, limit int) *gorm.DB, size func(*T) int,
) (page []T, rest *ListKey, err error) {
	room := PageBytes
	for segment, budget := limit, maxPassed; budget > 0; segment *= 4 {
		segment = min(segment, budget)
		budget -= segment
		until, err := s.boundary(ctx, &t, after, segment)
		if err != nil {
			return nil, nil, err
		}
		where, args := t.segment(after, until)
		var rows []T
		if rows, room, err = scanPage(query(where, args, limit-len(page)), room, size); err != nil {
			return nil, nil, err
		}
		page = append(page, rows...)
		if room < 0 || len(page) == limit || until == nil {
			return page, nil, nil
		}
		after = until
	}
	return page, after, nil
}

// beforeID is the place of a list in the order of ids after the row with this id; nil for 0.
func beforeID(id int64) *ListKey {
	if id == 0 {
		return nil
	}
	return &ListKey{ID: id}
}
