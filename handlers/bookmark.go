package handlers

import (
	"context"

	"github.com/gofiber/fiber/v2"

	"likewise/handlers/pages"
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
		if err := s.reader.SetBookmark(c.UserContext(), viewerID(c), id, bookmarked); err != nil {
			return err
		}
		return c.JSON(bookmarkJSON{bookmarked})
	}
}

// keptKey returns the place of a post in the list of posts that a user keeps.
func keptKey(k *models.KeptPost) models.ListKey { return models.ListKey{ID: k.RowID} }

// keptPost shows a post that a user keeps.
func (s *Server) keptPost(k *models.KeptPost) postItem { return s.summary(&k.Post) }

// listBookmarks lists the viewer's bookmarked posts, the latest bookmark first.
func (s *Server) listBookmarks(c *fiber.Ctx) error {
	return replyList(s, c, pages.Listing[models.KeptPost, postItem]{
		Name: pages.OfUser("bookmarks", viewerID(c)),
		Read: func(ctx context.Context, at pages.Position) ([]models.KeptPost, *models.ListKey, error) {
			return s.reader.BookmarkedPosts(ctx, viewerID(c), at.ID(), at.Limit)
		},
		Key:  keptKey,
		Show: pages.Each(s.keptPost),
	})
}
