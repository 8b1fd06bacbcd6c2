package pages

import (
	"strconv"

	"likewise/models"
)

// An object of a list has two halves. The first is the same for all viewers, and its JSON may be shared. The second is
// the viewer's: what is read for each request. Its members come last in the object, so it is appended to the first.

// Source is how the rows of an answer were read.
type Source int

// The ways to read rows.
const (
	ReadByViewer Source = iota
	ReadByAnyone        // as the anonymous see them, so without the viewer's bookmarks
	JustCreated         // by this request: nobody has seen them yet
)

// Halves is the JSON of an answer without the viewer's halves of its posts and comments. Nobody changes it once it is
// complete.
type Halves struct {
	JSON

	Gaps     []Gap
	missing  int // the most bytes that the viewer's halves add
	Rows     Source
	Examined int // index entries, which are charged
}

// Gap is where a viewer's half is missing: that of a post or of a comment.
type Gap struct {
	at      int // in the JSON
	Post    *models.Post
	Comment *models.Comment
}

// Item is a value of an answer that contains posts or comments.
type Item interface {
	// AppendTo appends the JSON of the item.
	AppendTo(h *Halves) error
}

// Append appends the JSON of v, which may be an Item.
func (h *Halves) Append(v any) error {
	if v, ok := v.(Item); ok {
		return v.AppendTo(h)
	}
	return h.Encode(v)
}

// Open appends the JSON of an object without the brace that ends it.
func (h *Halves) Open(object any) error {
	if err := h.Encode(object); err != nil {
		return err
	}
	h.Body = h.Body[:len(h.Body)-1]
	return nil
}

// EndPost leaves out the viewer's half of a post, which ends the object. The half has at most longest bytes.
func (h *Halves) EndPost(p *models.Post, longest int) {
	row := *p
	row.Content, row.Excerpt = "", ""
	h.Gaps = append(h.Gaps, Gap{at: len(h.Body), Post: &row})
	h.missing += longest
}

// EndComment is EndPost of a comment.
func (h *Halves) EndComment(m *models.Comment, longest int) {
	row := *m
	row.Content, row.Replies = "", nil
	h.Gaps = append(h.Gaps, Gap{at: len(h.Body), Comment: &row})
	h.missing += longest
}

// Size returns the size of the longest answer, in bytes.
func (h *Halves) Size() int { return len(h.Body) + h.missing }

// AppendTo appends an answer that was encoded by itself as a value of another.
func (h *Halves) AppendTo(to *Halves) error {
	for _, g := range h.Gaps {
		g.at += len(to.Body)
		to.Gaps = append(to.Gaps, g)
	}
	to.Body = append(to.Body, h.Body...)
	to.missing += h.missing
	return nil
}

// Items is a JSON array.
type Items []Item

// AppendTo implements Item.
func (list Items) AppendTo(h *Halves) error {
	h.Text("[")
	for i, v := range list {
		if i > 0 {
			h.Text(",")
		}
		if err := v.AppendTo(h); err != nil {
			return err
		}
	}
	h.Text("]")
	return nil
}

// Containing is a JSON object with an item as its last member.
type Containing struct {
	Others any // the object of the other members
	Name   string
	Item   Item
}

// AppendTo implements Item.
func (o Containing) AppendTo(h *Halves) error {
	if err := h.Open(o.Others); err != nil {
		return err
	}
	h.Text(`,"` + o.Name + `":`)
	if err := o.Item.AppendTo(h); err != nil {
		return err
	}
	h.Text("}")
	return nil
}

// LongestLikes is the maximum size of likes_count in a half, in bytes.
const LongestLikes = len(`,"likes_count":9223372036854775807`)

// Join returns the answer with the half of the viewer in each gap: likes_count, and the members of an object of
// comparable type. Few of these differ within a page, so equal ones are encoded once. Own are the members that the
// answer, an object, has last. Join calls spend with the number of bytes before it allocates them.
func (h *Halves) Join(
	spend func(n int) error, half func(i int, g Gap) (likes int64, others any), own ...Member,
) ([]byte, error) {
	var last JSON
	for _, m := range own {
		last.Text(`,"` + m.Name + `":`)
		if err := last.Encode(m.Value); err != nil {
			return nil, err
		}
	}
	size := h.Size() + len(last.Body)
	if err := spend(size); err != nil {
		return nil, err
	}
	out := JSON{Body: make([]byte, 0, size)}
	encoded := map[any][]byte{}
	from := 0
	for i, g := range h.Gaps {
		out.Body = append(out.Body, h.Body[from:g.at]...)
		from = g.at
		likes, others := half(i, g)
		out.Text(`,"likes_count":`)
		out.Body = strconv.AppendInt(out.Body, likes, 10)
		if known, ok := encoded[others]; ok {
			out.Body = append(out.Body, known...)
			continue
		}
		begin := len(out.Body)
		if err := out.Encode(others); err != nil {
			return nil, err
		}
		out.Body[begin] = ',' // in place of the brace
		encoded[others] = out.Body[begin:len(out.Body):len(out.Body)]
	}
	if len(own) == 0 {
		return append(out.Body, h.Body[from:]...), nil
	}
	out.Body = append(out.Body, h.Body[from:len(h.Body)-1]...)
	out.Body = append(out.Body, last.Body...)
	return append(out.Body, '}'), nil
}
