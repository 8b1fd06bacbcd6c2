package handlers

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
	"likewise/models/db"
	"likewise/models/search"
)

type authorJSON struct {
	ID          int64       `json:"id"`
	Username    string      `json:"username"`
	DisplayName *string     `json:"display_name"` // null: shows the username
	AvatarURL   shownAvatar `json:"avatar_url"`
}

// postHead is the part of a post that every view of it has.
type postHead struct {
	ID            int64       `json:"id"`
	Author        authorJSON  `json:"author"`
	Title         string      `json:"title"`
	Tags          models.Tags `json:"tags"`
	LikesCount    int64       `json:"likes_count"`
	CommentsCount int64       `json:"comments_count"`
	Liked         bool        `json:"liked"`
	Bookmarked    bool        `json:"bookmarked"`
	Status        string      `json:"status"`
	Locked        bool        `json:"locked"` // takes neither new comments nor edits
	Pinned        bool        `json:"pinned"`
	standingJSON
	Version   int64       `json:"version"`
	CreatedAt time.Time   `json:"created_at"`
	UpdatedAt time.Time   `json:"updated_at"`
	Can       postCanJSON `json:"can"`
}

// postJSON is a post with its text, as it is read alone.
type postJSON struct {
	postHead

	Content     string `json:"content"`
	ContentHTML string `json:"content_html"`
}

// postSummaryJSON is a post as lists show it.
type postSummaryJSON struct {
	postHead

	Excerpt       string      `json:"excerpt"` // plain text
	ActiveAt      time.Time   `json:"active_at"`
	LastCommenter *authorJSON `json:"last_commenter"`
}

func postTarget(id int64) models.Target { return models.Target{Kind: models.KindPost, ID: id} }

// postView reads ?view= of a list of posts.
func postView(c *fiber.Ctx) (db.PostView, error) {
	return oneOf(c, "view", db.ViewSummary, db.ViewFull)
}

// eachPost shows posts to the viewer, as postSummaryJSON or postJSON. Reading their likes takes one call for all of
// them, and so do the viewer's standings.
func (s *Server) eachPost(view db.PostView) shower[models.Post, any] {
	return func(c *fiber.Ctx, posts []models.Post) iter.Seq2[any, error] {
		return func(yield func(any, error) bool) {
			counts := make([]models.TargetCount, len(posts))
			for i, p := range posts {
				counts[i] = models.TargetCount{Target: postTarget(p.ID), Count: p.LikesCount}
			}
			likes, err := s.likes.LikeStates(c.UserContext(), viewerID(c), counts)
			if err != nil {
				yield(nil, err)
				return
			}
			standings, err := s.standings(c, posts)
			if err != nil {
				yield(nil, err)
				return
			}
			authors := make([]int64, len(posts))
			for i, p := range posts {
				authors[i] = p.Author.ID
			}
			able, err := s.abilitiesOn(c, authors, nil)
			if err != nil {
				yield(nil, err)
				return
			}
			for i := range posts {
				p := &posts[i]
				item, err := s.showPost(view, p, own{likes[i], standings[p.ID]}, able.post(p))
				if !yield(item, err) {
					return
				}
			}
		}
	}
}

// eachPostWith is eachPost with the same likes and standings for all, for a viewer who may do nothing with them.
func (s *Server) eachPostWith(view db.PostView, all own) shower[models.Post, any] {
	return func(_ *fiber.Ctx, posts []models.Post) iter.Seq2[any, error] {
		return func(yield func(any, error) bool) {
			for i := range posts {
				if item, err := s.showPost(view, &posts[i], all, postCanJSON{}); !yield(item, err) {
					return
				}
			}
		}
	}
}

func (s *Server) showPost(
	view db.PostView, p *models.Post, viewers own, can postCanJSON,
) (any, error) {
	head := postHead{
		ID: p.ID, Author: s.author(p.Author), Title: p.Title, Tags: p.Tags, LikesCount: viewers.likes.Count,
		CommentsCount: p.CommentsCount, Liked: viewers.likes.Liked, Bookmarked: p.Bookmarked, Status: p.Status.String(),
		Locked: p.Locked, Pinned: p.Pinned, standingJSON: newStandingJSON(viewers.standing), Version: p.Version,
		CreatedAt: p.CreatedAt, UpdatedAt: p.UpdatedAt, Can: can,
	}
	if view == db.ViewSummary {
		return postSummaryJSON{head, p.Excerpt, p.ActiveAt, s.presentAuthor(p.LastCommenter)}, nil
	}
	html, err := s.markdown.HTML(postTarget(p.ID), p.Version, p.Content)
	return postJSON{head, p.Content, html}, err
}

func (s *Server) replyPost(c *fiber.Ctx, status int, p *models.Post) error {
	out, err := collect(s.eachPost(db.ViewFull)(c, []models.Post{*p}))
	if err != nil {
		return err
	}
	c.Set(fiber.HeaderETag, etag(p.Version))
	return c.Status(status).JSON(out[0])
}

