package workers

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/counters"
	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/webhooks"
)

// hooks is a store with an admin, whose webhooks are at a receiver in the test.
type hooks struct {
	t     *testing.T
	store *db.DB
	admin models.Author
}

func newHooks(t *testing.T) hooks {
	t.Helper()
	return newHooksWith(t, db.Options{})
}

func newHooksWith(t *testing.T, options db.Options) hooks {
	t.Helper()
	options.Describe = webhooks.Describe
	store, err := db.Open(t.Context(), testkit.Database(t), options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	u := &models.User{Username: "ada", Email: "ada@example.org"}
	require.NoError(t, accounts.New(store).CreateUser(t.Context(), u))
	require.NoError(t, accounts.New(store).SetRole(t.Context(), u.ID, models.RoleAdmin))
	return hooks{t, store, models.Author{ID: u.ID, Username: "ada"}}
}

// receive registers a webhook that is served by handle.
func (h hooks) receive(handle http.HandlerFunc) *models.Webhook {
	h.t.Helper()
	receiver := httptest.NewServer(handle)
	h.t.Cleanup(receiver.Close)
	return h.register(receiver.URL)
}

func (h hooks) register(url string) *models.Webhook {
	h.t.Helper()
	w, err := webhooks.New(h.store).CreateWebhook(h.t.Context(), h.admin.ID,
		models.WebhookSettings{URL: url, Events: models.WebhookEvents, Active: true}, true)
	require.NoError(h.t, err)
	return w
}

// courier returns a Courier that waits for milliseconds where others wait for seconds.
func (h hooks) courier(private bool) *Courier {
	c := NewCourier(webhooks.New(h.store), private, prometheus.NewRegistry())
	c.retryFirst, c.retryMost = 5*time.Millisecond, 20*time.Millisecond
	c.pauseFirst, c.pauseMost = 5*time.Millisecond, 50*time.Millisecond
	return c
}

// deliver runs a Courier until the condition holds.
func (h hooks) deliver(c *Courier, condition func() (bool, string)) {
	h.t.Helper()
	testkit.Eventually(h.t, patience, func() (bool, string) {
		_, _, err := c.Deliver(context.Background())
		require.NoError(h.t, err)
		return condition()
	})
}

// done reports whether no event is pending.
func (h hooks) done() (bool, string) {
	list, err := webhooks.New(h.store).WebhookBacklog(context.Background())
	require.NoError(h.t, err)
	pending := slices.ContainsFunc(list, func(w models.Webhook) bool { return w.PendingSince != nil })
	return !pending, "events are pending"
}

// attempts returns the number of attempts with an outcome.
func attempts(t *testing.T, c *Courier, outcome string) float64 {
	t.Helper()
	reg := prometheus.NewRegistry()
	reg.MustRegister(c.attempts)
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, m := range families[0].GetMetric() {
		if m.GetLabel()[0].GetValue() == outcome {
			return m.GetCounter().GetValue()
		}
	}
	return -1
}

// last returns the latest delivery to a webhook.
func (h hooks) last(w *models.Webhook) models.Delivery {
	h.t.Helper()
	list, err := webhooks.New(h.store).Deliveries(context.Background(), w.ID, 0, 0, 1)
	require.NoError(h.t, err)
	require.Len(h.t, list, 1)
	return list[0]
}

func (h hooks) post() *models.Post {
	h.t.Helper()
	post, err := content.New(h.store).CreatePost(h.t.Context(), h.admin, models.PostText{Title: "A post",
		Content: "<b>Ä</b>"})
	require.NoError(h.t, err)
	return post
}

func (h hooks) edit(post *models.Post, n int) {
	h.t.Helper()
	var err error
	text := models.PostText{Title: fmt.Sprintf("Edit %d", n), Content: "text"}
	_, err = content.New(h.store).UpdatePost(h.t.Context(), h.admin.ID, post.ID, int64(n-1), text)
	require.NoError(h.t, err)
}

// A receiver can verify what it gets with nothing but the secret, as Standard Webhooks describes it.
func TestCourier_signsWhatItSends(t *testing.T) {
	t.Parallel()
	h := newHooks(t)
	var header http.Header
	var body string
	w := h.receive(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		header, body = r.Header.Clone(), string(text)
		w.WriteHeader(http.StatusAccepted)
		_, _ = io.WriteString(w, strings.Repeat("ä", 1000)+"\xff")
	})
	post := h.post()
	h.deliver(h.courier(true), h.done)
	d := h.last(w)
	assert.Equal(t, fmt.Sprintf("evt_%d", d.ID), header.Get("Webhook-Id"))
	assert.Equal(t, "application/json", header.Get("Content-Type"))
	assert.Equal(t, "v1,"+sign(w.Secret, header.Get("Webhook-Id")+"."+header.Get("Webhook-Timestamp")+"."+body),
		header.Get("Webhook-Signature"))
	var event struct {
		Type      string
		Timestamp time.Time
		Data      struct {
			ID      int64
			Content string
		}
	}
	require.NoError(t, json.Unmarshal([]byte(body), &event))
	assert.Equal(t, "post.created", event.Type)
	assert.Equal(t, d.CreatedAt, event.Timestamp)
	assert.Equal(t, post.ID, event.Data.ID)
	assert.Equal(t, "<b>Ä</b>", event.Data.Content)
	assert.Equal(t, http.StatusAccepted, d.AttemptLog[0].Status)
	assert.Equal(t, strings.Repeat("ä", models.MaxAnswer/2), d.AttemptLog[0].Answer)

	// The example of the specification.
	key, err := base64.StdEncoding.DecodeString("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	require.NoError(t, err)
	assert.Equal(t, "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
		sign(key, `msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.{"test": 2432232314}`))
}

// During the overlap of a rotation, a receiver with either secret accepts what it gets.
func TestCourier_signsWithBothSecretsAfterARotation(t *testing.T) {
	t.Parallel()
	h := newHooks(t)
	got := make(chan func(*models.Webhook) string, 10)
	w := h.receive(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		text := r.Header.Get("Webhook-Id") + "." + r.Header.Get("Webhook-Timestamp") + "." + string(body)
		got <- func(secrets *models.Webhook) string {
			name := strings.NewReplacer(" ", " and ", "v1,"+sign(secrets.Secret, text), "new",
				"v1,"+sign(secrets.PreviousSecret, text), "former")
			return name.Replace(r.Header.Get("Webhook-Signature"))
		}
	})
	rotated, err := webhooks.New(h.store).RotateSecret(t.Context(), h.admin.ID, w.ID)
	require.NoError(t, err)
	require.Equal(t, w.Secret, rotated.PreviousSecret)
	c := h.courier(true)
	h.post()
	h.deliver(c, h.done)
	assert.Equal(t, "new and former", (<-got)(rotated))
	require.NoError(t, webhooks.New(h.store).EndSecretOverlap(t.Context(), h.admin.ID, w.ID))
	h.post()
	h.deliver(c, h.done)
	assert.Equal(t, "new", (<-got)(rotated))
	late := *rotated.PreviousUntil
	assert.Len(t, strings.Fields(signatures(rotated, "text", late.Add(-time.Millisecond))), 2)
	assert.Len(t, strings.Fields(signatures(rotated, "text", late)), 1, "a request that was late to begin")
}

