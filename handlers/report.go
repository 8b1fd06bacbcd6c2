package handlers

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/handlers/pages"
	"likewise/models"
)

// reportJSON is a report as its reporter sees it. Moderators are not named.
type reportJSON struct {
	ID         int64      `json:"id"`
	TargetType string     `json:"target_type"`
	TargetID   int64      `json:"target_id"`
	Reason     string     `json:"reason"`
	Detail     string     `json:"detail"`
	Status     string     `json:"status"`
	Outcome    *string    `json:"outcome"` // null while it is open
	CreatedAt  time.Time  `json:"created_at"`
	ResolvedAt *time.Time `json:"resolved_at"`
}

func newReportJSON(r *models.Report) reportJSON {
	out := reportJSON{
		r.ID, string(r.TargetType), r.TargetID, r.Reason, r.Detail, statusOpen, r.Outcome, r.CreatedAt, r.ResolvedAt,
	}
	if r.Outcome != nil {
		out.Status = statusResolved
	}
	return out
}

// reportContent stores a report. If the viewer has an open report of the target, it answers with that one.
func (s *Server) reportContent(c *fiber.Ctx) error {
	var r models.NewReport
	err := decode(c, fields{
		"target_type": &r.Target.Kind, "target_id": &r.Target.ID, "reason": &r.Reason, "detail": linesOf{&r.Detail},
	})
	if err != nil {
		return err
	}
	report, err := s.moderation.ReportContent(c.UserContext(), viewerID(c), r)
	if err != nil {
		return err
	}
	return replyReported(c, report)
}

func replyReported(c *fiber.Ctx, report *models.Report) error {
	return c.Status(fiber.StatusCreated).JSON(newReportJSON(report))
}

func (s *Server) listMyReports(c *fiber.Ctx) error {
	return replyList(s, c, pages.Listing[models.Report, reportJSON]{
		Name: pages.OfUser("reports", viewerID(c)),
		Read: func(ctx context.Context, at pages.Position) ([]models.Report, *models.ListKey, error) {
			return pages.All(s.moderation.ReportsBy(ctx, viewerID(c), at.ID(), at.Limit))
		},
		Key:  (*models.Report).Key,
		Show: pages.Each(newReportJSON),
	})
}
