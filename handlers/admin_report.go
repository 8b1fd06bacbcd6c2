package handlers

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/handlers/pages"
	"likewise/models"
	"likewise/models/db"
)

// caseJSON is a case: all reports of a target until a moderator resolves them.
type caseJSON struct {
	ID             int64                 `json:"id"`
	TargetType     string                `json:"target_type"`
	TargetID       int64                 `json:"target_id"`
	TargetStatus   string                `json:"target_status"`
	Author         authorJSON            `json:"author"`
	Post           titleJSON             `json:"post"`    // the target, or the post of the comment
	Version        int64                 `json:"version"` // of the target now
	Excerpt        string                `json:"excerpt"` // the beginning of its Markdown
	Content        string                `json:"content"` // its Markdown now
	Reported       []reportedVersionJSON `json:"reported"`
	Status         string                `json:"status"`
	ReportersCount int64                 `json:"reporters_count"`
	Reasons        map[string]int64      `json:"reasons"` // how many reports have each
	Reports        []reportedJSON        `json:"reports"` // the first ones; none if the viewer is the author
	FirstAt        time.Time             `json:"first_reported_at"`
	LastAt         time.Time             `json:"last_reported_at"`
	ClaimedBy      *authorJSON           `json:"claimed_by"` // null unless claimed
	ClaimedUntil   *time.Time            `json:"claimed_until"`
	ResolvedBy     *authorJSON           `json:"resolved_by"`
	ResolvedAt     *time.Time            `json:"resolved_at"`
	Outcome        *string               `json:"outcome"`
	Note           *string               `json:"note"`
}

// reportedVersionJSON is a reported version of the target.
type reportedVersionJSON struct {
	Version      int64   `json:"version"`
	ReportsCount int64   `json:"reports_count"`
	Title        *string `json:"title"`   // of a post; null if the text is gone
	Excerpt      *string `json:"excerpt"` // the beginning of its Markdown; null if the text is gone
}

func newReportedVersionsJSON(k *models.ReportCase) []reportedVersionJSON {
	out := make([]reportedVersionJSON, len(k.Reported))
	for i, v := range k.Reported {
		out[i] = reportedVersionJSON{Version: v.Version, ReportsCount: v.Reports}
		if v.Missing {
			continue
		}
		out[i].Excerpt = &v.Excerpt
		if k.TargetType == models.KindPost {
			out[i].Title = &v.Title
		}
	}
	return out
}

func (s *Server) newCaseJSON(k *models.ReportCase, viewer int64) caseJSON {
	status := k.Status(s.now())
	out := caseJSON{
		ID: k.ID, TargetType: string(k.TargetType), TargetID: k.TargetID, TargetStatus: k.TargetStatus.String(),
		Author: s.author(k.Author), Post: titleJSON{k.PostID, k.Title}, Version: k.Version, Excerpt: k.Excerpt,
		Content: k.Content, Reports: []reportedJSON{}, Reported: newReportedVersionsJSON(k), Status: string(status),
		ReportersCount: k.ReportersCount,
		Reasons:        k.Reasons, FirstAt: k.FirstAt, LastAt: k.LastAt,
		ResolvedBy: s.presentAuthor(k.Resolver), ResolvedAt: k.ResolvedAt, Outcome: k.Outcome, Note: present(k.Note),
	}
	if status == models.CasesClaimed {
		out.ClaimedBy, out.ClaimedUntil = s.presentAuthor(k.Claimant), k.ClaimedUntil
	}
	if k.Author.ID != viewer { // authors do not learn who reported them; see ReportsOf
		for i := range k.Reports {
			out.Reports = append(out.Reports, s.newReportedJSON(&k.Reports[i]))
		}
	}
	return out
}

func (s *Server) listReportCases(c *fiber.Ctx) error {
	status, err := oneOf(c, "status", models.CasesOpen, models.CasesClaimed, models.CasesResolved)
	if err != nil {
		return err
	}
	return replyList(s, c, pages.Listing[models.ReportCase, caseJSON]{
		Name: "report cases:" + string(status),
		Read: func(ctx context.Context, at pages.Position) ([]models.ReportCase, *models.ListKey, error) {
			return pages.All(s.moderation.ReportCases(ctx, status, at.ID(), at.Limit))
		},
		Key:  (*models.ReportCase).Key,
		Show: pages.Each(func(k *models.ReportCase) caseJSON { return s.newCaseJSON(k, viewerID(c)) }),
		More: func(c *fiber.Ctx) ([]pages.Member, error) {
			open, err := s.moderation.OpenCases(c.UserContext())
			return []pages.Member{{Name: "open_count", Value: open}}, err
		},
	})
}

func (s *Server) readReportCase(c *fiber.Ctx) error {
	id, err := pathID(c, "report")
	if err != nil {
		return err
	}
	return s.replyCase(c, id)
}

