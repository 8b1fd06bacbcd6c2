package moderation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/people"
)

// caseSize is the size of the texts of a case, in bytes.
func caseSize(k *models.ReportCase) int { return len(k.Content) + len(k.Excerpt) }

const maxExcerpt = 200 // characters

// caseQuery returns the query of the cases k whose ids the query keys selects.
func caseQuery(keys, order string) string {
	return fmt.Sprintf(`
		SELECT k.id, k.target_type, k.target_id, `+accounts.AuthorColumns+`, p.id AS post_id, p.title,
			LEFT(COALESCE(c.content,p.content),%d) AS excerpt, COALESCE(c.content,p.content) AS content,
			COALESCE(c.status,p.status) AS target_status, COALESCE(c.version,p.version) AS version,
			k.reporters_count, k.first_at, k.last_at, k.claimed_until, k.resolved_at, k.outcome, k.note,
			m.id AS claimant_id, m.username AS claimant_username,
			m.display_name AS claimant_display_name, m.avatar_url AS claimant_avatar_url,
			d.id AS resolver_id, d.username AS resolver_username,
			d.display_name AS resolver_display_name, d.avatar_url AS resolver_avatar_url
		FROM (%s) o
		STRAIGHT_JOIN report_cases k ON k.id=o.id
		LEFT JOIN comments c ON k.target_type='comment' AND c.id=k.target_id
		STRAIGHT_JOIN posts p ON p.id=IF(k.target_type='comment',c.post_id,k.target_id)
		STRAIGHT_JOIN users u FORCE INDEX (PRIMARY) ON u.id=COALESCE(c.user_id,p.user_id)
		LEFT JOIN users m ON m.id=k.claimed_by
		LEFT JOIN users d ON d.id=k.resolved_by
		ORDER BY k.id %s`, maxExcerpt, keys, order)
}

// ReportCases lists cases after an id (0 for the first page), in four queries: at most limit, or fewer if their content
// exceeds PageBytes. Open and claimed cases are listed the
// earliest first, resolved ones the latest first.
func (s *Store) ReportCases(
	ctx context.Context, status models.CaseStatus, after int64, limit int,
) ([]models.ReportCase, error) {
	now := s.Now().UTC()
	index, order, later := "idx_open", "ASC", ">"
	var where db.Conditions
	switch status {
	case models.CasesClaimed: // few, and not for long
		index = "idx_claimed"
		where.Add("x.is_open=1 AND x.claimed_until>?", now)
	case models.CasesResolved:
		order, later = "DESC", "<"
		where.Add("x.is_open IS NULL")
	default:
		where.Add("x.is_open=1 AND (x.claimed_until IS NULL OR x.claimed_until<=?)", now)
	}
	where.AddIf(after != 0, "x.id"+later+"?", after)
	keys := `
			SELECT x.id
			FROM report_cases x FORCE INDEX (` + index + `)
			` + where.Clause() + `
			ORDER BY x.id ` + order + `
			LIMIT ?`
	read := s.Read(ctx).Raw(caseQuery(keys, order), append(where.Args, limit)...)
	list, _, err := db.ScanPage(read, db.PageBytes, caseSize)
	if err != nil {
		return nil, fmt.Errorf("list reports: %w", err)
	}
	return list, s.readReports(ctx, list)
}

