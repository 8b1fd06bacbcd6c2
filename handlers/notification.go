package handlers

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/handlers/pages"
	"likewise/models"
)

// notificationJSON notifies the viewer of a reply, a mention, a milestone, the outcome of a report, or a claim.
type notificationJSON struct {
	ID        int64          `json:"id"`
	Kind      string         `json:"kind"`
	Actor     *authorJSON    `json:"actor"` // of a reply or mention; null for other kinds
	Post      titleJSON      `json:"post"`
	CommentID *int64         `json:"comment_id"` // null if it is about the post
	Excerpt   string         `json:"excerpt"`    // of the comment, or of the post; "" if the viewer cannot read it
	Milestone *int64         `json:"milestone"`  // the number of likes reached; null for other kinds
	Report    *outcomeJSON   `json:"report"`     // null for other kinds
	Claim     *claimNewsJSON `json:"claim"`      // null for other kinds
	CreatedAt time.Time      `json:"created_at"`
	Read      bool           `json:"read"`
}

// outcomeJSON is the outcome of a report.
type outcomeJSON struct {
	ID      int64  `json:"id"`
	Outcome string `json:"outcome"`
}

// claimNewsJSON is the claim that a notification is about.
type claimNewsJSON struct {
	ID        models.ID  `json:"id"`
	DropID    *int64     `json:"drop_id"`    // null if the user has made a later claim to the drop
	DropTitle string     `json:"drop_title"` // "" if the post is deleted
	Reason    *string    `json:"reason"`     // of a claim that was rejected
	ExpiresAt *time.Time `json:"expires_at"` // of a claim that needs a confirmation
}

// titleJSON names a post.
type titleJSON struct {
	ID    int64  `json:"id"`
	Title string `json:"title"` // "" if the post is deleted or the viewer blocks its author
}

func (s *Server) newNotificationJSON(n *models.Notification) notificationJSON {
	out := notificationJSON{
		ID: n.ID, Kind: n.Kind.String(), Post: titleJSON{n.PostID, n.PostTitle}, CreatedAt: n.CreatedAt, Read: n.Read,
		Excerpt: n.Excerpt,
	}
	if n.Actor.ID != 0 {
		actor := s.author(n.Actor)
		out.Actor = &actor
	}
	if n.CommentID != 0 {
		out.CommentID, out.Excerpt = &n.CommentID, s.markdown.Excerpt(n.CommentText)
	}
	if n.Milestone != 0 {
		out.Milestone = &n.Milestone
	}
	if n.ReportID != 0 {
		out.Report = &outcomeJSON{n.ReportID, n.Outcome}
	}
	if n.ClaimID != 0 {
		out.Claim = &claimNewsJSON{ID: models.ID(n.ClaimID), DropTitle: n.Claim.DropTitle, ExpiresAt: n.Claim.ExpiresAt}
		if n.Claim.DropID != 0 {
			out.Claim.DropID = &n.Claim.DropID
		}
		if n.Claim.Reason != "" {
			out.Claim.Reason = &n.Claim.Reason
		}
	}
	return out
}

// listNotifications lists the viewer's notifications, latest first.
func (s *Server) listNotifications(c *fiber.Ctx) error {
	unread, err := oneOf(c, "unread", "false", "true")
	if err != nil {
		return err
	}
	return replyList(s, c, pages.Listing[models.Notification, notificationJSON]{
		Name: pages.OfUser("notifications:unread="+unread, viewerID(c)),
		Read: func(ctx context.Context, at pages.Position) ([]models.Notification, *models.ListKey, error) {
			return s.people.Notifications(ctx, viewerID(c), unread == "true", at.ID(), at.Limit)
		},
		Key:  (*models.Notification).Key,
		Show: pages.Each(s.newNotificationJSON),
	})
}

type unreadJSON struct {
	UnreadCount int64 `json:"unread_count"` // models.MaxUnread means that many or more
}

func (s *Server) countUnread(c *fiber.Ctx) error {
	n, err := s.people.UnreadCount(c.UserContext(), viewerID(c))
	if err != nil {
		return err
	}
	return c.JSON(unreadJSON{n})
}

// maxRead is how many notifications one request can name.
const maxRead = 100

// readNotifications marks notifications as read: those in ids, or all up to the one in up_to. It answers with the
// number of unread notifications.
func (s *Server) readNotifications(c *fiber.Ctx) error {
	var ids []int64
	var upTo *int64
	if err := decode(c, fields{"ids": &ids, "up_to": &upTo}); err != nil {
		return err
	}
	if (ids == nil) == (upTo == nil) {
		fault := models.Missing()
		if ids != nil {
			fault = models.About(models.FieldExclusive, "up_to", "")
		}
		return models.Invalid("ids", fault.Saying("must be given, or up_to, and not both"))
	}
	var err error
	switch {
	case upTo == nil:
		if err := checkIDs("ids", ids, maxRead, "notifications"); err != nil {
			return err
		}
		err = s.people.ReadNotifications(c.UserContext(), viewerID(c), ids)
	case *upTo < 1:
		return models.Invalid("up_to", models.BadFormat(models.FormatID, "must be the id of a notification"))
	default:
		err = s.people.ReadNotificationsUpTo(c.UserContext(), viewerID(c), *upTo)
	}
	if err != nil {
		return err
	}
	return s.countUnread(c)
}
