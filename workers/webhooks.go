package workers

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"likewise/models"
	"likewise/models/webhooks"
)

// Courier delivers the events of webhooks.
//
// An event is sent until its endpoint answers with 2xx, at least once: a Courier that is killed between the answer and
// the COMMIT that records it leaves the event to be sent again, under the same id. The events of an object are sent in
// the order of their ids. Each waits until the one before is recorded in MySQL as delivered or failed for good, so two
// Couriers that deliver to one endpoint may send an event twice, but never one before its predecessor. Events of other
// objects do not wait.
//
// One process at a time delivers to an endpoint, by a lease in its row, with at most courierAtOnce requests. If the
// events of courierObjects objects fail in a row, the endpoint is taken to be down. Then one event at a time is tried,
// after pauses that grow. This state is in the process alone.
type Courier struct {
	store    *webhooks.Store
	now      func() time.Time
	log      *slog.Logger
	client   *http.Client
	attempts *prometheus.CounterVec

	// The pause after the first failure of an event, and the longest one. They double in between, as do those of an
	// endpoint that is down.
	retryFirst, retryMost time.Duration
	pauseFirst, pauseMost time.Duration
	timeout               time.Duration // of a request

	mu       sync.Mutex
	circuits map[int64]*circuit // by endpoint
}

// The schedule of attempts, which docs/webhooks.md describes.
const (
	courierTimeout    = 10 * time.Second
	courierRetryFirst = 5 * time.Second
	courierRetryMost  = time.Hour
	courierPauseFirst = 5 * time.Second
	courierPauseMost  = 5 * time.Minute
)

const (
	courierAtOnce  = 8      // requests to an endpoint
	courierObjects = 5      // objects whose events fail in a row if the endpoint is down
	courierPage    = 500    // pending events a query
	courierScan    = 20_000 // pending events a scan
	courierPoll    = 200 * time.Millisecond
	courierLease   = 5               // seconds for which a killed process keeps others from delivering
	courierRenew   = time.Second     // also the time after which a changed endpoint is read
	courierMargin  = 2 * time.Second // for recording an attempt
	courierAnswer  = 4 << 10         // bytes that are read of an answer
	courierHeader  = 16 << 10        // bytes of an answer's header
)

// NewCourier returns a Courier. If private is set, endpoints may be at private addresses. It registers metrics with
// reg.
func NewCourier(store *webhooks.Store, private bool, reg prometheus.Registerer) *Courier {
	c := &Courier{
		store: store, now: store.Now, log: store.Logger(), client: courierClient(private), timeout: courierTimeout,
		retryFirst: courierRetryFirst, retryMost: courierRetryMost,
		pauseFirst: courierPauseFirst, pauseMost: courierPauseMost,
		circuits: map[int64]*circuit{},
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "likewise_webhook_attempts_total",
			Help: "Requests to webhooks: delivered (2xx), refused (another answer), or unanswered."},
			[]string{"outcome"}),
	}
	for _, outcome := range []string{"delivered", "refused", "unanswered"} {
		c.attempts.WithLabelValues(outcome) // exported from the start
	}
	reg.MustRegister(c.attempts, &webhookBacklog{store: store, oldest: prometheus.NewDesc(
		"likewise_webhook_oldest_seconds", "Age of the oldest event that waits for an active webhook; 0 if none waits.",
		[]string{"webhook"}, nil)})
	return c
}

// webhookBacklog reads the age of the backlogs when the metrics are read, so that every process reports the same.
type webhookBacklog struct {
	store  *webhooks.Store
	oldest *prometheus.Desc
}

// Describe sends the description of the metric.
func (b *webhookBacklog) Describe(to chan<- *prometheus.Desc) { to <- b.oldest }

// Collect sends the metric of each active endpoint; none if MySQL does not answer.
func (b *webhookBacklog) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), courierMargin)
	defer cancel()
	list, err := b.store.WebhookBacklog(ctx)
	if err != nil {
		b.store.Logger().WarnContext(ctx, "the backlog of webhooks cannot be read", "error", err)
		return
	}
	for _, w := range list {
		age := 0.0
		if w.PendingSince != nil {
			age = max(0, b.store.Now().Sub(*w.PendingSince).Seconds())
		}
		to <- prometheus.MustNewConstMetric(b.oldest, prometheus.GaugeValue, age, strconv.FormatInt(w.ID, 10))
	}
}

// errNotPublic means that an endpoint is at an address to which nothing is sent.
var errNotPublic = errors.New("the address is not public")

