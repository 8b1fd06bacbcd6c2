package handlers

import (
	"context"
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
	return replyList(s, c, listing[models.UserComment, userCommentJSON]{
		name: "comments:user=" + strconv.FormatInt(id, 10),
		sift: func(ctx context.Context, after *models.ListKey, limit int) ([]models.UserComment, *models.ListKey, error) {
			return s.store.CommentsByUser(ctx, viewerID(c), id, after, limit)
		},
		key: func(w *models.UserComment) models.ListKey { return w.Comment.Key(models.CommentsNew) },
		show: within(func(w *models.UserComment) models.Comment { return w.Comment }, s.eachComment,
			func(w *models.UserComment, m commentJSON) userCommentJSON { return userCommentJSON{w.PostTitle, m} }),
	})
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
	name := "likes:" + string(kind) + ":user=" + strconv.FormatInt(userID, 10)
	if kind == models.KindComment {
		return replyLiked(s, c, name, userID, s.store.LikedComments, s.eachComment,
			func(l *models.Liked[models.Comment], m commentJSON) likedJSON {
				return likedJSON{LikedAt: l.LikedAt, Comment: &m}
			})
	}
	return replyLiked(s, c, name, userID, s.store.LikedPosts, s.eachPost,
		func(l *models.Liked[models.Post], p postJSON) likedJSON {
			return likedJSON{LikedAt: l.LikedAt, Post: &p}
		})
}

// replyLiked answers with a page of what a user likes of one kind.
func replyLiked[T models.Post | models.Comment, J any](s *Server, c *fiber.Ctx, name string, userID int64,
	read func(ctx context.Context, viewer, userID, before int64, limit int) ([]models.Liked[T], *models.ListKey, error), show shower[T, J], wrap func(*models.Liked[T], J) likedJSON,
) error {
	return replyList(s, c, listing[models.Liked[T], likedJSON]{
		name: name,
		sift: func(ctx context.Context, after *models.ListKey, limit int) ([]models.Liked[T], *models.ListKey, error) {
			return read(ctx, viewerID(c), userID, idOf(after), limit)
		},
		key:  (*models.Liked[T]).Key,
		show: within(func(l *models.Liked[T]) T { return l.Item }, show, wrap),
	})
}
