package models

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// WebhookEvent is a type of events that endpoints receive.
type WebhookEvent string

// The types. WebhookPing is sent on request alone, and nobody subscribes to it.
const (
	PostCreated     WebhookEvent = "post.created"
	PostEdited      WebhookEvent = "post.edited"
	PostDeleted     WebhookEvent = "post.deleted"
	PostRestored    WebhookEvent = "post.restored"
	CommentCreated  WebhookEvent = "comment.created"
	CommentEdited   WebhookEvent = "comment.edited"
	CommentDeleted  WebhookEvent = "comment.deleted"
	CommentRestored WebhookEvent = "comment.restored"
	LikeMilestone   WebhookEvent = "like.milestone"
	ReportOpened    WebhookEvent = "report.opened"
	ReportDecided   WebhookEvent = "report.decided"
	UserBanned      WebhookEvent = "user.banned"
	UserUnbanned    WebhookEvent = "user.unbanned"
	ClaimConfirmed  WebhookEvent = "claim.confirmed"
	ClaimRejected   WebhookEvent = "claim.rejected"
	WebhookPing     WebhookEvent = "ping"
)

// WebhookEvents are the types that an endpoint can subscribe to.
var WebhookEvents = []WebhookEvent{
	PostCreated, PostEdited, PostDeleted, PostRestored, CommentCreated, CommentEdited, CommentDeleted, CommentRestored,
	LikeMilestone, ReportOpened, ReportDecided, UserBanned, UserUnbanned, ClaimConfirmed, ClaimRejected,
}

// Limits on endpoints.
const (
	MaxWebhooks   = 50
	maxWebhookURL = 2000 // characters
	SecretBytes   = 32
)

// SecretOverlap is the time after a rotation for which the former secret signs, too.
const SecretOverlap = 24 * time.Hour

// Reasons for which a worker disables an endpoint.
const (
	WebhookFailing = "failing" // no attempt succeeded for WebhookPatience
	WebhookGone    = "gone"    // it answered 410
)

// Webhook is an endpoint that receives events.
type Webhook struct {
	ID             int64
	URL            string
	Events         WebhookTypes
	Secret         []byte // the key that signs deliveries; only CreateWebhook, WebhookByID and LeaseWebhook read it
	PreviousSecret []byte // the former key, which signs, too, while PreviousUntil is set; read with Secret
	PreviousUntil  *time.Time
	Active         bool
	DisabledReason string     // why a worker made it inactive; "" otherwise
	FailingSince   *time.Time // of the first failure after the last success
	PendingSince   *time.Time // of the oldest event that is neither delivered nor failed
	Version        int64      // grows with each change by an admin
	CreatedAt      time.Time
	UpdatedAt      time.Time
}

// Key returns the place of the endpoint in the list.
func (w *Webhook) Key() ListKey { return ListKey{ID: w.ID} }

// WebhookTypes are types of events, which a column keeps separated by spaces.
type WebhookTypes []WebhookEvent

// Scan reads types separated by spaces.
func (t *WebhookTypes) Scan(value any) error {
	var names Tags
	if err := names.Scan(value); err != nil {
		return err
	}
	*t = nil
	for _, name := range names {
		*t = append(*t, WebhookEvent(name))
	}
	return nil
}

// GormDataType makes GORM read the list as a column, not as an association.
func (WebhookTypes) GormDataType() string { return "text" }

func (t WebhookTypes) String() string {
	names := make([]string, len(t))
	for i, event := range t {
		names[i] = string(event)
	}
	return strings.Join(names, " ")
}

// WebhookSettings are the part of an endpoint that admins set.
type WebhookSettings struct {
	URL    string
	Events WebhookTypes
	Active bool
}

// Settings returns the settings of the endpoint.
func (w *Webhook) Settings() WebhookSettings { return WebhookSettings{w.URL, w.Events, w.Active} }

// Validate names every field that breaks a rule (CodeInvalid). Unless private is set, it requires HTTPS, and refuses
// private addresses. Names are resolved and checked when they are dialed.
func (w WebhookSettings) Validate(private bool) error {
	var f FieldErrors
	outside := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("\"<>\\^`{|}", r) }
	u, err := url.Parse(w.URL)
	readable := err == nil && len(w.URL) <= maxWebhookURL && !strings.ContainsFunc(w.URL, outside) &&
		u.Hostname() != "" && u.User == nil && u.Fragment == "" && !strings.Contains(u.Host, "%") && validPort(u)
	secure := readable && (u.Scheme == "https" || private && u.Scheme == "http")
	f.Check(secure, "url", BadFormat(FormatURL, "").Saying("must be an https URL of at most %d characters, "+
		"with a host and without a user or a fragment", maxWebhookURL))
	if secure && !private {
		address, err := netip.ParseAddr(u.Hostname())
		f.Check(err != nil || PublicAddress(address), "url", Broken(FieldNotPermitted, "must not be a private address"))
	}
	unknown := slices.ContainsFunc(w.Events, func(e WebhookEvent) bool { return !slices.Contains(WebhookEvents, e) })
	f.Check(len(w.Events) > 0 && len(w.Events) <= len(WebhookEvents) && !unknown, "events",
		NotOneOf(WebhookEvents...).Saying("must be one or several of %s",
			strings.ReplaceAll(WebhookTypes(WebhookEvents).String(), " ", ", ")))
	return f.Err()
}

