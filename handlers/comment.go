package handlers

import (
	"net/http"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

// commentJSON shows a comment. A deleted comment, which only a list shows and only for the sake of its replies, has no
// author and no content.
type commentJSON struct {
	ID           int64       `json:"id"`
	PostID       int64       `json:"post_id"`
	ParentID     *int64      `json:"parent_id"` // null at the top level
	Author       *authorJSON `json:"author"`
	Content      string      `json:"content"`
	ContentHTML  string      `json:"content_html"`
	LikesCount   int64       `json:"likes_count"`
	RepliesCount int64       `json:"replies_count"`
	Liked        bool        `json:"liked"`
	Status       string      `json:"status"`
	Version      int64       `json:"version"`
	CreatedAt    time.Time   `json:"created_at"`
	UpdatedAt    time.Time   `json:"updated_at"`
}

func commentTarget(id int64) models.Target { return models.Target{Kind: models.KindComment, ID: id} }

// commentsJSON shows comments to the viewer. Their likes cost one call, however many comments there are.
func (s *Server) commentsJSON(c *fiber.Ctx, comments []models.Comment) ([]commentJSON, error) {
	out := make([]commentJSON, len(comments))
	var counts []models.TargetCount
	var shown []*commentJSON // those that counts speaks of
	for i, m := range comments {
		out[i] = commentJSON{
			ID: m.ID, PostID: m.PostID, ParentID: m.ParentID, LikesCount: m.LikesCount, RepliesCount: m.RepliesCount,
			Status: m.Status.String(), Version: m.Version, CreatedAt: m.CreatedAt, UpdatedAt: m.UpdatedAt,
		}
		if m.Status == models.StatusDeleted {
			continue
		}
		html, err := s.markdown.html(commentTarget(m.ID), m.Version, m.Content)
		if err != nil {
			return nil, err
		}
		author := authorJSON(m.Author)
		out[i].Author, out[i].Content, out[i].ContentHTML = &author, m.Content, html
		counts = append(counts, models.TargetCount{Target: commentTarget(m.ID), Count: m.LikesCount})
		shown = append(shown, &out[i])
	}
	likes, err := s.likes.LikeStates(c.UserContext(), viewerID(c), counts)
	if err != nil {
		return nil, err
	}
	for i, comment := range shown {
		comment.LikesCount, comment.Liked = likes[i].Count, likes[i].Liked
	}
	return out, nil
}

func (s *Server) replyComment(c *fiber.Ctx, status int, m *models.Comment) error {
	out, err := s.commentsJSON(c, []models.Comment{*m})
	if err != nil {
		return err
	}
	c.Set(fiber.HeaderETag, etag(m.Version))
	return c.Status(status).JSON(out[0])
}

func (s *Server) listComments(c *fiber.Ctx) error {
	id, err := pathID(c, models.KindPost)
	if err != nil {
		return err
	}
	return s.pageOfComments(c, "comments:post="+strconv.FormatInt(id, 10), models.CommentQuery{ViewerID: viewerID(c), PostID: id})
}

func (s *Server) listReplies(c *fiber.Ctx) error {
	id, err := pathID(c, models.KindComment)
	if err != nil {
		return err
	}
	return s.pageOfComments(c, "comments:parent="+strconv.FormatInt(id, 10), models.CommentQuery{ViewerID: viewerID(c), ParentID: id})
}

func (s *Server) pageOfComments(c *fiber.Ctx, name string, q models.CommentQuery) error {
	var err error
	if q.Sort, err = sortOf(c, models.CommentsOld, models.CommentsNew, models.CommentsTop); err != nil {
		return err
	}
	n, err := limit(c)
	if err != nil {
		return err
	}
	name += ":" + string(q.Sort)
	if q.After, err = s.cursors.after(c, name); err != nil {
		return err
	}
	q.Limit = n + 1
	comments, err := s.store.ListComments(c.UserContext(), q)
	if err != nil {
		return err
	}
	comments, next := page(s.cursors, name, comments, n, func(m *models.Comment) models.ListKey { return m.Key(q.Sort) })
	items, err := s.commentsJSON(c, comments)
	if err != nil {
		return err
	}
	return c.JSON(list[commentJSON]{items, next})
}

func (s *Server) createComment(c *fiber.Ctx) error {
	postID, err := pathID(c, models.KindPost)
	if err != nil {
		return err
	}
	var text models.CommentText
	var parentID *int64
	if err := decode(c, fields{"content": &text.Content, "parent_id": &parentID}); err != nil {
		return err
	}
	return s.writeComment(c, postID, parentID, text)
}

func (s *Server) createReply(c *fiber.Ctx) error {
	parentID, err := pathID(c, models.KindComment)
	if err != nil {
		return err
	}
	var text models.CommentText
	if err := decode(c, fields{"content": &text.Content}); err != nil {
		return err
	}
	parent, err := s.store.CommentByID(c.UserContext(), parentID)
	if err != nil {
		return err
	}
	return s.writeComment(c, parent.PostID, &parentID, text)
}

func (s *Server) writeComment(c *fiber.Ctx, postID int64, parentID *int64, text models.CommentText) error {
	if err := text.Validate(); err != nil {
		return err
	}
	comment, err := s.store.CreateComment(c.UserContext(), viewerAuthor(c), postID, parentID, text)
	if err != nil {
		return err
	}
	s.openTarget(c, commentTarget(comment.ID), comment.CreatedAt)
	c.Set(fiber.HeaderLocation, "/v1/comments/"+strconv.FormatInt(comment.ID, 10))
	return s.replyComment(c, http.StatusCreated, comment)
}

func (s *Server) readComment(c *fiber.Ctx) error {
	id, err := pathID(c, models.KindComment)
	if err != nil {
		return err
	}
	comment, err := s.store.CommentByID(c.UserContext(), id)
	if err != nil {
		return err
	}
	return s.replyComment(c, http.StatusOK, comment)
}

// ownComment reads the comment in the path and holds the viewer to be its author.
func (s *Server) ownComment(c *fiber.Ctx) (*models.Comment, error) {
	id, err := pathID(c, models.KindComment)
	if err != nil {
		return nil, err
	}
	comment, err := s.store.CommentByID(c.UserContext(), id)
	if err != nil {
		return nil, err
	}
	if !models.CanEdit(viewerID(c), comment.Author) {
		return nil, models.Errorf(models.CodeForbidden, "Only its author may change a comment.")
	}
	return comment, nil
}

func (s *Server) editComment(c *fiber.Ctx) error {
	matches, err := ifMatch(c)
	if err != nil {
		return err
	}
	var content *string
	if err := decode(c, fields{"content": &content}); err != nil {
		return err
	}
	comment, err := s.ownComment(c)
	if err != nil {
		return err
	}
	if err := matches(comment.Version); err != nil {
		return err
	}
	text := models.CommentText{Content: comment.Content}
	if content != nil {
		text.Content = *content
	}
	if err := text.Validate(); err != nil {
		return err
	}
	comment, err = s.store.UpdateComment(c.UserContext(), comment.ID, comment.Version, text)
	if err != nil {
		return err
	}
	return s.replyComment(c, http.StatusOK, comment)
}

func (s *Server) deleteComment(c *fiber.Ctx) error {
	comment, err := s.ownComment(c)
	if err != nil {
		return err
	}
	if err := s.store.DeleteComment(c.UserContext(), comment); err != nil {
		return err
	}
	s.closeComment(c, comment.ID)
	return c.SendStatus(http.StatusNoContent)
}
