package handlers

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"

	"likewise/handlers/pages"
	"likewise/models"
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/search"
)

type authorJSON struct {
	ID          int64       `json:"id"`
	Username    string      `json:"username"`
	DisplayName *string     `json:"display_name"` // null: shows the username
	AvatarURL   shownAvatar `json:"avatar_url"`
}

// postHead is what the first halves of a post have in common.
type postHead struct {
	ID            int64       `json:"id"`
	Author        authorJSON  `json:"author"`
	Title         string      `json:"title"`
	Tags          models.Tags `json:"tags"`
	CommentsCount int64       `json:"comments_count"`
	Status        string      `json:"status"`
	Locked        bool        `json:"locked"` // takes neither new comments nor edits
	Pinned        bool        `json:"pinned"`
	Version       int64       `json:"version"`
	CreatedAt     time.Time   `json:"created_at"`
	UpdatedAt     time.Time   `json:"updated_at"`
}

// postJSON is the first half of a post with its text, as it is read alone.
type postJSON struct {
	postHead

	Content     string `json:"content"`
	ContentHTML string `json:"content_html"`
}

// postSummaryJSON is the first half of a post as lists show it.
type postSummaryJSON struct {
	postHead

	Excerpt       string      `json:"excerpt"` // plain text
	ActiveAt      time.Time   `json:"active_at"`
	LastCommenter *authorJSON `json:"last_commenter"`
}

func postTarget(id int64) models.Target { return models.Target{Kind: models.KindPost, ID: id} }

// postItem is a post in an answer.
type postItem struct {
	first any // postJSON or postSummaryJSON
	row   *models.Post
}

func (p postItem) AppendTo(h *pages.Halves) error {
	if err := h.Open(p.first); err != nil {
		return err
	}
	h.EndPost(p.row, longestPostHalf)
	return nil
}

// summary returns a post as lists show it.
func (s *Server) summary(p *models.Post) postItem {
	return postItem{postSummaryJSON{s.postHead(p), p.Excerpt, p.ActiveAt, s.presentAuthor(p.LastCommenter)}, p}
}

// wholePost returns a post with its text.
func (s *Server) wholePost(p *models.Post) (postItem, error) {
	html, err := s.markdown.HTML(postTarget(p.ID), p.Version, p.Content)
	return postItem{postJSON{s.postHead(p), p.Content, html}, p}, err
}

// encodedPost returns the first half of a post that read returns, with its text.
func (s *Server) encodedPost(
	ctx context.Context, viewer int64, read func(ctx context.Context, viewer int64) (*models.Post, error),
) (*pages.Halves, error) {
	post, err := read(ctx, viewer)
	if err != nil {
		return nil, err
	}
	whole, err := s.wholePost(post) //nolint:contextcheck // as in replyCommentList
	if err != nil {
		return nil, err
	}
	h := &pages.Halves{}
	return h, whole.AppendTo(h)
}

func (s *Server) postHead(p *models.Post) postHead {
	return postHead{
		ID: p.ID, Author: s.author(p.Author), Title: p.Title, Tags: p.Tags, CommentsCount: p.CommentsCount,
		Status: p.Status.String(), Locked: p.Locked, Pinned: p.Pinned, Version: p.Version,
		CreatedAt: p.CreatedAt, UpdatedAt: p.UpdatedAt,
	}
}

func (s *Server) replyPost(c *fiber.Ctx, status int, p *models.Post, from pages.Source) error {
	whole, err := s.wholePost(p)
	if err != nil {
		return err
	}
	if err := s.replyItem(c, whole, from); err != nil {
		return err
	}
	c.Set(fiber.HeaderETag, etag(p.Version))
	c.Status(status)
	return nil
}

