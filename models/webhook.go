package models

import (
	"context"
	"crypto/rand"
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
	secretBytes   = 32
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
	var f fieldErrors
	outside := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune("\"<>\\^`{|}", r) }
	u, err := url.Parse(w.URL)
	readable := err == nil && len(w.URL) <= maxWebhookURL && !strings.ContainsFunc(w.URL, outside) &&
		u.Hostname() != "" && u.User == nil && u.Fragment == "" && !strings.Contains(u.Host, "%") && validPort(u)
	secure := readable && (u.Scheme == "https" || private && u.Scheme == "http")
	f.check(secure, "url", BadFormat(FormatURL, "").Saying("must be an https URL of at most %d characters, "+
		"with a host and without a user or a fragment", maxWebhookURL))
	if secure && !private {
		address, err := netip.ParseAddr(u.Hostname())
		f.check(err != nil || PublicAddress(address), "url", Broken(FieldNotPermitted, "must not be a private address"))
	}
	unknown := slices.ContainsFunc(w.Events, func(e WebhookEvent) bool { return !slices.Contains(WebhookEvents, e) })
	f.check(len(w.Events) > 0 && len(w.Events) <= len(WebhookEvents) && !unknown, "events",
		NotOneOf(WebhookEvents...).Saying("must be one or several of %s",
			strings.ReplaceAll(WebhookTypes(WebhookEvents).String(), " ", ", ")))
	return f.err()
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

const webhookColumns = `w.id, w.url, w.events, w.active, w.disabled_reason, w.failing_since, w.version, w.created_at,
			w.updated_at, w.previous_until`

// settle removes a former secret that no longer signs.
func (s *Store) settle(w *Webhook) {
	if w.PreviousUntil != nil && !s.now().Before(*w.PreviousUntil) {
		w.PreviousSecret, w.PreviousUntil = nil, nil
	}
}

// pendingSince is the time of the oldest pending event of the endpoint w. MySQL sorts all of them unless the order
// names all columns of the index.
var pendingSince = `(
				SELECT e.created_at
				FROM webhook_events e FORCE INDEX (idx_webhook_state)
				WHERE e.webhook_id=w.id AND e.state=` + literal(DeliveryPending) + `
				ORDER BY e.webhook_id, e.state, e.id
				LIMIT 1
			) AS pending_since`

// CreateWebhook registers an endpoint. It receives the events of every transaction that begins after the COMMIT.
// CodeInvalid: a field breaks a rule. CodeForbidden: the actor is not an admin. CodeConflict: there are MaxWebhooks.
func (s *Store) CreateWebhook(
	ctx context.Context, actor int64, settings WebhookSettings, private bool,
) (*Webhook, error) {
	if err := settings.Validate(private); err != nil {
		return nil, err
	}
	// The row of settings serializes creations, so that the bound holds.
	const lock = `
		INSERT INTO settings (name, value)
		VALUES ('webhooks', '')
		ON DUPLICATE KEY UPDATE value=''`
	const count = `
		SELECT COUNT(*)
		FROM webhooks`
	const insert = `
		INSERT INTO webhooks (url, events, secret, active, created_by, created_at, updated_at)
		VALUES (?,?,UNHEX(?),?,?,?,?)`
	now := s.now().UTC().Truncate(time.Millisecond)
	w := &Webhook{URL: settings.URL, Events: settings.Events, Active: settings.Active, CreatedAt: now, UpdatedAt: now}
	secret := newSecret()
	w.Secret = secret[:]
	err := s.transact(ctx, func(tx *Tx) error {
		if err := tx.Exec(lock).Error; err != nil {
			return err
		}
		if err := lockActor(tx, actor, RoleAdmin); err != nil {
			return err
		}
		var n int
		if err := tx.Raw(count).Scan(&n).Error; err != nil {
			return err
		}
		if n >= MaxWebhooks {
			return Errorf(CodeConflict, "There are %d webhooks, and more is not possible. Delete one of them first.", n)
		}
		var err error
		w.ID, err = tx.insert(insert, w.URL, w.Events.String(), hexOf(secret), w.Active, actor, now, now)
		if err != nil {
			return err
		}
		return logModeration(tx, webhookAct(actor, "create", w.ID, nil, settings.state()))
	})
	if err != nil {
		return nil, fmt.Errorf("create webhook: %w", err)
	}
	return w, nil
}