// readReports counts the reports of cases by reason, and reads the reported versions.
func (s *Store) readReports(ctx context.Context, list []models.ReportCase) error {
	if len(list) == 0 {
		return nil
	}
	ids, at := make([]int64, len(list)), map[int64]int{}
	for i := range list {
		ids[i], at[list[i].ID], list[i].Reasons = list[i].ID, i, map[string]int64{}
	}
	count := `
		SELECT case_id, reason, COUNT(*) AS n
		FROM reports
		WHERE case_id IN (` + db.JoinIDs(ids) + `)
		GROUP BY case_id, reason
		ORDER BY NULL`
	var rows []struct {
		CaseID int64
		Reason string
		N      int64
	}
	if err := s.Read(ctx).Raw(count).Scan(&rows).Error; err != nil {
		return fmt.Errorf("count reasons: %w", err)
	}
	for _, r := range rows {
		list[at[r.CaseID]].Reasons[r.Reason] = r.N
	}
	var versions []struct {
		CaseID   int64
		Reported models.ReportedVersion `gorm:"embedded"`
	}
	query := `
		SELECT v.case_id, v.version, v.reports,
			COALESCE(p.title,pr.title,'') AS title,
			LEFT(COALESCE(p.content,pr.content,c.content,cr.content,''),?) AS excerpt,
			COALESCE(p.id,c.id) IS NULL AND (
				COALESCE(pr.version,cr.version) IS NULL
				OR COALESCE(pr.redacted_at,cr.redacted_at) IS NOT NULL) AS missing
		FROM (
			SELECT case_id, version, COUNT(*) AS reports
			FROM reports
			WHERE case_id IN (` + db.JoinIDs(ids) + `) AND version IS NOT NULL
			GROUP BY case_id, version
			ORDER BY NULL) v
		STRAIGHT_JOIN report_cases k ON k.id=v.case_id
		LEFT JOIN posts p ON k.target_type='post' AND p.id=k.target_id AND p.version=v.version
		LEFT JOIN post_revisions pr ON k.target_type='post' AND pr.post_id=k.target_id AND pr.version=v.version
		LEFT JOIN comments c ON k.target_type='comment' AND c.id=k.target_id AND c.version=v.version
		LEFT JOIN comment_revisions cr ON k.target_type='comment'
			AND cr.comment_id=k.target_id AND cr.version=v.version`
	if err := s.Read(ctx).Raw(query, maxExcerpt).Scan(&versions).Error; err != nil {
		return fmt.Errorf("read reported versions: %w", err)
	}
	for _, v := range versions {
		k := &list[at[v.CaseID]]
		k.Reported = append(k.Reported, v.Reported)
	}
	for _, k := range list {
		slices.SortFunc(k.Reported, func(a, b models.ReportedVersion) int { return cmp.Compare(a.Version, b.Version) })
	}
	return s.readFirstReports(ctx, list, at)
}

// readFirstReports reads the first reports of each case. at is the index of each case in list, by its id.
func (s *Store) readFirstReports(ctx context.Context, list []models.ReportCase, at map[int64]int) error {
	keys := make([]string, len(list))
	for i, k := range list {
		keys[i] = fmt.Sprintf(`(
				SELECT id
				FROM reports FORCE INDEX (idx_case_id)
				WHERE case_id=%d
				ORDER BY id
				LIMIT %d)`, k.ID, models.CaseReports)
	}
	query := `
		SELECT r.case_id, r.id, ` + accounts.AuthorColumns + `, r.reason, r.detail, r.created_at
		FROM (` + strings.Join(keys, `
			UNION ALL
			`) + `) o
		STRAIGHT_JOIN reports r FORCE INDEX (PRIMARY) ON r.id=o.id
		STRAIGHT_JOIN users u FORCE INDEX (PRIMARY) ON u.id=r.reporter_id
		ORDER BY r.id`
	var rows []struct {
		CaseID   int64
		Reported models.Reported `gorm:"embedded"`
	}
	if err := s.Read(ctx).Raw(query).Scan(&rows).Error; err != nil {
		return fmt.Errorf("read first reports of %d cases: %w", len(list), err)
	}
	for _, r := range rows {
		k := &list[at[r.CaseID]]
		k.Reports = append(k.Reports, r.Reported)
	}
	return nil
}

