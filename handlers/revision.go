package handlers

import (
	"context"
	"fmt"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/handlers/pages"
	"likewise/models"
	"likewise/models/content"
)

// revisionJSON is a version of a post or comment without its text.
type revisionJSON struct {
	Version   int64       `json:"version"`
	Author    *authorJSON `json:"author"`  // null if redacted
	Size      int64       `json:"size"`    // of the content, in bytes
	Changed   []string    `json:"changed"` // the parts that differ from the previous version
	Redacted  bool        `json:"redacted"`
	CreatedAt time.Time   `json:"created_at"`
}

// postRevisionJSON is a version of a post. The text is null if redacted.
type postRevisionJSON struct {
	revisionJSON
	Title       *string     `json:"title"`
	Content     *string     `json:"content"`
	ContentHTML *string     `json:"content_html"`
	Tags        models.Tags `json:"tags"`
}

// commentRevisionJSON is a version of a comment. The text is null if redacted.
type commentRevisionJSON struct {
	revisionJSON
	Content     *string `json:"content"`
	ContentHTML *string `json:"content_html"`
}

func (s *Server) newRevisionJSON(r *models.Revision) revisionJSON {
	return revisionJSON{
		r.Version, s.presentAuthor(r.Editor), r.Size, r.Changed.Names(), r.RedactedAt != nil, r.CreatedAt,
	}
}

// pathVersion reads the number of a version in the path. It returns CodeNotFound if the path has anything but a number.
func pathVersion(c *fiber.Ctx) (int64, error) {
	text := c.Params("version")
	if text == "0" {
		return 0, nil
	}
	if version, ok := parseID(text); ok {
		return version, nil
	}
	return 0, models.Errorf(models.CodeNotFound, "There is no such version.")
}

// pathRevision reads the id of a target and the number of a version in the path.
func pathRevision(c *fiber.Ctx, kind models.TargetKind) (target models.Target, version int64, err error) {
	id, err := pathID(c, kind)
	if err != nil {
		return target, 0, err
	}
	version, err = pathVersion(c)
	return models.Target{Kind: kind, ID: id}, version, err
}

// listRevisions returns the handler that lists the versions of the post or comment in the path; deleted includes
// deleted posts and comments.
func (s *Server) listRevisions(kind models.TargetKind, deleted bool) fiber.Handler {
	return func(c *fiber.Ctx) error {
		id, err := pathID(c, kind)
		if err != nil {
			return err
		}
		return replyList(s, c, pages.Listing[models.Revision, revisionJSON]{
			Name: fmt.Sprintf("revisions:%s=%d:%t", kind, id, deleted),
			Read: func(ctx context.Context, at pages.Position) ([]models.Revision, *models.ListKey, error) {
				return pages.All(s.content.ListRevisions(ctx, content.RevisionQuery{
					Target: models.Target{Kind: kind, ID: id}, Deleted: deleted, Before: at.ID(), Limit: at.Limit,
				}))
			},
			Key:  func(r *models.Revision) models.ListKey { return models.ListKey{ID: r.Version} },
			Show: pages.Each(s.newRevisionJSON),
		})
	}
}

// readRevision returns the handler that shows one version of the post or comment in the path; deleted includes deleted
// posts and comments.
func (s *Server) readRevision(kind models.TargetKind, deleted bool) fiber.Handler {
	return func(c *fiber.Ctx) error {
		target, version, err := pathRevision(c, kind)
		if err != nil {
			return err
		}
		r, err := s.content.RevisionOf(c.UserContext(), content.RevisionQuery{Target: target, Deleted: deleted},
			version)
		if err != nil {
			return err
		}
		out := postRevisionJSON{revisionJSON: s.newRevisionJSON(r), Tags: r.Tags}
		if r.RedactedAt == nil {
			html, err := s.markdown.HTML(target, r.Version, r.Content)
			if err != nil {
				return err
			}
			out.Title, out.Content, out.ContentHTML = &r.Title, &r.Content, &html
		}
		if kind == models.KindComment {
			return c.JSON(commentRevisionJSON{out.revisionJSON, out.Content, out.ContentHTML})
		}
		return c.JSON(out)
	}
}

// redactionJSON is an author's request as the author sees it. Moderators are not named.
type redactionJSON struct {
	ID          int64      `json:"id"`
	TargetType  string     `json:"target_type"`
	TargetID    int64      `json:"target_id"`
	Version     int64      `json:"version"`
	Reason      string     `json:"reason"`
	Status      string     `json:"status"` // open or resolved
	RequestedAt time.Time  `json:"requested_at"`
	Outcome     *string    `json:"outcome"` // redacted or declined; null while it is open
	ResolvedAt  *time.Time `json:"resolved_at"`
	Note        *string    `json:"note"` // of the moderator who resolved it
}

