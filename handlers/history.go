package handlers

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

// titledComment returns a comment in the list of a user's comments, or in the result of a search, with the title of its
// post.
func (s *Server) titledComment(title string, m *models.Comment) (item, error) {
	shown, err := s.commentItem(m)
	return containing{postTitleJSON{title}, "comment", shown}, err
}

type postTitleJSON struct {
	PostTitle string `json:"post_title"`
}

func (s *Server) listUserComments(c *fiber.Ctx) error {
	id, err := s.existingUser(c)
	if err != nil {
		return err
	}
	return replyList(s, c, listing[models.UserComment, item]{
		name: ofUser("comments", id),
		read: func(ctx context.Context, at position) ([]models.UserComment, *models.ListKey, error) {
			return s.reader.CommentsByUser(ctx, viewerID(c), id, at.after, at.limit)
		},
		key: func(w *models.UserComment) models.ListKey { return w.Comment.Key(models.CommentsNew) },
		show: tryEach(func(w *models.UserComment) (item, error) {
			return s.titledComment(w.PostTitle, &w.Comment)
		}),
	})
}

// likedPostJSON is a like of a post, which is added to it as the member post.
type likedPostJSON struct {
	LikedAt time.Time `json:"liked_at"`
	Comment *struct{} `json:"comment"` // null
}

// likedCommentJSON is a like of a comment, which is added to it as the member comment.
type likedCommentJSON struct {
	LikedAt time.Time `json:"liked_at"`
	Post    *struct{} `json:"post"` // null
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
	name := ofUser("likes:"+string(kind), userID)
	if kind == models.KindComment {
		return replyList(s, c, listing[models.Liked[models.Comment], item]{
			name: name,
			read: func(ctx context.Context, at position) ([]models.Liked[models.Comment], *models.ListKey, error) {
				return s.reader.LikedComments(ctx, viewerID(c), userID, at.id(), at.limit)
			},
			key: (*models.Liked[models.Comment]).Key,
			show: tryEach(func(l *models.Liked[models.Comment]) (item, error) {
				m, err := s.commentItem(&l.Item)
				return containing{likedCommentJSON{LikedAt: l.LikedAt}, "comment", m}, err
			}),
		})
	}
	return replyList(s, c, listing[models.Liked[models.Post], item]{
		name: name,
		read: func(ctx context.Context, at position) ([]models.Liked[models.Post], *models.ListKey, error) {
			return s.reader.LikedPosts(ctx, viewerID(c), userID, at.id(), at.limit)
		},
		key: (*models.Liked[models.Post]).Key,
		show: each(func(l *models.Liked[models.Post]) item {
			return containing{likedPostJSON{LikedAt: l.LikedAt}, "post", s.summary(&l.Item)}
		}),
	})
}
