package handlers

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/counters"
	"likewise/handlers/live"
	"likewise/models"
)

// streamChange is a change that is sent to the process that holds the stream.
type streamChange struct {
	ID      string          `json:"id"`
	Owner   [32]byte        `json:"owner"`  // see live.Client
	Viewer  int64           `json:"viewer"` // 0 for the anonymous
	Targets []models.Target `json:"targets"`
}

// streamChanged is the reply. Code is empty if the stream was changed.
type streamChanged struct {
	Code       models.Code   `json:"code,omitempty"`
	Message    string        `json:"message,omitempty"`
	RetryAfter time.Duration `json:"retry_after,omitempty"` // in nanoseconds
}

// newStreamID returns an id that nobody can guess. It begins with the name of this process, unless the process cannot
// be reached by others.
func (s *Server) newStreamID() string {
	if s.peers == nil {
		return rand.Text()
	}
	return s.peers.Name() + "." + rand.Text()
}

// changeStream replaces what a stream follows. The stream belongs to the session that has opened it, or to everybody
// who knows its id if it was opened without a token.
//
// A proxy sends the request to any process. If the stream is not here, the process that its id names carries out the
// change. In direct mode processes do not know one another, so the stream is not found, and the client opens another.
func (s *Server) changeStream(c *fiber.Ctx) error {
	var wants streamWants
	into := fields{"tags": &wants.tags, "new_posts": &wants.newPosts, "notifications": &wants.notifications}
	for _, list := range wants.lists() {
		into[list.name] = list.ids
	}
	if err := decode(c, into); err != nil {
		return err
	}
	targets, err := s.targets(c, &wants)
	if err != nil {
		return err
	}
	change := streamChange{ID: pathText(c, "id"), Viewer: viewerID(c), Targets: targets}
	if viewer(c) != nil {
		change.Owner = sessionHash(c)
	}
	ctx := c.UserContext()
	process, _, named := strings.Cut(change.ID, ".")
	if s.peers != nil && named && process != s.peers.Name() {
		err = s.changeElsewhere(ctx, process, &change)
	} else {
		err = s.changeHere(ctx, &change)
	}
	if err != nil {
		return s.refusedStream(c, err)
	}
	return c.SendStatus(http.StatusNoContent)
}

// changeHere changes a stream of this process.
func (s *Server) changeHere(ctx context.Context, change *streamChange) error {
	if !s.hub.Holds(change.ID, change.Owner) { // before it costs queries
		return live.ErrNoStream
	}
	following, err := s.following(ctx, change.Viewer, change.Targets)
	if err != nil {
		return err
	}
	return s.hub.Change(change.ID, change.Owner, following)
}

// changeElsewhere lets the process with the name change its stream.
func (s *Server) changeElsewhere(ctx context.Context, process string, change *streamChange) error {
	var changed streamChanged
	err := s.peers.Call(ctx, process, change, &changed)
	switch {
	case errors.Is(err, counters.ErrNoPeer):
		return live.ErrNoStream
	case err != nil:
		return models.Unavailable("The stream cannot be reached; try again.", err)
	case changed.Code != "":
		return &models.Error{Code: changed.Code, Message: changed.Message, RetryAfter: changed.RetryAfter}
	}
	return nil
}

// answerPeer carries out the request of another process.
func (s *Server) answerPeer(ctx context.Context, request json.RawMessage) any {
	var change streamChange
	err := json.Unmarshal(request, &change)
	if err == nil {
		err = s.changeHere(ctx, &change)
	}
	if err == nil {
		return streamChanged{}
	}
	answer := streamChanged{Code: models.ErrorCode(err), Message: newProblem(err, "").Detail}
	if reason, ok := errors.AsType[*models.Error](err); ok {
		answer.RetryAfter = reason.RetryAfter
	}
	if statuses[answer.Code] >= http.StatusInternalServerError {
		s.log.WarnContext(ctx, "a stream of this process was not changed for another", "error", err)
	}
	return answer
}