func newSecret() (secret [secretBytes]byte) {
	_, _ = rand.Read(secret[:]) // never fails
	return secret
}

// RotateSecret replaces the secret of an endpoint. The former one signs, too, for SecretOverlap. CodeConflict: the
// former secret of the rotation before still signs. CodeNotFound: the endpoint does not exist. CodeForbidden: the actor
// is not an admin.
func (s *Store) RotateSecret(ctx context.Context, actor, id int64) (*Webhook, error) {
	const update = `
		UPDATE webhooks
		SET previous_secret=secret, previous_until=?, secret=UNHEX(?), version=version+1, updated_at=?
		WHERE id=?`
	secret := newSecret()
	err := s.transact(ctx, func(tx *Tx) error {
		if err := lockActor(tx, actor, RoleAdmin); err != nil {
			return err
		}
		w, err := lockWebhook(tx, id)
		if err != nil {
			return err
		}
		if s.settle(w); w.PreviousUntil != nil {
			return Errorf(CodeConflict,
				"The secret was changed in the last 24 hours. End the use of the previous one first.")
		}
		now := tx.Now.Truncate(time.Millisecond)
		until := now.Add(SecretOverlap)
		if err := tx.Exec(update, until, hexOf(secret), now, id).Error; err != nil {
			return err
		}
		after := map[string]any{"previous_until": until}
		return logModeration(tx, webhookAct(actor, "rotate_secret", id, nil, after))
	})
	if err != nil {
		return nil, fmt.Errorf("rotate secret of webhook %d: %w", id, err)
	}
	return s.WebhookByID(ctx, id)
}

// EndSecretOverlap ends the use of the secret before the latest rotation, whether it still signs or not. CodeNotFound:
// the endpoint does not exist. CodeForbidden: the actor is not an admin.
func (s *Store) EndSecretOverlap(ctx context.Context, actor, id int64) error {
	const update = `
		UPDATE webhooks
		SET previous_secret=NULL, previous_until=NULL, version=version+1, updated_at=?
		WHERE id=?`
	err := s.transact(ctx, func(tx *Tx) error {
		if err := lockActor(tx, actor, RoleAdmin); err != nil {
			return err
		}
		w, err := lockWebhook(tx, id)
		if err != nil || w.PreviousUntil == nil {
			return err
		}
		if err := tx.Exec(update, tx.Now, id).Error; err != nil {
			return err
		}
		before := map[string]any{"previous_until": *w.PreviousUntil}
		return logModeration(tx, webhookAct(actor, "end_previous_secret", id, before, nil))
	})
	if err != nil {
		return fmt.Errorf("end the previous secret of webhook %d: %w", id, err)
	}
	return nil
}

// webhookAct returns an entry of the moderation log. actor is 0 for a worker.
func webhookAct(actor int64, verb string, id int64, before, after map[string]any) moderationAct {
	return moderationAct{
		ActorID: actor, Action: "webhook." + verb, TargetType: "webhook", TargetID: id, Before: before, After: after,
	}
}

// state returns the properties that the moderation log keeps. Moderators read it, so it has the host alone: the rest of
// a URL may be a secret.
func (w WebhookSettings) state() map[string]any {
	host := ""
	if u, err := url.Parse(w.URL); err == nil {
		host = u.Host
	}
	return map[string]any{"host": host, "events": w.Events, "active": w.Active}
}

func errNoWebhook() *Error { return Errorf(CodeNotFound, "There is no such webhook.") }

