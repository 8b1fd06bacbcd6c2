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

	"github.com/gofiber/fiber/v2"

	"likewise/models"
	"likewise/models/db"
)

// commentJSON is a comment. A deleted comment, or one whose author the viewer has blocked, appears in a list only
// because of its replies and has neither author nor content.
type commentJSON struct {
	ID           int64          `json:"id"`
	PostID       int64          `json:"post_id"`
	ParentID     *int64         `json:"parent_id"` // null at the top level
	Depth        int            `json:"depth"`     // 1 at the top level
	Author       *authorJSON    `json:"author"`
	Content      string         `json:"content"`
	ContentHTML  string         `json:"content_html"`
	LikesCount   int64          `json:"likes_count"`
	RepliesCount int64          `json:"replies_count"`
	Liked        bool           `json:"liked"`
	Status       string         `json:"status"`
	Version      int64          `json:"version"`
	CreatedAt    time.Time      `json:"created_at"`
	UpdatedAt    time.Time      `json:"updated_at"`
	Can          commentCanJSON `json:"can"`
	// Replies holds the first replies. Its cursor continues at /v1/comments/{id}/replies.
	Replies list[commentJSON] `json:"replies"`
}

// firstReplies is how many replies a list includes for each comment.
const firstReplies = 3

func commentTarget(id int64) models.Target { return models.Target{Kind: models.KindComment, ID: id} }

// eachComment shows comments to the viewer, with the replies that were read with them, earliest first.
func (s *Server) eachComment(c *fiber.Ctx, comments []models.Comment) iter.Seq2[commentJSON, error] {
	return s.eachTree(models.CommentsOld)(c, comments)
}

// eachTree is eachComment of replies in any order. It shows no more comments than fit in one page.
func (s *Server) eachTree(sort models.CommentSort) shower[models.Comment, commentJSON] {
	return func(c *fiber.Ctx, comments []models.Comment) iter.Seq2[commentJSON, error] {
		return func(yield func(commentJSON, error) bool) {
			likes, err := s.likesIn(c, comments)
			if err != nil {
				yield(commentJSON{}, err)
				return
			}
			able, err := s.commentAbilities(c, comments)
			if err != nil {
				yield(commentJSON{}, err)
				return
			}
			s.showTree(comments, sort, func(id int64) models.LikeState { return likes[id] }, able)(yield)
		}
	}
}

// eachTreeWith is eachTree with the same likes for all, for a viewer who may do nothing with the comments.
func (s *Server) eachTreeWith(sort models.CommentSort, likes models.LikeState) shower[models.Comment, commentJSON] {
	return func(_ *fiber.Ctx, comments []models.Comment) iter.Seq2[commentJSON, error] {
		return s.showTree(comments, sort, func(int64) models.LikeState { return likes }, abilities{})
	}
}

func (s *Server) showTree(
	comments []models.Comment, sort models.CommentSort, likes func(id int64) models.LikeState, able abilities,
) iter.Seq2[commentJSON, error] {
	return func(yield func(commentJSON, error) bool) {
		items, err := s.treeJSON(comments, sort, likes, able)
		if err != nil {
			yield(commentJSON{}, err)
			return
		}
		for _, item := range items {
			if !yield(item, nil) {
				return
			}
		}
	}
}

