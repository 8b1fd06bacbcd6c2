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
	if kind == models.KindComment {
		liked, err := s.store.LikedComments(c.UserContext(), viewerID(c), userID, before, n+1)
		if err != nil {
			return err
		}
		return replyLiked(c, s.cursors, name, n, liked, s.commentsJSON, func(m *commentJSON) likedJSON { return likedJSON{Comment: m} })
	}
	liked, err := s.store.LikedPosts(c.UserContext(), viewerID(c), userID, before, n+1)
	if err != nil {
		return err
	}
	return replyLiked(c, s.cursors, name, n, liked, s.postsJSON, func(p *postJSON) likedJSON { return likedJSON{Post: p} })
}

// replyLiked answers with the page that liked was read for, as show and wrap make it.
func replyLiked[T models.Post | models.Comment, J any](c *fiber.Ctx, k cursors, name string, n int, liked []models.Liked[T],
	show func(*fiber.Ctx, []T) ([]J, error), wrap func(*J) likedJSON,
) error {
	liked, next := page(k, name, liked, n, (*models.Liked[T]).Key)
	content := make([]T, len(liked))
	for i := range liked {
		content[i] = liked[i].Item
	}
	shown, err := show(c, content)
	if err != nil {
		return err
	}
	items := make([]likedJSON, len(shown))
	for i := range shown {
		items[i] = wrap(&shown[i])
		items[i].LikedAt = liked[i].LikedAt
	}
	return c.JSON(list[likedJSON]{items, next})
}
