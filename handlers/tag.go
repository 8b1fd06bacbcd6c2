package handlers

import (
	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

type tagJSON struct {
	Name       string `json:"name"`
	PostsCount int64  `json:"posts_count"`
}

// tagOf reads a parameter that is a tag, or the beginning of one, in any spelling; "" when it is not there.
func tagOf(c *fiber.Ctx, parameter string) (string, error) {
	if !c.Context().QueryArgs().Has(parameter) {
		return "", nil
	}
	tag := models.NormalTag(c.Query(parameter))
	if !models.ValidTagPrefix(tag) {
		return "", models.Invalid(parameter, "must be a tag, or the beginning of one")
	}
	return tag, nil
}

func (s *Server) listTags(c *fiber.Ctx) error {
	var q models.TagQuery
	var err error
	if q.Sort, err = sortOf(c, models.TagsPopular, models.TagsName); err != nil {
		return err
	}
	n, err := limit(c)
	if err != nil {
		return err
	}
	if q.Prefix, err = tagOf(c, "q"); err != nil {
		return err
	}
	name := "tags:" + string(q.Sort) + ":q=" + q.Prefix
	if q.After, err = s.cursors.after(c, name); err != nil {
		return err
	}
	q.Limit = n + 1
	tags, err := s.store.ListTags(c.UserContext(), q)
	if err != nil {
		return err
	}
	tags, next := page(s.cursors, name, tags, n, func(t *models.Tag) models.ListKey { return t.Key(q.Sort) })
	items := make([]tagJSON, len(tags))
	for i, t := range tags {
		items[i] = tagJSON{t.Name, t.PostsCount}
	}
	return c.JSON(list[tagJSON]{items, next})
}
