package handlers

import (
	"net/http"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

type authorJSON struct {
	ID          int64   `json:"id"`
	Username    string  `json:"username"`
	DisplayName *string `json:"display_name"` // null: shows the username
	AvatarURL   *string `json:"avatar_url"`
}

type postJSON struct {
	ID            int64      `json:"id"`
	Author        authorJSON `json:"author"`
	Title         string     `json:"title"`
	Content       string     `json:"content"`
	ContentHTML   string     `json:"content_html"`
	LikesCount    int64      `json:"likes_count"`
	CommentsCount int64      `json:"comments_count"`
	Liked         bool       `json:"liked"`
	Bookmarked    bool       `json:"bookmarked"`
	Status        string     `json:"status"`
	Version       int64      `json:"version"`
	CreatedAt     time.Time  `json:"created_at"`
	UpdatedAt     time.Time  `json:"updated_at"`
}

func postTarget(id int64) models.Target { return models.Target{Kind: models.KindPost, ID: id} }

// postsJSON shows posts to the viewer. Their likes cost one call, however many posts there are.
func (s *Server) postsJSON(c *fiber.Ctx, posts []models.Post) ([]postJSON, error) {
	counts := make([]models.TargetCount, len(posts))
	for i, p := range posts {
		counts[i] = models.TargetCount{Target: postTarget(p.ID), Count: p.LikesCount}
	}
	likes, err := s.likes.LikeStates(c.UserContext(), viewerID(c), counts)
	if err != nil {
		return nil, err
	}
	out := make([]postJSON, len(posts))
	for i, p := range posts {
		html, err := s.markdown.html(postTarget(p.ID), p.Version, p.Content)
		if err != nil {
			return nil, err
		}
		out[i] = postJSON{
			ID: p.ID, Author: authorJSON(p.Author), Title: p.Title, Content: p.Content, ContentHTML: html,
			LikesCount: likes[i].Count, CommentsCount: p.CommentsCount, Liked: likes[i].Liked, Bookmarked: p.Bookmarked, Status: p.Status.String(),
			Version: p.Version, CreatedAt: p.CreatedAt, UpdatedAt: p.UpdatedAt,
		}
	}
	return out, nil
}

func (s *Server) replyPost(c *fiber.Ctx, status int, p *models.Post) error {
	out, err := s.postsJSON(c, []models.Post{*p})
	if err != nil {
		return err
	}
	c.Set(fiber.HeaderETag, etag(p.Version))
	return c.Status(status).JSON(out[0])
}

func (s *Server) listPosts(c *fiber.Ctx) error {
	q := models.PostQuery{ViewerID: viewerID(c)}
	var err error
	if q.Sort, err = sortOf(c, models.PostsNew, models.PostsTop); err != nil {
		return err
	}
	n, err := limit(c)
	if err != nil {
		return err
	}
	name := "posts:" + string(q.Sort)
	if c.Context().QueryArgs().Has("author") {
		var ok bool
		if q.AuthorID, ok = parseID(c.Query("author")); !ok {
			return models.Invalid("author", "must be the id of a user")
		}
		name += ":author=" + strconv.FormatInt(q.AuthorID, 10)
	}
	if q.After, err = s.cursors.after(c, name); err != nil {
		return err
	}
	q.Limit = n + 1
	posts, err := s.store.ListPosts(c.UserContext(), q)
	if err != nil {
		return err
	}
	posts, next := page(s.cursors, name, posts, n, func(p *models.Post) models.ListKey { return p.Key(q.Sort) })
	items, err := s.postsJSON(c, posts)
	if err != nil {
		return err
	}
	return c.JSON(list[postJSON]{items, next})
}

func (s *Server) createPost(c *fiber.Ctx) error {
	var text models.PostText
	if err := decode(c, fields{"title": &text.Title, "content": &text.Content}); err != nil {
		return err
	}
	if err := text.Validate(); err != nil {
		return err
	}
	post, err := s.store.CreatePost(c.UserContext(), viewerAuthor(c), text)
	if err != nil {
		return err
	}
	s.openTarget(c, postTarget(post.ID), post.CreatedAt)
	return s.replyCreatedPost(c, post)
}

func (s *Server) readPost(c *fiber.Ctx) error {
	id, err := pathID(c, models.KindPost)
	if err != nil {
		return err
	}
	post, err := s.store.PostByID(c.UserContext(), viewerID(c), id)
	if err != nil {
		return err
	}
	return s.replyPost(c, http.StatusOK, post)
}

// ownPost reads the post in the path and holds the viewer to be its author.
func (s *Server) ownPost(c *fiber.Ctx) (*models.Post, error) {
	id, err := pathID(c, models.KindPost)
	if err != nil {
		return nil, err
	}
	post, err := s.store.PostByID(c.UserContext(), viewerID(c), id)
	if err != nil {
		return nil, err
	}
	if !models.CanEdit(viewerID(c), post.Author) {
		return nil, models.Errorf(models.CodeForbidden, "Only its author may change a post.")
	}
	return post, nil
}

func (s *Server) editPost(c *fiber.Ctx) error {
	matches, err := ifMatch(c)
	if err != nil {
		return err
	}
	var title, content *string
	if err := decode(c, fields{"title": &title, "content": &content}); err != nil {
		return err
	}
	post, err := s.ownPost(c)
	if err != nil {
		return err
	}
	if err := matches(post.Version); err != nil {
		return err
	}
	text := models.PostText{Title: post.Title, Content: post.Content}
	if title != nil {
		text.Title = *title
	}
	if content != nil {
		text.Content = *content
	}
	if err := text.Validate(); err != nil {
		return err
	}
	post, err = s.store.UpdatePost(c.UserContext(), viewerID(c), post.ID, post.Version, text)
	if err != nil {
		return err
	}
	return s.replyPost(c, http.StatusOK, post)
}

func (s *Server) deletePost(c *fiber.Ctx) error {
	post, err := s.ownPost(c)
	if err != nil {
		return err
	}
	if err := s.store.DeletePost(c.UserContext(), viewerID(c), post.ID); err != nil {
		return err
	}
	s.closePost(c, post.ID)
	return c.SendStatus(http.StatusNoContent)
}
