package handlers

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

// exportJSON is an export that is being built.
type exportJSON struct {
	State       string    `json:"state"`
	RequestedAt time.Time `json:"requested_at"`
	ExpiresAt   time.Time `json:"expires_at"`
}

const (
	exportRetry = 10 * time.Second // when a client should retry while an archive is being built
	slowest     = 32 << 10         // bytes a second that a client must read of an archive on average
)

// exportMe sends the archive of the viewer's data. If there is none yet, it requests one and answers 202 until it is
// built.
func (s *Server) exportMe(c *fiber.Ctx) error {
	e, err := s.privacy.RequestExport(c.UserContext(), viewerID(c))
	if err != nil {
		return err
	}
	if e.State != models.ExportReady {
		c.Set(fiber.HeaderRetryAfter, strconv.FormatInt(seconds(exportRetry), 10))
		return c.Status(http.StatusAccepted).JSON(exportJSON{"building", e.RequestedAt, e.ExpiresAt})
	}
	if _, twice := s.exporting.LoadOrStore(e.UserID, nil); twice {
		return &models.Error{Code: models.CodeRateLimited, RetryAfter: exportRetry,
			Message: "Your archive is already being downloaded; wait until that has finished."}
	}
	c.Set(fiber.HeaderContentType, "application/gzip")
	c.Set(fiber.HeaderContentDisposition, `attachment; filename="likewise-export.tar.gz"`)
	chunk := 0
	return s.send(c, &download{
		size:  int(e.Size),
		ends:  time.Now().Add(time.Minute + time.Duration(e.Size/slowest)*time.Second),
		leave: func() { s.exporting.Delete(e.UserID) },
		next: func(ctx context.Context, piece *bytes.Buffer) (ended bool, err error) {
			data, err := s.privacy.ExportChunk(ctx, e, chunk)
			if err != nil {
				return false, err
			}
			chunk++
			piece.Write(data)
			return chunk == e.Chunks, nil
		},
	})
}
