package handlers

import (
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
	"likewise/models/search"
)

type authorJSON struct {
	ID          int64       `json:"id"`
	Username    string      `json:"username"`
	DisplayName *string     `json:"display_name"` // null: shows the username
	AvatarURL   shownAvatar `json:"avatar_url"`
}

type postJSON struct {
	ID            int64       `json:"id"`
	Author        authorJSON  `json:"author"`
	Title         string      `json:"title"`
	Content       string      `json:"content"`
	ContentHTML   string      `json:"content_html"`
	Tags          models.Tags `json:"tags"`
	LikesCount    int64       `json:"likes_count"`
	CommentsCount int64       `json:"comments_count"`
	Liked         bool        `json:"liked"`
	Bookmarked    bool        `json:"bookmarked"`
	Status        string      `json:"status"`
	Locked        bool        `json:"locked"` // takes neither new comments nor edits
	Pinned        bool        `json:"pinned"`
	Version       int64       `json:"version"`
	CreatedAt     time.Time   `json:"created_at"`
	UpdatedAt     time.Time   `json:"updated_at"`
}

func postTarget(id int64) models.Target { return models.Target{Kind: models.KindPost, ID: id} }

// eachPost shows posts to the viewer. Reading their likes takes one call for all of them.
func (s *Server) eachPost(c *fiber.Ctx, posts []models.Post) iter.Seq2[postJSON, error] {
	return func(yield func(postJSON, error) bool) {
		counts := make([]models.TargetCount, len(posts))
		for i, p := range posts {
			counts[i] = models.TargetCount{Target: postTarget(p.ID), Count: p.LikesCount}
		}
		likes, err := s.likes.LikeStates(c.UserContext(), viewerID(c), counts)
		if err != nil {
			yield(postJSON{}, err)
			return
		}
		for i, p := range posts {
			html, err := s.markdown.HTML(postTarget(p.ID), p.Version, p.Content)
			item := postJSON{
				ID: p.ID, Author: s.author(p.Author), Title: p.Title, Content: p.Content, ContentHTML: html,
				Tags: p.Tags, LikesCount: likes[i].Count, CommentsCount: p.CommentsCount, Liked: likes[i].Liked,
				Bookmarked: p.Bookmarked, Status: p.Status.String(), Locked: p.Locked, Pinned: p.Pinned,
				Version: p.Version, CreatedAt: p.CreatedAt, UpdatedAt: p.UpdatedAt,
			}
			if !yield(item, err) {
				return
			}
		}
	}
}

func (s *Server) replyPost(c *fiber.Ctx, status int, p *models.Post) error {
	out, err := collect(s.eachPost(c, []models.Post{*p}))
	if err != nil {
		return err
	}
	c.Set(fiber.HeaderETag, etag(p.Version))
	return c.Status(status).JSON(out[0])
}

// postQuery reads the query of a list of posts, and returns the name of the list. The default order of a search is
// relevance.
func postQuery(c *fiber.Ctx) (q models.PostQuery, window models.Window, name string, err error) {
	args := c.Context().QueryArgs()
	orders := []models.PostSort{models.PostsNew, models.PostsHot, models.PostsTop, models.PostsActive}
	if args.Has("q") {
		text := c.Query("q")
		if !utf8.ValidString(text) || utf8.RuneCountInString(text) > search.MaxQuery {
			return q, "", "", models.Invalid("q", "must have at most "+strconv.Itoa(search.MaxQuery)+" characters")
		}
		if q.Terms = search.QueryTerms(text); len(q.Terms) == 0 {
			return q, "", "", models.Invalid("q", "must contain a word to search for")
		}
		orders = append([]models.PostSort{models.PostsRelevance}, orders...)
	}
	if q.Sort, err = sortOf(c, orders...); err != nil {
		return q, "", "", err
	}
	window, err = oneOf(c, "window",
		models.WindowAll, models.WindowDay, models.WindowWeek, models.WindowMonth, models.WindowYear)
	if err != nil {
		return q, "", "", err
	}
	if args.Has("author") {
		var ok bool
		if q.AuthorID, ok = parseID(c.Query("author")); !ok {
			return q, "", "", models.Invalid("author", "must be the id of a user")
		}
	}
	if args.Has("tag") {
		if q.Tag = models.NormalTag(c.Query("tag")); !models.ValidTag(q.Tag) {
			return q, "", "", models.Invalid("tag", "must be a tag")
		}
	}
	if args.Has("pinned") {
		if c.Query("pinned") != "true" {
			return q, "", "", models.Invalid("pinned", "must be true if it is given")
		}
		q.Pinned = true
	}
	// Neither a tag nor a term contains a space, so no two lists have the same name.
	name = fmt.Sprintf("posts:%s:%s:%d:%t tag=%s q=%s",
		q.Sort, window, q.AuthorID, q.Pinned, q.Tag, strings.Join(q.Terms, " "))
	return q, window, name, nil
}

