package handlers

import (
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
	n, err := limit(c)
	if err != nil {
		return err
	}
	name := "revisions:" + strconv.FormatInt(id, 10)
	after, err := s.cursors.after(c, name)
	if err != nil {
		return err
	}
	var before int64
	if after != nil {
		before = after.ID
	}
	revisions, err := s.store.ListRevisions(c.UserContext(), id, before, n+1)
	if err != nil {
		return err
	}
	revisions, next := page(s.cursors, name, revisions, n, func(r *models.Revision) models.ListKey { return models.ListKey{ID: r.Version} })
	items := make([]revisionJSON, len(revisions))
	for i, r := range revisions {
		html, err := s.markdown.html(postTarget(id), r.Version, r.Content)
		if err != nil {
			return err
		}
		items[i] = revisionJSON{r.Version, s.author(r.Editor), r.Title, r.Content, html, r.Tags, r.CreatedAt}
	}
	return c.JSON(list[revisionJSON]{items, next})
}
