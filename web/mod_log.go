package web

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

type ringMember struct {
	User         author `json:"user"`
	Coincidences int64  `json:"coincidences"`
	Likes        int64  `json:"likes"`
}

type ringOccasion struct {
	At    time.Time `json:"at"`
	Likes []struct {
		UserID  int64     `json:"user_id"`
		Type    string    `json:"type"`
		ID      int64     `json:"id"`
		LikedAt time.Time `json:"liked_at"`
	} `json:"likes"`
}

type likeRing struct {
	ID           int64          `json:"id"`
	Author       author         `json:"author"`
	Members      []ringMember   `json:"members"`
	Coincidences int64          `json:"coincidences"`
	Occasions    int64          `json:"occasions"`
	FirstAt      time.Time      `json:"first_at"`
	LastAt       time.Time      `json:"last_at"`
	Evidence     []ringOccasion `json:"evidence"`
	FoundAt      time.Time      `json:"found_at"`
	Status       string         `json:"status"`
	Reason       string         `json:"reason"`
	ResolvedAt   *time.Time     `json:"resolved_at"`
	ResolvedBy   *int64         `json:"resolved_by"`
}

// Name returns the name of a member.
func (r likeRing) Name(id int64) string {
	for _, m := range r.Members {
		if m.User.ID == id {
			return m.User.Name()
		}
	}
	return fmt.Sprintf("#%d", id)
}

type ringsPage struct {
	deskPage

	Status string
	Rings  []likeRing
	Next   string
}

// modRings lists the rings of likes with the evidence.
func (v *visit) modRings() error {
	p := &ringsPage{Status: v.r.URL.Query().Get("status")}
	if p.Status != "dismissed" && p.Status != "voided" {
		p.Status = "open"
	}
	p.Title = "Like rings"
	var page list[likeRing]
	path := query("/v1/admin/like-rings", "status", p.Status, "limit", "10", "cursor", v.cursor())
	if err := v.loadDesk(v.fetch(path, &page)); err != nil {
		return err
	}
	p.Rings, p.Next = page.Items, v.next(page.NextCursor)
	return v.showDesk("mod_rings", "rings", p)
}

func (v *visit) dismissRing(id int64, _ url.Values) (string, error) {
	return "", v.sendReason(at("admin", "like-rings", id, "dismiss"), nil)
}

func (v *visit) voidRing(id int64, note url.Values) (string, error) {
	var out list[likeVoid]
	err := v.sendReason(at("admin", "like-rings", id, "void"), &out)
	note.Set("n", strconv.Itoa(len(out.Items)))
	return "", err
}

type redaction struct {
	Redaction struct {
		ID          int64      `json:"id"`
		TargetType  string     `json:"target_type"`
		TargetID    int64      `json:"target_id"`
		Version     int64      `json:"version"`
		Reason      string     `json:"reason"`
		Status      string     `json:"status"`
		RequestedAt time.Time  `json:"requested_at"`
		Outcome     *string    `json:"outcome"`
		ResolvedAt  *time.Time `json:"resolved_at"`
		Note        *string    `json:"note"`
	} `json:"redaction"`
	RequestedBy author `json:"requested_by"`
	ReportID    *int64 `json:"report_id"`
}

type redactionsPage struct {
	deskPage

	Status   string
	Requests []redaction
	Next     string
}

// modRedactions lists the requests of authors to overwrite a version.
func (v *visit) modRedactions() error {
	p := &redactionsPage{Status: v.r.URL.Query().Get("status")}
	if p.Status != "resolved" {
		p.Status = "open"
	}
	p.Title = "Redactions"
	var page list[redaction]
	path := query("/v1/admin/redactions", "status", p.Status, "limit", "50", "cursor", v.cursor())
	if err := v.loadDesk(v.fetch(path, &page)); err != nil {
		return err
	}
	p.Requests, p.Next = page.Items, v.next(page.NextCursor)
	return v.showDesk("mod_redactions", "redactions", p)
}

func (v *visit) grantRedaction(id int64, _ url.Values) (string, error) {
	return "", v.decideRedaction(id, "redacted")
}

func (v *visit) declineRedaction(id int64, _ url.Values) (string, error) {
	return "", v.decideRedaction(id, "declined")
}

func (v *visit) decideRedaction(id int64, outcome string) error {
	return v.send(http.MethodPost, at("admin", "redactions", id, "resolve"),
		map[string]any{"outcome": outcome, "reason": v.reason()}, nil, "Idempotency-Key", v.r.PostForm.Get("key"))
}

