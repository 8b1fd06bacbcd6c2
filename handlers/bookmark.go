package handlers

import (
	"context"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
	"likewise/models/db"
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

// keptKey returns the place of a post in the list of posts that a user keeps.
func keptKey(k *models.KeptPost) models.ListKey { return models.ListKey{ID: k.RowID} }

// eachKept shows posts that a user keeps as eachPost does.
func (s *Server) eachKept(view db.PostView) shower[models.KeptPost, any] {
	return within(func(k *models.KeptPost) models.Post { return k.Post }, s.eachPost(view),
		func(_ *models.KeptPost, p any) any { return p })
}

// listBookmarks lists the viewer's bookmarked posts, the latest bookmark first.
func (s *Server) listBookmarks(c *fiber.Ctx) error {
	view, err := postView(c)
	if err != nil {
		return err
	}
	return replyList(s, c, listing[models.KeptPost, any]{
		name: ofUser("bookmarks", viewerID(c)),
		read: func(ctx context.Context, at position) ([]models.KeptPost, *models.ListKey, error) {
			return s.store.BookmarkedPosts(ctx, viewerID(c), view, at.id(), at.limit)
		},
		key:  keptKey,
		show: s.eachKept(view),
	})
}