// treeJSON shows comments with the replies that were read with them, in this order: as many as fit in a page, and at
// least one. It proceeds level by level and cuts a level where its room is used up. A level above others may use half
// of the remaining room.
func (s *Server) treeJSON(
	comments []models.Comment, sort models.CommentSort, likes func(id int64) models.LikeState, able abilities,
) ([]commentJSON, error) {
	type parent struct {
		comment *models.Comment
		replies *[]commentJSON
		next    **string
	}
	var top []commentJSON
	var none *string
	room := db.PageBytes - pageOverhead
	for level := []parent{{&models.Comment{Replies: comments}, &top, &none}}; len(level) > 0; {
		share := room
		if slices.ContainsFunc(level, func(p parent) bool { return hasReplies(p.comment.Replies) }) {
			share = (room + 1) / 2
		}
		var deeper []parent
		for _, p := range level {
			out := make([]commentJSON, 0, len(p.comment.Replies))
			for i := range p.comment.Replies {
				m := &p.comment.Replies[i]
				item, err := s.commentJSON(m, likes(m.ID), able.comment(m))
				if err != nil {
					return nil, err
				}
				shown, err := encodeJSON(item)
				if err != nil {
					return nil, err
				}
				size := len(shown) + cursorLength + len(`,""`) // the cursor may be needed
				if first := top == nil && i == 0; size > share && !first {
					p.comment.Replies, p.comment.More, p.comment.Rest, share = p.comment.Replies[:i], true, nil, 0
					break
				}
				share, room = share-size, room-size
				out = append(out, item)
			}
			for i := range out {
				replies := &out[i].Replies
				reply := p.comment.Replies[i] // a copy: other requests show the same comments
				deeper = append(deeper, parent{&reply, &replies.Items, &replies.NextCursor})
			}
			*p.replies = out
			if p.comment.ID != 0 {
				*p.next = s.moreReplies(p.comment, sort)
			}
		}
		level = deeper
	}
	return top, nil
}

func hasReplies(comments []models.Comment) bool {
	return slices.ContainsFunc(comments, func(m models.Comment) bool { return len(m.Replies) > 0 })
}

// commentJSON shows a comment without its replies.
func (s *Server) commentJSON(
	m *models.Comment, likes models.LikeState, can commentCanJSON,
) (commentJSON, error) {
	out := commentJSON{
		ID: m.ID, PostID: m.PostID, ParentID: m.ParentID, Depth: m.Depth,
		LikesCount: m.LikesCount, RepliesCount: m.RepliesCount, Status: commentStatus(m), Version: m.Version,
		CreatedAt: m.CreatedAt, UpdatedAt: m.UpdatedAt, Can: can,
		Replies: list[commentJSON]{Items: []commentJSON{}},
	}
	if m.Hidden() {
		return out, nil
	}
	html, err := s.markdown.HTML(commentTarget(m.ID), m.Version, m.Content)
	author := s.author(m.Author)
	out.Author, out.Content, out.ContentHTML = &author, m.Content, html
	out.LikesCount, out.Liked = likes.Count, likes.Liked
	return out, err
}

// likesIn returns the viewer's likes of the comments, and of the replies read with them, that are not hidden, by id.
func (s *Server) likesIn(c *fiber.Ctx, comments []models.Comment) (map[int64]models.LikeState, error) {
	counts := visibleCounts(comments)
	states, err := s.likes.LikeStates(c.UserContext(), viewerID(c), counts)
	if err != nil {
		return nil, err
	}
	likes := make(map[int64]models.LikeState, len(counts))
	for i, count := range counts {
		likes[count.ID] = states[i]
	}
	return likes, nil
}

// visibleCounts returns the comments, and the replies read with them, that are not hidden.
func visibleCounts(comments []models.Comment) []models.TargetCount {
	var counts []models.TargetCount
	for i := range comments {
		m := &comments[i]
		if !m.Hidden() {
			counts = append(counts, models.TargetCount{Target: commentTarget(m.ID), Count: m.LikesCount})
		}
		counts = append(counts, visibleCounts(m.Replies)...)
	}
	return counts
}

func commentStatus(m *models.Comment) string {
	if m.Blocked && m.Status == models.StatusNormal {
		return "blocked"
	}
	return m.Status.String()
}

// moreReplies returns the cursor of the replies that the comment does not include; nil if it includes all.
func (s *Server) moreReplies(m *models.Comment, sort models.CommentSort) *string {
	rest := m.RepliesRest(sort)
	if rest == nil {
		return nil
	}
	next := s.cursors.encode(repliesList(m.ID)+string(sort), *rest)
	return &next
}

