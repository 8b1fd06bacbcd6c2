package handlers

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

// An object of a list has two halves. The first is the same for all viewers, and its JSON may be shared. The second is
// the viewer's: what is read for each request. Its members come last in the object, so it is appended to the first.

// viewersPostJSON is the viewer's half of a post.
type viewersPostJSON struct {
	LikesCount int64 `json:"likes_count"`
	Liked      bool  `json:"liked"`
	Bookmarked bool  `json:"bookmarked"`
	standingJSON
	Can postCanJSON `json:"can"`
}

// viewersCommentJSON is the viewer's half of a comment.
type viewersCommentJSON struct {
	LikesCount int64          `json:"likes_count"`
	Liked      bool           `json:"liked"`
	Can        commentCanJSON `json:"can"`
}

// The sizes of the longest halves, in bytes.
var (
	longestPostHalf = sizeOf(viewersPostJSON{
		LikesCount: math.MaxInt64,
		standingJSON: newStandingJSON(models.Standing{
			Mark: &models.ReadMark{CommentID: math.MaxInt64, Unread: math.MaxInt64,
				ReadAt: time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC)},
			Subscription: models.Following,
		}),
	})
	longestCommentHalf = sizeOf(viewersCommentJSON{LikesCount: math.MaxInt64})
)

func sizeOf(v any) int {
	encoded, err := json.Marshal(v)
	if err != nil {
		panic(err) // the types above have JSON
	}
	return len(encoded)
}

// source is how the rows of an answer were read.
type source int

const (
	readByViewer source = iota
	readByAnyone        // as the anonymous see them, so without the viewer's bookmarks
	justCreated         // by this request: nobody has seen them yet
)

// halves is the JSON of an answer without the viewer's halves of its posts and comments. Nobody changes it once it is
// complete.
type halves struct {
	jsonWriter

	gaps     []gap
	missing  int // the most bytes that the viewer's halves add
	rows     source
	examined int // see Server.charge
}

// gap is where a viewer's half is missing: that of post or of comment.
type gap struct {
	at      int // in the JSON
	post    *models.Post
	comment *models.Comment
}

// item is a value of an answer that contains posts or comments.
type item interface {
	appendTo(h *halves) error
}

// append appends the JSON of v, which may be an item.
func (h *halves) append(v any) error {
	if v, ok := v.(item); ok {
		return v.appendTo(h)
	}
	return h.encode(v)
}

// open appends the JSON of an object without the brace that ends it.
func (h *halves) open(object any) error {
	if err := h.encode(object); err != nil {
		return err
	}
	h.body = h.body[:len(h.body)-1]
	return nil
}

// endPost leaves out the viewer's half of a post, which ends the object.
func (h *halves) endPost(p *models.Post) {
	row := *p
	row.Content, row.Excerpt = "", ""
	h.gaps = append(h.gaps, gap{at: len(h.body), post: &row})
	h.missing += longestPostHalf
}

// endComment is endPost of a comment.
func (h *halves) endComment(m *models.Comment) {
	row := *m
	row.Content, row.Replies = "", nil
	h.gaps = append(h.gaps, gap{at: len(h.body), comment: &row})
	h.missing += longestCommentHalf
}

// size returns the size of the longest answer, in bytes.
func (h *halves) size() int { return len(h.body) + h.missing }

// items is a JSON array of items.
type items []item

func (list items) appendTo(h *halves) error {
	h.text("[")
	for i, v := range list {
		if i > 0 {
			h.text(",")
		}
		if err := v.appendTo(h); err != nil {
			return err
		}
	}
	h.text("]")
	return nil
}

// containing is a JSON object with an item as its last member.
type containing struct {
	others any // the object of the other members
	name   string
	item   item
}

func (o containing) appendTo(h *halves) error {
	if err := h.open(o.others); err != nil {
		return err
	}
	h.text(`,"` + o.name + `":`)
	if err := o.item.appendTo(h); err != nil {
		return err
	}
	h.text("}")
	return nil
}