func TestPurge_deletesFormerSecretsOfWebhooks(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	h := newHooksWith(t, db.Options{Now: func() time.Time { return now }})
	_, err := webhooks.New(h.store).RotateSecret(t.Context(), h.admin.ID, h.register("https://example.org").ID)
	require.NoError(t, err)
	jobs := NewJobs(JobsConfig{
		Store: h.store, Targets: counters.NewTargets(h.store, nil),
		Metrics: NewMetrics(), Registry: prometheus.NewRegistry(),
	})
	for _, left := range []int{1, 0} {
		_, err := jobs.Run(t.Context(), "purge")
		require.NoError(t, err)
		var n int
		require.NoError(t, h.store.Pool().QueryRowContext(t.Context(),
			"SELECT COUNT(*) FROM webhooks WHERE previous_secret IS NOT NULL").Scan(&n))
		assert.Equal(t, left, n)
		now = now.Add(models.SecretOverlap)
	}
}

// An endpoint that asks to wait gets neither the event nor another one before, within the bounds of the back-off.
func TestCourier_waitsForAsLongAsItIsAsked(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		status        int
		header        string
		event, others time.Duration // to wait; 0: the usual back-off, and none
	}{
		"seconds":            {429, "100", 100 * time.Second, 100 * time.Second},
		"a date":             {503, "Fri, 20 Nov 2026 12:01:40 GMT", 100 * time.Second, 100 * time.Second},
		"a short time":       {429, "1", 5 * time.Second, 5 * time.Second},
		"a long time":        {503, "100000", time.Hour, 5 * time.Minute},
		"a very long time":   {503, "99999999999999999999", 0, 0},
		"a date in the far":  {429, "Fri, 20 Nov 2076 12:01:40 GMT", time.Hour, 5 * time.Minute},
		"a date in the past": {429, "Fri, 20 Nov 2026 11:59:00 GMT", 0, 0},
		"no number":          {429, "soon", 0, 0},
		"below zero":         {429, "-5", 0, 0},
		"nothing":            {429, "", 0, 0},
		"another status":     {500, "100", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := start
			h := newHooksWith(t, db.Options{Now: func() time.Time { return now }})
			var asked atomic.Int32
			w := h.receive(func(w http.ResponseWriter, _ *http.Request) {
				if asked.Add(1) == 1 {
					w.Header().Set("Retry-After", c.header)
					w.WriteHeader(c.status)
				}
			})
			courier := NewCourier(webhooks.New(h.store), true, prometheus.NewRegistry())
			deliver := func(at time.Duration) int {
				t.Helper()
				now = start.Add(at)
				delivered, _, err := courier.Deliver(t.Context())
				require.NoError(t, err)
				return delivered
			}
			h.post()
			assert.Zero(t, deliver(0))
			if due := h.last(w).DueAt.Sub(start); c.event == 0 {
				assert.InDelta(t, 3750*time.Millisecond, due, float64(1250*time.Millisecond))
			} else {
				assert.Equal(t, c.event, due)
			}
			h.post()
			if c.event == 0 {
				assert.Equal(t, 1, deliver(0), "the other event")
				return
			}
			assert.Zero(t, deliver(c.others-time.Second))
			want := 1
			if c.event == c.others {
				want = 2
			}
			assert.Equal(t, want, deliver(c.others))
			assert.Zero(t, deliver(max(c.others, c.event-time.Second)))
			assert.Equal(t, 2-want, deliver(c.event))
		})
	}
}