type logEntry struct {
	Actor      *author        `json:"actor"`
	Action     string         `json:"action"`
	TargetType string         `json:"target_type"`
	TargetID   int64          `json:"target_id"`
	Reason     string         `json:"reason"`
	Before     map[string]any `json:"before"`
	After      map[string]any `json:"after"`
	CreatedAt  time.Time      `json:"created_at"`
}

// Link returns the page of the target; "" if it has none.
func (e logEntry) Link() string {
	if !deskKinds[e.TargetType] {
		return ""
	}
	return fmt.Sprintf("/moderate/%ss/%d", e.TargetType, e.TargetID)
}

// change is a field of a target, before and after an act.
type change struct{ Field, Before, After string }

// Changes returns what the act changed, sorted by field.
func (e logEntry) Changes() []change {
	fields := map[string]bool{}
	for f := range e.Before {
		fields[f] = true
	}
	for f := range e.After {
		fields[f] = true
	}
	var out []change
	for _, f := range slices.Sorted(maps.Keys(fields)) {
		out = append(out, change{f, shown(e.Before[f]), shown(e.After[f])})
	}
	return out
}

// shown returns a value of the log for people.
func shown(value any) string {
	if value == nil {
		return "–"
	}
	if n, ok := value.(float64); ok {
		return strconv.FormatFloat(n, 'f', -1, 64)
	}
	return fmt.Sprint(value)
}

type logPage struct {
	deskPage

	Entries []logEntry
	Query   filters
	Wrong   *problem
	CSV     string // the path of the same entries as a file
	Next    string
}

// modLog shows the moderation log.
func (v *visit) modLog() error {
	q := v.r.URL.Query()
	p := &logPage{Query: filters{q, v.r.URL.Path}}
	p.Title = "Log"
	target := whole(q.Get("target_id"))
	if q.Get("target_type") == "" {
		target = "" // a number alone names nothing
	}
	var page list[logEntry]
	var err error
	p.Wrong, err = v.find(q.Get("actor"), func(actor string) string {
		conditions := []string{
			"actor", actor, "action", word(q.Get("action")), "target_type", word(q.Get("target_type")),
			"target_id", target, "since", dayTime(q.Get("since")), "until", dayTime(q.Get("until")),
		}
		p.CSV = query("/v1/admin/log.csv", conditions...)
		return query("/v1/admin/log", append(conditions, "limit", "50", "cursor", v.cursor())...)
	}, &page)
	if err != nil {
		return err
	}
	p.Entries, p.Next = page.Items, v.next(page.NextCursor)
	return v.showDesk("mod_log", "log", p)
}

// word returns a name of the log as it was typed, in the letters that the API takes.
func word(typed string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r == '.' || r == '_' {
			return r
		}
		return -1
	}, strings.ToLower(typed))
}

type securityEvent struct {
	Kind      string    `json:"kind"`
	AccountID *int64    `json:"account_id"`
	ActorID   *int64    `json:"actor_id"`
	LoginHash *string   `json:"login_hash"`
	Address   *string   `json:"address"`
	UserAgent string    `json:"user_agent"`
	Detail    string    `json:"detail"`
	Count     int64     `json:"count"`
	LastAt    time.Time `json:"last_at"`
}

type securityPage struct {
	deskPage

	Events []securityEvent
	Query  filters
	Wrong  *problem
	Next   string
}

// modSecurity shows the security log to admins.
func (v *visit) modSecurity() error {
	q := v.r.URL.Query()
	p := &securityPage{Query: filters{q, v.r.URL.Path}}
	p.Title = "Security"
	var page list[securityEvent]
	var err error
	p.Wrong, err = v.find(q.Get("account"), func(account string) string {
		return query("/v1/admin/security-log", "account", account, "actor", whole(q.Get("actor")),
			"address", strings.TrimSpace(q.Get("address")), "kind", word(q.Get("kind")),
			"since", dayTime(q.Get("since")), "until", dayTime(q.Get("until")), "limit", "50", "cursor", v.cursor())
	}, &page)
	if v.me != nil && !v.me.Operates() {
		return errNotFound
	}
	if err != nil {
		return err
	}
	p.Events, p.Next = page.Items, v.next(page.NextCursor)
	return v.showDesk("mod_security", "security", p)
}