// join returns the answer with the halves of the viewer.
func (s *Server) join(c *fiber.Ctx, h *halves) ([]byte, error) {
	if len(h.gaps) == 0 {
		return bytes.Clone(h.body), nil // without unused capacity
	}
	own, err := s.viewersOf(c, h)
	if err != nil {
		return nil, err
	}
	if err := hold(c, h.size()); err != nil {
		return nil, err
	}
	out := jsonWriter{body: make([]byte, 0, h.size())}
	from := 0
	for i, g := range h.gaps {
		out.body = append(out.body, h.body[from:g.at]...)
		from = g.at
		begin := len(out.body)
		if err := out.encode(own.half(i, g)); err != nil {
			return nil, err
		}
		out.body[begin] = ',' // in place of the brace
	}
	return append(out.body, h.body[from:]...), nil
}

// viewers is what the viewer has done with the posts and comments of an answer, and may do with them.
type viewers struct {
	likes      []models.LikeState // of each gap
	bookmarked map[int64]bool     // by post, as the next
	standings  map[int64]models.Standing
	able       abilities
}

// half returns the viewer's half of a post or comment.
func (v *viewers) half(i int, g gap) any {
	likes := v.likes[i]
	if m := g.comment; m != nil {
		return viewersCommentJSON{likes.Count, likes.Liked, v.able.comment(m)}
	}
	p := g.post
	return viewersPostJSON{
		likes.Count, likes.Liked, p.Bookmarked || v.bookmarked[p.ID], newStandingJSON(v.standings[p.ID]),
		v.able.post(p),
	}
}

// viewersOf reads what is the viewer's. It takes one call each for likes, bookmarks, standings and blocks, and none for
// rows that this request has created.
func (s *Server) viewersOf(c *fiber.Ctx, h *halves) (v viewers, err error) {
	if v.likes, err = s.likesOf(c, h); err != nil {
		return v, err
	}
	if v.able, err = s.abilitiesOf(c, h); err != nil || h.rows == justCreated || viewerID(c) == 0 {
		return v, err
	}
	var posts []int64
	for _, g := range h.gaps {
		if g.post != nil {
			posts = append(posts, g.post.ID)
		}
	}
	if len(posts) == 0 {
		return v, nil
	}
	if h.rows == readByAnyone {
		if v.bookmarked, err = s.bookmarked(c, posts); err != nil {
			return v, err
		}
	}
	v.standings, err = s.standings(c, posts)
	return v, err
}

// likesOf returns the viewer's likes of each gap. Those of hidden comments are not read.
func (s *Server) likesOf(c *fiber.Ctx, h *halves) ([]models.LikeState, error) {
	likes := make([]models.LikeState, len(h.gaps))
	var rows []models.TargetCount
	var of []int // gaps
	for i, g := range h.gaps {
		row, shown := g.likes()
		likes[i].Count = row.Count
		if shown {
			rows, of = append(rows, row), append(of, i)
		}
	}
	if h.rows == justCreated || len(rows) == 0 {
		return likes, nil
	}
	states, err := s.gate.LikeStates(c.UserContext(), viewerID(c), rows)
	if err != nil {
		return nil, err
	}
	for i, state := range states {
		likes[of[i]] = state
	}
	return likes, nil
}

// likes returns the count of the row, and whether the viewer sees its likes.
func (g gap) likes() (row models.TargetCount, shown bool) {
	if p := g.post; p != nil {
		return models.TargetCount{Target: postTarget(p.ID), Count: p.LikesCount}, true
	}
	return models.TargetCount{Target: commentTarget(g.comment.ID), Count: g.comment.LikesCount}, !g.comment.Hidden()
}