// validPort reports whether the port of a URL exists, if it names one.
func validPort(u *url.URL) bool {
	if u.Port() == "" {
		return !strings.HasSuffix(u.Host, ":")
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	return err == nil && port > 0
}

// publicIPv6 is the part of IPv6 that IANA has allocated to the public Internet. Everything else is reserved, or stands
// for other addresses, such as IPv4 ones that are mapped or translated.
var publicIPv6 = netip.MustParsePrefix("2000::/3")

// notPublic are networks that are neither private nor the public Internet: those of IANA's registries of
// special-purpose addresses, and addresses at which clouds answer their own machines.
var notPublic = func() (networks []netip.Prefix) {
	for _, s := range []string{
		"0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15",
		"198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4",
		"168.63.129.16/32", // Azure's DHCP, DNS and agent
		"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
	} {
		networks = append(networks, netip.MustParsePrefix(s))
	}
	return networks
}()

// PublicAddress reports whether an address is on the public Internet: neither private, loopback, link-local (such as
// the metadata services of clouds), multicast nor reserved, nor one that stands for an IPv4 address.
func PublicAddress(a netip.Addr) bool {
	a = a.Unmap().WithZone("")
	if !a.IsGlobalUnicast() || a.IsPrivate() || a.Is6() && (!publicIPv6.Contains(a) || isatap(a)) {
		return false
	}
	return !slices.ContainsFunc(notPublic, func(n netip.Prefix) bool { return n.Contains(a) })
}

// isatap reports whether a stands for an IPv4 address at the end of an ISATAP tunnel (RFC 5214, 6.1).
func isatap(a netip.Addr) bool {
	b := a.As16()
	return b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}

// State returns the properties that the moderation log keeps. Moderators read it, so it has the host alone: the rest of
// a URL may be a secret.
func (w WebhookSettings) State() map[string]any {
	host := ""
	if u, err := url.Parse(w.URL); err == nil {
		host = u.Host
	}
	return map[string]any{"host": host, "events": w.Events, "active": w.Active}
}

// DeliveryState is the state of an event for an endpoint.
type DeliveryState int8

// The states.
const (
	DeliveryPending   DeliveryState = 1 // it waits for its first or next attempt
	DeliveryDelivered DeliveryState = 2 // the endpoint answered an attempt with 2xx
	DeliveryFailed    DeliveryState = 3 // the last attempt that was due failed
)

// DeliveryStates are the names of the states in the API.
var DeliveryStates = []string{"pending", "delivered", "failed"}

func (s DeliveryState) String() string { return DeliveryStates[s-1] }

// WebhookLife is the time for which events and their deliveries are kept.
const WebhookLife = 30 * 24 * time.Hour

// Bounds on the log of a delivery.
const (
	maxLoggedAttempts = 10  // the latest attempts
	MaxAnswer         = 256 // the first bytes of an answer
)

// Delivery is an event for one endpoint, with the attempts to deliver it.
type Delivery struct {
	ID         int64
	Type       WebhookEvent
	ObjectType string
	ObjectID   int64
	State      DeliveryState
	Attempts   int
	AttemptLog AttemptLog // the latest, earliest first
	DueAt      time.Time  // of the next attempt, while it is pending
	CreatedAt  time.Time
	EndedAt    *time.Time
	Data       string // JSON; only PendingDelivery reads it
}

// WebhookEventID returns the id under which an endpoint knows an event. It is the same in every attempt and replay.
func WebhookEventID(delivery int64) string { return "evt_" + strconv.FormatInt(delivery, 10) }

// Key returns the place of the delivery in the list.
func (d *Delivery) Key() ListKey { return ListKey{ID: d.ID} }

// Attempt is one request to an endpoint.
type Attempt struct {
	At        time.Time `json:"at"`
	Status    int       `json:"status"` // of the answer; 0: there was none
	LatencyMS int64     `json:"latency_ms"`
	Answer    string    `json:"answer"` // the first bytes of the answer's body
	Error     string    `json:"error"`  // why there was no answer; "" if there was one
}

// Delivered reports whether the endpoint has accepted the event.
func (a *Attempt) Delivered() bool { return a.Status >= 200 && a.Status < 300 }

// AttemptLog are attempts, which a column keeps as JSON.
type AttemptLog []Attempt

// Scan reads JSON.
func (l *AttemptLog) Scan(value any) error {
	switch v := value.(type) {
	case []byte:
		return json.Unmarshal(v, (*[]Attempt)(l))
	case string:
		return json.Unmarshal([]byte(v), (*[]Attempt)(l))
	}
	return fmt.Errorf("attempts have the type %T", value)
}

// GormDataType makes GORM read the list as a column, not as an association.
func (AttemptLog) GormDataType() string { return "text" }

// With returns the log with another attempt, as JSON.
func (l AttemptLog) With(a Attempt) (string, error) {
	l = append(slices.Clip(l), a)
	text, err := json.Marshal(l[max(0, len(l)-maxLoggedAttempts):])
	if err != nil {
		return "", fmt.Errorf("encode attempts: %w", err)
	}
	return string(text), nil
}

// PendingEvent is an event that waits for an attempt, without its data.
type PendingEvent struct {
	ID         int64
	ObjectType string
	ObjectID   int64
	DueAt      time.Time
}

// The events of webhooks are a transactional outbox. What changes an object calls announce in its transaction.
// transact ends the transaction with a row for each endpoint that subscribes to the event, so the rows and the change
// are committed together or not at all. Whether there is such an endpoint is read in the same transaction: an endpoint
// receives the events of every transaction that begins after its own COMMIT. Without one, no row is written.
//
// The rows of an object get ascending ids in the order of its changes, because every transaction that announces
// one holds the lock of its row until COMMIT. The rows of different objects may be committed in another order.

// WebhookRetry is the time for which the delivery of an event is attempted, and WebhookPatience the time without a
// success after which an endpoint is disabled.
const (
	WebhookRetry    = 3 * 24 * time.Hour
	WebhookPatience = 5 * 24 * time.Hour
)
