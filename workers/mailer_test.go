package workers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/servers"
	"likewise/internal/testkit"
	"likewise/mail"
	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/db"
)

// mailTable is the store of a test. It can fail as MySQL does, and forget as a killed process does.
type mailTable struct {
	*accounts.Store

	mu     sync.Mutex
	away   bool // no call succeeds
	killed bool // nothing is recorded
	asked  int
}

var errAway = errors.New("the database is away")

func (m *mailTable) set(away, killed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.away, m.killed = away, killed
}

func (m *mailTable) fails(record bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	if m.away || record && m.killed {
		return errAway
	}
	return nil
}

func (m *mailTable) DueMails(ctx context.Context, key []byte, limit int) ([]models.Mail, error) {
	if err := m.fails(false); err != nil {
		return nil, err
	}
	return m.Store.DueMails(ctx, key, limit)
}

func (m *mailTable) MailSent(ctx context.Context, id int64) error {
	if err := m.fails(true); err != nil {
		return err
	}
	return m.Store.MailSent(ctx, id)
}

func (m *mailTable) MailFailed(ctx context.Context, id int64, permanent bool, cause string) error {
	if err := m.fails(true); err != nil {
		return err
	}
	return m.Store.MailFailed(ctx, id, permanent, cause)
}

func (m *mailTable) OldestMail(ctx context.Context) (time.Time, error) {
	if err := m.fails(false); err != nil {
		return time.Time{}, err
	}
	return m.Store.OldestMail(ctx)
}

// mailing is a Mailer with a server, for one test.
type mailing struct {
	*Mailer

	t        *testing.T
	db       *db.DB
	table    *mailTable
	server   *servers.Mail
	log      *lockedBuffer
	registry *prometheus.Registry
}