// The success of a request that was under way does not end the pause that the endpoint asked for.
func TestCourier_waitsAsItIsAskedAfterASuccess(t *testing.T) {
	t.Parallel()
	h := newHooks(t)
	var asked atomic.Int32
	both := make(chan struct{})
	h.receive(func(w http.ResponseWriter, _ *http.Request) {
		switch asked.Add(1) {
		case 1:
			<-both
			w.Header().Set("Retry-After", "100")
			w.WriteHeader(http.StatusTooManyRequests)
		case 2:
			close(both)
			<-time.After(100 * time.Millisecond) // for the other answer to arrive
		}
	})
	c := NewCourier(webhooks.New(h.store), true, prometheus.NewRegistry())
	h.post()
	h.post()
	delivered, failed, err := c.Deliver(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "1 delivered, 1 failed", fmt.Sprintf("%d delivered, %d failed", delivered, failed))
	h.post()
	_, _, err = c.Deliver(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 2, asked.Load())
}

func TestCourier_reachesPublicAddressesAlone(t *testing.T) {
	t.Parallel()
	h := newHooks(t)
	var asked atomic.Int32
	here := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer here.Close()
	_, port, _ := strings.Cut(strings.TrimPrefix(here.URL, "http://"), ":")
	// The name is public when the webhook is registered, and resolves to a private address when it is dialed.
	for _, url := range []string{here.URL, "http://localhost:" + port, "http://[::ffff:127.0.0.1]:" + port} {
		w := h.register(url)
		h.post()
		_, failed, err := h.courier(false).Deliver(t.Context())
		require.NoError(t, err)
		require.Positive(t, failed)
		attempt := h.last(w).AttemptLog[0]
		assert.Zero(t, attempt.Status)
		assert.Contains(t, attempt.Error, "the address is not public", "%s", url)
		require.NoError(t, webhooks.New(h.store).DeleteWebhook(t.Context(), h.admin.ID, w.ID))
	}
	assert.Zero(t, asked.Load())
}

