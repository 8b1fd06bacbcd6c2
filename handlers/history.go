package handlers

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/handlers/pages"
	"likewise/models"
)

// titledComment returns a comment in the list of a user's comments, or in the result of a search, with the title of its
// post.
func (s *Server) titledComment(title string, m *models.Comment) (pages.Item, error) {
	shown, err := s.commentItem(m)
	return pages.Containing{Others: postTitleJSON{title}, Name: "comment", Item: shown}, err
}

type postTitleJSON struct {
	PostTitle string `json:"post_title"`
}

func (s *Server) listUserComments(c *fiber.Ctx) error {
	id, err := s.existingUser(c)
	if err != nil {
		return err
	}
	return replyList(s, c, s.commentsOf(c, id))
}

// commentsOf describes the list of the comments of a user.
func (s *Server) commentsOf(c *fiber.Ctx, userID int64) pages.Listing[models.UserComment, pages.Item] {
	return pages.Listing[models.UserComment, pages.Item]{
		Name: pages.OfUser("comments", userID),
		Read: func(ctx context.Context, at pages.Position) ([]models.UserComment, *models.ListKey, error) {
			return s.reader.CommentsByUser(ctx, viewerID(c), userID, at.After, at.Limit)
		},
		Key: func(w *models.UserComment) models.ListKey { return w.Comment.Key(models.CommentsNew) },
		Show: pages.TryEach(func(w *models.UserComment) (pages.Item, error) {
			return s.titledComment(w.PostTitle, &w.Comment)
		}),
	}
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
	name := pages.OfUser("likes:"+string(kind), userID)
	if kind == models.KindComment {
		return replyList(s, c, pages.Listing[models.Liked[models.Comment], pages.Item]{
			Name: name,
			Read: func(
				ctx context.Context, at pages.Position,
			) ([]models.Liked[models.Comment], *models.ListKey, error) {
				return s.reader.LikedComments(ctx, viewerID(c), userID, at.ID(), at.Limit)
			},
			Key: (*models.Liked[models.Comment]).Key,
			Show: pages.TryEach(func(l *models.Liked[models.Comment]) (pages.Item, error) {
				m, err := s.commentItem(&l.Item)
				return pages.Containing{Others: likedCommentJSON{LikedAt: l.LikedAt}, Name: "comment", Item: m}, err
			}),
		})
	}
	return replyList(s, c, pages.Listing[models.Liked[models.Post], pages.Item]{
		Name: name,
		Read: func(ctx context.Context, at pages.Position) ([]models.Liked[models.Post], *models.ListKey, error) {
			return s.reader.LikedPosts(ctx, viewerID(c), userID, at.ID(), at.Limit)
		},
		Key: (*models.Liked[models.Post]).Key,
		Show: pages.Each(func(l *models.Liked[models.Post]) pages.Item {
			return pages.Containing{Others: likedPostJSON{LikedAt: l.LikedAt}, Name: "post", Item: s.summary(&l.Item)}
		}),
	})
}