// Webhooks lists endpoints, earliest first: at most limit after an id (0 for the first page).
func (s *Store) Webhooks(ctx context.Context, after int64, limit int) ([]Webhook, error) {
	query := `
		SELECT ` + webhookColumns + `, ` + pendingSince + `
		FROM webhooks w
		WHERE w.id>?
		ORDER BY w.id
		LIMIT ?`
	var list []Webhook
	if err := s.db.WithContext(ctx).Raw(query, after, limit).Scan(&list).Error; err != nil {
		return nil, fmt.Errorf("list webhooks: %w", err)
	}
	for i := range list {
		s.settle(&list[i])
	}
	return list, nil
}

// WebhookByID reads an endpoint. CodeNotFound: it does not exist.
func (s *Store) WebhookByID(ctx context.Context, id int64) (*Webhook, error) {
	query := `
		SELECT ` + webhookColumns + `, w.secret, w.previous_secret, ` + pendingSince + `
		FROM webhooks w
		WHERE w.id=?`
	var w Webhook
	read := s.db.WithContext(ctx).Raw(query, id).Scan(&w)
	if read.Error != nil {
		return nil, fmt.Errorf("read webhook %d: %w", id, read.Error)
	}
	if read.RowsAffected == 0 {
		return nil, errNoWebhook()
	}
	s.settle(&w)
	return &w, nil
}

// UpdateWebhook changes the settings of an endpoint that has the given version. An endpoint that becomes active again
// continues with its pending events, and has no failure behind it. Events that happened meanwhile were not recorded.
// CodePrecondition: it has another version. CodeNotFound: it does not exist. The other errors are those of
// CreateWebhook.
func (s *Store) UpdateWebhook(
	ctx context.Context, actor, id, version int64, settings WebhookSettings, private bool,
) (*Webhook, error) {
	if err := settings.Validate(private); err != nil {
		return nil, err
	}
	const update = `
		UPDATE webhooks
		SET url=?, events=?, disabled_reason=IF(?,'',disabled_reason), failing_since=IF(active,failing_since,NULL),
			active=?, version=version+1, updated_at=?
		WHERE id=?`
	err := s.transact(ctx, func(tx *Tx) error {
		if err := lockActor(tx, actor, RoleAdmin); err != nil {
			return err
		}
		w, err := lockWebhook(tx, id)
		if err != nil {
			return err
		}
		if w.Version != version {
			return VersionMismatch(w.Version)
		}
		was := w.Settings()
		if was.URL == settings.URL && was.Active == settings.Active && slices.Equal(was.Events, settings.Events) {
			return nil
		}
		err = tx.Exec(update, settings.URL, settings.Events.String(), settings.Active, settings.Active,
			tx.Now, id).Error
		if err != nil {
			return err
		}
		return logModeration(tx, webhookAct(actor, "edit", id, was.state(), settings.state()))
	})
	if err != nil {
		return nil, fmt.Errorf("update webhook %d: %w", id, err)
	}
	return s.WebhookByID(ctx, id)
}

func lockWebhook(tx *Tx, id int64) (*Webhook, error) {
	const query = `
		SELECT ` + webhookColumns + `
		FROM webhooks w
		WHERE w.id=?
		FOR UPDATE`
	var w Webhook
	read := tx.Raw(query, id).Scan(&w)
	if read.Error == nil && read.RowsAffected == 0 {
		return nil, errNoWebhook()
	}
	return &w, read.Error
}

// DeleteWebhook deletes an endpoint. PurgeWebhookEvents deletes its events. CodeNotFound: it does not exist.
// CodeForbidden: the actor is not an admin.
func (s *Store) DeleteWebhook(ctx context.Context, actor, id int64) error {
	const remove = `
		DELETE FROM webhooks
		WHERE id=?`
	err := s.transact(ctx, func(tx *Tx) error {
		if err := lockActor(tx, actor, RoleAdmin); err != nil {
			return err
		}
		w, err := lockWebhook(tx, id)
		if err != nil {
			return err
		}
		if err := tx.Exec(remove, id).Error; err != nil {
			return err
		}
		return logModeration(tx, webhookAct(actor, "delete", id, w.Settings().state(), nil))
	})
	if err != nil {
		return fmt.Errorf("delete webhook %d: %w", id, err)
	}
	return nil
}
