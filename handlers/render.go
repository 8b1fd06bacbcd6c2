package handlers

import (
	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

type renderedJSON struct {
	ContentHTML string `json:"content_html"`
}

// renderUnit is the length of a text, in bytes, whose rendering counts as one request.
const renderUnit = 1 << 10

// renderText returns a text as HTML, as it would be shown if it were posted. Nothing is stored.
func (s *Server) renderText(c *fiber.Ctx) error {
	var text models.CommentText
	if err := decode(c, fields{"content": &text.Content}); err != nil {
		return err
	}
	if err := text.Validate(); err != nil {
		return err
	}
	if err := s.rates.Weigh(s.client(c), limitRender.cost, limitRender.cost+len(text.Content)/renderUnit); err != nil {
		return err
	}
	html, err := s.markdown.Render(text.Content)
	if err != nil {
		return err
	}
	return c.JSON(renderedJSON{html})
}