// repliesList returns the name of a list of replies, without its order.
func repliesList(commentID int64) string {
	return "comments:parent=" + strconv.FormatInt(commentID, 10) + ":"
}

// topLevelList returns the name of a list of a post's top-level comments, without its order.
func topLevelList(postID int64) string { return "comments:post=" + strconv.FormatInt(postID, 10) + ":" }

// commentsPosition reads ?sort= and ?cursor= of a list of comments. A cursor is signed with its order, so sort may be
// omitted with a cursor. It returns nil for the beginning of the list.
func (s *Server) commentsPosition(c *fiber.Ctx, name string) (models.CommentSort, *models.ListKey, error) {
	orders := []models.CommentSort{models.CommentsOld, models.CommentsNew, models.CommentsTop}
	sort, err := sortOf(c, orders...)
	if err != nil {
		return "", nil, err
	}
	after, err := s.cursors.after(c, name+string(sort))
	if err != nil && !c.Context().QueryArgs().Has("sort") {
		for _, sort = range orders[1:] {
			if after, err = s.cursors.after(c, name+string(sort)); err == nil {
				break
			}
		}
	}
	if err != nil {
		return "", nil, err
	}
	if after != nil && *after == (models.ListKey{}) {
		after = nil
	}
	return sort, after, nil
}

func (s *Server) replyComment(c *fiber.Ctx, status int, m *models.Comment) error {
	out, err := collect(s.eachComment(c, []models.Comment{*m}))
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
	return s.replyComments(c, topLevelList(id), db.CommentQuery{ViewerID: viewerID(c), PostID: id})
}

func (s *Server) listReplies(c *fiber.Ctx) error {
	id, err := pathID(c, models.KindComment)
	if err != nil {
		return err
	}
	return s.replyComments(c, repliesList(id), db.CommentQuery{ViewerID: viewerID(c), ParentID: id})
}

// replyComments answers with a page of comments and the first replies of each.
func (s *Server) replyComments(c *fiber.Ctx, name string, q db.CommentQuery) error {
	n, err := pageLimit(c)
	if err != nil {
		return err
	}
	if q.Sort, q.After, err = s.commentsPosition(c, name); err != nil {
		return err
	}
	q.Limit = n
	read := func(ctx context.Context, viewer int64) (found commentPage, err error) {
		q.ViewerID = viewer
		if found.comments, found.rest, err = s.store.ListComments(ctx, q); err != nil {
			return commentPage{}, err
		}
		return found, s.store.FirstReplies(ctx, viewer, found.comments, firstReplies)
	}
	list := commentList{name: name + string(q.Sort), sort: q.Sort, limit: n, replies: models.CommentsOld, read: read}
	return s.replyCommentList(c, list, fmt.Sprintf("%s limit=%d", list.name, n), q.After == nil)
}

// commentList describes a page of comments with replies to replyCommentList.
type commentList struct {
	name    string
	sort    models.CommentSort
	replies models.CommentSort // the order of the replies
	limit   int                // 0: as many as were read
	read    func(ctx context.Context, viewer int64) (commentPage, error)
}

// commentPage is a page of comments, with the replies that are shown with them.
type commentPage struct {
	comments []models.Comment
	rest     *models.ListKey // where the list continues; nil at its end
}

// replyCommentList answers with a page of comments. If share is set, requests share it under a name, which must differ
// from those of all other reads.
func (s *Server) replyCommentList(c *fiber.Ctx, l commentList, shared string, share bool) error {
	pageOf := func(found commentPage) page[models.Comment] {
		limit := l.limit
		if limit == 0 {
			limit = len(found.comments)
		}
		key := func(m *models.Comment) models.ListKey { return m.Key(l.sort) }
		return page[models.Comment]{name: l.name, rows: found.comments, limit: limit, key: key, rest: found.rest}
	}
	anyone := s.eachTreeWith(l.replies, widest.likes)
	cut := func(ctx context.Context) (*template, error) {
		found, err := l.read(ctx, 0)
		if err != nil {
			return nil, err
		}
		return cutPage(s, c, pageOf(found), anyone, nil, treeSlots(found.comments))
	}
	own := func() ([]byte, error) {
		found, err := l.read(c.UserContext(), viewerID(c))
		if err != nil {
			return nil, err
		}
		return encodePage(s, c, pageOf(found), s.eachTree(l.replies))
	}
	return s.replyTemplate(c, shared, share, cut, own)
}

