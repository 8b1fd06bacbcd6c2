package handlers

import (
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

// userCommentJSON is a comment in the list of what a user wrote, where its post is not shown beside it.
type userCommentJSON struct {
	PostTitle string      `json:"post_title"`
	Comment   commentJSON `json:"comment"`
}

func (s *Server) listUserComments(c *fiber.Ctx) error {
	id, err := s.someUser(c)
	if err != nil {
		return err
	}
	n, err := limit(c)
	if err != nil {
		return err
	}
	name := "comments:user=" + strconv.FormatInt(id, 10)
	after, err := s.cursors.after(c, name)
	if err != nil {
		return err
	}
	written, err := s.store.CommentsByUser(c.UserContext(), viewerID(c), id, after, n+1)
	if err != nil {
		return err
	}
	written, next := page(s.cursors, name, written, n, func(w *models.UserComment) models.ListKey { return w.Comment.Key(models.CommentsNew) })
	comments := make([]models.Comment, len(written))
	for i, w := range written {
		comments[i] = w.Comment
	}
	shown, err := s.commentsJSON(c, comments)
	if err != nil {
		return err
	}
	items := make([]userCommentJSON, len(shown))
	for i := range shown {
		items[i] = userCommentJSON{written[i].PostTitle, shown[i]}
	}
	return c.JSON(list[userCommentJSON]{items, next})
}

// likedJSON is what a user likes: a post or a comment, and the other is null.
type likedJSON struct {
	LikedAt time.Time    `json:"liked_at"`
	Post    *postJSON    `json:"post"`
	Comment *commentJSON `json:"comment"`
}

func (s *Server) listMyLikes(c *fiber.Ctx) error { return s.listLikesOf(c, viewerID(c)) }

func (s *Server) listUserLikes(c *fiber.Ctx) error {
	id, err := s.someUser(c)
	if err != nil {
		return err
	}
	return s.listLikesOf(c, id)
}

// listLikesOf shows what a user likes, the latest like first, as MySQL has it.
func (s *Server) listLikesOf(c *fiber.Ctx, userID int64) error {
	kind := models.KindPost
	if c.Context().QueryArgs().Has("type") {
		kind = models.TargetKind(c.Query("type"))
	}
	if kind != models.KindPost && kind != models.KindComment {
		return models.Invalid("type", "must be one of post, comment")
	}
	n, err := limit(c)
	if err != nil {
		return err
	}
	name := "likes:" + string(kind) + ":user=" + strconv.FormatInt(userID, 10)
	after, err := s.cursors.after(c, name)
	if err != nil {
		return err
	}
	var before int64
	if after != nil {
		before = after.ID
	}
	show := s.likedPosts
	if kind == models.KindComment {
		show = s.likedComments
	}
	items, next, err := show(c, name, userID, before, n)
	if err != nil {
		return err
	}
	return c.JSON(list[likedJSON]{items, next})
}

func (s *Server) likedPosts(c *fiber.Ctx, name string, userID, before int64, n int) ([]likedJSON, *string, error) {
	liked, err := s.store.LikedPosts(c.UserContext(), viewerID(c), userID, before, n+1)
	if err != nil {
		return nil, nil, err
	}
	liked, next := page(s.cursors, name, liked, n, func(l *models.LikedPost) models.ListKey { return models.ListKey{ID: l.RowID} })
	posts := make([]models.Post, len(liked))
	for i, l := range liked {
		posts[i] = l.Post
	}
	shown, err := s.postsJSON(c, posts)
	if err != nil {
		return nil, nil, err
	}
	items := make([]likedJSON, len(shown))
	for i := range shown {
		items[i] = likedJSON{LikedAt: liked[i].LikedAt, Post: &shown[i]}
	}
	return items, next, nil
}

func (s *Server) likedComments(c *fiber.Ctx, name string, userID, before int64, n int) ([]likedJSON, *string, error) {
	liked, err := s.store.LikedComments(c.UserContext(), viewerID(c), userID, before, n+1)
	if err != nil {
		return nil, nil, err
	}
	liked, next := page(s.cursors, name, liked, n, func(l *models.LikedComment) models.ListKey { return models.ListKey{ID: l.RowID} })
	comments := make([]models.Comment, len(liked))
	for i, l := range liked {
		comments[i] = l.Comment
	}
	shown, err := s.commentsJSON(c, comments)
	if err != nil {
		return nil, nil, err
	}
	items := make([]likedJSON, len(shown))
	for i := range shown {
		items[i] = likedJSON{LikedAt: liked[i].LikedAt, Comment: &shown[i]}
	}
	return items, next, nil
}