// OpenCases returns the number of cases that are not resolved, claimed or not, up to MaxOpenCases.
func (s *Store) OpenCases(ctx context.Context) (int64, error) {
	const query = `
		SELECT COUNT(*)
		FROM (
			SELECT 1
			FROM report_cases FORCE INDEX (idx_open)
			WHERE is_open=1
			LIMIT ?
		) n`
	var n int64
	if err := s.Read(ctx).Raw(query, models.MaxOpenCases).Scan(&n).Error; err != nil {
		return 0, fmt.Errorf("count cases: %w", err)
	}
	return n, nil
}

func errNoCase() *models.Error { return models.Errorf(models.CodeNotFound, "There is no such report.") }

// ReportCaseByID reads a case. CodeNotFound: it does not exist.
func (s *Store) ReportCaseByID(ctx context.Context, id int64) (*models.ReportCase, error) {
	var list []models.ReportCase
	if err := s.Read(ctx).Raw(caseQuery("SELECT ? AS id", "ASC"), id).Scan(&list).Error; err != nil {
		return nil, fmt.Errorf("read report case %d: %w", id, err)
	}
	if len(list) == 0 {
		return nil, errNoCase()
	}
	return &list[0], s.readReports(ctx, list)
}

// openCase returns the open case about a target; if there is none, it opens one. It locks the target's post first: two
// concurrent INSERTs into the gap of a unique key would wait for each other.
func openCase(tx *db.Tx, target models.Target, now time.Time) (id int64, err error) {
	const find = `
		SELECT COALESCE(MAX(id),0)
		FROM report_cases
		WHERE is_open=1 AND target_type=? AND target_id=?`
	const insert = `
		INSERT INTO report_cases (target_type, target_id, first_at, last_at)
		VALUES (?,?,?,?)`
	if _, err := content.LockTargetPost(tx, target); err != nil {
		return 0, err
	}
	err = tx.Raw(find, target.Kind, target.ID).Scan(&id).Error
	if err != nil || id != 0 {
		return id, err
	}
	if id, err = tx.Insert(insert, target.Kind, target.ID, now, now); err != nil {
		return 0, err
	}
	tx.Announce(models.ReportOpened, id)
	return id, nil
}

// caseTarget reads the target of a case, which never changes.
const caseTarget = `
		SELECT target_type, target_id
		FROM report_cases
		WHERE id=?`

// lockedCase is a case whose row is held.
type lockedCase struct {
	TargetType   models.TargetKind
	TargetID     int64
	IsOpen       *bool
	ClaimedBy    int64
	ClaimedUntil *time.Time
}

// notAbout returns CodeForbidden if the user is the author of the target.
func (k *lockedCase) notAbout(read *gorm.DB, userID int64) error {
	query := `
		SELECT COALESCE(MAX(user_id),0)
		FROM ` + db.TargetTables[k.TargetType].Targets + `
		WHERE id=?`
	var author int64
	err := read.Raw(query, k.TargetID).Scan(&author).Error
	if err == nil && author == userID {
		err = content.ErrOwnCase()
	}
	return err
}

// lockCase locks an open case for a moderator. CodeForbidden: the actor is not a moderator, or is the author of the
// target. CodeConflict: the case is resolved, or claimed by another moderator.
func lockCase(tx *db.Tx, actor, id int64) (*lockedCase, error) {
	const lock = `
		SELECT target_type, target_id, is_open, COALESCE(claimed_by,0) AS claimed_by, claimed_until
		FROM report_cases FORCE INDEX (PRIMARY)
		WHERE id=?
		FOR UPDATE`
	if err := accounts.LockActor(tx, actor, models.RoleModerator); err != nil {
		return nil, err
	}
	var about lockedCase
	if err := tx.Raw(caseTarget, id).Scan(&about).Error; err != nil {
		return nil, err
	}
	if about.TargetID == 0 {
		return nil, errNoCase()
	}
	target := models.Target{Kind: about.TargetType, ID: about.TargetID}
	if _, err := content.LockTargetPost(tx, target); err != nil {
		return nil, err
	}
	var k lockedCase
	read := tx.Raw(lock, id).Scan(&k)
	switch {
	case read.Error != nil:
		return nil, read.Error
	case read.RowsAffected == 0:
		return nil, errNoCase()
	}
	if err := k.notAbout(tx.DB, actor); err != nil {
		return nil, err
	}
	switch {
	case k.IsOpen == nil:
		return nil, models.Errorf(models.CodeConflict, "The report is resolved.")
	case k.claimed(tx.Now) && k.ClaimedBy != actor:
		until := k.ClaimedUntil.UTC().Format(time.RFC3339)
		return nil, models.Errorf(models.CodeConflict, "Another moderator has claimed the report until %s.", until)
	}
	return &k, nil
}

