package pages

import (
	"context"
	"iter"
	"runtime"
	"strconv"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
	"likewise/models/db"
)

// List is the JSON of a page of a list.
type List[T any] struct {
	Items      []T     `json:"items"`
	NextCursor *string `json:"next_cursor"`
}

// Listing describes a list: rows R are read from a store and shown as items J.
type Listing[R, J any] struct {
	Name string // signed into the cursors, so it must differ from that of every other list
	// Read returns at most at.Limit rows from a position on. It may return fewer if it has passed over too many rows,
	// or if the content of the rows exceeds db.PageBytes. In the first case rest is the position after all rows
	// that it has seen.
	Read func(ctx context.Context, at Position) (rows []R, rest *models.ListKey, err error)
	Key  func(*R) models.ListKey // the position after a row
	Show Shower[R, J]
	More func(c *fiber.Ctx) ([]Member, error) // further members of the answer; nil for none
}

// Member is a member of the JSON of a page besides items and next_cursor.
type Member struct {
	Name  string
	Value any
}

// Position is where a page of a list begins.
type Position struct {
	After *models.ListKey // nil: the beginning of the list
	Limit int             // one row more than the page has items, to find out whether there are more
}

// ID returns the id after which the page begins, of a list in the order of ids; 0 for the beginning.
func (p Position) ID() int64 {
	if p.After == nil {
		return 0
	}
	return p.After.ID
}

// All adapts a query that passes over no rows to Listing.Read.
func All[R any](rows []R, err error) ([]R, *models.ListKey, error) { return rows, nil, err }

// Shower shows rows as items, one at a time and in their order, so that no item is rendered that does not fit in the
// page. It may stop early once the page is full.
type Shower[R, J any] func(rows []R) iter.Seq2[J, error]

// OfUser returns the name of a list that belongs to a user.
func OfUser(list string, userID int64) string { return list + ":user=" + strconv.FormatInt(userID, 10) }

// Page holds the rows that were read for a page of a list: one more than limit, if there are more.
type Page[R any] struct {
	Name  string
	Since int64 // the oldest time of the list's window, in Unix seconds; 0 without a window
	Rows  []R
	Limit int
	Key   func(*R) models.ListKey
	Rest  *models.ListKey // the position after all rows; nil at the end of the list
	// Complete reports whether a search has examined all candidates for the page; nil if the list is not a search.
	Complete *bool
	More     []Member
}

// Overhead is the size of a page without its items, in bytes.
var Overhead = len(`{"items":[],"complete":false,"next_cursor":""}`) + CursorLength

// longItem is the size of an item, in bytes of JSON, from which Encode yields the processor after writing it.
// Otherwise a page of long items keeps the processor for the scheduler's 10 ms, and short requests wait.
const longItem = 16 << 10

// Encode encodes the rows of a page, up to its limit or to db.PageBytes, and at least one. If there are more,
// next_cursor names the position after the last item.
//
// Encode calls spend with the number of bytes before it allocates them.
func Encode[R, J any](cursors Cursors, spend func(n int) error, p Page[R], show Shower[R, J]) (*Halves, error) {
	h := &Halves{}
	h.Text("{")
	for _, m := range p.More {
		h.Text(`"` + m.Name + `":`)
		if err := h.Append(m.Value); err != nil {
			return nil, err
		}
		h.Text(",")
	}
	h.Text(`"items":[`)
	answered, err := appendItems(spend, h, show(p.Rows[:min(len(p.Rows), p.Limit)]))
	if err != nil {
		return nil, err
	}
	rest := p.Rest
	if answered > 0 && answered < len(p.Rows) {
		last := p.Key(&p.Rows[answered-1])
		rest = &last
	}
	h.Text(`],`)
	if p.Complete != nil {
		h.Text(`"complete":` + strconv.FormatBool(*p.Complete) + `,`)
	}
	h.Text(`"next_cursor":`)
	if rest == nil {
		h.Text("null}")
	} else {
		h.Text(`"` + cursors.EncodeSince(p.Name, *rest, p.Since) + `"}`)
	}
	return h, nil
}

// appendItems appends as many items as fit in the page, and at least one, and returns how many.
func appendItems[J any](spend func(n int) error, h *Halves, items iter.Seq2[J, error]) (answered int, err error) {
	room, held := db.PageBytes-Overhead, 0
	for v, err := range items {
		if err != nil {
			return 0, err
		}
		before := *h
		if answered > 0 {
			h.Text(",")
		}
		if err := h.Append(v); err != nil {
			return 0, err
		}
		if err := spend(cap(h.Body) - held); err != nil {
			return 0, err
		}
		held = cap(h.Body)
		if len(h.Body)-len(before.Body) > longItem {
			runtime.Gosched()
		}
		if answered > 0 && h.Size() > room {
			h.Body, h.Gaps, h.missing = h.Body[:len(before.Body)], before.Gaps, before.missing
			break
		}
		answered++
	}
	return answered, nil
}

// Each shows every row by itself.
func Each[R, J any](show func(*R) J) Shower[R, J] {
	return TryEach(func(row *R) (J, error) { return show(row), nil })
}

// TryEach is Each for rows that may fail to be rendered.
func TryEach[R, J any](show func(*R) (J, error)) Shower[R, J] {
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

// Together shows all rows at once.
func Together[R, J any](show func(rows []R) ([]J, error)) Shower[R, J] {
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
