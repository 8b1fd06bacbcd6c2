package handlers

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"runtime"
	"strconv"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

// list is a page of a list.
type list[T any] struct {
	Items      []T     `json:"items"`
	NextCursor *string `json:"next_cursor"`
}

// listing describes a list: its rows R are read from a store and shown as items J.
type listing[R, J any] struct {
	name string // signed into its cursors, so it differs from that of every other list
	// read returns at most limit rows after a place, nil for the beginning. It may return fewer, although there are more,
	// if the content of those that it returns has more than models.PageBytes.
	read func(ctx context.Context, after *models.ListKey, limit int) ([]R, error)
	// sift is what a list that passes over rows has instead of read. It returns fewer rows than limit, or none, and where
	// the list continues, if it has passed over too many.
	sift func(ctx context.Context, after *models.ListKey, limit int) (rows []R, rest *models.ListKey, err error)
	key  func(*R) models.ListKey
	show shower[R, J]
}

// shower shows rows as items, one by one and in their order, so that nothing is rendered that does not fit in the page.
// It may end early where it knows that the page is full.
type shower[R, J any] func(c *fiber.Ctx, rows []R) iter.Seq2[J, error]

// replyList answers with the page of a list that ?limit= and ?cursor= ask for.
func replyList[R, J any](s *Server, c *fiber.Ctx, l listing[R, J]) error {
	n, err := limit(c)
	if err != nil {
		return err
	}
	after, err := s.cursors.after(c, l.name)
	if err != nil {
		return err
	}
	var rows []R
	var rest *models.ListKey
	if l.sift != nil {
		rows, rest, err = l.sift(c.UserContext(), after, n+1)
	} else {
		rows, err = l.read(c.UserContext(), after, n+1)
	}
	if err != nil {
		return err
	}
	return replyPage(s, c, page[R]{name: l.name, rows: rows, limit: n, key: l.key, rest: rest}, l.show)
}

// page is what was read for a page of a list, with one row more than limit if there is one.
type page[R any] struct {
	name  string
	since int64 // of a list that goes back to a certain time, in seconds; 0 for others
	rows  []R
	limit int
	key   func(*R) models.ListKey
	rest  *models.ListKey // where the list goes on after all rows; nil for its end
	// complete, of a search, reports whether all was examined that could belong to the page; nil for other lists.
	complete *bool
}

// pageOverhead is what a page has besides its items, in bytes.
var pageOverhead = len(`{"items":[],"complete":false,"next_cursor":""}`) + cursorLength

// longItem is the size of an item, in bytes of JSON, after whose writing other requests may use the processor. Otherwise a
// page of long items keeps it for the 10 ms that the scheduler allows, and short requests wait for each such page.
const longItem = 16 << 10

// replyPage answers with the rows of a page, up to its limit or to models.PageBytes of JSON, and at least one. If there
// are more, next_cursor stands for the place after the last item.
func replyPage[R, J any](s *Server, c *fiber.Ctx, p page[R], show shower[R, J]) error {
	var body bytes.Buffer
	body.WriteString(`{"items":[`)
	room, answered, held := models.PageBytes-pageOverhead, 0, 0
	for item, err := range show(c, p.rows[:min(len(p.rows), p.limit)]) {
		if err != nil {
			return err
		}
		before := body.Len()
		if answered > 0 {
			body.WriteByte(',')
		}
		if err := writeJSON(&body, item); err != nil {
			return err
		}
		if err := hold(c, body.Cap()-held); err != nil {
			return err
		}
		held = body.Cap()
		if body.Len()-before > longItem {
			runtime.Gosched()
		}
		if answered > 0 && body.Len() > room {
			body.Truncate(before)
			break
		}
		answered++
	}
	rest := p.rest
	if answered > 0 && answered < len(p.rows) {
		last := p.key(&p.rows[answered-1])
		rest = &last
	}
	body.WriteString(`],`)
	if p.complete != nil {
		body.WriteString(`"complete":` + strconv.FormatBool(*p.complete) + `,`)
	}
	body.WriteString(`"next_cursor":`)
	if rest == nil {
		body.WriteString("null}")
	} else {
		body.WriteString(`"` + s.cursors.encodeSince(p.name, *rest, p.since) + `"}`)
	}
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	c.Response().SetBodyRaw(bytes.Clone(body.Bytes())) // which has grown to up to twice its length
	return nil
}

// each shows every row by itself.
func each[R, J any](item func(*R) J) shower[R, J] {
	return func(_ *fiber.Ctx, rows []R) iter.Seq2[J, error] {
		return func(yield func(J, error) bool) {
			for i := range rows {
				if !yield(item(&rows[i]), nil) {
					return
				}
			}
		}
	}
}

// within shows rows that have something to show within them: inner finds it, show shows it, and outer puts what is shown
// back into the row's item.
func within[R, T, I, J any](inner func(*R) T, show shower[T, I], outer func(*R, I) J) shower[R, J] {
	return func(c *fiber.Ctx, rows []R) iter.Seq2[J, error] {
		plain := make([]T, len(rows))
		for i := range rows {
			plain[i] = inner(&rows[i])
		}
		return func(yield func(J, error) bool) {
			i := 0
			for item, err := range show(c, plain) {
				if err != nil {
					var none J
					yield(none, err)
					return
				}
				if !yield(outer(&rows[i], item), nil) {
					return
				}
				i++
			}
		}
	}
}

// collect returns all items.
func collect[J any](items iter.Seq2[J, error]) ([]J, error) {
	var all []J
	for item, err := range items {
		if err != nil {
			return nil, err
		}
		all = append(all, item)
	}
	return all, nil
}

// writeJSON writes v without the escapes that JSON needs in a page of HTML only: every answer says what it is, and that
// it is not to be sniffed.
func writeJSON(b *bytes.Buffer, v any) error {
	encoder := json.NewEncoder(b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return err
	}
	b.Truncate(b.Len() - 1) // the line's end
	return nil
}

// encodeJSON is writeJSON as Fiber calls it.
func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	err := writeJSON(&b, v)
	return b.Bytes(), err
}