// abilitiesOf returns the viewer's abilities. Who has just created a comment is not blocked by the author of the post,
// and is not bound by a lock.
func (s *Server) abilitiesOf(c *fiber.Ctx, h *halves) (abilities, error) {
	if viewer(c) == nil {
		return abilities{}, nil
	}
	if h.rows == justCreated {
		able := abilities{viewer: viewer(c), places: map[int64]models.PostPlace{}}
		for _, g := range h.gaps {
			if g.comment != nil {
				able.places[g.comment.PostID] = models.PostPlace{}
			}
		}
		return able, nil
	}
	var authors, posts []int64
	for _, g := range h.gaps {
		if g.post != nil {
			authors = append(authors, g.post.Author.ID)
		} else {
			authors, posts = append(authors, g.comment.Author.ID), append(posts, g.comment.PostID)
		}
	}
	return s.abilitiesOn(c, authors, posts)
}

// replyHalves answers with h and the halves of the viewer.
func (s *Server) replyHalves(c *fiber.Ctx, h *halves) error {
	s.charge(c, h.examined)
	body, err := s.join(c, h)
	if err != nil {
		return err
	}
	return replyEncoded(c, body)
}

// replyItem answers with v, whose rows are from a source.
func (s *Server) replyItem(c *fiber.Ctx, v item, rows source) error {
	h := &halves{rows: rows}
	if err := v.appendTo(h); err != nil {
		return err
	}
	return s.replyHalves(c, h)
}

// replyShared answers with a page. If share is set, requests share its first halves as the anonymous see them, under a
// name, which must differ from those of all other reads. Read returns the page as the viewer sees it.
func (s *Server) replyShared(
	c *fiber.Ctx, name string, share bool, read func(ctx context.Context, viewer int64) (*halves, error),
) error {
	edition, share, err := s.sharing(c, share)
	if err != nil {
		return err
	}
	if !share {
		h, err := read(c.UserContext(), viewerID(c))
		if err != nil {
			return err
		}
		return s.replyHalves(c, h)
	}
	h, err := readShared(c, s, name, func(ctx context.Context) (*halves, error) {
		h, err := read(ctx, 0)
		if err != nil {
			return nil, err
		}
		h.rows, h.body = readByAnyone, bytes.Clone(h.body) // without unused capacity
		return h, nil
	})
	if err != nil {
		return err
	}
	if viewerID(c) != 0 || hasPlace(c) {
		return s.replyHalves(c, h)
	}
	s.charge(c, h.examined)
	answer, err := s.shared.answer(c.UserContext(), edition, name, func() ([]byte, error) { return s.join(c, h) })
	if err != nil {
		return err
	}
	c.Locals(encodedKey, answer)
	return replyEncoded(c, answer.Body)
}

// sharing returns the edition, and whether the viewer sees the rows that all see.
func (s *Server) sharing(c *fiber.Ctx, share bool) (edition int64, ok bool, err error) {
	if !share {
		return 0, false, nil
	}
	if edition, ok = s.edition(c); !ok {
		return 0, false, nil
	}
	_, ok, err = s.asAnyone(c)
	return edition, ok, err
}

// jsonWriter appends JSON to body, without HTML escapes. They are not needed: every answer has a Content-Type and
// forbids sniffing.
type jsonWriter struct {
	body    []byte
	encoder *json.Encoder
}

// Write appends b, for the encoder.
func (w *jsonWriter) Write(b []byte) (int, error) {
	w.body = append(w.body, b...)
	return len(b), nil
}

// text appends JSON that needs no encoding.
func (w *jsonWriter) text(json string) { w.body = append(w.body, json...) }

func (w *jsonWriter) encode(v any) error {
	if w.encoder == nil {
		w.encoder = json.NewEncoder(w)
		w.encoder.SetEscapeHTML(false)
	}
	if err := w.encoder.Encode(v); err != nil {
		return err
	}
	w.body = w.body[:len(w.body)-1] // the newline
	return nil
}

// encodeJSON encodes v as Fiber calls it.
func encodeJSON(v any) ([]byte, error) {
	var w jsonWriter
	err := w.encode(v)
	return w.body, err
}
