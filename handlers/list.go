package handlers

import (
	"context"
	"iter"
	"runtime"
	"strconv"

	"github.com/gofiber/fiber/v2"

	"likewise/handlers/pages"
	"likewise/models"
	"likewise/models/db"
)

// list is the JSON of a page of a list.
type list[T any] struct {
	Items      []T     `json:"items"`
	NextCursor *string `json:"next_cursor"`
}

// listing describes a list to replyList: rows R are read from a store and shown as items J.
type listing[R, J any] struct {
	name string // signed into the cursors, so it must differ from that of every other list
	// read returns at most at.limit rows from a position on. It may return fewer if it has passed over too many rows,
	// or if the content of the rows exceeds db.PageBytes. In the first case rest is the position after all rows
	// that it has seen.
	read func(ctx context.Context, at position) (rows []R, rest *models.ListKey, err error)
	key  func(*R) models.ListKey // the position after a row
	show shower[R, J]
	more func(c *fiber.Ctx) ([]member, error) // further members of the answer; nil for none
}

// member is a member of the JSON of a page besides items and next_cursor.
type member struct {
	name  string
	value any
}

// position is where a page of a list begins.
type position struct {
	after *models.ListKey // nil: the beginning of the list
	limit int             // one row more than the page has items, to find out whether there are more
}

// id returns the id after which the page begins, of a list in the order of ids; 0 for the beginning.
func (p position) id() int64 {
	if p.after == nil {
		return 0
	}
	return p.after.ID
}

// all adapts a query that passes over no rows to listing.read.
func all[R any](rows []R, err error) ([]R, *models.ListKey, error) { return rows, nil, err }

// shower shows rows as items, one at a time and in their order, so that no item is rendered that does not fit in the
// page. It may stop early once the page is full.
type shower[R, J any] func(rows []R) iter.Seq2[J, error]

// ofUser returns the name of a list that belongs to a user.
func ofUser(list string, userID int64) string { return list + ":user=" + strconv.FormatInt(userID, 10) }

// replyList answers with the page of a list that ?limit= and ?cursor= select.
func replyList[R, J any](s *Server, c *fiber.Ctx, l listing[R, J]) error {
	n, err := pageLimit(c)
	if err != nil {
		return err
	}
	after, err := s.cursors.After(c, l.name)
	if err != nil {
		return err
	}
	rows, rest, err := l.read(c.UserContext(), position{after, n + 1})
	if err != nil {
		return err
	}
	p := page[R]{name: l.name, rows: rows, limit: n, key: l.key, rest: rest}
	if l.more != nil {
		if p.more, err = l.more(c); err != nil {
			return err
		}
	}
	return replyPage(s, c, p, l.show)
}

// page holds the rows that were read for a page of a list: one more than limit, if there are more.
type page[R any] struct {
	name  string
	since int64 // the oldest time of the list's window, in Unix seconds; 0 without a window
	rows  []R
	limit int
	key   func(*R) models.ListKey
	rest  *models.ListKey // the position after all rows; nil at the end of the list
	// complete reports whether a search has examined all candidates for the page; nil if the list is not a search.
	complete *bool
	more     []member
}

// pageOverhead is the size of a page without its items, in bytes.
var pageOverhead = len(`{"items":[],"complete":false,"next_cursor":""}`) + pages.CursorLength

// longItem is the size of an item, in bytes of JSON, from which replyPage yields the processor after writing it.
// Otherwise a page of long items keeps the processor for the scheduler's 10 ms, and short requests wait.
const longItem = 16 << 10

// replyPage answers with a page.
func replyPage[R, J any](s *Server, c *fiber.Ctx, p page[R], show shower[R, J]) error {
	h, err := encodePage(s, c, p, show)
	if err != nil {
		return err
	}
	return s.replyHalves(c, h)
}

func replyEncoded(c *fiber.Ctx, body []byte) error {
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	c.Response().SetBodyRaw(body)
	return nil
}

// encodePage encodes the rows of a page, up to its limit or to db.PageBytes, and at least one. If there are more,
// next_cursor names the position after the last item.
func encodePage[R, J any](s *Server, c *fiber.Ctx, p page[R], show shower[R, J]) (*halves, error) {
	h := &halves{}
	h.text("{")
	for _, m := range p.more {
		h.text(`"` + m.name + `":`)
		if err := h.append(m.value); err != nil {
			return nil, err
		}
		h.text(",")
	}
	h.text(`"items":[`)
	answered, err := appendItems(c, h, show(p.rows[:min(len(p.rows), p.limit)]))
	if err != nil {
		return nil, err
	}
	rest := p.rest
	if answered > 0 && answered < len(p.rows) {
		last := p.key(&p.rows[answered-1])
		rest = &last
	}
	h.text(`],`)
	if p.complete != nil {
		h.text(`"complete":` + strconv.FormatBool(*p.complete) + `,`)
	}
	h.text(`"next_cursor":`)
	if rest == nil {
		h.text("null}")
	} else {
		h.text(`"` + s.cursors.EncodeSince(p.name, *rest, p.since) + `"}`)
	}
	return h, nil
}

// appendItems appends as many items as fit in the page, and at least one, and returns how many.
func appendItems[J any](c *fiber.Ctx, h *halves, items iter.Seq2[J, error]) (answered int, err error) {
	room, held := db.PageBytes-pageOverhead, 0
	for v, err := range items {
		if err != nil {
			return 0, err
		}
		before := *h
		if answered > 0 {
			h.text(",")
		}
		if err := h.append(v); err != nil {
			return 0, err
		}
		if err := hold(c, cap(h.body)-held); err != nil {
			return 0, err
		}
		held = cap(h.body)
		if len(h.body)-len(before.body) > longItem {
			runtime.Gosched()
		}
		if answered > 0 && h.size() > room {
			h.body, h.gaps, h.missing = h.body[:len(before.body)], before.gaps, before.missing
			break
		}
		answered++
	}
	return answered, nil
}

// each shows every row by itself.
func each[R, J any](show func(*R) J) shower[R, J] {
	return tryEach(func(row *R) (J, error) { return show(row), nil })
}

// tryEach is each for rows that may fail to be rendered.
func tryEach[R, J any](show func(*R) (J, error)) shower[R, J] {
	return func(rows []R) iter.Seq2[J, error] {
		return func(yield func(J, error) bool) {
			for i := range rows {
				if !yield(show(&rows[i])) {
					return
				}
			}
		}
	}
}

// together shows all rows at once.
func together[R, J any](show func(rows []R) ([]J, error)) shower[R, J] {
	return func(rows []R) iter.Seq2[J, error] {
		return func(yield func(J, error) bool) {
			items, err := show(rows)
			if err != nil {
				var none J
				yield(none, err)
				return
			}
			for _, v := range items {
				if !yield(v, nil) {
					return
				}
			}
		}
	}
}