// lockedBuffer is a log.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newMailing(t *testing.T) *mailing {
	t.Helper()
	store, err := db.Open(t.Context(), testkit.Database(t), db.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	testkit.AddUsers(t, store.Pool(), 1, 60)
	server, err := servers.StartMail(t.TempDir(), servers.MailOptions{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	m := &mailing{t: t, db: store, table: &mailTable{Store: accounts.New(store)}, server: server}
	m.restart()
	return m
}

// add queues mails to the members from first to last.
func (m *mailing) add(first, last int) {
	m.t.Helper()
	for n := first; n <= last; n++ {
		require.NoError(m.t, m.table.RequestReset(m.t.Context(), fmt.Sprintf("member-%d@example.org", n)))
	}
}

// due makes the mails due that wait for their lease or for the pause after a failure, as time does.
func (m *mailing) due() {
	m.t.Helper()
	const update = "UPDATE mails SET due_at=created_at WHERE due_at IS NOT NULL"
	_, err := m.db.Pool().ExecContext(context.Background(), update)
	require.NoError(m.t, err)
}

// rows returns the number of mails that meet a condition.
func (m *mailing) rows(condition string) (n int) {
	m.t.Helper()
	row := m.db.Pool().QueryRowContext(context.Background(), "SELECT COUNT(*) FROM mails WHERE "+condition)
	require.NoError(m.t, row.Scan(&n))
	return n
}

// allSent reports whether every mail was sent.
func (m *mailing) allSent() (bool, string) {
	n := m.rows("outcome<>'sent'")
	return n == 0, fmt.Sprintf("%d mails are not sent", n)
}

// restart makes the Mailer anew, as a process that is started again does.
func (m *mailing) restart() {
	m.t.Helper()
	sender, err := mail.Open(mail.Config{
		SMTP: m.server.URL(), From: "forum@forum.example", PublicURL: "https://forum.example",
	})
	require.NoError(m.t, err)
	m.log, m.registry = &lockedBuffer{}, prometheus.NewRegistry()
	m.Mailer = NewMailer(MailerConfig{
		Store: m.table, Sender: sender, Key: []byte("the key"), Now: time.Now, Registry: m.registry,
		Logger: slog.New(slog.NewTextHandler(m.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	m.poll = 10 * time.Millisecond
}

// start runs the Mailer until stop is called, which waits for its end.
func (m *mailing) start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); m.Run(ctx) }()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	m.t.Cleanup(stop)
	return stop
}

func (m *mailing) count(outcome string) float64 {
	m.t.Helper()
	return m.metric("likewise_mails_total", outcome)
}

func (m *mailing) metric(name, label string) float64 {
	m.t.Helper()
	families, err := m.registry.Gather()
	require.NoError(m.t, err)
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, one := range family.GetMetric() {
			if label == "" {
				return one.GetGauge().GetValue()
			}
			if one.GetLabel()[0].GetValue() == label {
				return one.GetCounter().GetValue()
			}
		}
	}
	return -1
}

func (m *mailing) received() []servers.KeptMail {
	m.t.Helper()
	list, err := m.server.Mails()
	require.NoError(m.t, err)
	return list
}

// scripted makes the server do one thing at one step.
func scripted(at servers.MailStep, what error) servers.MailScript {
	return func(step servers.MailStep, _ string) error {
		if step == at {
			return what
		}
		return nil
	}
}

// withoutSecrets fails if the log has a token or a recipient.
func (m *mailing) withoutSecrets(text string) {
	m.t.Helper()
	for id := range int64(60) {
		token, _ := models.LinkToken([]byte("the key"), id+1)
		assert.NotContains(m.t, text, token)
	}
	assert.NotContains(m.t, text, "example.org")
}

func TestMailer_sendsEveryMailOnce(t *testing.T) {
	t.Parallel()
	m := newMailing(t)
	assert.Zero(t, m.metric("likewise_mail_oldest_seconds", ""))
	m.add(1, 40)
	_, err := m.db.Pool().ExecContext(t.Context(), "UPDATE mails SET created_at=created_at-INTERVAL 1 MINUTE")
	require.NoError(t, err)
	assert.InDelta(t, 75, m.metric("likewise_mail_oldest_seconds", ""), 15)
	stop := m.start()
	testkit.Eventually(t, patience, m.allSent)
	m.add(41, 43) // while it runs
	testkit.Eventually(t, patience, m.allSent)
	stop()
	to := map[string]bool{}
	for _, kept := range m.received() {
		to[kept.Header.Get("To")] = true
	}
	assert.Len(t, m.received(), 43)
	assert.Len(t, to, 43)
	token, _ := models.LinkToken([]byte("the key"), 1)
	assert.True(t, slices.ContainsFunc(m.received(), func(kept servers.KeptMail) bool {
		return strings.Contains(kept.Body, "https://forum.example/reset?token="+token+"\n")
	}))
	assert.Equal(t, 43.0, m.count("sent"))
	assert.Zero(t, m.count("failed"))
	assert.Zero(t, m.metric("likewise_mail_oldest_seconds", ""))
	m.withoutSecrets(m.log.String())
}

// What the server says decides what is recorded, and how loudly it is logged. The token and the recipient are neither
// in the log nor in the row, even if the server repeats them.
func TestMailer_recordsFailures(t *testing.T) {
	t.Parallel()
	token, _ := models.LinkToken([]byte("the key"), 1)
	repeats := " <member-1@example.org> " + token + " https://forum.example/reset?token=" + token
	for name, c := range map[string]struct {
		script  servers.MailScript
		outcome string
		logged  string
	}{
		"later": {scripted(servers.MailTo, servers.RefuseMail(451, [3]int{4, 3, 0}, "Later."+repeats)),
			"failed", `level=WARN msg="mail not sent" mail=1 kind=password_reset attempts=1 error="RCPT TO: 451`},
		"nobody": {scripted(servers.MailTo, servers.RefuseMail(550, [3]int{5, 1, 1}, "Nobody."+repeats)),
			"undeliverable", `level=INFO msg="mail cannot be delivered" mail=1`},
		"not from us": {scripted(servers.MailFrom, servers.RefuseMail(550, [3]int{5, 7, 1}, "No.")),
			"refused", `level=ERROR msg="the mail server refuses this site: look at --smtp and --mail-from" mail=1`},
		"hang-up": {scripted(servers.MailContent, servers.ErrMailHangsUp),
			"failed", `level=WARN msg="mail not sent" mail=1`},
		"content": {scripted(servers.MailContent, servers.RefuseMail(451, [3]int{4, 3, 0}, "Later."+repeats)),
			"failed", `level=WARN msg="mail not sent" mail=1`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMailing(t)
			m.server.Script(c.script)
			m.add(1, 1)
			stop := m.start()
			testkit.Eventually(t, patience, func() (bool, string) { return m.count(c.outcome) == 1, "no outcome" })
			m.server.Script(nil)
			var failure string
			row := m.db.Pool().QueryRowContext(t.Context(), "SELECT failure FROM mails")
			require.NoError(t, row.Scan(&failure))
			assert.NotEmpty(t, failure)
			m.withoutSecrets(failure)
			if c.outcome == "undeliverable" {
				assert.Equal(t, 1, m.rows("outcome='refused' AND due_at IS NULL"))
			} else {
				assert.Equal(t, 1, m.rows("outcome='' AND attempts=1 AND due_at>created_at"))
				m.due()
				testkit.Eventually(t, patience, m.allSent)
			}
			stop()
			assert.Contains(t, m.log.String(), c.logged)
			m.withoutSecrets(m.log.String())
		})
	}
}

// A mail whose row does not record that it was sent is sent again, with the same Message-ID and the same link: after a
// kill between the answer of the server and the COMMIT, and after an answer that was lost.
func TestMailer_sendsAgainUnderTheSameID(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]servers.MailScript{
		"killed before the record": nil,
		"the answer is lost":       scripted(servers.MailKept, servers.ErrMailHangsUp),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMailing(t)
			m.add(1, 1)
			m.table.set(false, script == nil)
			m.server.Script(script)
			stop := m.start()
			testkit.Eventually(t, patience, func() (bool, string) { return len(m.received()) == 1, "no mail" })
			stop()
			require.Zero(t, m.rows("outcome<>''"))

			m.table.set(false, false)
			m.server.Script(nil)
			m.due()
			m.restart()
			m.start()
			testkit.Eventually(t, patience, m.allSent)
			list := m.received()
			require.Len(t, list, 2)
			assert.NotEmpty(t, list[0].Header.Get("Message-Id"))
			assert.Equal(t, list[0].Header, list[1].Header)
			assert.Equal(t, list[0].Body, list[1].Body)
		})
	}
}

