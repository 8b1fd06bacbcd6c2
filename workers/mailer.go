package workers

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sethvargo/go-retry"

	"likewise/mail"
	"likewise/models"
)

// MailStore has the mails that are due.
type MailStore interface {
	// DueMails leases at most limit mails for two minutes, so that no other process gets them, and returns them. key
	// makes the tokens of their links. Mails that no longer hold are dropped.
	DueMails(ctx context.Context, key []byte, limit int) ([]models.Mail, error)
	// MailSent records that a server has accepted the mail.
	MailSent(ctx context.Context, id int64) error
	// MailFailed records why it was not accepted, and when it is due again. It marks the address as undeliverable if
	// the failure is permanent.
	MailFailed(ctx context.Context, id int64, permanent bool, cause string) error
	// OldestMail returns when the oldest mail that waits was written, or the zero time if none waits.
	OldestMail(ctx context.Context) (time.Time, error)
}

// Mailer sends the mails that are due.
//
// A mail is sent at least once. A Mailer that is killed between the answer of the server and the COMMIT that records it
// leaves the mail to be sent again after its lease, under the same Message-ID. The server may also have accepted a mail
// although the connection was lost. Several Mailers share the mails by their leases. At most mailerAtOnce mails are on
// their way from a process, so a server that stalls holds as many.
type Mailer struct {
	store   MailStore
	sender  *mail.Sender
	key     []byte
	now     func() time.Time
	log     *slog.Logger
	outcome *prometheus.CounterVec

	poll  time.Duration // between two looks at an empty table
	drain time.Duration // in which mails on their way may arrive after the process was told to stop
}

const (
	mailerAtOnce = 8
	mailerPoll   = time.Second
	mailerDrain  = 5 * time.Second
	mailerRecord = 3 * time.Second // to record an outcome; with mailerDrain less than a process has to stop
)

// The outcomes of an attempt to send a mail.
const (
	mailSent          = "sent"
	mailFailed        = "failed"        // it is tried again
	mailRefused       = "refused"       // by the server, because of this site; it is tried again
	mailUndeliverable = "undeliverable" // the address is
	mailUnrecorded    = "unrecorded"    // it was sent, and is sent again
)

// MailerConfig holds the parts of a Mailer.
type MailerConfig struct {
	Store    MailStore
	Sender   *mail.Sender
	Key      []byte // that makes the tokens of links
	Now      func() time.Time
	Logger   *slog.Logger
	Registry prometheus.Registerer
}

// NewMailer returns a Mailer, and registers its metrics.
func NewMailer(c MailerConfig) *Mailer {
	m := &Mailer{
		store: c.Store, sender: c.Sender, key: c.Key, now: c.Now, log: c.Logger, poll: mailerPoll, drain: mailerDrain,
		outcome: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "likewise_mails_total",
			Help: "Attempts to send a mail, by outcome: sent, failed, refused (because of this site), undeliverable, " +
				"or unrecorded (sent, and sent again).",
		}, []string{"outcome"}),
	}
	for _, outcome := range []string{mailSent, mailFailed, mailRefused, mailUndeliverable, mailUnrecorded} {
		m.outcome.WithLabelValues(outcome) // exported from the start
	}
	c.Registry.MustRegister(m.outcome, &mailBacklog{m, prometheus.NewDesc(
		"likewise_mail_oldest_seconds", "Age of the oldest mail that waits to be sent; 0 if none waits.", nil, nil)})
	return m
}

// mailBacklog reads the age of the backlog when the metrics are read, so that every process reports the same.
type mailBacklog struct {
	mailer *Mailer
	oldest *prometheus.Desc
}

// Describe sends the description of the metric.
func (b *mailBacklog) Describe(to chan<- *prometheus.Desc) { to <- b.oldest }

