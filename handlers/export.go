package handlers

import (
	"bytes"
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/handlers/admission"
	"likewise/models"
)

// exportJSON is an export that is being built.
type exportJSON struct {
	State       string    `json:"state"`
	RequestedAt time.Time `json:"requested_at"`
	ExpiresAt   time.Time `json:"expires_at"`
}

// slowest is how many bytes a second a client must read of an archive on average.
const slowest = 32 << 10

// exportMe sends the archive of the viewer's data. If there is none yet, it requests one and answers 202 until it is
// built.
func (s *Server) exportMe(c *fiber.Ctx) error {
	e, err := s.privacy.RequestExport(c.UserContext(), viewerID(c))
	if err != nil {
		return err
	}
	if e.State != models.ExportReady {
		c.Set(fiber.HeaderRetryAfter, strconv.FormatInt(admission.Seconds(admission.ExportRetry), 10))
		return c.Status(http.StatusAccepted).JSON(exportJSON{"building", e.RequestedAt, e.ExpiresAt})
	}
	chunk := 0
	return s.send(c, &download{
		kind: "application/gzip", name: "likewise-export.tar.gz", account: e.UserID,
		size: int(e.Size),
		ends: time.Now().Add(time.Minute + time.Duration(e.Size/slowest)*time.Second),
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