func (s *Server) listPosts(c *fiber.Ctx) error {
	q, window, name, err := postQuery(c)
	if err != nil {
		return err
	}
	q.ViewerID = viewerID(c)
	n, err := pageLimit(c)
	if err != nil {
		return err
	}
	var since int64
	if q.After, since, err = s.cursors.afterSince(c, name); err != nil {
		return err
	}
	if q.After != nil && since != 0 {
		q.Since = time.Unix(since, 0)
	} else if q.Since = window.Since(s.now()); !q.Since.IsZero() {
		since = q.Since.Unix()
	}
	q.Limit = n + 1
	found, err := s.store.ListPosts(c.UserContext(), q)
	if err != nil {
		return err
	}
	s.charge(c, found.Examined)
	out := page[models.Post]{name: name, since: since, rows: found.Posts, limit: n, key: found.Key, rest: found.Rest}
	if len(q.Terms) > 0 {
		out.complete = &found.Complete
	}
	return replyPage(s, c, out, s.eachPost)
}

func (s *Server) createPost(c *fiber.Ctx) error {
	var text models.PostText
	err := decode(c, fields{"title": &text.Title, "content": &text.Content, "tags": (*[]string)(&text.Tags)})
	if err != nil {
		return err
	}
	text.Tags = models.NormalTags(text.Tags)
	if err := text.Validate(); err != nil {
		return err
	}
	text.Mentions = s.markdown.Mentions(text.Content)
	post, err := s.store.CreatePost(c.UserContext(), viewerAuthor(c), text)
	if err != nil {
		return err
	}
	return s.replyCreatedPost(c, post)
}

func (s *Server) replyCreatedPost(c *fiber.Ctx, post *models.Post) error {
	if err := s.replyPost(c, http.StatusCreated, post); err != nil {
		return err
	}
	c.Set(fiber.HeaderLocation, "/v1/posts/"+strconv.FormatInt(post.ID, 10))
	return nil
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

// ownPost returns the post in the path, if the permission of the route allows the viewer to change it.
func (s *Server) ownPost(c *fiber.Ctx) (*models.Post, error) {
	id, err := pathID(c, models.KindPost)
	if err != nil {
		return nil, err
	}
	post, err := s.store.PostByID(c.UserContext(), viewerID(c), id)
	if err != nil {
		return nil, err
	}
	if err := allowOn(c, post.Author.ID); err != nil {
		return nil, err
	}
	return post, nil
}

func (s *Server) editPost(c *fiber.Ctx) error {
	matches, err := ifMatch(c)
	if err != nil {
		return err
	}
	var title, content *string
	var tags *[]string
	if err := decode(c, fields{"title": &title, "content": &content, "tags": &tags}); err != nil {
		return err
	}
	post, err := s.ownPost(c)
	if err != nil {
		return err
	}
	if err := matches(post.Version); err != nil {
		return err
	}
	text := models.PostText{Title: post.Title, Content: post.Content, Tags: post.Tags}
	if title != nil {
		text.Title = *title
	}
	if content != nil {
		text.Content = *content
	}
	if tags != nil {
		text.Tags = models.NormalTags(*tags)
	}
	if err := text.Validate(); err != nil {
		return err
	}
	if err := s.takeEdit(c, postTarget(post.ID)); err != nil {
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

// restorePost does not call the gate, which by itself notices when a target that it refuses exists again.
func (s *Server) restorePost(c *fiber.Ctx) error {
	id, err := pathID(c, models.KindPost)
	if err != nil {
		return err
	}
	post, err := s.store.RestorePost(c.UserContext(), viewerID(c), id)
	if err != nil {
		return err
	}
	return s.replyPost(c, http.StatusOK, post)
}
