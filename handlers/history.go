package handlers

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

// userCommentJSON is a comment in the list of a user's comments, or in the result of a search, with the title of its
// post.
type userCommentJSON struct {
	PostTitle string      `json:"post_title"`
	Comment   commentJSON `json:"comment"`
}

func (s *Server) listUserComments(c *fiber.Ctx) error {
	id, err := s.existingUser(c)
	if err != nil {
		return err
	}
	return replyList(s, c, listing[models.UserComment, userCommentJSON]{
		name: ofUser("comments", id),
		read: func(ctx context.Context, at position) ([]models.UserComment, *models.ListKey, error) {
			return s.store.CommentsByUser(ctx, viewerID(c), id, at.after, at.limit)
		},
		key: func(w *models.UserComment) models.ListKey { return w.Comment.Key(models.CommentsNew) },
		show: within(func(w *models.UserComment) models.Comment { return w.Comment }, s.eachComment,
			func(w *models.UserComment, m commentJSON) userCommentJSON { return userCommentJSON{w.PostTitle, m} }),
	})
}

// likedJSON is a like of a user: the liked post or comment; the other is null.
type likedJSON struct {
	LikedAt time.Time    `json:"liked_at"`
	Post    any          `json:"post"` // see eachPost
	Comment *commentJSON `json:"comment"`
}

func (s *Server) listMyLikes(c *fiber.Ctx) error { return s.replyLikesOf(c, viewerID(c)) }

func (s *Server) listUserLikes(c *fiber.Ctx) error {
	id, err := s.existingUser(c)
	if err != nil {
		return err
	}
	return s.replyLikesOf(c, id)
}

// replyLikesOf answers with a page of the likes of a user that MySQL holds, latest first.
func (s *Server) replyLikesOf(c *fiber.Ctx, userID int64) error {
	kind, err := oneOf(c, "type", models.KindPost, models.KindComment)
	if err != nil {
		return err
	}
	view, err := postView(c) // of posts; with comments, it has no effect
	if err != nil {
		return err
	}
	name := ofUser("likes:"+string(kind), userID)
	if kind == models.KindComment {
		return replyList(s, c, listing[models.Liked[models.Comment], likedJSON]{
			name: name,
			read: func(ctx context.Context, at position) ([]models.Liked[models.Comment], *models.ListKey, error) {
				return s.store.LikedComments(ctx, viewerID(c), userID, at.id(), at.limit)
			},
			key: (*models.Liked[models.Comment]).Key,
			show: within(func(l *models.Liked[models.Comment]) models.Comment { return l.Item }, s.eachComment,
				func(l *models.Liked[models.Comment], m commentJSON) likedJSON {
					return likedJSON{LikedAt: l.LikedAt, Comment: &m}
				}),
		})
	}
	return replyList(s, c, listing[models.Liked[models.Post], likedJSON]{
		name: name,
		read: func(ctx context.Context, at position) ([]models.Liked[models.Post], *models.ListKey, error) {
			return s.store.LikedPosts(ctx, viewerID(c), userID, view, at.id(), at.limit)
		},
		key: (*models.Liked[models.Post]).Key,
		show: within(func(l *models.Liked[models.Post]) models.Post { return l.Item }, s.eachPost(view),
			func(l *models.Liked[models.Post], p any) likedJSON {
				return likedJSON{LikedAt: l.LikedAt, Post: p}
			}),
	})
}