// postQuery reads the query of a list of posts, and returns the name of the list. The default order of a search is
// relevance.
func postQuery(c *fiber.Ctx) (q content.PostQuery, window models.Window, name string, err error) {
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
func (s *Server) pinnedApart(ctx context.Context, q content.PostQuery) ([]models.Post, error) {
	q.Pinned, q.Sort, q.Terms, q.After, q.Since, q.Limit = true, models.PostsNew, nil, nil, time.Time{}, maxPinnedOnce
	found, err := s.content.ListPosts(ctx, q)
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

// postList is a page of a list of posts that a client requests.
type postList struct {
	content.PostQuery

	name   string // of the list
	since  int64  // the oldest time of the list, in Unix seconds; 0 without a window
	limit  int
	once   bool // shows pinned posts apart
	shared bool // between requests
}

// requestedPosts reads the query and the cursor of a list of posts. First pages are shared, except those of searches
// and of a time that the client chose, which are seldom the same.
func (s *Server) requestedPosts(c *fiber.Ctx) (l postList, err error) {
	var window models.Window
	if l.PostQuery, window, l.name, err = postQuery(c); err != nil {
		return l, err
	}
	if l.limit, err = pageLimit(c); err != nil {
		return l, err
	}
	var since int64 // of the cursor
	if l.After, since, err = s.cursors.AfterSince(c, l.name); err != nil {
		return l, err
	}
	l.View, l.Limit, l.once = content.ViewSummary, l.limit+1, c.Query("pinned") == pinnedOnce
	l.shared = l.After == nil && len(l.Terms) == 0 && l.Since.IsZero()
	switch {
	case l.After != nil && since != 0:
		l.Since = time.Unix(since, 0)
	case l.Since.IsZero():
		l.Since = window.Since(s.now())
	}
	l.since = since
	if !l.Since.IsZero() {
		l.since = l.Since.Unix()
	}
	return l, nil
}

func (s *Server) listPosts(c *fiber.Ctx) error {
	l, err := s.requestedPosts(c)
	if err != nil {
		return err
	}
	return s.replyShared(c, l.readName(), l.shared, func(ctx context.Context, viewer int64) (*pages.Halves, error) {
		return s.readPosts(ctx, c, l, viewer)
	})
}

// readName returns the name under which requests share the page.
func (l *postList) readName() string {
	return fmt.Sprintf("%s since=%d limit=%d", l.name, l.since, l.limit)
}

// readPosts returns a page of a list of posts, with the pinned posts that it shows apart.
func (s *Server) readPosts(ctx context.Context, c *fiber.Ctx, l postList, viewer int64) (*pages.Halves, error) {
	l.ViewerID = viewer
	var pinned []models.Post
	if l.once {
		var err error
		if pinned, err = s.pinnedApart(ctx, l.PostQuery); err != nil {
			return nil, err
		}
		for _, p := range pinned {
			l.Except = append(l.Except, p.ID)
		}
	}
	found, err := s.content.ListPosts(ctx, l.PostQuery)
	if err != nil {
		return nil, err
	}
	p := pages.Page[models.Post]{
		Name: l.name, Since: l.since, Rows: found.Posts, Limit: l.limit, Key: found.Key, Rest: found.Rest,
	}
	if len(l.Terms) > 0 {
		p.Complete = &found.Complete
	}
	if found.Total != nil {
		p.More = append(p.More, pages.Member{Name: "total_count", Value: *found.Total})
	}
	if l.once {
		apart := pages.Items{}
		for i := range pinned[:min(len(pinned), pinnedOn(l.After))] {
			apart = append(apart, s.summary(&pinned[i]))
		}
		p.More = append(p.More, pages.Member{Name: "pinned", Value: apart})
	}
	h, err := pages.Encode(s.cursors, budget(ctx, c), p, pages.Each(s.summary))
	if err != nil {
		return nil, err
	}
	h.Examined = found.Examined
	return h, nil
}

func (s *Server) createPost(c *fiber.Ctx) error {
	var text models.PostText
	var draft postedDraft
	err := decode(c, fields{
		"title": lineOf{&text.Title}, "content": &text.Content, "tags": (*[]string)(&text.Tags),
		"draft": &draft.key,
	})
	if err != nil {
		return err
	}
	text.Tags = models.NormalTags(text.Tags)
	if err := cmp.Or(text.Validate(), draft.validate()); err != nil {
		return err
	}
	text.Mentions = s.markdown.Mentions(text.Content)
	post, err := s.content.CreatePost(c.UserContext(), viewerAuthor(c), text)
	if err != nil {
		return err
	}
	s.dropDraft(c, draft)
	return s.replyCreatedPost(c, post, pages.JustCreated)
}

// newMentions returns the names that an edit adds to those that a text mentions.
func (s *Server) newMentions(before, after string) []string {
	known := s.markdown.Mentions(before)
	return slices.DeleteFunc(s.markdown.Mentions(after), func(name string) bool { return slices.Contains(known, name) })
}

func (s *Server) replyCreatedPost(c *fiber.Ctx, post *models.Post, from pages.Source) error {
	if err := s.replyPost(c, http.StatusCreated, post, from); err != nil {
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
	post, from, err := s.sharedPost(c, id)
	if err != nil {
		return err
	}
	return s.replyPost(c, http.StatusOK, post, from)
}

// sharedPost returns a post as PostByID does, and how it was read. Blocks hide no post that is asked for.
func (s *Server) sharedPost(c *fiber.Ctx, id int64) (*models.Post, pages.Source, error) {
	if _, ok := s.edition(c); !ok {
		post, err := s.content.PostByID(c.UserContext(), viewerID(c), id)
		return post, pages.ReadByViewer, err
	}
	post, err := readShared(c, s, fmt.Sprintf("post:%d", id), func(ctx context.Context) (*models.Post, error) {
		post, err := pages.Gather(ctx, &s.postReads, s.timeout/2, id, s.content.PostsByID)
		if err != nil {
			return nil, err
		}
		if post == nil {
			return nil, models.NotFound(models.KindPost)
		}
		return post, db.Spend(ctx, len(post.Content))
	})
	return post, pages.ReadByAnyone, err
}

// bookmarked returns which of these posts the viewer has bookmarked.
func (s *Server) bookmarked(c *fiber.Ctx, posts []int64) (map[int64]bool, error) {
	view, known, err := s.viewpoint(c)
	if err != nil || known && !view.Bookmarks {
		return nil, err
	}
	return s.reader.Bookmarked(c.UserContext(), viewerID(c), posts)
}

// ownPost returns the post in the path, if the permission of the route allows the viewer to change it.
func (s *Server) ownPost(c *fiber.Ctx) (*models.Post, error) {
	id, err := pathID(c, models.KindPost)
	if err != nil {
		return nil, err
	}
	post, err := s.content.PostByID(c.UserContext(), viewerID(c), id)
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
	if err := s.mayEdit(c, postTarget(post.ID), text); err != nil {
		return err
	}
	text.Mentions = s.newMentions(post.Content, text.Content)
	post, err = s.content.UpdatePost(c.UserContext(), viewerID(c), post.ID, post.Version, text)
	if err != nil {
		return err
	}
	return s.replyPost(c, http.StatusOK, post, pages.ReadByViewer)
}

// mayEdit validates the text of an edit, and counts the edit.
func (s *Server) mayEdit(c *fiber.Ctx, target models.Target, text interface{ Validate() error }) error {
	if err := text.Validate(); err != nil {
		return err
	}
	return s.rates.TakeEdit(c.UserContext(), s.client(c), target)
}

func (s *Server) deletePost(c *fiber.Ctx) error {
	post, err := s.ownPost(c)
	if err != nil {
		return err
	}
	if err := s.content.DeletePost(c.UserContext(), viewerID(c), post.ID); err != nil {
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
	post, err := s.content.RestorePost(c.UserContext(), viewerID(c), id)
	if err != nil {
		return err
	}
	return s.replyPost(c, http.StatusOK, post, pages.ReadByViewer)
}
