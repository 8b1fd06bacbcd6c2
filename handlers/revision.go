package handlers

import (
	"context"
	"iter"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

type revisionJSON struct {
	Version     int64       `json:"version"`
	Author      authorJSON  `json:"author"`
	Title       string      `json:"title"`
	Content     string      `json:"content"`
	ContentHTML string      `json:"content_html"`
	Tags        models.Tags `json:"tags"`
	CreatedAt   time.Time   `json:"created_at"`
}

func (s *Server) listRevisions(c *fiber.Ctx) error {
	id, err := pathID(c, models.KindPost)
	if err != nil {
		return err
	}
	return replyList(s, c, listing[models.Revision, revisionJSON]{
		name: "revisions:" + strconv.FormatInt(id, 10),
		read: func(ctx context.Context, after *models.ListKey, limit int) ([]models.Revision, error) {
			return s.store.ListRevisions(ctx, id, idOf(after), limit)
		},
		key: func(r *models.Revision) models.ListKey { return models.ListKey{ID: r.Version} },
		show: func(_ *fiber.Ctx, revisions []models.Revision) iter.Seq2[revisionJSON, error] {
			return func(yield func(revisionJSON, error) bool) {
				for _, r := range revisions {
					html, err := s.markdown.html(postTarget(id), r.Version, r.Content)
					if !yield(revisionJSON{r.Version, s.author(r.Editor), r.Title, r.Content, html, r.Tags, r.CreatedAt}, err) {
						return
					}
				}
			}
		},
	})
}
