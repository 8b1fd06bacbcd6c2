package handlers

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/handlers/pages"
	"likewise/models"
)

// actJSON is an act of a moderator in the log.
type actJSON struct {
	ID         int64           `json:"id"`
	Actor      *authorJSON     `json:"actor"` // null: a command of the operator
	Action     string          `json:"action"`
	TargetType string          `json:"target_type"`
	TargetID   int64           `json:"target_id"`
	Reason     string          `json:"reason"`
	Before     json.RawMessage `json:"before"` // null if the target did not exist
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

// Words of the log: actions, types of targets and kinds of events.
const (
	maxLogWord  = 50 // characters
	logAlphabet = "abcdefghijklmnopqrstuvwxyz."
)

// actQuery reads the query of the log, and returns the name of the list.
func actQuery(c *fiber.Ctx) (q models.ActQuery, name string, err error) {
	args := c.Context().QueryArgs()
	for parameter, id := range map[string]*int64{"actor": &q.ActorID, "target_id": &q.TargetID} {
		if !args.Has(parameter) {
			continue
		}
		var ok bool
		if *id, ok = parseID(c.Query(parameter)); !ok {
			return q, "", models.Invalid(parameter, models.BadFormat(models.FormatID, "must be an id"))
		}
	}
	for parameter, word := range map[string]*string{"action": &q.Action, "target_type": &q.TargetType} {
		if !args.Has(parameter) {
			continue
		}
		*word = c.Query(parameter)
		if *word == "" || len(*word) > maxLogWord || strings.Trim(*word, logAlphabet+"_") != "" {
			return q, "", models.Invalid(parameter,
				models.BadFormat(models.FormatWord, "must be a word of the log, such as post.delete or post"))
		}
	}
	if q.TargetID != 0 && q.TargetType == "" {
		return q, "", models.Invalid("target_id", models.About(models.FieldNeeds, "target_type", "needs target_type"))
	}
	if q.Since, q.Until, err = timeSpan(c); err != nil {
		return q, "", err
	}
	name = fmt.Sprintf("log:%d:%d:%s:%s:%d:%d",
		q.ActorID, q.TargetID, q.Action, q.TargetType, q.Since.UnixMilli(), q.Until.UnixMilli())
	return q, name, nil
}

func (s *Server) listActs(c *fiber.Ctx) error {
	q, name, err := actQuery(c)
	if err != nil {
		return err
	}
	return replyList(s, c, pages.Listing[models.LoggedAct, actJSON]{
		Name: name,
		Read: func(ctx context.Context, at pages.Position) ([]models.LoggedAct, *models.ListKey, error) {
			q.After, q.Limit = at.After, at.Limit
			return pages.All(s.accounts.ModerationLog(ctx, q))
		},
		Key: (*models.LoggedAct).Key,
		Show: pages.Each(func(a *models.LoggedAct) actJSON {
			return actJSON{
				a.ID, s.presentAuthor(a.Actor), a.Action, a.TargetType, a.TargetID, a.Reason,
				rawJSON(a.BeforeState), rawJSON(a.AfterState), a.RequestID, a.CreatedAt,
			}
		}),
	})
}

const exportPage = 1000 // acts that are read, and held in memory, at a time

// exportActs sends the log, or the part that the query selects, as CSV (RFC 4180), latest first. The log only grows, at
// the end that is read first, so the export is the log as it was when the request began.
func (s *Server) exportActs(c *fiber.Ctx) error {
	q, _, err := actQuery(c)
	if err != nil {
		return err
	}
	q.Limit = exportPage
	d := &download{kind: "text/csv; charset=utf-8; header=present", name: "moderation-log.csv", size: -1}
	d.next = func(ctx context.Context, piece *bytes.Buffer) (ended bool, err error) {
		acts, err := s.accounts.ModerationLog(ctx, q)
		if err != nil {
			return false, err
		}
		if err := writeActs(piece, acts, q.After == nil); err != nil {
			return false, fmt.Errorf("export log: %w", err)
		}
		if len(acts) < q.Limit {
			return true, nil
		}
		key := acts[len(acts)-1].Key()
		q.After = &key
		return false, nil
	}
	return s.send(c, d)
}

// writeActs writes acts as CSV, with a header before the first ones.
func writeActs(to io.Writer, acts []models.LoggedAct, first bool) error {
	w := csv.NewWriter(to)
	w.UseCRLF = true
	if first {
		err := w.Write([]string{
			"id", "created_at", "actor_id", "actor", "action", "target_type", "target_id",
			"reason", "before", "after", "request_id",
		})
		if err != nil {
			return err
		}
	}
	for _, a := range acts {
		row := []string{
			strconv.FormatInt(a.ID, 10), a.CreatedAt.UTC().Format("2006-01-02T15:04:05.000Z07:00"),
			strconv.FormatInt(a.Actor.ID, 10), cell(a.Actor.Username),
			cell(a.Action), cell(a.TargetType), strconv.FormatInt(a.TargetID, 10),
			cell(a.Reason), cell(valueOf(a.BeforeState)), cell(valueOf(a.AfterState)), cell(a.RequestID),
		}
		if err := w.Write(row); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}

// formulas matches the places where a spreadsheet would begin a formula: at the beginning of a cell, or of a part of it
// in a spreadsheet that splits lines at other separators.
var formulas = regexp.MustCompile(`(^[\t\r]?|[;\t\r\n] *)([=+\-@])`)

// cell quotes a text so that spreadsheets do not evaluate it, or a part of it, as a formula.
func cell(text string) string { return formulas.ReplaceAllString(text, "$1'$2") }