// courierClient returns a client that follows no redirects and uses no proxy. Unless private is set, it connects to
// public addresses alone: Control sees the address of each connection after the name was resolved, so a name that
// changes its address does not get around it.
func courierClient(private bool) *http.Client {
	dialer := &net.Dialer{Timeout: courierTimeout}
	if !private {
		dialer.Control = func(_, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil || !models.PublicAddress(to.Addr()) {
				return fmt.Errorf("%w: %s", errNotPublic, address)
			}
			return nil
		}
	}
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext:            dialer.DialContext,
			ForceAttemptHTTP2:      true,
			DisableCompression:     true,
			MaxIdleConnsPerHost:    courierAtOnce,
			MaxResponseHeaderBytes: courierHeader,
			IdleConnTimeout:        30 * time.Second,
			TLSHandshakeTimeout:    courierTimeout,
		},
	}
}

// Deliver sends what is due, until nothing is or the time of ctx is nearly over. It returns the numbers of attempts
// that succeeded and failed.
func (c *Courier) Deliver(ctx context.Context) (delivered, failed int, err error) {
	var mu sync.Mutex // guards the results and busy
	var failures []error
	busy, again := map[int64]bool{}, map[int64]time.Time{}
	var running sync.WaitGroup
	for {
		active, err := c.store.WebhookBacklog(ctx)
		if err != nil {
			failures = append(failures, err)
		}
		mu.Lock()
		for _, w := range active {
			id := w.ID
			if w.PendingSince == nil || busy[id] || c.left(ctx) <= 0 || time.Now().Before(again[id]) {
				continue
			}
			busy[id] = true
			running.Go(func() {
				ok, bad, err := c.serve(ctx, id)
				mu.Lock()
				defer mu.Unlock()
				delivered, failed = delivered+ok, failed+bad
				delete(busy, id)
				again[id] = time.Now().Add(courierRenew)
				if err != nil && len(failures) < runFailures {
					failures = append(failures, err)
				}
			})
		}
		idle := len(busy) == 0
		mu.Unlock()
		if idle || err != nil || !pause(ctx, courierPoll) {
			running.Wait()
			return delivered, failed, errors.Join(failures...)
		}
	}
}

// left returns the time until no other request begins.
func (c *Courier) left(ctx context.Context) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return c.timeout
	}
	return time.Until(end) - c.timeout - courierMargin
}

// circuit is what a process knows of an endpoint's failures since its last success.
type circuit struct {
	failed map[string]bool // objects whose events failed
	trips  int
	until  time.Time // of the pause
	asked  time.Time // the end of the pause that the endpoint asked for; a success of another request leaves it
}

// pauses reports whether no request begins at a time.
func (t *circuit) pauses(now time.Time) bool { return now.Before(t.until) || now.Before(t.asked) }

func (t *circuit) down() bool { return len(t.failed) >= courierObjects }

// circuitOf returns the circuit of an endpoint. One goroutine at a time delivers to it.
func (c *Courier) circuitOf(id int64) *circuit {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.circuits[id] == nil {
		c.circuits[id] = &circuit{failed: map[string]bool{}}
	}
	return c.circuits[id]
}

// doubled returns first, doubled n times, and at most the most, with jitter.
func doubled(first, limit time.Duration, n int) time.Duration {
	d := first
	for ; n > 0 && d < limit; n-- {
		d *= 2
	}
	return jitter(min(d, limit))
}

// errLeaseLost means that another process delivers to the endpoint, or that it is no longer active.
var errLeaseLost = errors.New("the lease is lost")

// delivery is the work of a process on one endpoint while it holds the lease. One goroutine owns it; requests run in
// others and report to results.
type delivery struct {
	c         *Courier
	w         *models.Webhook
	lease     string
	renewed   time.Time
	scanned   time.Time
	circuit   *circuit
	ready     []models.PendingEvent            // events that can be sent, each the first of its object
	behind    map[string][]models.PendingEvent // later events of objects that are ready or busy
	busy      map[string]bool                  // objects with a request under way
	results   chan sent
	delivered int
	failed    int
}

// sent is the result of a request.
type sent struct {
	object  string
	attempt *models.Attempt // nil: the event was no longer pending
	wait    time.Duration   // for which the endpoint asked; 0: it did not
	err     error           // of MySQL, or of the context
}

func objectOf(e models.PendingEvent) string {
	return e.ObjectType + ":" + strconv.FormatInt(e.ObjectID, 10)
}

