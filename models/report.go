package models

import (
	"slices"
	"time"
)

// The outcomes of a case.
const (
	OutcomeDismissed = "dismissed" // nothing was wrong
	OutcomeRemoved   = "removed"   // the target was deleted
)

// ClaimLife is the time for which a claimed case is reserved for one moderator.
const ClaimLife = 30 * time.Minute

// ReportCase is a reported target with all reports of it until the case is resolved.
type ReportCase struct {
	ID             int64
	TargetType     TargetKind
	TargetID       int64
	Author         Author `gorm:"embedded;embeddedPrefix:author_"` // of the target
	PostID         int64  // the target's, or the target
	Title          string // of the post
	Excerpt        string // the beginning of the present content; Reported has the reported content
	Content        string // the present content
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
	Version        int64             // the present one
	Reasons        map[string]int64  `gorm:"-"` // number of reports by reason
	Reported       []ReportedVersion `gorm:"-"` // at most MaxReportedVersions, ascending
	Reports        []Reported        `gorm:"-"` // the first ones, at most CaseReports, earliest first
}

// CaseReports is how many reports are read with a case. ReportsOf reads all.
const CaseReports = 5

// ReportedVersion is a version of a target that was reported.
type ReportedVersion struct {
	Version int64
	Reports int64  // number of reports of this version
	Title   string // of a post
	Excerpt string // the beginning of its content
	Missing bool   // it was redacted, or the target was purged, and has no text
}

// Key returns the place of the case in a list.
func (k *ReportCase) Key() ListKey { return ListKey{ID: k.ID} }

// Target returns the reported post or comment.
func (k *ReportCase) Target() Target { return Target{Kind: k.TargetType, ID: k.TargetID} }

// CaseStatus is the state of a case.
type CaseStatus string

// The states of cases.
const (
	CasesOpen     CaseStatus = "open"     // neither claimed nor resolved
	CasesClaimed  CaseStatus = "claimed"  // reserved for a moderator
	CasesResolved CaseStatus = "resolved" // ended with an outcome
)

// Status returns the state of the case at the time.
func (k *ReportCase) Status(now time.Time) CaseStatus {
	switch {
	case k.ResolvedAt != nil:
		return CasesResolved
	case k.ClaimedUntil != nil && k.ClaimedUntil.After(now):
		return CasesClaimed
	}
	return CasesOpen
}

// MaxOpenCases is the number up to which unresolved cases are counted. It stands for any higher number, too.
const MaxOpenCases = 1000

// Verdict ends a case.
type Verdict struct {
	Outcome string // OutcomeDismissed or OutcomeRemoved, which deletes the target
	Note    string // for the log, and as the reason of the deletion
}

// Validate names every field that breaks a rule (CodeInvalid).
func (r Verdict) Validate() error {
	var f FieldErrors
	f.Check(r.Outcome == OutcomeDismissed || r.Outcome == OutcomeRemoved, "action",
		NotOneOf(OutcomeDismissed, OutcomeRemoved))
	f.CheckReason("note", r.Note)
	return f.Err()
}

// Reasons are the reasons for which posts and comments can be reported.
var Reasons = []string{"spam", "abuse", "off_topic", "illegal", "other"}

var reasonNames = map[string]string{
	"spam": "Spam", "abuse": "Abuse", "off_topic": "Off topic", "illegal": "Illegal", "other": "Something else",
}

// ReasonName returns the name of one of Reasons, in English.
func ReasonName(reason string) string { return reasonNames[reason] }

// MaxDetail is the maximum length of a report's detail in characters.
const MaxDetail = 1000

// NewReport is the input of a report.
type NewReport struct {
	Target Target
	Reason string
	Detail string // plain text; "" for none
}

// Validate names every field that breaks a rule (CodeInvalid).
func (r NewReport) Validate() error {
	var f FieldErrors
	f.Check(r.Target.Kind == KindPost || r.Target.Kind == KindComment, "target_type", NotOneOf(KindPost, KindComment))
	f.Check(r.Target.ID > 0, "target_id",
		BadFormat(FormatID, "must be the id of a post or comment"))
	f.Check(slices.Contains(Reasons, r.Reason), "reason", NotOneOf(Reasons...))
	f.checkLength("detail", r.Detail, MaxDetail)
	f.checkLines("detail", r.Detail)
	return f.Err()
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

// Key returns the place of the report in a list.
func (r *Report) Key() ListKey { return ListKey{ID: r.ID} }

// MaxReportedVersions is the number of versions of its target that a case keeps as evidence: the first reported ones.
const MaxReportedVersions = 10

// Reported is a report as moderators see it.
type Reported struct {
	ID        int64
	Reporter  Author `gorm:"embedded;embeddedPrefix:author_"`
	Reason    string
	Detail    string
	CreatedAt time.Time
}

// Key returns the place of the report in a list.
func (r *Reported) Key() ListKey { return ListKey{ID: r.ID} }
