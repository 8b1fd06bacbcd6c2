package handlers

import (
	"context"
	"fmt"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/handlers/pages"
	"likewise/models"
	"likewise/models/content"
	"likewise/models/moderation"
)

// deletionJSON is the deletion of a post or comment.
type deletionJSON struct {
	At          *time.Time  `json:"at"`     // null: unknown
	By          *authorJSON `json:"by"`     // null: unknown
	Reason      *string     `json:"reason"` // null if the author deleted it
	OperationID *int64      `json:"operation_id"`
	Purged      bool        `json:"purged"` // the text is deleted, too, and cannot be restored
}

// moderationJSON is what moderators see of a post, which is added to it as the member post.
type moderationJSON struct {
	Deletion *deletionJSON `json:"deletion"`  // null unless deleted
	ReportID *int64        `json:"report_id"` // its open report
}

// commentModerationJSON is what moderators see of a comment, which is added to it as the member comment.
type commentModerationJSON struct {
	PostTitle string `json:"post_title"`
	moderationJSON
}

func (s *Server) newModerationJSON(status models.Status, m models.Moderation) moderationJSON {
	return moderationJSON{s.newDeletionJSON(status, m.Deletion), present(m.ReportID)}
}

// present returns a pointer to v; nil for the zero value, which means "none".
func present[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func (s *Server) presentAuthor(a models.Author) *authorJSON {
	if a.ID == 0 {
		return nil
	}
	out := s.author(a)
	return &out
}

func (s *Server) newDeletionJSON(status models.Status, d models.Deletion) *deletionJSON {
	if status == models.StatusNormal {
		return nil
	}
	out := &deletionJSON{
		By: s.presentAuthor(d.By), Reason: present(d.Reason), OperationID: present(d.Operation), Purged: d.Purged,
	}
	if !d.At.IsZero() {
		out.At = &d.At
	}
	return out
}

// contentQuery reads the query of a list of content, and returns the name of the list.
func contentQuery(c *fiber.Ctx, kind models.TargetKind) (q moderation.ContentQuery, name string, err error) {
	q.ViewerID = viewerID(c)
	if kind == models.KindComment {
		q.ViewerID = 0 // moderators also see comments of users whom they block
	}
	normal, deleted := models.StatusNormal.String(), models.StatusDeleted.String()
	status, err := oneOf(c, "status", "all", normal, deleted)
	if err != nil {
		return q, "", err
	}
	q.Status = map[string]models.Status{normal: models.StatusNormal, deleted: models.StatusDeleted}[status]
	args := c.Context().QueryArgs()
	if args.Has("author") {
		var ok bool
		if q.AuthorID, ok = parseID(c.Query("author")); !ok {
			return q, "", models.Invalid("author", models.BadFormat(models.FormatID, "must be the id of a user"))
		}
	}
	if args.Has("q") {
		q.Text = c.Query("q")
		if err := models.ValidateSearch("q", q.Text); err != nil {
			return q, "", err
		}
	}
	flags := map[string]*bool{"reported": &q.Reported}
	if kind == models.KindPost {
		flags["locked"], flags["pinned"] = &q.Locked, &q.Pinned
	}
	for parameter, flag := range flags {
		value, err := oneOf(c, parameter, "false", "true")
		if err != nil {
			return q, "", err
		}
		*flag = value == "true"
	}
	if q.Since, q.Until, err = timeSpan(c); err != nil {
		return q, "", err
	}
	name = fmt.Sprintf("moderated %s:%d:%d:%t:%t:%t:%d:%d q=%s",
		kind, q.Status, q.AuthorID, q.Reported, q.Locked, q.Pinned, q.Since.Unix(), q.Until.Unix(), q.Text)
	return q, name, nil
}

// timeSpan reads ?since= and ?until=. A missing parameter is the zero time.
func timeSpan(c *fiber.Ctx) (since, until time.Time, err error) {
	if since, err = queryTime(c, "since"); err != nil {
		return since, until, err
	}
	until, err = queryTime(c, "until")
	return since, until, err
}

// queryTime reads a time of the query; a missing one is the zero time.
func queryTime(c *fiber.Ctx, parameter string) (t time.Time, err error) {
	if !c.Context().QueryArgs().Has(parameter) {
		return t, nil
	}
	if t, err = time.Parse(time.RFC3339, c.Query(parameter)); err != nil || t.Year() < 1 || t.Year() > 9999 {
		return t, models.Invalid(parameter, models.BadTime())
	}
	return t, nil
}

func (s *Server) listModeratedPosts(c *fiber.Ctx) error {
	q, name, err := contentQuery(c, models.KindPost)
	if err != nil {
		return err
	}
	q.View = content.ViewSummary
	return replyList(s, c, pages.Listing[models.ModeratedPost, pages.Item]{
		Name: name,
		Read: func(ctx context.Context, at pages.Position) ([]models.ModeratedPost, *models.ListKey, error) {
			q.After, q.Limit = at.After, at.Limit
			return s.moderation.ModeratedPosts(ctx, q)
		},
		Key:  func(p *models.ModeratedPost) models.ListKey { return p.Post.Key(models.PostsNew) },
		Show: pages.Each(func(p *models.ModeratedPost) pages.Item { return s.moderatedPost(p, s.summary(&p.Post)) }),
	})
}

func (s *Server) listModeratedComments(c *fiber.Ctx) error {
	q, name, err := contentQuery(c, models.KindComment)
	if err != nil {
		return err
	}
	return replyList(s, c, pages.Listing[models.ModeratedComment, pages.Item]{
		Name: name,
		Read: func(ctx context.Context, at pages.Position) ([]models.ModeratedComment, *models.ListKey, error) {
			q.After, q.Limit = at.After, at.Limit
			return s.moderation.ModeratedComments(ctx, q)
		},
		Key:  func(m *models.ModeratedComment) models.ListKey { return m.Comment.Key(models.CommentsNew) },
		Show: pages.TryEach(s.moderatedComment),
	})
}

// moderatedPost shows a post, deleted or not, to moderators.
func (s *Server) moderatedPost(p *models.ModeratedPost, shown postItem) pages.Item {
	return pages.Containing{Others: s.newModerationJSON(p.Post.Status, p.Moderation), Name: "post", Item: shown}
}

// moderatedComment shows a comment to moderators, who also see deleted ones.
func (s *Server) moderatedComment(m *models.ModeratedComment) (pages.Item, error) {
	visible := m.Comment
	visible.Status = models.StatusNormal
	shown, err := s.commentWithStatus(&visible, m.Comment.Status.String())
	return pages.Containing{
		Others: commentModerationJSON{m.PostTitle, s.newModerationJSON(m.Comment.Status, m.Moderation)},
		Name:   "comment", Item: shown,
	}, err
}

// readModerated shows the content in the path, deleted or not.
func (s *Server) readModerated(kind models.TargetKind) fiber.Handler {
	return func(c *fiber.Ctx) error {
		id, err := pathID(c, kind)
		if err != nil {
			return err
		}
		return s.replyModerated(c, models.Target{Kind: kind, ID: id})
	}
}

func (s *Server) replyModerated(c *fiber.Ctx, target models.Target) error {
	if target.Kind == models.KindComment {
		comment, err := s.moderation.ModeratedComment(c.UserContext(), 0, target.ID)
		if err != nil {
			return err
		}
		shown, err := s.moderatedComment(comment)
		if err != nil {
			return err
		}
		return s.replyItem(c, shown, pages.ReadByViewer)
	}
	post, err := s.moderation.ModeratedPost(c.UserContext(), viewerID(c), target.ID)
	if err != nil {
		return err
	}
	whole, err := s.wholePost(&post.Post)
	if err != nil {
		return err
	}
	return s.replyItem(c, s.moderatedPost(post, whole), pages.ReadByViewer)
}

// moderate returns the handler of an action on the content in the path, with the reason in the body.
func (s *Server) moderate(
	kind models.TargetKind, do func(c *fiber.Ctx, target models.Target, reason string) error,
) fiber.Handler {
	return func(c *fiber.Ctx) error {
		id, reason, err := pathIDAndReason(c, kind)
		if err != nil {
			return err
		}
		target := models.Target{Kind: kind, ID: id}
		if err := do(c, target, reason); err != nil {
			return err
		}
		return s.replyModerated(c, target)
	}
}

func (s *Server) removeContent(kind models.TargetKind) fiber.Handler {
	return s.moderate(kind, func(c *fiber.Ctx, target models.Target, reason string) error {
		return s.moderation.RemoveContent(c.UserContext(), viewerID(c), target, reason)
	})
}

// reinstateContent does not call the gate, which by itself notices when a target that it refuses exists again.
func (s *Server) reinstateContent(kind models.TargetKind) fiber.Handler {
	return s.moderate(kind, func(c *fiber.Ctx, target models.Target, reason string) error {
		return s.moderation.ReinstateContent(c.UserContext(), viewerID(c), target, reason)
	})
}

func (s *Server) flagPost(flag models.PostFlag, set bool) fiber.Handler {
	return s.moderate(models.KindPost, func(c *fiber.Ctx, target models.Target, reason string) error {
		return s.moderation.SetPostFlag(c.UserContext(), viewerID(c), target.ID, flag, set, reason)
	})
}

// operationJSON is the deletion of all content of a user.
type operationJSON struct {
	ID               int64      `json:"id"`
	UserID           int64      `json:"user_id"`
	State            string     `json:"state"`
	Reason           string     `json:"reason"`
	RequestedBy      int64      `json:"requested_by"`
	RequestedAt      time.Time  `json:"requested_at"`
	UndoneBy         *int64     `json:"undone_by"`
	FinishedAt       *time.Time `json:"finished_at"` // null while it runs
	PostsDeleted     int64      `json:"posts_deleted"`
	CommentsDeleted  int64      `json:"comments_deleted"`
	PostsRestored    int64      `json:"posts_restored"`
	CommentsRestored int64      `json:"comments_restored"`
}

func replyOperation(c *fiber.Ctx, o *models.ContentOperation) error {
	return c.JSON(operationJSON{
		ID: o.ID, UserID: o.UserID, State: o.State.String(), Reason: o.Reason, RequestedBy: o.RequestedBy,
		RequestedAt: o.RequestedAt, UndoneBy: o.UndoneBy, FinishedAt: o.FinishedAt,
		PostsDeleted: o.PostsDeleted, CommentsDeleted: o.CommentsDeleted,
		PostsRestored: o.PostsRestored, CommentsRestored: o.CommentsRestored,
	})
}

// replyRequestedOperation answers 202: the operation runs after the request.
func replyRequestedOperation(c *fiber.Ctx, o *models.ContentOperation) error {
	c.Set(fiber.HeaderLocation, fmt.Sprintf("/v1/admin/operations/%d", o.ID))
	return replyOperation(c.Status(fiber.StatusAccepted), o)
}

// removeAllContent requests the deletion of all content of the user in the path. The cron job "moderate" carries it
// out.
func (s *Server) removeAllContent(c *fiber.Ctx) error {
	id, reason, err := pathIDAndReason(c, "user")
	if err != nil {
		return err
	}
	operation, err := s.moderation.RemoveAll(c.UserContext(), viewerID(c), id, reason)
	if err != nil {
		return err
	}
	return replyRequestedOperation(c, operation)
}

func (s *Server) readOperation(c *fiber.Ctx) error {
	id, err := pathID(c, "operation")
	if err != nil {
		return err
	}
	operation, err := s.moderation.OperationByID(c.UserContext(), id)
	if err != nil {
		return err
	}
	return replyOperation(c, operation)
}

func (s *Server) undoOperation(c *fiber.Ctx) error {
	id, reason, err := pathIDAndReason(c, "operation")
	if err != nil {
		return err
	}
	operation, err := s.moderation.UndoOperation(c.UserContext(), viewerID(c), id, reason)
	if err != nil {
		return err
	}
	return replyRequestedOperation(c, operation)
}