// postQuery reads the query of a list of posts, and returns the name of the list. The default order of a search is
// relevance.
func postQuery(c *fiber.Ctx) (q db.PostQuery, window models.Window, name string, err error) {
	args := c.Context().QueryArgs()
	orders := []models.PostSort{
		models.PostsNew, models.PostsHot, models.PostsTop, models.PostsActive, models.PostsRelevance,
	}
	if args.Has("q") {
		if q.Terms, err = queryTerms(c); err != nil {
			return q, "", "", err
		}
		orders = append([]models.PostSort{models.PostsRelevance}, orders[:4]...)
	}
	if q.Sort, err = sortOf(c, orders...); err != nil {
		return q, "", "", err
	}
	if q.Sort == models.PostsRelevance && !args.Has("q") {
		return q, "", "", models.Invalid("sort",
			models.About(models.FieldNeeds, "q", "needs q, the words to search for"))
	}
	window, err = oneOf(c, "window",
		models.WindowAll, models.WindowDay, models.WindowWeek, models.WindowMonth, models.WindowYear)
	if err != nil {
		return q, "", "", err
	}
	if q.Since, err = queryTime(c, "since"); err != nil {
		return q, "", "", err
	}
	if args.Has("since") && window != models.WindowAll {
		return q, "", "", models.Invalid("since",
			models.About(models.FieldExclusive, "window", "must be left out if window is given"))
	}
	if q.Since.Unix() <= 0 {
		q.Since = time.Time{} // all posts, as MySQL counts time from 1970 on
	}
	if args.Has("author") {
		var ok bool
		if q.AuthorID, ok = parseID(c.Query("author")); !ok {
			return q, "", "", models.Invalid("author",
				models.BadFormat(models.FormatID, "must be the id of a user"))
		}
	}
	if args.Has("tag") {
		if q.Tag = models.NormalTag(c.Query("tag")); !models.ValidTag(q.Tag) {
			return q, "", "", models.Invalid("tag", models.BadFormat(models.FormatTag, "must be a tag"))
		}
	}
	pinned, err := oneOf(c, "pinned", pinnedAmong, pinnedOnly, pinnedOnce)
	if err != nil {
		return q, "", "", err
	}
	q.Pinned = pinned == pinnedOnly
	// Neither a tag nor a term contains a space, so no two lists have the same name.
	name = fmt.Sprintf("posts:%s:%s:%d:%s tag=%s q=%s",
		q.Sort, window, q.AuthorID, pinned, q.Tag, strings.Join(q.Terms, " "))
	return q, window, name, nil
}

// The values of ?pinned= of a list of posts.
const (
	pinnedAmong = "false" // pinned posts have no place of their own
	pinnedOnly  = "true"
	pinnedOnce  = "once" // in the member pinned, and nowhere else in the list
)

// maxPinnedOnce is how many pinned posts a page shows apart from its items. More than these are among the items.
const maxPinnedOnce = 20

// pinnedOn returns how many pinned posts the page after a key shows: only the first page has any.
func pinnedOn(after *models.ListKey) int {
	if after == nil {
		return maxPinnedOnce
	}
	return 0
}

// pinnedApart returns the latest pinned posts that match q, for pinnedOnce.
func (s *Server) pinnedApart(ctx context.Context, q db.PostQuery) ([]models.Post, error) {
	q.Pinned, q.Sort, q.Terms, q.After, q.Since, q.Limit = true, models.PostsNew, nil, nil, time.Time{}, maxPinnedOnce
	found, err := s.store.ListPosts(ctx, q)
	return found.Posts, err
}

// queryTerms reads ?q=. It returns at least one term, or CodeInvalid.
func queryTerms(c *fiber.Ctx) ([]string, error) {
	text := c.Query("q")
	if !utf8.ValidString(text) {
		return nil, models.Invalid("q", models.Broken(models.FieldBadCharacters, "must be valid UTF-8"))
	}
	if utf8.RuneCountInString(text) > search.MaxQuery {
		return nil, models.Invalid("q", models.TooLong(search.MaxQuery))
	}
	terms := search.QueryTerms(text)
	if len(terms) == 0 {
		return nil, models.Invalid("q", models.Broken(models.FieldNoWord, "must contain a word to search for"))
	}
	return terms, nil
}