func (s *Server) replyCase(c *fiber.Ctx, id int64) error {
	k, err := s.moderation.ReportCaseByID(c.UserContext(), id)
	if err != nil {
		return err
	}
	return c.JSON(s.newCaseJSON(k, viewerID(c)))
}

// reportedJSON is a report as moderators see it.
type reportedJSON struct {
	ID        int64      `json:"id"`
	Reporter  authorJSON `json:"reporter"`
	Reason    string     `json:"reason"`
	Detail    string     `json:"detail"`
	CreatedAt time.Time  `json:"created_at"`
}

func (s *Server) newReportedJSON(r *models.Reported) reportedJSON {
	return reportedJSON{r.ID, s.author(r.Reporter), r.Reason, r.Detail, r.CreatedAt}
}

func (s *Server) listReportsOfCase(c *fiber.Ctx) error {
	id, err := pathID(c, "report")
	if err != nil {
		return err
	}
	return replyList(s, c, pages.Listing[models.Reported, reportedJSON]{
		Name: "reports:case=" + strconv.FormatInt(id, 10),
		Read: func(ctx context.Context, at pages.Position) ([]models.Reported, *models.ListKey, error) {
			return pages.All(s.moderation.ReportsOf(ctx, viewerID(c), id, at.ID(), at.Limit))
		},
		Key:  (*models.Reported).Key,
		Show: pages.Each(s.newReportedJSON),
	})
}

// claimReport reserves a case for the viewer for models.ClaimLife, so that no other moderator works on it.
func (s *Server) claimReport(c *fiber.Ctx) error {
	id, err := pathID(c, "report")
	if err != nil {
		return err
	}
	if err := s.moderation.ClaimReport(c.UserContext(), viewerID(c), id); err != nil {
		return err
	}
	return s.replyCase(c, id)
}

func (s *Server) resolveReport(c *fiber.Ctx) error {
	id, err := pathID(c, "report")
	if err != nil {
		return err
	}
	var v models.Verdict
	if err := decode(c, fields{"action": &v.Outcome, "note": lineOf{&v.Note}}); err != nil {
		return err
	}
	if err := s.moderation.ResolveReport(c.UserContext(), viewerID(c), id, v); err != nil {
		return err
	}
	return s.replyCase(c, id)
}

// maxResolve is how many cases one request can resolve.
const maxResolve = 100

// resolvedJSON is the result of one case of several.
type resolvedJSON struct {
	ID     int64        `json:"id"`
	Status string       `json:"status"` // resolved or failed
	Code   *models.Code `json:"code"`   // why it failed
	Detail *string      `json:"detail"`
}

// The states of a report, of a request to redact and of a dead letter.
const (
	statusOpen     = string(models.CasesOpen)
	statusResolved = string(models.CasesResolved)
)

type resultsJSON struct {
	Results []resolvedJSON `json:"results"`
}

// resolveReports resolves several cases with the same verdict, each in its own transaction, and returns the result of
// each.
func (s *Server) resolveReports(c *fiber.Ctx) error {
	var ids []int64
	var v models.Verdict
	if err := decode(c, fields{"ids": &ids, "action": &v.Outcome, "note": lineOf{&v.Note}}); err != nil {
		return err
	}
	if err := checkIDs("ids", ids, maxResolve, "reports"); err != nil {
		return err
	}
	if err := v.Validate(); err != nil {
		return err
	}
	out := resultsJSON{make([]resolvedJSON, len(ids))}
	for i, id := range ids {
		result := resolvedJSON{ID: id, Status: statusResolved}
		err := s.resolveOf(c, i, id, v)
		if errors.Is(err, db.ErrKeyInUse) {
			return err // another request continues with the rest
		}
		if err != nil {
			p := problemOf(err)
			if p.Status == http.StatusUnauthorized { // the session has ended, so the rest would fail, too
				return err
			}
			if p.Status >= 500 {
				s.log.Error("report not resolved", "report", id, "request_id", requestID(c), "error", err)
			}
			result = resolvedJSON{id, "failed", &p.Code, &p.Detail}
		}
		out.Results[i] = result
	}
	if err := db.KeepAnswer(c.UserContext(), out); err != nil {
		return err
	}
	return c.JSON(out)
}

// resolveOf resolves one case of several, unless an earlier attempt at the request has. index is its index in the
// request.
func (s *Server) resolveOf(c *fiber.Ctx, index int, id int64, v models.Verdict) error {
	whole := c.UserContext()
	step, done := db.Step(whole, strconv.Itoa(index))
	if done {
		return nil
	}
	c.SetUserContext(step)
	defer c.SetUserContext(whole)
	return s.moderation.ResolveReport(c.UserContext(), viewerID(c), id, v)
}