func TestCourier_followsNoRedirects(t *testing.T) {
	t.Parallel()
	h := newHooks(t)
	var followed atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed.Add(1) }))
	defer other.Close()
	w := h.receive(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	})
	h.post()
	_, failed, err := h.courier(true).Deliver(t.Context())
	require.NoError(t, err)
	assert.Positive(t, failed)
	assert.Zero(t, followed.Load())
	d := h.last(w)
	assert.Equal(t, http.StatusTemporaryRedirect, d.AttemptLog[0].Status)
	assert.Equal(t, models.DeliveryPending, d.State)
}

// An event that is refused holds up the later ones of its object, and no others.
func TestCourier_keepsTheOrderOfAnObjectAndLetsOthersPass(t *testing.T) {
	t.Parallel()
	h := newHooks(t)
	stuck, other := h.post(), h.post()
	var mu sync.Mutex
	var got []string
	healed := false
	h.receive(func(w http.ResponseWriter, r *http.Request) {
		var event struct {
			Type string
			Data struct{ ID, Version int64 }
		}
		assert.NoError(t, json.NewDecoder(r.Body).Decode(&event))
		mu.Lock()
		defer mu.Unlock()
		if event.Data.ID == stuck.ID && event.Data.Version == 1 && !healed {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		got = append(got, fmt.Sprintf("%d.%d", event.Data.ID, event.Data.Version))
	})
	for n := 1; n <= 5; n++ {
		h.edit(stuck, n)
		h.edit(other, n)
	}
	c := h.courier(true)
	want := []string{}
	for n := 1; n <= 5; n++ {
		want = append(want, fmt.Sprintf("%d.%d", other.ID, n))
	}
	h.deliver(c, func() (bool, string) {
		mu.Lock()
		defer mu.Unlock()
		return len(got) == 5, fmt.Sprint(got)
	})
	assert.Equal(t, want, got)
	mu.Lock()
	healed, got, want = true, nil, nil
	mu.Unlock()
	for n := 1; n <= 5; n++ {
		want = append(want, fmt.Sprintf("%d.%d", stuck.ID, n))
	}
	h.deliver(c, h.done)
	assert.Equal(t, want, got)
}

// Several processes at once send an endpoint no more requests than one, and rarely an event twice.
func TestCourier_sendsAFewRequestsAtOnce(t *testing.T) {
	t.Parallel()
	h := newHooks(t)
	var now, all atomic.Int32
	var mu sync.Mutex
	var highest int32 // at once
	h.receive(func(http.ResponseWriter, *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		all.Add(1)
		mu.Lock()
		highest = max(highest, n)
		mu.Unlock()
		<-time.After(5 * time.Millisecond)
	})
	const events = 60
	for range events {
		h.post()
	}
	var running sync.WaitGroup
	for range 3 {
		running.Go(func() { h.deliver(h.courier(true), h.done) })
	}
	running.Wait()
	assert.LessOrEqual(t, highest, int32(courierAtOnce))
	assert.Greater(t, highest, int32(1))
	assert.EqualValues(t, events, all.Load())
}

// An endpoint that is down is not asked for each event, and gets all of them soon after it is up again.
func TestCourier_triesADownEndpointWithOneEvent(t *testing.T) {
	t.Parallel()
	h := newHooks(t)
	var up atomic.Bool
	var asked atomic.Int32
	w := h.receive(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		if !up.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	const events = 100
	for range events {
		h.post()
	}
	c := h.courier(true)
	for range 5 {
		_, _, err := c.Deliver(t.Context())
		require.NoError(t, err)
	}
	assert.Less(t, int(asked.Load()), events/2)
	found, err := webhooks.New(h.store).WebhookByID(t.Context(), w.ID)
	require.NoError(t, err)
	assert.NotNil(t, found.FailingSince)
	assert.Positive(t, attempts(t, c, "refused"))
	up.Store(true)
	h.deliver(c, h.done)
	found, err = webhooks.New(h.store).WebhookByID(t.Context(), w.ID)
	require.NoError(t, err)
	assert.Nil(t, found.FailingSince)
	assert.EqualValues(t, events, attempts(t, c, "delivered"))
}

// A slow answer is given up after the timeout, and a process that is told to stop does not wait for it.
func TestCourier_givesUpSlowAnswers(t *testing.T) {
	t.Parallel()
	h := newHooks(t)
	leave := make(chan struct{})
	began := make(chan struct{}, 100)
	w := h.receive(func(w http.ResponseWriter, r *http.Request) {
		began <- struct{}{}
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-leave:
		case <-r.Context().Done():
		}
	})
	t.Cleanup(func() { close(leave) })
	h.post()
	c := h.courier(true)
	c.timeout = 100 * time.Millisecond
	h.deliver(c, h.done)
	assert.Equal(t, http.StatusOK, h.last(w).AttemptLog[0].Status, "the status counts, whatever becomes of the body")

	<-began
	c.timeout = time.Hour
	h.post()
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error)
	go func() {
		_, _, err := c.Deliver(ctx)
		stopped <- err
	}()
	<-began
	stop()
	select {
	case err := <-stopped:
		assert.ErrorIs(t, err, context.Canceled)
	case <-time.After(patience):
		t.Fatal("Deliver does not end with its context")
	}
}

