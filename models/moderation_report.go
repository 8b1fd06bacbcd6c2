package models

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"
)

// Reasons are what posts and comments can be reported for.
var Reasons = []string{"spam", "abuse", "off_topic", "illegal", "other"}

// MaxDetail is how much a reporter can add, in characters.
const MaxDetail = 1000

// ClaimLife is how long a moderator has a case to themself.
const ClaimLife = 30 * time.Minute

// Outcome of a case.
const (
	OutcomeDismissed = "dismissed" // nothing was wrong
	OutcomeRemoved   = "removed"   // the target was deleted
)

// NewReport is what a user reports.
type NewReport struct {
	Target Target
	Reason string
	Detail string // plain text; "" for none
}

// Validate names every field that breaks a rule (CodeInvalid).
func (r NewReport) Validate() error {
	var f fieldErrors
	f.check(r.Target.Kind == KindPost || r.Target.Kind == KindComment, "target_type", "must be one of post, comment")
	f.check(r.Target.ID > 0, "target_id", "must be the id of a post or comment")
	f.check(slices.Contains(Reasons, r.Reason), "reason", "must be one of "+strings.Join(Reasons, ", "))
	f.checkLength("detail", r.Detail, MaxDetail)
	f.checkLines("detail", r.Detail)
	return f.err()
}

// Report is a report as its reporter sees it.
type Report struct {
	ID         int64
	TargetType TargetKind
	TargetID   int64
	Reason     string
	Detail     string
	CreatedAt  time.Time
	Outcome    *string // nil while it is open
	ResolvedAt *time.Time
}

// Key gives the place of the report in a list.
func (r *Report) Key() ListKey { return ListKey{ID: r.ID} }

const reportColumns = "r.id, k.target_type, k.target_id, r.reason, r.detail, r.created_at, k.outcome, k.resolved_at"

