package handlers

import (
	"context"

	"github.com/gofiber/fiber/v2"

	"likewise/handlers/pages"
	"likewise/models"
)

type tagJSON struct {
	Name       string `json:"name"`
	PostsCount int64  `json:"posts_count"`
}

// tagOf reads a parameter that is a tag or a prefix of one, in any spelling; "" if it is missing.
func tagOf(c *fiber.Ctx, parameter string) (string, error) {
	if !c.Context().QueryArgs().Has(parameter) {
		return "", nil
	}
	tag := models.NormalTag(c.Query(parameter))
	if !models.ValidTagPrefix(tag) {
		return "", models.Invalid(parameter,
			models.BadFormat(models.FormatTag, "must be a tag or the beginning of one"))
	}
	return tag, nil
}

func (s *Server) listTags(c *fiber.Ctx) error {
	var q models.TagQuery
	var err error
	if q.Sort, err = sortOf(c, models.TagsPopular, models.TagsName); err != nil {
		return err
	}
	if q.Prefix, err = tagOf(c, "q"); err != nil {
		return err
	}
	return replyList(s, c, pages.Listing[models.Tag, tagJSON]{
		Name: "tags:" + string(q.Sort) + ":q=" + q.Prefix,
		Read: func(ctx context.Context, at pages.Position) ([]models.Tag, *models.ListKey, error) {
			q.After, q.Limit = at.After, at.Limit
			return s.content.ListTags(ctx, q)
		},
		Key:  func(t *models.Tag) models.ListKey { return t.Key(q.Sort) },
		Show: pages.Each(func(t *models.Tag) tagJSON { return tagJSON{t.Name, t.PostsCount} }),
	})
}
