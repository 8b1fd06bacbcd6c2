package handlers

import (
	"context"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

type bookmarkJSON struct {
	Bookmarked bool `json:"bookmarked"`
}

// setBookmark returns the handler that sets or removes the viewer's bookmark of the post in the path. Repeating it
// changes nothing and returns the same answer.
func (s *Server) setBookmark(bookmarked bool) fiber.Handler {
	return func(c *fiber.Ctx) error {
		id, err := pathID(c, models.KindPost)
		if err != nil {
			return err
		}
		if err := s.store.SetBookmark(c.UserContext(), viewerID(c), id, bookmarked); err != nil {
			return err
		}
		return c.JSON(bookmarkJSON{bookmarked})
	}
}

// listBookmarks lists the viewer's bookmarked posts, the latest bookmark first.
func (s *Server) listBookmarks(c *fiber.Ctx) error {
	return replyList(s, c, listing[models.BookmarkedPost, postJSON]{
		name: ofUser("bookmarks", viewerID(c)),
		read: func(ctx context.Context, at position) ([]models.BookmarkedPost, *models.ListKey, error) {
			return s.store.BookmarkedPosts(ctx, viewerID(c), at.id(), at.limit)
		},
		key: func(b *models.BookmarkedPost) models.ListKey { return models.ListKey{ID: b.RowID} },
		show: within(func(b *models.BookmarkedPost) models.Post { return b.Post }, s.eachPost,
			func(_ *models.BookmarkedPost, p postJSON) postJSON { return p }),
	})
}
