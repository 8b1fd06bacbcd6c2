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

	"github.com/gofiber/fiber/v2"

	"likewise/handlers/pages"
	"likewise/models"
	"likewise/models/content"
	"likewise/models/db"
)

// commentHead is the first half of a comment, without its replies. A deleted comment, or one whose author the viewer
// has blocked, appears in a list only because of its replies and has neither author nor content.
type commentHead struct {
	ID           int64       `json:"id"`
	PostID       int64       `json:"post_id"`
	ParentID     *int64      `json:"parent_id"` // null at the top level
	Depth        int         `json:"depth"`     // 1 at the top level
	Author       *authorJSON `json:"author"`
	Content      string      `json:"content"`
	ContentHTML  string      `json:"content_html"`
	RepliesCount int64       `json:"replies_count"`
	Status       string      `json:"status"`
	Version      int64       `json:"version"`
	CreatedAt    time.Time   `json:"created_at"`
	UpdatedAt    time.Time   `json:"updated_at"`
}

// commentItem is a comment in an answer, with its first replies.
type commentItem struct {
	head    []byte // the JSON of a commentHead
	row     *models.Comment
	replies []*commentItem
	next    *string // the cursor that continues at /v1/comments/{id}/replies; nil for none
}

// The JSON between the halves of a comment, and its size without replies.
const (
	repliesBegin = `,"replies":{"items":`
	repliesNext  = `,"next_cursor":`
	commentRest  = len(repliesBegin+`[]`+repliesNext+`null}`) - len(`}`)
)

func (m *commentItem) AppendTo(h *pages.Halves) error {
	h.Body = append(h.Body, m.head[:len(m.head)-1]...)
	h.Text(repliesBegin + "[")
	for i, reply := range m.replies {
		if i > 0 {
			h.Text(",")
		}
		if err := reply.AppendTo(h); err != nil {
			return err
		}
	}
	h.Text("]" + repliesNext)
	if err := h.Encode(m.next); err != nil {
		return err
	}
	h.Text("}")
	h.EndComment(m.row, longestCommentHalf)
	return nil
}

// withCount adds the number of comments on the post.
func (m *commentItem) withCount(n int64) {
	m.head = append(m.head[:len(m.head)-1], `,"post_comments_count":`...)
	m.head = append(strconv.AppendInt(m.head, n, 10), '}')
}

// firstReplies is how many replies a list includes for each comment.
const firstReplies = 3

func commentTarget(id int64) models.Target { return models.Target{Kind: models.KindComment, ID: id} }

// commentTree returns comments with the replies that were read with them, in this order: as many as fit in room bytes,
// and at least one. It proceeds level by level and cuts a level where its room is used up. A level above others may use
// half of the remaining room.
func (s *Server) commentTree(comments []models.Comment, sort models.CommentSort, room int) ([]*commentItem, error) {
	type parent struct {
		comment *models.Comment
		item    *commentItem
	}
	top := &commentItem{}
	for level := []parent{{&models.Comment{Replies: comments}, top}}; len(level) > 0; {
		share := room
		if slices.ContainsFunc(level, func(p parent) bool { return hasReplies(p.comment.Replies) }) {
			share = (room + 1) / 2
		}
		var deeper []parent
		for _, p := range level {
			for i := range p.comment.Replies {
				m, err := s.commentItem(&p.comment.Replies[i])
				if err != nil {
					return nil, err
				}
				if first := p.item == top && i == 0; m.size() > share && !first {
					p.comment.Replies, p.comment.More, p.comment.Rest, share = p.comment.Replies[:i], true, nil, 0
					break
				}
				share, room = share-m.size(), room-m.size()
				p.item.replies = append(p.item.replies, m)
				reply := p.comment.Replies[i] // a copy: other requests show the same comments
				deeper = append(deeper, parent{&reply, m})
			}
			if p.item != top {
				p.item.next = s.moreReplies(p.comment, sort)
			}
		}
		level = deeper
	}
	return top.replies, nil
}

// size returns the most bytes that the comment takes in a page, without its replies. It may need a cursor.
func (m *commentItem) size() int {
	return len(m.head) + commentRest + longestCommentHalf + pages.CursorLength + len(`,""`)
}

