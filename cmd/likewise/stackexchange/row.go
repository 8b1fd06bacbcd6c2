package stackexchange

import (
	"encoding/xml"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

// The kinds of posts and votes that are imported. A dump has other kinds, too.
const (
	typeQuestion = 1
	typeAnswer   = 2
	voteUp       = 2
)

type userRow struct {
	id          int64
	created     time.Time
	displayName string
	about       string // HTML
	picture     string // a URL
}

type postRow struct {
	id      int64
	kind    int64
	parent  int64 // of an answer
	owner   int64 // 0 if the account was deleted
	created time.Time
	edited  time.Time // equal to created if the post was never edited
	title   string    // of a question
	body    string    // HTML
	tags    string    // of a question, such as <qubit><quantum-gate>, or |qubit|quantum-gate|
}

type commentRow struct {
	id      int64
	post    int64 // a question or an answer
	owner   int64 // 0 if the account was deleted
	score   int64
	created time.Time
	text    string // Markdown
}

type voteRow struct {
	post int64
	kind int64
}

func decodeUser(r *row) (userRow, error) {
	u := userRow{
		id: r.id("Id"), created: r.time("CreationDate"), displayName: r.optional("DisplayName"),
		about: r.optional("AboutMe"), picture: r.optional("ProfileImageUrl"),
	}
	return u, r.err
}

func decodePost(r *row) (postRow, error) {
	p := postRow{id: r.positive("Id"), kind: r.positive("PostTypeId")}
	if p.kind != typeQuestion && p.kind != typeAnswer {
		return p, r.err
	}
	p.created, p.body = r.time("CreationDate"), r.optional("Body")
	p.edited = p.created
	if r.has("LastEditDate") {
		if edited := r.time("LastEditDate"); edited.After(p.created) {
			p.edited = edited
		}
	}
	if r.has("OwnerUserId") {
		p.owner = r.id("OwnerUserId")
	}
	if p.kind == typeQuestion {
		p.title, p.tags = r.optional("Title"), r.optional("Tags")
	} else {
		p.parent = r.positive("ParentId")
	}
	return p, r.err
}

func decodeComment(r *row) (commentRow, error) {
	c := commentRow{
		id:      r.positive("Id"),
		post:    r.positive("PostId"),
		created: r.time("CreationDate"),
		text:    r.optional("Text"),
	}
	if r.has("Score") {
		c.score = max(0, r.number("Score", math.MinInt32, math.MaxInt32)) // a negative score has no likes
	}
	if r.has("UserId") {
		c.owner = r.id("UserId")
	}
	return c, r.err
}

func decodeVote(r *row) (voteRow, error) {
	v := voteRow{post: r.positive("PostId"), kind: r.positive("VoteTypeId")}
	return v, r.err
}

// row reads the attributes of one <row/> and keeps the first error.
type row struct {
	attrs []xml.Attr
	err   error
}

func (r *row) failf(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
}

func (r *row) has(name string) bool {
	for _, a := range r.attrs {
		if a.Name.Local == name {
			return true
		}
	}
	return false
}

func (r *row) optional(name string) string {
	for _, a := range r.attrs {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

func (r *row) text(name string) string {
	if !r.has(name) {
		r.failf("it has no %s", name)
	}
	return r.optional(name)
}

func (r *row) number(name string, low, high int64) int64 {
	value := r.text(name)
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < low || n > high {
		r.failf("%s=%q is not a whole number from %d to %d", name, shorten(value), low, high)
		return 0
	}
	return n
}

// id reads the id of a user. User -1 is the site itself. The id 0 is invalid.
func (r *row) id(name string) int64 {
	n := r.number(name, math.MinInt32, math.MaxInt64)
	if n == 0 {
		r.failf("%s=\"0\" is not a user", name)
	}
	return n
}

func (r *row) positive(name string) int64 { return r.number(name, 1, math.MaxInt64) }

// The range of a TIMESTAMP column.
var (
	earliest = time.Date(1970, 1, 2, 0, 0, 0, 0, time.UTC)
	latest   = time.Date(2038, 1, 1, 0, 0, 0, 0, time.UTC)
)

// time reads a time in UTC, such as 2018-03-12T17:14:46.030.
func (r *row) time(name string) time.Time {
	value := r.text(name)
	t, err := time.Parse("2006-01-02T15:04:05", value) // accepts a fraction, too
	if err != nil || t.Before(earliest) || t.After(latest) {
		r.failf("%s=%q is not a time from 1970 to 2037, such as 2018-03-12T17:14:46.030", name, shorten(value))
		return earliest
	}
	return t
}

// shorten bounds the length of a value from the dump that an error message quotes.
func shorten(s string) string {
	if len(s) > 40 {
		return cut(s, 40) + "…"
	}
	return s
}

var errNotRow = errors.New("expected a <row/>")