// Collect sends the metric; none if MySQL does not answer.
func (b *mailBacklog) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), mailerRecord)
	defer cancel()
	since, err := b.mailer.store.OldestMail(ctx)
	if err != nil {
		b.mailer.log.WarnContext(ctx, "the backlog of mails cannot be read", "error", err)
		return
	}
	age := 0.0
	if !since.IsZero() {
		age = max(0, b.mailer.now().Sub(since).Seconds())
	}
	to <- prometheus.MustNewConstMetric(b.oldest, prometheus.GaugeValue, age)
}

// Run sends mails until ctx ends, and those on their way have arrived or drain has passed.
func (m *Mailer) Run(ctx context.Context) {
	sending, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(m.drain, cancel) })()
	var running sync.WaitGroup
	defer running.Wait()

	free := make(chan struct{}, mailerAtOnce) // one element for each mail that may begin
	for range mailerAtOnce {
		free <- struct{}{}
	}
	failures := backOff(m.poll, retryMost)
	for {
		room := m.take(ctx, free)
		if ctx.Err() != nil {
			return
		}
		due, err := m.store.DueMails(ctx, m.key, room)
		for range room - len(due) {
			free <- struct{}{}
		}
		for _, one := range due {
			running.Go(func() {
				defer func() { free <- struct{}{} }()
				m.send(sending, one)
			})
		}
		wait := m.poll
		switch {
		case err != nil && ctx.Err() == nil:
			m.log.WarnContext(ctx, "due mails cannot be read", "error", err)
			wait, _ = failures.Next()
		case len(due) == room:
			continue // more may be due
		default:
			failures = backOff(m.poll, retryMost)
		}
		if !pause(ctx, wait) {
			return
		}
	}
}

// take waits until a mail may begin, and returns how many may. It returns 0 if ctx ends first.
func (m *Mailer) take(ctx context.Context, free <-chan struct{}) (room int) {
	select {
	case <-free:
		room = 1
	case <-ctx.Done():
		return 0
	}
	for {
		select {
		case <-free:
			room++
		default:
			return room
		}
	}
}

// send sends a mail and records the outcome. The end of ctx interrupts it; then the mail is due again after its lease.
func (m *Mailer) send(ctx context.Context, due models.Mail) {
	err := m.sender.Send(ctx, due)
	if err != nil && ctx.Err() != nil {
		m.log.InfoContext(ctx, "mail interrupted", "mail", due.ID, "kind", string(due.Kind))
		return
	}
	outcome, level, message := mailSent, slog.LevelDebug, "mail sent"
	switch {
	case mail.Permanent(err):
		outcome, level, message = mailUndeliverable, slog.LevelInfo, "mail cannot be delivered"
	case mail.Misconfigured(err):
		outcome, level, message = mailRefused, slog.LevelError,
			"the mail server refuses this site: look at --smtp and --mail-from"
	case err != nil:
		outcome, level, message = mailFailed, slog.LevelWarn, "mail not sent"
	}
	attrs := []any{"mail", due.ID, "kind", string(due.Kind), "attempts", due.Attempts + 1}
	if err != nil {
		attrs = append(attrs, "error", err)
	}
	m.log.Log(ctx, level, message, attrs...)
	if recorded := m.record(ctx, due.ID, err); recorded != nil {
		m.log.WarnContext(ctx, "the outcome of a mail is not recorded: it is sent again", "mail", due.ID,
			"outcome", outcome, "error", recorded)
		if outcome == mailSent {
			outcome = mailUnrecorded
		}
	}
	m.outcome.WithLabelValues(outcome).Inc()
}

// record writes the outcome into the row, which a stop of the process must not interrupt.
func (m *Mailer) record(ctx context.Context, id int64, failure error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), mailerRecord)
	defer cancel()
	return retry.Do(ctx, backOff(retryFirst, retryMost), func(ctx context.Context) error {
		if failure == nil {
			return retry.RetryableError(m.store.MailSent(ctx, id))
		}
		return retry.RetryableError(m.store.MailFailed(ctx, id, mail.Permanent(failure), failure.Error()))
	})
}