// A database that does not answer is asked again, and the age of its mails is not reported as zero.
func TestMailer_survivesItsDatabase(t *testing.T) {
	t.Parallel()
	m := newMailing(t)
	m.add(1, 1)
	m.table.set(true, false)
	m.start()
	testkit.Eventually(t, patience, func() (bool, string) {
		m.table.mu.Lock()
		defer m.table.mu.Unlock()
		return m.table.asked > 2, "it is not asked again"
	})
	assert.Equal(t, -1.0, m.metric("likewise_mail_oldest_seconds", ""))
	m.table.set(false, false)
	testkit.Eventually(t, patience, m.allSent)
	assert.Len(t, m.received(), 1)
}

// A server that stalls holds mailerAtOnce mails and no more, and does not keep the process from stopping. What is on
// its way after the drain is interrupted, is not recorded as a failure, and is due again after its lease.
func TestMailer_stopsAlthoughTheServerStalls(t *testing.T) {
	t.Parallel()
	m := newMailing(t)
	m.drain = 50 * time.Millisecond
	var stalled atomic.Int64
	m.server.Script(func(step servers.MailStep, _ string) error {
		if step != servers.MailContent {
			return nil
		}
		stalled.Add(1)
		return servers.ErrMailStalls
	})
	m.add(1, 3*mailerAtOnce)
	stop := m.start()
	testkit.Eventually(t, patience, func() (bool, string) {
		return stalled.Load() == mailerAtOnce, fmt.Sprintf("%d mails are on their way", stalled.Load())
	})
	began := time.Now()
	stop()
	assert.Less(t, time.Since(began), mailerDrain)
	assert.EqualValues(t, mailerAtOnce, stalled.Load())
	assert.Equal(t, mailerAtOnce, m.rows("due_at>created_at"), "others are not leased")
	assert.Equal(t, 3*mailerAtOnce, m.rows("outcome='' AND attempts=0"))
	assert.Contains(t, m.log.String(), "mail interrupted")
}

// A mail that is on its way when the process is told to stop arrives and is recorded.
func TestMailer_finishesWhatIsOnItsWay(t *testing.T) {
	t.Parallel()
	m := newMailing(t)
	begun, goOn := make(chan struct{}), make(chan struct{})
	m.server.Script(func(step servers.MailStep, _ string) error {
		if step == servers.MailContent {
			close(begun)
			<-goOn
		}
		return nil
	})
	m.add(1, 1)
	stop := m.start()
	<-begun
	stopped := make(chan struct{})
	go func() { defer close(stopped); stop() }()
	close(goOn)
	<-stopped
	ok, why := m.allSent()
	assert.True(t, ok, why)
	assert.Len(t, m.received(), 1)
}
