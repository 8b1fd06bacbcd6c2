package db

import (
	"context"
	"fmt"

	"gorm.io/gorm"

	"likewise/models"
)

// PageBytes bounds a page of a list: its JSON, in bytes, and so the content of its rows.
const PageBytes = 1 << 20

type budgetKey struct{}

// WithBudget returns a context under which lists report the content that they read, in bytes, as they read it. If spend
// returns an error, the list ends with that error.
func WithBudget(ctx context.Context, spend func(bytes int) error) context.Context {
	return context.WithValue(ctx, budgetKey{}, spend)
}

// Spend reports content that was read to the function of WithBudget.
func Spend(ctx context.Context, bytes int) error {
	if report, ok := ctx.Value(budgetKey{}).(func(int) error); ok && bytes > 0 {
		return report(bytes)
	}
	return nil
}

// PostSize returns the bytes of a post in a page.
func PostSize(p *models.Post) int { return len(p.Content) + len(p.Excerpt) }

// NoContent is the size function of rows that are short and of bounded length.
func NoContent[T any](*T) int { return 0 }

// CommentSize removes the content that the viewer does not see, and returns the size of the rest.
func CommentSize(c *models.Comment) int {
	if c.Hidden() {
		c.Content = ""
	}
	return len(c.Content)
}

// ScanPage reads rows of a list until their content, as size counts it, exceeds room bytes. left is the rest of room:
// if it is negative, scanPage stopped before the end of the rows.
//
// JSON is not shorter than the content. So with room for PageBytes the page of JSON is full before the last of these
// rows, and no client takes the last one for the end of the list.
func ScanPage[T any](read *gorm.DB, room int, size func(*T) int) (page []T, left int, err error) {
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
		if err := Spend(read.Statement.Context, n); err != nil {
			return nil, 0, err
		}
		room -= n
	}
	return page, room, rows.Err()
}

// Trail is an index that holds a list in its order, the latest first. It includes rows that the viewer does not see:
// deleted ones, and those of users whom the viewer blocks.
type Trail struct {
	From  string     // the table with its alias and index
	Where Conditions // on the first columns of the index
	Time  string     // the column of the index before the id; "" if the order is that of ids
	ID    string
}

// Order returns the columns of ORDER BY.
func (t *Trail) Order() string {
	if t.Time == "" {
		return t.ID + " DESC"
	}
	return t.Time + " DESC, " + t.ID + " DESC"
}

// Segment returns the conditions of a piece of the index: after one key and up to another. Either key can be nil.
func (t *Trail) Segment(after, until *models.ListKey) Conditions {
	where := t.Where.Clone()
	if t.Time != "" {
		if between, keys := KeyRange(t.Time, "FROM_UNIXTIME(?)", t.ID, after, until); between != "" {
			where.Add(between, keys...)
		}
		return where
	}
	if after != nil {
		where.Add(t.ID+"<?", after.ID)
	}
	if until != nil {
		where.Add(t.ID+">=?", until.ID)
	}
	return where
}

// KeyRange returns the condition that a row comes after one key and not after another, in the descending order of a
// column and then of id; "" without keys. value is the placeholder for a key's value. The condition is written as
// ranges that do not overlap, so that the server reads nothing else from the index.
func KeyRange(column, value, id string, after, until *models.ListKey) (where string, args []any) {
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
func (s *DB) boundary(ctx context.Context, t *Trail, after *models.ListKey, size int) (*models.ListKey, error) {
	value := "0"
	if t.Time != "" {
		value = "UNIX_TIMESTAMP(" + t.Time + ")"
	}
	where := t.Segment(after, nil)
	query := `
		SELECT ` + value + ` AS value, ` + t.ID + ` AS id
		FROM ` + t.From + `
		` + where.Clause() + `
		ORDER BY ` + t.Order() + `
		LIMIT 1 OFFSET ?`
	var keys []models.ListKey
	err := s.Read(ctx).Raw(query, append(where.Args, size-1)...).Scan(&keys).Error
	if err != nil || len(keys) == 0 {
		return nil, err
	}
	return &keys[0], nil
}

// Sift reads a page of a list along a trail, in segments that grow. The page ends at limit rows, at PageBytes of
// content as size counts it, or after maxPassed index entries. query makes the query of the visible rows of a segment,
// to which it can add conditions. If the page is not full, rest is the place after the last entry that was examined; it
// is nil at the end of the list.
func Sift[T any](
	ctx context.Context, s *DB, t Trail, after *models.ListKey, limit int,
	query func(segment Conditions, limit int) *gorm.DB, size func(*T) int,
) (page []T, rest *models.ListKey, err error) {
	room := PageBytes
	for segment, budget := limit, MaxPassed; budget > 0; segment *= 4 {
		segment = min(segment, budget)
		budget -= segment
		until, err := s.boundary(ctx, &t, after, segment)
		if err != nil {
			return nil, nil, err
		}
		var rows []T
		if rows, room, err = ScanPage(query(t.Segment(after, until), limit-len(page)), room, size); err != nil {
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

// BeforeID returns the place after the row with this id in a list in the order of ids; nil for 0.
func BeforeID(id int64) *models.ListKey {
	if id == 0 {
		return nil
	}
	return &models.ListKey{ID: id}
}