// findComments searches comments.
func (s *Server) findComments(c *fiber.Ctx) error {
	q := models.CommentSearch{ViewerID: viewerID(c)}
	var err error
	if q.Terms, err = queryTerms(c); err != nil {
		return err
	}
	if q.Sort, err = sortOf(c, models.PostsRelevance, models.PostsNew); err != nil {
		return err
	}
	n, err := pageLimit(c)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("comments:%s q=%s", q.Sort, strings.Join(q.Terms, " "))
	if q.After, err = s.cursors.after(c, name); err != nil {
		return err
	}
	q.Limit = n + 1
	found, err := s.store.FindComments(c.UserContext(), q)
	if err != nil {
		return err
	}
	s.charge(c, found.Examined)
	out := page[models.FoundComment]{
		name: name, rows: found.Comments, limit: n, key: found.Key, rest: found.Rest, complete: &found.Complete,
	}
	return replyPage(s, c, out, within(
		func(f *models.FoundComment) models.Comment { return f.Comment }, s.eachComment,
		func(f *models.FoundComment, m commentJSON) userCommentJSON { return userCommentJSON{f.PostTitle, m} }))
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
	parent, err := s.store.CommentByID(c.UserContext(), viewerID(c), parentID)
	if err != nil {
		return err
	}
	return s.writeComment(c, parent.PostID, &parentID, text)
}

func (s *Server) writeComment(c *fiber.Ctx, postID int64, parentID *int64, text models.CommentText) error {
	if err := text.Validate(); err != nil {
		return err
	}
	text.Mentions = s.markdown.Mentions(text.Content)
	comment, err := s.store.CreateComment(c.UserContext(), viewerAuthor(c), postID, parentID, text)
	if err != nil {
		return err
	}
	return s.replyCreatedComment(c, comment)
}

func (s *Server) replyCreatedComment(c *fiber.Ctx, comment *models.Comment) error {
	if err := s.replyComment(c, http.StatusCreated, comment); err != nil {
		return err
	}
	c.Set(fiber.HeaderLocation, "/v1/comments/"+strconv.FormatInt(comment.ID, 10))
	return nil
}

func (s *Server) readComment(c *fiber.Ctx) error {
	id, err := pathID(c, models.KindComment)
	if err != nil {
		return err
	}
	comment, err := s.store.CommentByID(c.UserContext(), viewerID(c), id)
	if err != nil {
		return err
	}
	comment.Blocked = false // who asks for it by its own path wants to read it
	return s.replyComment(c, http.StatusOK, comment)
}

// ownComment returns the comment in the path, if the permission of the route allows the viewer to change it.
func (s *Server) ownComment(c *fiber.Ctx) (*models.Comment, error) {
	id, err := pathID(c, models.KindComment)
	if err != nil {
		return nil, err
	}
	comment, err := s.store.CommentByID(c.UserContext(), viewerID(c), id)
	if err != nil {
		return nil, err
	}
	if err := allowOn(c, comment.Author.ID); err != nil {
		return nil, err
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
	if err := s.takeEdit(c, commentTarget(comment.ID)); err != nil {
		return err
	}
	text.Mentions = s.newMentions(comment.Content, text.Content)
	comment, err = s.store.UpdateComment(c.UserContext(), viewerID(c), comment.ID, comment.Version, text)
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
	return c.SendStatus(http.StatusNoContent)
}