func (s *Server) listPosts(c *fiber.Ctx) error {
	q, window, name, err := postQuery(c)
	if err != nil {
		return err
	}
	q.ViewerID = viewerID(c)
	if q.View, err = postView(c); err != nil {
		return err
	}
	n, err := pageLimit(c)
	if err != nil {
		return err
	}
	var since int64
	if q.After, since, err = s.cursors.afterSince(c, name); err != nil {
		return err
	}
	// First pages are shared, except those of searches and of a time that the client chose, which are seldom the same.
	share := q.After == nil && len(q.Terms) == 0 && q.Since.IsZero()
	switch {
	case q.After != nil && since != 0:
		q.Since = time.Unix(since, 0)
	case q.Since.IsZero():
		q.Since = window.Since(s.now())
	}
	if !q.Since.IsZero() {
		since = q.Since.Unix()
	}
	q.Limit = n + 1
	once := c.Query("pinned") == pinnedOnce
	// read reads the page, and the pinned posts that it shows apart.
	read := func(ctx context.Context, viewer int64) (found db.PostPage, pinned []models.Post, err error) {
		q := q
		q.ViewerID = viewer
		if once {
			if pinned, err = s.pinnedApart(ctx, q); err != nil {
				return found, nil, err
			}
			for _, p := range pinned {
				q.Except = append(q.Except, p.ID)
			}
			pinned = pinned[:min(len(pinned), pinnedOn(q.After))]
		}
		found, err = s.store.ListPosts(ctx, q)
		return found, pinned, err
	}
	pageOf := func(
		found db.PostPage, pinned []models.Post, show shower[models.Post, any],
	) (page[models.Post], error) {
		p := page[models.Post]{
			name: name, since: since, rows: found.Posts, limit: n, key: found.Key, rest: found.Rest,
		}
		if len(q.Terms) > 0 {
			p.complete = &found.Complete
		}
		if found.Total != nil {
			p.more = append(p.more, member{"total_count", *found.Total})
		}
		if once {
			shown, err := collect(show(c, pinned))
			if err != nil {
				return p, err
			}
			p.more = append(p.more, member{"pinned", append([]any{}, shown...)})
		}
		return p, nil
	}
	anyone := s.eachPostWith(q.View, widest)
	cut := func(ctx context.Context) (*template, error) {
		found, pinned, err := read(ctx, 0)
		if err != nil {
			return nil, err
		}
		p, err := pageOf(found, pinned, anyone)
		if err != nil {
			return nil, err
		}
		t, err := cutPage(s, c, p, anyone, pinnedSlots(pinned), postSlots(found.Posts))
		if err == nil {
			t.examined = found.Examined
		}
		return t, err
	}
	own := func() ([]byte, error) {
		found, pinned, err := read(c.UserContext(), viewerID(c))
		if err != nil {
			return nil, err
		}
		s.charge(c, found.Examined)
		p, err := pageOf(found, pinned, s.eachPost(q.View))
		if err != nil {
			return nil, err
		}
		return encodePage(s, c, p, s.eachPost(q.View))
	}
	shared := fmt.Sprintf("%s since=%d limit=%d view=%s", name, since, q.Limit, q.View)
	return s.replyTemplate(c, shared, share, cut, own)
}

func (s *Server) createPost(c *fiber.Ctx) error {
	var text models.PostText
	err := decode(c, fields{"title": lineOf{&text.Title}, "content": &text.Content, "tags": (*[]string)(&text.Tags)})
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

// newMentions returns the names that an edit adds to those that a text mentions.
func (s *Server) newMentions(before, after string) []string {
	known := s.markdown.Mentions(before)
	return slices.DeleteFunc(s.markdown.Mentions(after), func(name string) bool { return slices.Contains(known, name) })
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
	post, err := s.sharedPost(c, id)
	if err != nil {
		return err
	}
	return s.replyPost(c, http.StatusOK, post)
}

// sharedPost returns a post as PostByID does.
func (s *Server) sharedPost(c *fiber.Ctx, id int64) (*models.Post, error) {
	if _, ok := s.edition(c); !ok {
		return s.store.PostByID(c.UserContext(), viewerID(c), id)
	}
	view, _, err := s.asAnyone(c) // blocks hide no post that is asked for
	if err != nil {
		return nil, err
	}
	post, err := readShared(c, s, fmt.Sprintf("post:%d", id), func(ctx context.Context) (*models.Post, error) {
		post, err := readTogether(ctx, s, &s.shared.posts, id, s.store.PostsByID)
		if err != nil {
			return nil, err
		}
		if post == nil {
			return nil, models.NotFound(models.KindPost)
		}
		return post, db.Hold(ctx, len(post.Content))
	})
	if err != nil || !view.Bookmarks {
		return post, err
	}
	marked, err := s.bookmarked(c, []models.Post{*post})
	if err != nil {
		return nil, err
	}
	return &marked[0], nil
}

// bookmarked returns a copy of posts with the viewer's bookmarks.
func (s *Server) bookmarked(c *fiber.Ctx, posts []models.Post) ([]models.Post, error) {
	bookmarked, err := s.store.Bookmarked(c.UserContext(), viewerID(c), idsOf(posts))
	if err != nil {
		return nil, err
	}
	posts = slices.Clone(posts)
	for i := range posts {
		posts[i].Bookmarked = bookmarked[posts[i].ID]
	}
	return posts, nil
}

func idsOf(posts []models.Post) []int64 {
	ids := make([]int64, len(posts))
	for i, p := range posts {
		ids[i] = p.ID
	}
	return ids
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
	text.Title = models.CleanLine(text.Title)
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
	text.Mentions = s.newMentions(post.Content, text.Content)
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
