package models

import (
	"context"

	"gorm.io/gorm"
)

// PageBytes bounds a page of a list: its JSON, in bytes, and so the content of its rows.
const PageBytes = 1 << 20

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

// commentSize leaves the content out that the viewer does not see.
func commentSize(c *Comment) int {
	if c.Hidden() {
		c.Content = ""
	}
	return len(c.Content)
}

// scanPage reads rows of a list until those it has read have more than PageBytes of content, as size counts it. The
// page of JSON is full before the last of them, because JSON is no shorter than the content; so nobody takes this for
// the list's end. cut reports whether it stopped.
func scanPage[T any](read *gorm.DB, size func(*T) int) (page []T, cut bool, err error) {
	rows, err := read.Rows()
	if err != nil {
		return nil, false, err
	}
	session := read.Session(&gorm.Session{NewDB: true})
	defer func() {
		if closing := rows.Close(); err == nil {
			err = closing
		}
	}()
	for room := PageBytes; rows.Next(); {
		var row T
		if err := session.ScanRows(rows, &row); err != nil {
			return nil, false, err
		}
		page = append(page, row)
		n := size(&page[len(page)-1])
		if err := hold(read.Statement.Context, n); err != nil {
			return nil, false, err
		}
		if room -= n; room < 0 {
			return page, true, nil
		}
	}
	return page, false, rows.Err()
}
