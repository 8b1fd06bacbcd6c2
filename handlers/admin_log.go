package handlers

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

// actJSON is an act of a moderator, as it is in the log.
type actJSON struct {
	ID         int64           `json:"id"`
	Actor      *authorJSON     `json:"actor"` // null: a command of the operator
	Action     string          `json:"action"`
	TargetType string          `json:"target_type"`
	TargetID   int64           `json:"target_id"`
	Reason     string          `json:"reason"`
	Before     json.RawMessage `json:"before"` // null where there was nothing
	After      json.RawMessage `json:"after"`
	RequestID  string          `json:"request_id"`
	CreatedAt  time.Time       `json:"created_at"`
}

func rawJSON(state *string) json.RawMessage {
	if state == nil {
		return nil
	}
	return json.RawMessage(*state)
}

const maxLogWord = 50 // characters of an action or a type of target

// actQuery reads what the log is asked for, and names the list.
func actQuery(c *fiber.Ctx) (q models.ActQuery, name string, err error) {
	args := c.Context().QueryArgs()
	for parameter, id := range map[string]*int64{"actor": &q.ActorID, "target_id": &q.TargetID} {
		if !args.Has(parameter) {
			continue
		}
		var ok bool
		if *id, ok = parseID(c.Query(parameter)); !ok {
			return q, "", models.Invalid(parameter, "must be an id")
		}
	}
	for parameter, word := range map[string]*string{"action": &q.Action, "target_type": &q.TargetType} {
		if !args.Has(parameter) {
			continue
		}
		*word = c.Query(parameter)
		if *word == "" || len(*word) > maxLogWord || strings.ContainsFunc(*word, func(r rune) bool { return (r < 'a' || r > 'z') && r != '.' && r != '_' }) {
			return q, "", models.Invalid(parameter, "must be a word of the log, such as post.delete or post")
		}
	}
	if q.TargetID != 0 && q.TargetType == "" {
		return q, "", models.Invalid("target_id", "needs target_type")
	}
	if q.Since, q.Until, err = timeSpan(c); err != nil {
		return q, "", err
	}
	name = fmt.Sprintf("log:%d:%d:%s:%s:%d:%d", q.ActorID, q.TargetID, q.Action, q.TargetType, q.Since.UnixMilli(), q.Until.UnixMilli())
	return q, name, nil
}

func (s *Server) listActs(c *fiber.Ctx) error {
	q, name, err := actQuery(c)
	if err != nil {
		return err
	}
	return replyList(s, c, listing[models.LoggedAct, actJSON]{
		name: name,
		read: func(ctx context.Context, after *models.ListKey, limit int) ([]models.LoggedAct, error) {
			q.After, q.Limit = after, limit
			return s.store.ModerationLog(ctx, q)
		},
		key: (*models.LoggedAct).Key,
		show: each(func(a *models.LoggedAct) actJSON {
			return actJSON{a.ID, s.presentAuthor(a.Actor), a.Action, a.TargetType, a.TargetID, a.Reason, rawJSON(a.BeforeState), rawJSON(a.AfterState), a.RequestID, a.CreatedAt}
		}),
	})
}

const (
	exportPage    = 1000 // acts that are read, and held, at a time
	maxExports    = 4    // that are under way in a process: each may take hours, and holds a page
	exportTimeout = 10 * time.Second
)

// exportActs sends the whole log, or what is asked for of it, as CSV (RFC 4180), the latest first.
func (s *Server) exportActs(c *fiber.Ctx) error {
	q, _, err := actQuery(c)
	if err != nil {
		return err
	}
	c.Set(fiber.HeaderContentType, "text/csv; charset=utf-8; header=present")
	c.Set(fiber.HeaderContentDisposition, `attachment; filename="moderation-log.csv"`)
	q.Limit = exportPage
	export := &export{store: s.store, query: q, conn: c.Context().Conn(), underWay: &s.exports}
	if s.exports.Add(1) > maxExports {
		export.Close()
		return models.Unavailable("Too many exports are under way; try again.", nil)
	}
	if err := export.begin(); err != nil {
		export.Close()
		return err
	}
	c.Context().SetBodyStream(export, -1)
	return nil
}

// export is the log as CSV, read page by page as the client takes it. When a page cannot be read the answer breaks off,
// without the end that would make it look whole. The log only grows, and grows at the end that is read first, so what
// comes is the log as it was at the beginning.
type export struct {
	store *models.Store
	query models.ActQuery
	conn  net.Conn
	rows  bytes.Buffer
	ended bool

	underWay *atomic.Int64 // of the process
	closed   sync.Once
}

// Close makes room for another export. fasthttp calls it at the end, however that comes.
func (e *export) Close() error {
	e.closed.Do(func() { e.underWay.Add(-1) })
	return nil
}

// begin reads the first page, while an error can still be answered.
func (e *export) begin() error {
	w := csv.NewWriter(&e.rows)
	w.UseCRLF = true
	if err := w.Write([]string{"id", "created_at", "actor_id", "actor", "action", "target_type", "target_id", "reason", "before", "after", "request_id"}); err != nil {
		return fmt.Errorf("export log: %w", err)
	}
	w.Flush()
	return e.next()
}

// next writes the next page into rows.
func (e *export) next() error {
	ctx, cancel := context.WithTimeout(context.Background(), exportTimeout)
	defer cancel()
	acts, err := e.store.ModerationLog(ctx, e.query)
	if err != nil {
		return err
	}
	w := csv.NewWriter(&e.rows)
	w.UseCRLF = true
	for _, a := range acts {
		row := []string{strconv.FormatInt(a.ID, 10), a.CreatedAt.UTC().Format("2006-01-02T15:04:05.000Z07:00"), strconv.FormatInt(a.Actor.ID, 10), cell(a.Actor.Username),
			cell(a.Action), cell(a.TargetType), strconv.FormatInt(a.TargetID, 10), cell(a.Reason), cell(valueOf(a.BeforeState)), cell(valueOf(a.AfterState)), cell(a.RequestID)}
		if err := w.Write(row); err != nil {
			return fmt.Errorf("export log: %w", err)
		}
	}
	w.Flush()
	if e.ended = len(acts) < e.query.Limit; !e.ended {
		key := acts[len(acts)-1].Key()
		e.query.After = &key
	}
	return nil
}

// formulas are where a spreadsheet takes a formula to begin: in a cell, or in what is one to a spreadsheet that splits lines
// at other separators.
var formulas = regexp.MustCompile(`(^[\t\r]?|[;\t\r\n] *)([=+\-@])`)

// cell keeps spreadsheets from taking a text, or a part of it, for a formula.
func cell(text string) string { return formulas.ReplaceAllString(text, "$1'$2") }

// Read gives a client as much time for each piece as the server has for an answer.
func (e *export) Read(p []byte) (int, error) {
	if e.rows.Len() == 0 {
		if e.ended {
			return 0, io.EOF
		}
		if err := e.next(); err != nil {
			return 0, err
		}
	}
	if err := e.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, fmt.Errorf("export log: %w", err)
	}
	return e.rows.Read(p)
}