func TestCourier_disablesAnEndpointThatIsGoneOrFailsForDays(t *testing.T) {
	t.Parallel()
	for status, reason := range map[int]string{410: models.WebhookGone, 500: models.WebhookFailing} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			h := newHooks(t)
			w := h.receive(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
			h.post()
			since := time.Now().UTC().Add(-models.WebhookPatience)
			_, err := h.store.Pool().ExecContext(t.Context(), "UPDATE webhooks SET failing_since=?", since)
			require.NoError(t, err)
			_, _, err = h.courier(true).Deliver(t.Context())
			require.NoError(t, err)
			found, err := webhooks.New(h.store).WebhookByID(t.Context(), w.ID)
			require.NoError(t, err)
			assert.False(t, found.Active)
			assert.Equal(t, reason, found.DisabledReason)
			assert.Equal(t, models.DeliveryPending, h.last(w).State, "it is there if the endpoint comes back")
		})
	}
}

func TestCourier_reportsTheAgeOfTheBacklog(t *testing.T) {
	t.Parallel()
	h := newHooks(t)
	w := h.receive(func(http.ResponseWriter, *http.Request) {})
	reg := prometheus.NewRegistry()
	c := NewCourier(webhooks.New(h.store), true, reg)
	age := func() float64 {
		families, err := reg.Gather()
		require.NoError(t, err)
		for _, f := range families {
			if f.GetName() == "likewise_webhook_oldest_seconds" {
				require.Len(t, f.GetMetric(), 1)
				assert.Equal(t, fmt.Sprint(w.ID), f.GetMetric()[0].GetLabel()[0].GetValue())
				return f.GetMetric()[0].GetGauge().GetValue()
			}
		}
		return -1
	}
	assert.Zero(t, age())
	h.post()
	_, err := h.store.Pool().ExecContext(t.Context(),
		"UPDATE webhook_events SET created_at=created_at-INTERVAL 700 SECOND")
	require.NoError(t, err)
	assert.InDelta(t, 700, age(), 60)
	h.deliver(c, h.done)
	assert.Zero(t, age())
}