// serve delivers to an endpoint until nothing is due, the endpoint pauses, or the time is over.
func (c *Courier) serve(ctx context.Context, id int64) (delivered, failed int, err error) {
	t := &delivery{
		c: c, lease: rand.Text(), circuit: c.circuitOf(id), results: make(chan sent),
		behind: map[string][]models.PendingEvent{}, busy: map[string]bool{},
	}
	if t.circuit.pauses(c.now()) {
		return 0, 0, nil
	}
	if t.w, err = c.store.LeaseWebhook(ctx, id, t.lease, courierLease); err != nil || t.w == nil {
		return 0, 0, err
	}
	t.renewed = time.Now()
	defer func() {
		releasing, cancel := context.WithTimeout(context.WithoutCancel(ctx), courierMargin)
		defer cancel()
		if e := c.store.ReleaseWebhook(releasing, id, t.lease); err == nil {
			err = e
		}
	}()
	err = t.run(ctx)
	if errors.Is(err, errLeaseLost) {
		err = nil
	}
	return t.delivered, t.failed, err
}

func (t *delivery) run(ctx context.Context) (err error) {
	for {
		if err == nil {
			err = t.next(ctx)
		}
		if len(t.busy) == 0 {
			return err
		}
		select {
		case result := <-t.results:
			if failure := t.finish(ctx, result); err == nil {
				err = failure
			}
		case <-time.After(courierPoll):
		}
	}
}

// next renews the lease and begins the requests that can begin.
func (t *delivery) next(ctx context.Context) error {
	if t.c.left(ctx) <= 0 || t.circuit.pauses(t.c.now()) {
		return nil
	}
	if time.Since(t.renewed) >= courierRenew {
		w, err := t.c.store.LeaseWebhook(ctx, t.w.ID, t.lease, courierLease)
		if err != nil {
			return err
		}
		if w == nil {
			return errLeaseLost
		}
		t.w, t.renewed = w, time.Now()
	}
	if len(t.ready) == 0 && (len(t.busy) == 0 || time.Since(t.scanned) >= courierPoll) {
		if err := t.scan(ctx); err != nil {
			return err
		}
	}
	limit := courierAtOnce
	if t.circuit.down() {
		limit = 1
	}
	for len(t.ready) > 0 && len(t.busy) < limit {
		event := t.ready[0]
		t.ready = t.ready[1:]
		t.busy[objectOf(event)] = true
		w := *t.w
		go func() { // ends before run returns
			attempt, wait, err := t.c.attempt(ctx, &w, event)
			t.results <- sent{objectOf(event), attempt, wait, err}
		}()
	}
	return nil
}

// scan reads pending events until some are ready, in the order of their ids. An event is ready if it is due and no
// earlier event of its object is pending. It passes over objects that are busy.
func (t *delivery) scan(ctx context.Context) error {
	now := t.c.now()
	blocked := map[string]bool{}
	t.scanned = time.Now()
	clear(t.behind)
	for after, seen := int64(0), 0; len(t.ready) == 0 && seen < courierScan; {
		page, err := t.c.store.PendingEvents(ctx, t.w.ID, after, courierPage)
		if err != nil {
			return err
		}
		first := map[string]bool{}
		for _, event := range page {
			object := objectOf(event)
			switch {
			case t.busy[object] || blocked[object]:
			case first[object]:
				t.behind[object] = append(t.behind[object], event)
			case event.DueAt.After(now):
				blocked[object] = true
			default:
				first[object] = true
				t.ready = append(t.ready, event)
			}
			after = event.ID
		}
		if seen += len(page); len(page) < courierPage {
			break
		}
	}
	return nil
}

// finish takes the result of a request. If the event was delivered, the next one of its object is ready.
func (t *delivery) finish(ctx context.Context, result sent) error {
	object := result.object
	delete(t.busy, object)
	later := t.behind[object]
	delete(t.behind, object)
	if result.err != nil {
		return result.err
	}
	if a := result.attempt; a != nil && !a.Delivered() {
		t.failed++
		if result.wait > 0 {
			t.circuit.asked = t.c.now().Add(min(max(result.wait, t.c.pauseFirst), t.c.pauseMost))
		}
		return t.failure(ctx, object, a)
	}
	if result.attempt != nil {
		t.delivered++
		t.w.FailingSince = nil
		*t.circuit = circuit{failed: map[string]bool{}, asked: t.circuit.asked}
	}
	if len(later) > 0 && !later[0].DueAt.After(t.c.now()) {
		t.ready, t.behind[object] = append(t.ready, later[0]), later[1:]
	}
	return nil
}