func (k *lockedCase) claimed(now time.Time) bool {
	return k.ClaimedUntil != nil && k.ClaimedUntil.After(now)
}

// ClaimReport reserves a case for a moderator for ClaimLife from now. CodeNotFound: the case does not exist.
// CodeConflict: it is resolved, or claimed by another moderator. CodeForbidden: the actor is not a moderator, or is the
// author of the target.
func (s *Store) ClaimReport(ctx context.Context, actor, id int64) error {
	const update = `
		UPDATE report_cases
		SET claimed_by=?, claimed_until=?
		WHERE id=?`
	err := s.Transact(ctx, func(tx *db.Tx) error {
		k, err := lockCase(tx, actor, id)
		if err != nil {
			return err
		}
		now := tx.Now.Truncate(time.Millisecond)
		until := now.Add(models.ClaimLife)
		if err := tx.Exec(update, actor, until, id).Error; err != nil {
			return err
		}
		before := map[string]any{"claimed_until": nil}
		if k.claimed(now) {
			before["claimed_until"] = k.ClaimedUntil.UTC()
		}
		return accounts.LogModeration(tx, accounts.ModerationAct{
			ActorID: actor, Action: "report.claim", TargetType: "report", TargetID: id,
			Before: before, After: map[string]any{"claimed_until": until},
		})
	})
	if err != nil {
		return fmt.Errorf("claim report %d: %w", id, err)
	}
	return nil
}

// ResolveReport ends a case and notifies all reporters in one transaction, which also deletes the target if that is the
// outcome. CodeInvalid: a field breaks a rule. The other errors are those of ClaimReport.
func (s *Store) ResolveReport(ctx context.Context, actor, id int64, r models.Verdict) error {
	if err := r.Validate(); err != nil {
		return err
	}
	const update = `
		UPDATE report_cases
		SET is_open=NULL, claimed_until=NULL, resolved_by=?, resolved_at=?, outcome=?, note=?
		WHERE id=?`
	err := s.Transact(ctx, func(tx *db.Tx) error {
		k, err := lockCase(tx, actor, id)
		if err != nil {
			return err
		}
		target := models.Target{Kind: k.TargetType, ID: k.TargetID}
		if r.Outcome == models.OutcomeRemoved {
			var before, after map[string]any
			if before, after, err = remove(tx, actor, target, r.Note); err != nil {
				return err
			}
			if after != nil {
				if err := accounts.LogModeration(tx, act(actor, "delete", target, r.Note, before, after)); err != nil {
					return err
				}
			}
		}
		now := models.WholeSeconds(tx.Now)
		if err := tx.Exec(update, actor, now, r.Outcome, r.Note, id).Error; err != nil {
			return err
		}
		tx.Announce(models.ReportDecided, id)
		if err := people.NotifyReporters(tx, id, now); err != nil {
			return err
		}
		return accounts.LogModeration(tx, accounts.ModerationAct{
			ActorID: actor, Action: "report.resolve", TargetType: "report", TargetID: id, Reason: r.Note,
			Before: map[string]any{"outcome": nil},
			After:  map[string]any{"outcome": r.Outcome, "target_type": target.Kind, "target_id": target.ID},
		})
	})
	if err != nil {
		return fmt.Errorf("resolve report %d: %w", id, err)
	}
	return nil
}
