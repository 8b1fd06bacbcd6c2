package handlers

import (
	"strconv"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

type bookmarkJSON struct {
	Bookmarked bool `json:"bookmarked"`
}

// setBookmark makes the viewer's bookmark of the post in the path as the method says. Saying it again changes nothing
// and gets the same answer.
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

// listBookmarks shows the posts that the viewer bookmarked, the latest bookmark first.
func (s *Server) listBookmarks(c *fiber.Ctx) error {
	n, err := limit(c)
	if err != nil {
		return err
	}
	name := "bookmarks:user=" + strconv.FormatInt(viewerID(c), 10)
	after, err := s.cursors.after(c, name)
	if err != nil {
		return err
	}
	var before int64
	if after != nil {
		before = after.ID
	}
	bookmarks, err := s.store.BookmarkedPosts(c.UserContext(), viewerID(c), before, n+1)
	if err != nil {
		return err
	}
	bookmarks, next := page(s.cursors, name, bookmarks, n, func(b *models.BookmarkedPost) models.ListKey { return models.ListKey{ID: b.RowID} })
	posts := make([]models.Post, len(bookmarks))
	for i, b := range bookmarks {
		posts[i] = b.Post
	}
	items, err := s.postsJSON(c, posts)
	if err != nil {
		return err
	}
	return c.JSON(list[postJSON]{items, next})
}