// failure counts a failure of the endpoint, and disables the endpoint if it is gone or has failed for too long.
func (t *delivery) failure(ctx context.Context, object string, a *models.Attempt) error {
	now := t.c.now()
	t.circuit.failed[object] = true
	if t.circuit.down() && !now.Before(t.circuit.until) {
		t.circuit.until = now.Add(doubled(t.c.pauseFirst, t.c.pauseMost, t.circuit.trips))
		t.circuit.trips++
	}
	reason := ""
	switch {
	case a.Status == http.StatusGone:
		reason = models.WebhookGone
	case t.w.FailingSince == nil:
		t.w.FailingSince = &now
	case now.Sub(*t.w.FailingSince) >= models.WebhookPatience:
		reason = models.WebhookFailing
	}
	if reason == "" {
		return nil
	}
	disabled, err := t.c.store.DisableWebhook(ctx, t.w.ID, reason)
	if err != nil {
		return err
	}
	if disabled {
		t.c.log.WarnContext(ctx, "webhook disabled", "webhook", t.w.ID, "reason", reason)
		return errLeaseLost
	}
	return nil
}

// attempt sends an event, if it is still pending, and records the outcome. An attempt that the end of ctx has cut off
// is not recorded. wait is the time for which the endpoint asked.
func (c *Courier) attempt(
	ctx context.Context, w *models.Webhook, e models.PendingEvent,
) (_ *models.Attempt, wait time.Duration, _ error) {
	d, err := c.store.PendingDelivery(ctx, e.ID)
	if err != nil || d == nil {
		return nil, 0, err
	}
	a, wait := c.send(ctx, w, d)
	if ctx.Err() != nil && a.Status == 0 {
		return nil, 0, ctx.Err()
	}
	switch {
	case a.Delivered():
		c.attempts.WithLabelValues("delivered").Inc()
	case a.Status != 0:
		c.attempts.WithLabelValues("refused").Inc()
	default:
		c.attempts.WithLabelValues("unanswered").Inc()
	}
	recording, cancel := context.WithTimeout(context.WithoutCancel(ctx), courierMargin)
	defer cancel()
	after := doubled(c.retryFirst, c.retryMost, d.Attempts)
	if wait > 0 {
		after = min(max(wait, c.retryFirst), c.retryMost)
	}
	return &a, wait, c.store.RecordAttempt(recording, w.ID, d, a, after)
}

// send makes one request, as Standard Webhooks (https://www.standardwebhooks.com) describes it. wait is the time for
// which the endpoint asked.
func (c *Courier) send(
	ctx context.Context, w *models.Webhook, d *models.Delivery,
) (a models.Attempt, wait time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	a.At = c.now().UTC().Truncate(time.Millisecond)
	began := time.Now()
	defer func() { a.LatencyMS = time.Since(began).Milliseconds() }()
	body := `{"type":"` + string(d.Type) + `","timestamp":"` + d.CreatedAt.UTC().Format(time.RFC3339Nano) +
		`","data":` + d.Data + `}`
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, strings.NewReader(body))
	if err != nil {
		a.Error = reasonOf(err)
		return a, 0
	}
	id, at := models.WebhookEventID(d.ID), strconv.FormatInt(a.At.Unix(), 10)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", "Likewise")
	request.Header.Set("Webhook-Id", id)
	request.Header.Set("Webhook-Timestamp", at)
	request.Header.Set("Webhook-Signature", signatures(w, id+"."+at+"."+body, a.At))
	answer, err := c.client.Do(request)
	if err != nil {
		a.Error = reasonOf(err)
		return a, 0
	}
	defer answer.Body.Close()
	a.Status = answer.StatusCode
	// This is enough for the connection to be used again. An answer that breaks off has its status all the same.
	text, _ := io.ReadAll(io.LimitReader(answer.Body, courierAnswer))
	a.Answer = clip(string(text))
	return a, retryAfter(answer, c.now())
}

// retryAfter returns the time for which an answer of 429 or 503 asks to wait, in seconds or until a date; 0 if it does
// not.
func retryAfter(answer *http.Response, now time.Time) time.Duration {
	if answer.StatusCode != http.StatusTooManyRequests && answer.StatusCode != http.StatusServiceUnavailable {
		return 0
	}
	text := strings.TrimSpace(answer.Header.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

// signatures returns the signatures of a text, separated by a space: with the secret of the endpoint, and with the
// former one as long as that is in use.
func signatures(w *models.Webhook, text string, now time.Time) string {
	all := "v1," + sign(w.Secret, text)
	if w.PreviousUntil != nil && now.Before(*w.PreviousUntil) {
		all += " v1," + sign(w.PreviousSecret, text)
	}
	return all
}

// sign returns the signature of a text.
func sign(key []byte, text string) string {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return base64.StdEncoding.EncodeToString(h.Sum(nil))
}

// reasonOf returns the reason for which there was no answer, without the URL.
func reasonOf(err error) string {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return clip(err.Error())
}

// clip returns the first models.MaxAnswer bytes of a text, as UTF-8.
func clip(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), models.MaxAnswer)], "\uFFFD")
}