// requestedRedactionJSON is an author's request as moderators see it.
type requestedRedactionJSON struct {
	Redaction   redactionJSON `json:"redaction"`
	RequestedBy authorJSON    `json:"requested_by"`
	ResolvedBy  *authorJSON   `json:"resolved_by"` // null while it is open
	ReportID    *int64        `json:"report_id"`   // the open case about the target
}

func newRedactionJSON(r *models.Redaction) redactionJSON {
	out := redactionJSON{
		ID: r.ID, TargetType: string(r.TargetType), TargetID: r.TargetID, Version: r.Version, Reason: r.Reason,
		Status: statusOpen, RequestedAt: r.RequestedAt, Outcome: r.Outcome, ResolvedAt: r.ResolvedAt,
		Note: present(r.Note),
	}
	if r.Outcome != nil {
		out.Status = statusResolved
	}
	return out
}

func (s *Server) newRequestedRedactionJSON(r *models.Redaction) requestedRedactionJSON {
	return requestedRedactionJSON{
		newRedactionJSON(r), s.author(r.Requester), s.presentAuthor(r.Resolver), present(r.ReportID),
	}
}

// requestRedaction stores an author's request. If there is an open request for the version, it answers with that one.
func (s *Server) requestRedaction(kind models.TargetKind) fiber.Handler {
	return func(c *fiber.Ctx) error {
		target, version, err := pathRevision(c, kind)
		if err != nil {
			return err
		}
		var reason string
		if err := decode(c, fields{"reason": lineOf{&reason}}); err != nil {
			return err
		}
		r, err := s.moderation.RequestRedaction(c.UserContext(), viewerID(c), target, version, reason)
		if err != nil {
			return err
		}
		return replyRequestedRedaction(c, r)
	}
}

func replyRequestedRedaction(c *fiber.Ctx, r *models.Redaction) error {
	return c.Status(fiber.StatusAccepted).JSON(newRedactionJSON(r))
}

func (s *Server) listMyRedactions(c *fiber.Ctx) error {
	return replyList(s, c, pages.Listing[models.Redaction, redactionJSON]{
		Name: pages.OfUser("redactions", viewerID(c)),
		Read: func(ctx context.Context, at pages.Position) ([]models.Redaction, *models.ListKey, error) {
			return pages.All(s.moderation.RedactionsBy(ctx, viewerID(c), at.ID(), at.Limit))
		},
		Key:  (*models.Redaction).Key,
		Show: pages.Each(newRedactionJSON),
	})
}

func (s *Server) listRedactions(c *fiber.Ctx) error {
	status, err := oneOf(c, "status", statusOpen, statusResolved)
	if err != nil {
		return err
	}
	return replyList(s, c, pages.Listing[models.Redaction, requestedRedactionJSON]{
		Name: "redactions:" + status,
		Read: func(ctx context.Context, at pages.Position) ([]models.Redaction, *models.ListKey, error) {
			return pages.All(s.moderation.Redactions(ctx, status == statusResolved, at.ID(), at.Limit))
		},
		Key:  (*models.Redaction).Key,
		Show: pages.Each(s.newRequestedRedactionJSON),
	})
}

func (s *Server) resolveRedaction(c *fiber.Ctx) error {
	id, err := pathID(c, "request")
	if err != nil {
		return err
	}
	var outcome, reason string
	if err := decode(c, fields{"outcome": &outcome, "reason": lineOf{&reason}}); err != nil {
		return err
	}
	if err := s.moderation.ResolveRedaction(c.UserContext(), viewerID(c), id, outcome, reason); err != nil {
		return err
	}
	return s.readRedaction(c)
}

func (s *Server) readRedaction(c *fiber.Ctx) error {
	id, err := pathID(c, "request")
	if err != nil {
		return err
	}
	r, err := s.moderation.RedactionByID(c.UserContext(), id)
	if err != nil {
		return err
	}
	return c.JSON(s.newRequestedRedactionJSON(r))
}

// redactVersion overwrites the text of the version in the path.
func (s *Server) redactVersion(kind models.TargetKind) fiber.Handler {
	return s.moderate(kind, func(c *fiber.Ctx, target models.Target, reason string) error {
		version, err := pathVersion(c)
		if err != nil {
			return err
		}
		return s.moderation.RedactVersion(c.UserContext(), viewerID(c), target, version, reason)
	})
}

func (s *Server) purgeContent(kind models.TargetKind) fiber.Handler {
	return s.moderate(kind, func(c *fiber.Ctx, target models.Target, reason string) error {
		return s.moderation.PurgeContent(c.UserContext(), viewerID(c), target, reason)
	})
}