func hasReplies(comments []models.Comment) bool {
	return slices.ContainsFunc(comments, func(m models.Comment) bool { return len(m.Replies) > 0 })
}

// commentItem returns a comment without its replies.
func (s *Server) commentItem(m *models.Comment) (*commentItem, error) {
	return s.commentWithStatus(m, commentStatus(m))
}

func (s *Server) commentWithStatus(m *models.Comment, status string) (*commentItem, error) {
	head := commentHead{
		ID: m.ID, PostID: m.PostID, ParentID: m.ParentID, Depth: m.Depth, RepliesCount: m.RepliesCount, Status: status,
		Version: m.Version, CreatedAt: m.CreatedAt, UpdatedAt: m.UpdatedAt,
	}
	if !m.Hidden() {
		html, err := s.markdown.HTML(commentTarget(m.ID), m.Version, m.Content)
		if err != nil {
			return nil, err
		}
		author := s.author(m.Author)
		head.Author, head.Content, head.ContentHTML = &author, m.Content, html
	}
	encoded, err := pages.EncodeJSON(head)
	return &commentItem{head: encoded, row: m, next: s.moreReplies(m, models.CommentsOld)}, err
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
	next := s.cursors.Encode(repliesList(m.ID)+string(sort), *rest)
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
	after, err := s.cursors.After(c, name+string(sort))
	if err != nil && !c.Context().QueryArgs().Has("sort") {
		for _, sort = range orders[1:] {
			if after, err = s.cursors.After(c, name+string(sort)); err == nil {
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

func (s *Server) replyComment(c *fiber.Ctx, status int, m *models.Comment, from pages.Source) error {
	shown, err := s.commentItem(m)
	if err != nil {
		return err
	}
	if err := s.replyItem(c, shown, from); err != nil {
		return err
	}
	c.Set(fiber.HeaderETag, etag(m.Version))
	c.Status(status)
	return nil
}

func (s *Server) listComments(c *fiber.Ctx) error {
	id, err := pathID(c, models.KindPost)
	if err != nil {
		return err
	}
	flat, err := oneOf(c, "flat", "false", "true")
	if err != nil {
		return err
	}
	if flat == "true" {
		return s.replyFlat(c, id)
	}
	for _, name := range []string{"after", "unread", "include"} {
		if c.Context().QueryArgs().Has(name) {
			return models.Invalid(name, models.About(models.FieldNeeds, "flat", "needs flat=true"))
		}
	}
	return s.replyComments(c, topLevelList(id), content.CommentQuery{ViewerID: viewerID(c), PostID: id})
}

// replyFlat answers with a page of all comments on a post in the order of their ids, without replies.
func (s *Server) replyFlat(c *fiber.Ctx, postID int64) error {
	q := content.CommentQuery{PostID: postID}
	n, err := pageLimit(c)
	if err != nil {
		return err
	}
	sort, err := sortOf(c, models.CommentsOld, models.CommentsNew)
	if err != nil {
		return err
	}
	if q.Sort = models.CommentsFlatOld; sort == models.CommentsNew {
		q.Sort = models.CommentsFlatNew
	}
	name := fmt.Sprintf("comments:flat=%d:%s", postID, q.Sort)
	if q.After, err = s.flatPosition(c, postID, name, q.Sort); err != nil {
		return err
	}
	q.Limit = n
	read := func(ctx context.Context, viewer int64) ([]models.Comment, *models.ListKey, error) {
		q := q
		q.ViewerID = viewer
		return s.content.ListComments(ctx, q)
	}
	list := commentList{name: name, sort: q.Sort, limit: n, replies: models.CommentsOld, read: read}
	return s.replyIncluding(c, postID, list, fmt.Sprintf("%s limit=%d", name, n), q.After == nil)
}

// flatPosition reads where a page of all comments begins: after ?cursor=, or else after the comment ?after=, or, with
// ?unread=true, after the viewer's read mark. It returns nil for the beginning of the list.
func (s *Server) flatPosition(
	c *fiber.Ctx, postID int64, name string, sort models.CommentSort,
) (*models.ListKey, error) {
	query := c.Context().QueryArgs()
	unread, err := oneOf(c, "unread", "false", "true")
	switch {
	case err != nil:
		return nil, err
	case query.Has("after") && unread == "true":
		return nil, models.Invalid("after",
			models.About(models.FieldExclusive, "unread", "cannot be sent with unread=true"))
	case unread == "true" && sort != models.CommentsFlatOld:
		return nil, models.Invalid("unread", models.About(models.FieldNeeds, "sort", "needs sort=old"))
	case query.Has("cursor"):
		return s.cursors.After(c, name)
	case query.Has("after"):
		id, ok := parseID(c.Query("after"))
		if !ok {
			return nil, models.Invalid("after", models.BadFormat(models.FormatID, "must be the id of a comment"))
		}
		return &models.ListKey{Value: id, ID: id}, nil
	case unread == "true":
		return s.readMark(c, postID)
	}
	return nil, nil
}

// readMark returns the position of the viewer's read mark on a post; nil without one.
func (s *Server) readMark(c *fiber.Ctx, postID int64) (*models.ListKey, error) {
	if viewer(c) == nil {
		return nil, models.Errorf(models.CodeUnauthorized, "Only a signed-in user has unread comments.")
	}
	states, _, err := s.reader.ReaderStates(c.UserContext(), viewerID(c), []int64{postID})
	if err != nil {
		return nil, err
	}
	mark := states[postID].Mark
	if mark == nil || mark.CommentID == 0 {
		return nil, nil
	}
	return &models.ListKey{Value: mark.CommentID, ID: mark.CommentID}, nil
}

func (s *Server) listReplies(c *fiber.Ctx) error {
	id, err := pathID(c, models.KindComment)
	if err != nil {
		return err
	}
	return s.replyComments(c, repliesList(id), content.CommentQuery{ViewerID: viewerID(c), ParentID: id})
}

// replyComments answers with a page of comments and the first replies of each.
func (s *Server) replyComments(c *fiber.Ctx, name string, q content.CommentQuery) error {
	n, err := pageLimit(c)
	if err != nil {
		return err
	}
	if q.Sort, q.After, err = s.commentsPosition(c, name); err != nil {
		return err
	}
	q.Limit = n
	read := func(ctx context.Context, viewer int64) ([]models.Comment, *models.ListKey, error) {
		q := q
		q.ViewerID = viewer
		comments, rest, err := s.content.ListComments(ctx, q)
		if err != nil {
			return nil, nil, err
		}
		return comments, rest, s.content.FirstReplies(ctx, viewer, comments, firstReplies)
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
	// read returns comments with the replies that are shown with them. rest is where the list continues; nil at its
	// end.
	read func(ctx context.Context, viewer int64) (comments []models.Comment, rest *models.ListKey, err error)
	// post returns the post that the page has as a member; nil for none.
	post func(ctx context.Context, viewer int64) (*models.Post, error)
	// members are further members of the answer to this request.
	members []pages.Member
}

// replyCommentList answers with a page of comments. If share is set, requests share it under a name, which must differ
// from those of all other reads.
func (s *Server) replyCommentList(c *fiber.Ctx, l commentList, shared string, share bool) error {
	read := func(ctx context.Context, viewer int64) (*pages.Halves, error) {
		comments, rest, err := l.read(ctx, viewer)
		if err != nil {
			return nil, err
		}
		p := pages.Page[models.Comment]{Name: l.name, Rows: comments, Limit: l.limit, Rest: rest}
		room := db.PageBytes - pages.Overhead
		if l.post != nil {
			post, err := s.encodedPost(ctx, viewer, l.post)
			if err != nil {
				return nil, err
			}
			p.More, room = append(p.More, pages.Member{Name: includePost, Value: post}), room-post.Size()
		}
		if p.Limit == 0 {
			p.Limit = len(comments)
		}
		p.Key = func(m *models.Comment) models.ListKey { return m.Key(l.sort) }
		//nolint:contextcheck // rendering needs no deadline: its cost is bounded
		show := func(comments []models.Comment) ([]*commentItem, error) {
			return s.commentTree(comments, l.replies, room)
		}
		return pages.Encode(s.cursors, budget(ctx, c), p, pages.Together(show))
	}
	return s.replyShared(c, shared, share, read, l.members...)
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
	if q.After, err = s.cursors.After(c, name); err != nil {
		return err
	}
	q.Limit = n + 1
	found, err := s.content.FindComments(c.UserContext(), q)
	if err != nil {
		return err
	}
	s.charge(c, found.Examined)
	out := pages.Page[models.FoundComment]{
		Name: name, Rows: found.Comments, Limit: n, Key: found.Key, Rest: found.Rest, Complete: &found.Complete,
	}
	return replyPage(s, c, out, pages.TryEach(func(f *models.FoundComment) (pages.Item, error) {
		return s.titledComment(f.PostTitle, &f.Comment)
	}))
}

func (s *Server) createComment(c *fiber.Ctx) error {
	postID, err := pathID(c, models.KindPost)
	if err != nil {
		return err
	}
	var text models.CommentText
	var parentID *int64
	var draft postedDraft
	err = decode(c, fields{"content": &text.Content, "parent_id": &parentID, "draft": &draft.key})
	if err != nil {
		return err
	}
	return s.writeComment(c, postID, parentID, text, draft)
}

func (s *Server) createReply(c *fiber.Ctx) error {
	parentID, err := pathID(c, models.KindComment)
	if err != nil {
		return err
	}
	var text models.CommentText
	var draft postedDraft
	if err := decode(c, fields{"content": &text.Content, "draft": &draft.key}); err != nil {
		return err
	}
	parent, err := s.content.CommentByID(c.UserContext(), viewerID(c), parentID)
	if err != nil {
		return err
	}
	return s.writeComment(c, parent.PostID, &parentID, text, draft)
}

func (s *Server) writeComment(
	c *fiber.Ctx, postID int64, parentID *int64, text models.CommentText, draft postedDraft,
) error {
	if err := cmp.Or(text.Validate(), draft.validate()); err != nil {
		return err
	}
	text.Mentions = s.markdown.Mentions(text.Content)
	comment, err := s.content.CreateComment(c.UserContext(), viewerAuthor(c), postID, parentID, text)
	if err != nil {
		return err
	}
	s.dropDraft(c, draft)
	return s.replyCreatedComment(c, comment, pages.JustCreated)
}

func (s *Server) replyCreatedComment(c *fiber.Ctx, comment *models.Comment, from pages.Source) error {
	shown, err := s.commentItem(comment)
	if err != nil {
		return err
	}
	shown.withCount(comment.PostComments)
	if err := s.replyItem(c, shown, from); err != nil {
		return err
	}
	c.Set(fiber.HeaderETag, etag(comment.Version))
	c.Status(http.StatusCreated)
	c.Set(fiber.HeaderLocation, "/v1/comments/"+strconv.FormatInt(comment.ID, 10))
	return nil
}

func (s *Server) readComment(c *fiber.Ctx) error {
	id, err := pathID(c, models.KindComment)
	if err != nil {
		return err
	}
	comment, err := s.content.CommentByID(c.UserContext(), viewerID(c), id)
	if err != nil {
		return err
	}
	comment.Blocked = false // who asks for it by its own path wants to read it
	return s.replyComment(c, http.StatusOK, comment, pages.ReadByViewer)
}

// ownComment returns the comment in the path, if the permission of the route allows the viewer to change it.
func (s *Server) ownComment(c *fiber.Ctx) (*models.Comment, error) {
	id, err := pathID(c, models.KindComment)
	if err != nil {
		return nil, err
	}
	comment, err := s.content.CommentByID(c.UserContext(), viewerID(c), id)
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
	if err := s.mayEdit(c, commentTarget(comment.ID), text); err != nil {
		return err
	}
	text.Mentions = s.newMentions(comment.Content, text.Content)
	comment, err = s.content.UpdateComment(c.UserContext(), viewerID(c), comment.ID, comment.Version, text)
	if err != nil {
		return err
	}
	return s.replyComment(c, http.StatusOK, comment, pages.ReadByViewer)
}

func (s *Server) deleteComment(c *fiber.Ctx) error {
	comment, err := s.ownComment(c)
	if err != nil {
		return err
	}
	if err := s.content.DeleteComment(c.UserContext(), comment); err != nil {
		return err
	}
	return c.SendStatus(http.StatusNoContent)
}