// ReportContent reports a post or comment. As long as the case is open, a user's report is one: reporting again changes
// nothing, and gives the report that there is. CodeInvalid; CodeNotFound when the target is deleted or was never there.
func (s *Store) ReportContent(ctx context.Context, reporter int64, r NewReport) (*Report, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	if open, err := s.TargetOpen(ctx, r.Target); err != nil {
		return nil, err
	} else if !open {
		return nil, notFound(r.Target.Kind)
	}
	var out Report
	err := s.transact(ctx, func(tx *gorm.DB) error {
		now := second(s.now())
		caseID, err := s.openCase(tx, r.Target, now)
		if err != nil {
			return err
		}
		version, err := reportedVersion(tx, caseID, r.Target)
		if err != nil {
			return err
		}
		const write = `
			INSERT INTO reports (case_id, reporter_id, reason, detail, version, created_at)
			VALUES (?,?,?,?,?,?)
			ON DUPLICATE KEY UPDATE reports.id=reports.id`
		insert := tx.Exec(write, caseID, reporter, r.Reason, r.Detail, version, now)
		if insert.Error != nil {
			return insert.Error
		}
		if insert.RowsAffected > 0 {
			if err := tx.Exec("UPDATE report_cases SET reporters_count=reporters_count+1, last_at=? WHERE id=?", now, caseID).Error; err != nil {
				return err
			}
		}
		err = tx.Raw("SELECT "+reportColumns+" FROM reports r JOIN report_cases k ON k.id=r.case_id WHERE r.case_id=? AND r.reporter_id=?", caseID, reporter).Scan(&out).Error
		made(tx, out.ID)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("report %s: %w", r.Target, err)
	}
	return &out, nil
}

// openCase returns the open case about a target, which it opens if there is none. The target's post is locked first: two
// INSERTs at once into a unique key that cases have left wait for each other's gaps.
func (s *Store) openCase(tx *gorm.DB, target Target, now time.Time) (id int64, err error) {
	if err := lockTargetPost(tx, target); err != nil {
		return 0, err
	}
	err = tx.Raw(`
		SELECT COALESCE(MAX(id),0)
		FROM report_cases
		WHERE is_open=1 AND target_type=? AND target_id=?`, target.Kind, target.ID).Scan(&id).Error
	if err != nil || id != 0 {
		return id, err
	}
	return s.insert(tx, `
		INSERT INTO report_cases (target_type, target_id, first_at, last_at)
		VALUES (?,?,?,?)`, target.Kind, target.ID, now, now)
}

// MaxReportedVersions is how many versions of its target a case keeps as evidence: the first that were reported.
const MaxReportedVersions = 10

// reportedVersion returns the version that a target has, for a report of it: no edit deletes a version that was reported.
// It returns nil if the case keeps MaxReportedVersions others. The target's post is locked (see openCase), so that an edit
// that follows sees the report. CodeNotFound: the target was deleted meanwhile.
func reportedVersion(tx *gorm.DB, caseID int64, target Target) (*int64, error) {
	var version int64
	read := tx.Raw(`
		SELECT version FROM `+likeTables[target.Kind].targets+`
		WHERE id=? AND status=?`, target.ID, StatusNormal).Scan(&version)
	if read.Error != nil {
		return nil, fmt.Errorf("read version of %s: %w", target, read.Error)
	}
	if read.RowsAffected == 0 {
		return nil, notFound(target.Kind)
	}
	var known []int64
	const query = `
		SELECT DISTINCT version FROM reports
		WHERE case_id=? AND version IS NOT NULL`
	if err := tx.Raw(query, caseID).Scan(&known).Error; err != nil {
		return nil, fmt.Errorf("read reported versions of %s: %w", target, err)
	}
	if len(known) >= MaxReportedVersions && !slices.Contains(known, version) {
		return nil, nil
	}
	return &version, nil
}

// ReportsBy lists what a user reported, latest first: at most limit reports before the id (0 for the first page).
func (s *Store) ReportsBy(ctx context.Context, reporter, before int64, limit int) ([]Report, error) {
	where, args := "r.reporter_id=?", []any{reporter}
	if before > 0 {
		where, args = where+" AND r.id<?", append(args, before)
	}
	var list []Report
	err := s.db.WithContext(ctx).Raw("SELECT "+reportColumns+" FROM reports r FORCE INDEX (idx_reporter) JOIN report_cases k ON k.id=r.case_id WHERE "+where+
		" ORDER BY r.id DESC LIMIT ?", append(args, limit)...).Scan(&list).Error
	if err != nil {
		return nil, fmt.Errorf("list reports of user %d: %w", reporter, err)
	}
	return list, nil
}

// ReportCase is what was reported, by all who did, until it was resolved.
type ReportCase struct {
	ID             int64
	TargetType     TargetKind
	TargetID       int64
	Author         Author `gorm:"embedded;embeddedPrefix:author_"` // of the target
	PostID         int64  // the target's, or the target
	Title          string // of the post
	Excerpt        string // the beginning of the content, as it is now; Reported has it as it was
	TargetStatus   Status
	ReportersCount int64
	FirstAt        time.Time
	LastAt         time.Time
	Claimant       Author `gorm:"embedded;embeddedPrefix:claimant_"` // the zero Author: nobody
	ClaimedUntil   *time.Time
	Resolver       Author `gorm:"embedded;embeddedPrefix:resolver_"` // the zero Author while it is open
	ResolvedAt     *time.Time
	Outcome        *string
	Note           string
	Version        int64             // that the target has now
	Reasons        map[string]int64  `gorm:"-"` // how many gave each
	Reported       []ReportedVersion `gorm:"-"` // at most MaxReportedVersions, ascending
}

// ReportedVersion is a version of a target that was reported.
type ReportedVersion struct {
	Version int64
	Reports int64  // how many were of this version
	Title   string // of a post
	Excerpt string // the beginning of its content
	Missing bool   // it was redacted, or the target purged, and has no text
}

// Key gives the place of the case in a list.
func (k *ReportCase) Key() ListKey { return ListKey{ID: k.ID} }

// Target is what the case is about.
func (k *ReportCase) Target() Target { return Target{Kind: k.TargetType, ID: k.TargetID} }

// CaseStatus says which cases to list.
type CaseStatus string

// The states of cases.
const (
	CasesOpen     CaseStatus = "open"     // nobody looks at them
	CasesClaimed  CaseStatus = "claimed"  // somebody does
	CasesResolved CaseStatus = "resolved" // somebody did
)

// Status tells which the case is in.
func (k *ReportCase) Status(now time.Time) CaseStatus {
	switch {
	case k.ResolvedAt != nil:
		return CasesResolved
	case k.ClaimedUntil != nil && k.ClaimedUntil.After(now):
		return CasesClaimed
	}
	return CasesOpen
}

const maxExcerpt = 200 // characters

// caseQuery reads cases k by their ids, as they come in the derived table o.
func caseQuery(keys, order string) string {
	excerpt := fmt.Sprintf("LEFT(COALESCE(c.content,p.content),%d)", maxExcerpt)
	return "SELECT k.id, k.target_type, k.target_id, " + authorColumns + ", p.id AS post_id, p.title, " + excerpt + " AS excerpt, COALESCE(c.status,p.status) AS target_status, COALESCE(c.version,p.version) AS version," +
		" k.reporters_count, k.first_at, k.last_at, k.claimed_until, k.resolved_at, k.outcome, k.note," +
		" m.id AS claimant_id, m.username AS claimant_username, m.display_name AS claimant_display_name, m.avatar_url AS claimant_avatar_url," +
		" d.id AS resolver_id, d.username AS resolver_username, d.display_name AS resolver_display_name, d.avatar_url AS resolver_avatar_url" +
		" FROM (" + keys + ") o STRAIGHT_JOIN report_cases k ON k.id=o.id LEFT JOIN comments c ON k.target_type='comment' AND c.id=k.target_id" +
		" STRAIGHT_JOIN posts p ON p.id=IF(k.target_type='comment',c.post_id,k.target_id) STRAIGHT_JOIN users u FORCE INDEX (PRIMARY) ON u.id=COALESCE(c.user_id,p.user_id)" +
		" LEFT JOIN users m ON m.id=k.claimed_by LEFT JOIN users d ON d.id=k.resolved_by ORDER BY k.id" + order
}

// ReportCases lists cases after an id (0 for the first page), in three queries: the earliest first, those that are resolved
// the latest first.
func (s *Store) ReportCases(ctx context.Context, status CaseStatus, after int64, limit int) ([]ReportCase, error) {
	now := s.now().UTC()
	index, where, args, order, later := "idx_open", "x.is_open=1 AND (x.claimed_until IS NULL OR x.claimed_until<=?)", []any{now}, "", ">"
	switch status {
	case CasesClaimed: // few, and not for long
		index, where = "idx_claimed", "x.is_open=1 AND x.claimed_until>?"
	case CasesResolved:
		where, args, order, later = "x.is_open IS NULL", nil, " DESC", "<"
	}
	if after != 0 {
		where, args = where+" AND x.id"+later+"?", append(args, after)
	}
	var list []ReportCase
	keys := "SELECT x.id FROM report_cases x FORCE INDEX (" + index + ") WHERE " + where + " ORDER BY x.id" + order + " LIMIT ?"
	if err := s.db.WithContext(ctx).Raw(caseQuery(keys, order), append(args, limit)...).Scan(&list).Error; err != nil {
		return nil, fmt.Errorf("list reports: %w", err)
	}
	return list, s.readReports(ctx, list)
}

// readReports reads how many reporters gave each reason, and which versions they reported.
func (s *Store) readReports(ctx context.Context, list []ReportCase) error {
	if len(list) == 0 {
		return nil
	}
	ids, at := make([]int64, len(list)), map[int64]int{}
	for i := range list {
		ids[i], at[list[i].ID], list[i].Reasons = list[i].ID, i, map[string]int64{}
	}
	var rows []struct {
		CaseID int64
		Reason string
		N      int64
	}
	err := s.db.WithContext(ctx).Raw("SELECT case_id, reason, COUNT(*) AS n FROM reports WHERE case_id IN (" + joinIDs(ids) + ") GROUP BY case_id, reason ORDER BY NULL").Scan(&rows).Error
	if err != nil {
		return fmt.Errorf("count reasons: %w", err)
	}
	for _, r := range rows {
		list[at[r.CaseID]].Reasons[r.Reason] = r.N
	}
	var versions []struct {
		CaseID   int64
		Reported ReportedVersion `gorm:"embedded"`
	}
	query := `
		SELECT v.case_id, v.version, v.reports,
			COALESCE(p.title,pr.title,'') AS title,
			LEFT(COALESCE(p.content,pr.content,c.content,cr.content,''),?) AS excerpt,
			COALESCE(p.id,c.id) IS NULL AND (COALESCE(pr.version,cr.version) IS NULL OR COALESCE(pr.redacted_at,cr.redacted_at) IS NOT NULL) AS missing
		FROM (
			SELECT case_id, version, COUNT(*) AS reports
			FROM reports
			WHERE case_id IN (` + joinIDs(ids) + `) AND version IS NOT NULL
			GROUP BY case_id, version
			ORDER BY NULL) v
		STRAIGHT_JOIN report_cases k ON k.id=v.case_id
		LEFT JOIN posts p ON k.target_type='post' AND p.id=k.target_id AND p.version=v.version
		LEFT JOIN post_revisions pr ON k.target_type='post' AND pr.post_id=k.target_id AND pr.version=v.version
		LEFT JOIN comments c ON k.target_type='comment' AND c.id=k.target_id AND c.version=v.version
		LEFT JOIN comment_revisions cr ON k.target_type='comment' AND cr.comment_id=k.target_id AND cr.version=v.version`
	if err := s.db.WithContext(ctx).Raw(query, maxExcerpt).Scan(&versions).Error; err != nil {
		return fmt.Errorf("read reported versions: %w", err)
	}
	for _, v := range versions {
		k := &list[at[v.CaseID]]
		k.Reported = append(k.Reported, v.Reported)
	}
	for _, k := range list {
		slices.SortFunc(k.Reported, func(a, b ReportedVersion) int { return cmp.Compare(a.Version, b.Version) })
	}
	return nil
}

func errNoCase() *Error { return Errorf(CodeNotFound, "There is no such report.") }

// ReportCaseByID reads a case. CodeNotFound when there is none.
func (s *Store) ReportCaseByID(ctx context.Context, id int64) (*ReportCase, error) {
	var list []ReportCase
	if err := s.db.WithContext(ctx).Raw(caseQuery("SELECT ? AS id", ""), id).Scan(&list).Error; err != nil {
		return nil, fmt.Errorf("read report case %d: %w", id, err)
	}
	if len(list) == 0 {
		return nil, errNoCase()
	}
	return &list[0], s.readReports(ctx, list)
}

// Reported is a report as moderators see it.
type Reported struct {
	ID        int64
	Reporter  Author `gorm:"embedded;embeddedPrefix:author_"`
	Reason    string
	Detail    string
	CreatedAt time.Time
}

// Key gives the place of the report in a list.
func (r *Reported) Key() ListKey { return ListKey{ID: r.ID} }

// ReportsOf lists the reports of a case, the earliest first: at most limit after an id (0 for the first page).
//
// Nobody learns who reported them: CodeForbidden when the viewer wrote what was reported. CodeNotFound when there is no
// such case.
func (s *Store) ReportsOf(ctx context.Context, viewer, caseID, after int64, limit int) ([]Reported, error) {
	var k lockedCase
	read := s.db.WithContext(ctx).Raw("SELECT target_type, target_id FROM report_cases WHERE id=?", caseID).Scan(&k)
	if read.Error != nil {
		return nil, fmt.Errorf("read report case %d: %w", caseID, read.Error)
	}
	if read.RowsAffected == 0 {
		return nil, errNoCase()
	}
	if err := k.notAbout(s.db.WithContext(ctx), viewer); err != nil {
		return nil, fmt.Errorf("list reports of case %d: %w", caseID, err)
	}
	var list []Reported
	err := s.db.WithContext(ctx).Raw("SELECT r.id, "+authorColumns+", r.reason, r.detail, r.created_at FROM reports r FORCE INDEX (idx_case_id)"+
		" STRAIGHT_JOIN users u FORCE INDEX (PRIMARY) ON u.id=r.reporter_id WHERE r.case_id=? AND r.id>? ORDER BY r.id LIMIT ?", caseID, after, limit).Scan(&list).Error
	if err != nil {
		return nil, fmt.Errorf("list reports of case %d: %w", caseID, err)
	}
	return list, nil
}

// lockedCase is a case whose row is held.
type lockedCase struct {
	TargetType   TargetKind
	TargetID     int64
	IsOpen       *bool
	ClaimedBy    int64
	ClaimedUntil *time.Time
}

// notAbout gives CodeForbidden when a user wrote what was reported.
func (k *lockedCase) notAbout(db *gorm.DB, userID int64) error {
	var author int64
	err := db.Raw("SELECT COALESCE(MAX(user_id),0) FROM "+likeTables[k.TargetType].targets+" WHERE id=?", k.TargetID).Scan(&author).Error
	if err == nil && author == userID {
		err = errOwnCase()
	}
	return err
}

// lockCase locks an open case for a moderator. CodeForbidden when they are none any more, or wrote what was reported;
// CodeConflict when it is resolved, or claimed by another.
func (s *Store) lockCase(tx *gorm.DB, actor, id int64) (*lockedCase, error) {
	if err := s.lockActor(tx, actor, RoleModerator); err != nil {
		return nil, err
	}
	var about lockedCase // which never changes
	if err := tx.Raw("SELECT target_type, target_id FROM report_cases WHERE id=?", id).Scan(&about).Error; err != nil {
		return nil, err
	}
	if about.TargetID == 0 {
		return nil, errNoCase()
	}
	if err := lockTargetPost(tx, Target{about.TargetType, about.TargetID}); err != nil {
		return nil, err
	}
	var k lockedCase
	read := tx.Raw("SELECT target_type, target_id, is_open, COALESCE(claimed_by,0) AS claimed_by, claimed_until FROM report_cases FORCE INDEX (PRIMARY) WHERE id=? FOR UPDATE", id).Scan(&k)
	switch {
	case read.Error != nil:
		return nil, read.Error
	case read.RowsAffected == 0:
		return nil, errNoCase()
	}
	if err := k.notAbout(tx, actor); err != nil {
		return nil, err
	}
	switch {
	case k.IsOpen == nil:
		return nil, Errorf(CodeConflict, "The report is resolved.")
	case k.claimed(s.now()) && k.ClaimedBy != actor:
		return nil, Errorf(CodeConflict, "Another moderator has claimed the report until %s.", k.ClaimedUntil.UTC().Format(time.RFC3339))
	}
	return &k, nil
}

func (k *lockedCase) claimed(now time.Time) bool {
	return k.ClaimedUntil != nil && k.ClaimedUntil.After(now)
}

// ClaimReport gives a moderator a case to themself for ClaimLife, from now on. CodeNotFound; CodeConflict when it is
// resolved, or another has claimed it; CodeForbidden when the actor is no moderator any more, or the author.
func (s *Store) ClaimReport(ctx context.Context, actor, id int64) error {
	err := s.transact(ctx, func(tx *gorm.DB) error {
		k, err := s.lockCase(tx, actor, id)
		if err != nil {
			return err
		}
		now := s.now().UTC().Truncate(time.Millisecond)
		until := now.Add(ClaimLife)
		if err := tx.Exec("UPDATE report_cases SET claimed_by=?, claimed_until=? WHERE id=?", actor, until, id).Error; err != nil {
			return err
		}
		before := map[string]any{"claimed_until": nil}
		if k.claimed(now) {
			before["claimed_until"] = k.ClaimedUntil.UTC()
		}
		return s.logModeration(tx, Act{ActorID: actor, Action: "report.claim", TargetType: "report", TargetID: id, Before: before, After: map[string]any{"claimed_until": until}})
	})
	if err != nil {
		return fmt.Errorf("claim report %d: %w", id, err)
	}
	return nil
}

// Verdict ends a case.
type Verdict struct {
	Outcome string // OutcomeDismissed or OutcomeRemoved, which deletes the target
	Note    string // for the log, and the reason of the deletion
}

// Validate names every field that breaks a rule (CodeInvalid).
func (r Verdict) Validate() error {
	var f fieldErrors
	f.check(r.Outcome == OutcomeDismissed || r.Outcome == OutcomeRemoved, "action", "must be one of dismissed, removed")
	f.checkReason("note", r.Note)
	return f.err()
}

// ResolveReport ends a case, deletes the target if that is the outcome, and tells all reporters, in one transaction. It
// gives the target, which the caller has to close if it was removed. CodeInvalid; CodeNotFound; CodeConflict when it is
// resolved, or another has claimed it; CodeForbidden when the actor is no moderator any more, or the author.
func (s *Store) ResolveReport(ctx context.Context, actor, id int64, r Verdict) (target Target, err error) {
	if err := r.Validate(); err != nil {
		return target, err
	}
	err = s.transact(ctx, func(tx *gorm.DB) error {
		k, err := s.lockCase(tx, actor, id)
		if err != nil {
			return err
		}
		target = Target{Kind: k.TargetType, ID: k.TargetID}
		var tags map[int64]int
		if r.Outcome == OutcomeRemoved {
			var before, after map[string]any
			if before, after, tags, err = s.remove(tx, actor, target, r.Note); err != nil {
				return err
			}
			if after != nil {
				if err := s.logModeration(tx, act(actor, "delete", target, r.Note, before, after)); err != nil {
					return err
				}
			}
		}
		now := second(s.now())
		err = tx.Exec("UPDATE report_cases SET is_open=NULL, claimed_until=NULL, resolved_by=?, resolved_at=?, outcome=?, note=? WHERE id=?",
			actor, now, r.Outcome, r.Note, id).Error
		if err != nil {
			return err
		}
		if err := notifyReporters(tx, id, now); err != nil {
			return err
		}
		err = s.logModeration(tx, Act{ActorID: actor, Action: "report.resolve", TargetType: "report", TargetID: id, Reason: r.Note,
			Before: map[string]any{"outcome": nil}, After: map[string]any{"outcome": r.Outcome, "target_type": target.Kind, "target_id": target.ID}})
		if err != nil {
			return err
		}
		return countTags(tx, tags)
	})
	if err != nil {
		return target, fmt.Errorf("resolve report %d: %w", id, err)
	}
	return target, nil
}
