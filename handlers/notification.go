package handlers

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

// notificationJSON notifies the viewer of a reply, a mention, a milestone, the outcome of a report, or a claim.
type notificationJSON struct {
	ID        int64          `json:"id"`
	Kind      string         `json:"kind"`
	Actor     *authorJSON    `json:"actor"` // of a reply or mention; null for other kinds
	Post      titleJSON      `json:"post"`
	CommentID *int64         `json:"comment_id"` // null if it is about the post
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
	}
	if n.Actor.ID != 0 {
		actor := s.author(n.Actor)
		out.Actor = &actor
	}
	if n.CommentID != 0 {
		out.CommentID = &n.CommentID
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
	return replyList(s, c, listing[models.Notification, notificationJSON]{
		name: ofUser("notifications:unread="+unread, viewerID(c)),
		read: func(ctx context.Context, at position) ([]models.Notification, *models.ListKey, error) {
			return s.store.Notifications(ctx, viewerID(c), unread == "true", at.id(), at.limit)
		},
		key:  (*models.Notification).Key,
		show: each(s.newNotificationJSON),
	})
}

type unreadJSON struct {
	UnreadCount int64 `json:"unread_count"` // models.MaxUnread means that many or more
}

func (s *Server) countUnread(c *fiber.Ctx) error {
	n, err := s.store.UnreadCount(c.UserContext(), viewerID(c))
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
	bad := func(id int64) bool { return id < 1 }
	switch {
	case (ids == nil) == (upTo == nil):
		return models.Invalid("ids", "must be given, or up_to, and not both")
	case upTo != nil && bad(*upTo):
		return models.Invalid("up_to", "must be the id of a notification")
	case upTo == nil && (len(ids) == 0 || len(ids) > maxRead || slices.ContainsFunc(ids, bad)):
		return models.Invalid("ids", "must be 1 to "+strconv.Itoa(maxRead)+" ids of notifications")
	}
	var err error
	if upTo != nil {
		err = s.store.ReadNotificationsUpTo(c.UserContext(), viewerID(c), *upTo)
	} else {
		err = s.store.ReadNotifications(c.UserContext(), viewerID(c), ids)
	}
	if err != nil {
		return err
	}
	return s.countUnread(c)
}
