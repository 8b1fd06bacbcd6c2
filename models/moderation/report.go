package moderation

import (
	"context"
	"fmt"
	"slices"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/db"
)

const reportColumns = "r.id, k.target_type, k.target_id, r.reason, r.detail, r.created_at, k.outcome, k.resolved_at"

// ReportContent reports a post or comment. A user has one report per open case: reporting again changes nothing and
// returns the earlier report. CodeInvalid: a field breaks a rule. CodeNotFound: the target is deleted or never existed.
func (s *Store) ReportContent(ctx context.Context, reporter int64, r models.NewReport) (*models.Report, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	if open, err := s.TargetOpen(ctx, r.Target); err != nil {
		return nil, err
	} else if !open {
		return nil, models.NotFound(r.Target.Kind)
	}
	const insert = `
		INSERT INTO reports (case_id, reporter_id, reason, detail, version, created_at)
		VALUES (?,?,?,?,?,?)
		ON DUPLICATE KEY UPDATE reports.id=reports.id`
	const count = `
		UPDATE report_cases
		SET reporters_count=reporters_count+1, last_at=?
		WHERE id=?`
	const read = `
		SELECT ` + reportColumns + `
		FROM reports r
		JOIN report_cases k ON k.id=r.case_id
		WHERE r.case_id=? AND r.reporter_id=?`
	var out models.Report
	err := s.Transact(ctx, func(tx *db.Tx) error {
		now := models.WholeSeconds(tx.Now)
		caseID, err := openCase(tx, r.Target, now)
		if err != nil {
			return err
		}
		version, err := reportedVersion(tx, caseID, r.Target)
		if err != nil {
			return err
		}
		inserted := tx.Exec(insert, caseID, reporter, r.Reason, r.Detail, version, now)
		if inserted.Error != nil {
			return inserted.Error
		}
		if inserted.RowsAffected > 0 {
			if err := tx.Exec(count, now, caseID).Error; err != nil {
				return err
			}
		}
		err = tx.Raw(read, caseID, reporter).Scan(&out).Error
		tx.AnswerHas(out.ID)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("report %s: %w", r.Target, err)
	}
	return &out, nil
}

// reportedVersion returns the present version of a target, for a report of it: edits do not delete reported versions.
// If the case keeps MaxReportedVersions others, it returns nil. The target's post is locked (see openCase), so that
// later edits see the report. CodeNotFound: the target was deleted meanwhile.
func reportedVersion(tx *db.Tx, caseID int64, target models.Target) (*int64, error) {
	find := `
		SELECT version
		FROM ` + db.TargetTables[target.Kind].Targets + `
		WHERE id=? AND status=?`
	const reported = `
		SELECT DISTINCT version
		FROM reports
		WHERE case_id=? AND version IS NOT NULL`
	var version int64
	read := tx.Raw(find, target.ID, models.StatusNormal).Scan(&version)
	if read.Error != nil {
		return nil, fmt.Errorf("read version of %s: %w", target, read.Error)
	}
	if read.RowsAffected == 0 {
		return nil, models.NotFound(target.Kind)
	}
	var known []int64
	if err := tx.Raw(reported, caseID).Scan(&known).Error; err != nil {
		return nil, fmt.Errorf("read reported versions of %s: %w", target, err)
	}
	if len(known) >= models.MaxReportedVersions && !slices.Contains(known, version) {
		return nil, nil
	}
	return &version, nil
}

// ReportsBy lists the reports of a user, latest first: at most limit before the id (0 for the first page).
func (s *Store) ReportsBy(ctx context.Context, reporter, before int64, limit int) ([]models.Report, error) {
	where := db.Matching("r.reporter_id=?", reporter)
	where.AddIf(before > 0, "r.id<?", before)
	query := `
		SELECT ` + reportColumns + `
		FROM reports r FORCE INDEX (idx_reporter)
		JOIN report_cases k ON k.id=r.case_id
		` + where.Clause() + `
		ORDER BY r.id DESC
		LIMIT ?`
	var list []models.Report
	if err := s.Read(ctx).Raw(query, append(where.Args, limit)...).Scan(&list).Error; err != nil {
		return nil, fmt.Errorf("list reports of user %d: %w", reporter, err)
	}
	return list, nil
}

// ReportsOf lists the reports of a case, the earliest first: at most limit after an id (0 for the first page).
//
// Authors do not learn who reported them. CodeForbidden: the viewer is the author of the target. CodeNotFound: the case
// does not exist.
func (s *Store) ReportsOf(ctx context.Context, viewer, caseID, after int64, limit int) ([]models.Reported, error) {
	const query = `
		SELECT r.id, ` + accounts.AuthorColumns + `, r.reason, r.detail, r.created_at
		FROM reports r FORCE INDEX (idx_case_id)
		STRAIGHT_JOIN users u FORCE INDEX (PRIMARY) ON u.id=r.reporter_id
		WHERE r.case_id=? AND r.id>?
		ORDER BY r.id
		LIMIT ?`
	var k lockedCase
	read := s.Read(ctx).Raw(caseTarget, caseID).Scan(&k)
	if read.Error != nil {
		return nil, fmt.Errorf("read report case %d: %w", caseID, read.Error)
	}
	if read.RowsAffected == 0 {
		return nil, errNoCase()
	}
	if err := k.notAbout(s.Read(ctx), viewer); err != nil {
		return nil, fmt.Errorf("list reports of case %d: %w", caseID, err)
	}
	var list []models.Reported
	if err := s.Read(ctx).Raw(query, caseID, after, limit).Scan(&list).Error; err != nil {
		return nil, fmt.Errorf("list reports of case %d: %w", caseID, err)
	}
	return list, nil
}
