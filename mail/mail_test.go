package mail

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"mime"
	"net"
	netmail "net/mail"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/servers"
	"likewise/models"
)

const (
	front = "https://forum.example"
	token = "a-token_that/opens+an&account="
)

// start starts a mail server for the test.
func start(t *testing.T, options servers.MailOptions) *servers.Mail {
	t.Helper()
	m, err := servers.StartMail(t.TempDir(), options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Stop()) })
	return m
}

func open(t *testing.T, c Config) *Sender {
	t.Helper()
	if c.From == "" {
		c.From = "forum@forum.example"
	}
	if c.PublicURL == "" {
		c.PublicURL = front
	}
	s, err := Open(c)
	require.NoError(t, err)
	return s
}

func reset() models.Mail {
	return models.Mail{
		ID: 7, Kind: models.MailPasswordReset, To: "ada@example.org", Username: "ada", Token: token,
		Expires:   time.Date(2026, 12, 1, 10, 30, 0, 0, time.UTC),
		CreatedAt: time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC),
	}
}

// received returns the only mail of a server.
func received(t *testing.T, m *servers.Mail) servers.KeptMail {
	t.Helper()
	list, err := m.Mails()
	require.NoError(t, err)
	require.Len(t, list, 1)
	return list[0]
}

func TestSend_everyKind(t *testing.T) {
	t.Parallel()
	link := "?token=a-token_that%2Fopens%2Ban%26account%3D"
	for kind, want := range map[models.MailKind]struct{ subject, path, says string }{
		models.MailPasswordReset:   {"Choose a new password for %s", "/reset", "until 1 December 2026, 10:30"},
		models.MailPasswordChanged: {"Your password for %s was changed", "", front + "/reset\n"},
		models.MailEmailConfirm:    {"Confirm your address for %s", "/confirm", "keeps its\nformer address until"},
		models.MailEmailChanged:    {"Your address for %s was changed", "/undo", "undo the change"},
		models.MailRegistration:    {"Confirm your registration at %s", "/confirm", "welcome to forum.example"},
		models.MailAccountExists:   {"You already have an account at %s", "", front + "/sign-in\n"},
		models.MailSecurity:        {"Your account at %s was changed", "", "  Your username was changed.\n"},
	} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			m := start(t, servers.MailOptions{})
			due := reset()
			due.Kind, due.Username, due.Detail = kind, "žofie", "username.changed"
			if want.path == "" {
				due.Token = ""
			}
			require.NoError(t, open(t, Config{SMTP: m.URL()}).Send(t.Context(), due))
			got := received(t, m)
			subject, err := new(mime.WordDecoder).DecodeHeader(got.Header.Get("Subject"))
			require.NoError(t, err)
			assert.Equal(t, fmt.Sprintf(want.subject, "forum.example"), subject)
			for name, value := range map[string]string{
				"From": "<forum@forum.example>", "To": "<ada@example.org>", "Date": "Tue, 01 Dec 2026 10:00:00 +0000",
				"Content-Type": "text/plain; charset=UTF-8", "Content-Transfer-Encoding": "8bit",
				"Auto-Submitted": "auto-generated", "User-Agent": "Likewise", "X-Mailer": "Likewise",
				"Mime-Version": "1.0",
			} {
				assert.Equal(t, []string{value}, got.Header[textproto.CanonicalMIMEHeaderKey(name)], name)
			}
			assert.True(t, strings.HasPrefix(got.Body, "Hello žofie,\n\n"), got.Body)
			assert.True(t, strings.HasSuffix(got.Body, "\n-- \nforum.example\n"+front+"\n"), got.Body)
			assert.Contains(t, got.Body, want.says)
			assert.Equal(t, want.path != "", strings.Contains(got.Body, "\n"+front+want.path+link+"\n"), got.Body)
			for _, line := range strings.Split(got.Body, "\n") {
				assert.LessOrEqual(t, len(line), 78, line)
			}
			assert.NotContains(t, got.Body, "<no value>")
		})
	}
	assert.Len(t, kinds, 7)
}

// A mail without an account begins without a name, and a change that has no words is not shown as a code.
func TestSend_saysNothingThatIsMissing(t *testing.T) {
	t.Parallel()
	m := start(t, servers.MailOptions{})
	due := reset()
	due.Kind, due.Token, due.Username, due.Detail = models.MailSecurity, "", "", "planet.changed"
	require.NoError(t, open(t, Config{SMTP: m.URL()}).Send(t.Context(), due))
	got := received(t, m)
	assert.True(t, strings.HasPrefix(got.Body, "Hello,\n"), got.Body)
	assert.Contains(t, got.Body, "A setting of its security was changed.")
	assert.NotContains(t, got.Body, "planet")
}

func TestSend_refusesWhatHasNoText(t *testing.T) {
	t.Parallel()
	m := start(t, servers.MailOptions{})
	s := open(t, Config{SMTP: m.URL()})
	for name, change := range map[string]func(*models.Mail){
		"an unknown kind":       func(m *models.Mail) { m.Kind = "greeting" },
		"a link that is absent": func(m *models.Mail) { m.Token = "" },
		"a link of a notice":    func(m *models.Mail) { m.Kind = models.MailPasswordChanged },
	} {
		due := reset()
		change(&due)
		err := s.Send(t.Context(), due)
		require.Error(t, err, name)
		assert.False(t, Permanent(err), name)
		assert.NotContains(t, err.Error(), token)
	}
	list, err := m.Mails()
	require.NoError(t, err)
	assert.Empty(t, list)
}

// The Message-ID is that of the row: the same for a mail that is sent again, and another for each other row.
func TestSend_messageIDIsStable(t *testing.T) {
	t.Parallel()
	m := start(t, servers.MailOptions{})
	s := open(t, Config{SMTP: m.URL()})
	again, other, later := reset(), reset(), reset()
	again.Attempts = 3
	other.ID++
	later.CreatedAt = later.CreatedAt.Add(time.Millisecond) // the same id in a database that was made anew
	for _, due := range []models.Mail{reset(), again, other, later} {
		require.NoError(t, s.Send(t.Context(), due))
	}
	list, err := m.Mails()
	require.NoError(t, err)
	require.Len(t, list, 4)
	id := func(n int) string { return list[n].Header.Get("Message-Id") }
	assert.Regexp(t, `^<[0-9a-f]{32}@forum\.example>$`, id(0))
	assert.Equal(t, id(0), id(1))
	assert.NotEqual(t, id(0), id(2))
	assert.NotEqual(t, id(0), id(3))
	assert.Equal(t, list[0].Header, list[1].Header)
	assert.Equal(t, list[0].Body, list[1].Body)
}

func refuse(at servers.MailStep, code int, enhanced [3]int, text string) servers.MailScript {
	return func(step servers.MailStep, _ string) error {
		if step == at {
			return servers.RefuseMail(code, enhanced, text)
		}
		return nil
	}
}

func does(at servers.MailStep, what error) servers.MailScript {
	return func(step servers.MailStep, _ string) error {
		if step == at {
			return what
		}
		return nil
	}
}

// An answer of the server marks the address as undeliverable only if it is about the recipient. What the operator can
// repair, and what may pass, is not.
func TestSend_classifiesErrors(t *testing.T) {
	t.Parallel()
	none := [3]int{-1, -1, -1}
	const rcpt, content, from, hello = servers.MailTo, servers.MailContent, servers.MailFrom, servers.MailHello
	const permanent, misconfigured, temporary = "permanent", "misconfigured", "temporary"
	for name, c := range map[string]struct {
		script servers.MailScript
		step   Step
		code   int
		class  string
	}{
		"no such user":        {refuse(rcpt, 550, [3]int{5, 1, 1}, "No such user."), StepRecipient, 550, permanent},
		"not local":           {refuse(rcpt, 551, none, "User not local."), StepRecipient, 551, permanent},
		"not a name":          {refuse(rcpt, 553, none, "Bad name."), StepRecipient, 553, permanent},
		"disabled":            {refuse(rcpt, 554, [3]int{5, 2, 1}, "Disabled."), StepRecipient, 554, permanent},
		"late":                {refuse(content, 550, [3]int{5, 1, 1}, "No such user."), StepContent, 550, permanent},
		"failed":              {refuse(content, 554, none, "Failed."), StepContent, 554, permanent},
		"relaying":            {refuse(rcpt, 554, [3]int{5, 7, 1}, "No relaying."), StepRecipient, 554, misconfigured},
		"spam":                {refuse(content, 550, [3]int{5, 7, 1}, "Spam."), StepContent, 550, misconfigured},
		"too large":           {refuse(content, 552, [3]int{5, 3, 4}, "Too large."), StepContent, 552, misconfigured},
		"no sign-in":          {refuse(rcpt, 530, [3]int{5, 7, 0}, "Sign in."), StepRecipient, 530, misconfigured},
		"sender":              {refuse(from, 550, [3]int{5, 1, 1}, "No such sender."), StepSender, 550, misconfigured},
		"unwanted":            {refuse(hello, 554, none, "Go away."), StepConnect, 554, misconfigured},
		"gray":                {refuse(rcpt, 451, [3]int{4, 7, 1}, "Later."), StepRecipient, 451, temporary},
		"full":                {refuse(rcpt, 452, [3]int{4, 2, 2}, "Full."), StepRecipient, 452, temporary},
		"busy":                {refuse(content, 451, none, "Later."), StepContent, 451, temporary},
		"busy at the hello":   {refuse(hello, 421, none, "Later."), StepConnect, 421, temporary},
		"sender later":        {refuse(from, 450, none, "Later."), StepSender, 450, temporary},
		"hangs up at hello":   {does(servers.MailHello, servers.ErrMailHangsUp), StepConnect, 0, temporary},
		"hangs up at sender":  {does(servers.MailFrom, servers.ErrMailHangsUp), StepSender, 0, temporary},
		"hangs up at rcpt":    {does(servers.MailTo, servers.ErrMailHangsUp), StepRecipient, 0, temporary},
		"hangs up at data":    {does(servers.MailContent, servers.ErrMailHangsUp), StepContent, 0, temporary},
		"hangs up at the end": {does(servers.MailKept, servers.ErrMailHangsUp), StepContent, 0, temporary},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := start(t, servers.MailOptions{})
			s := open(t, Config{SMTP: m.URL()})
			m.Script(c.script)
			err := s.Send(t.Context(), reset())
			var e *Error
			require.ErrorAs(t, err, &e)
			assert.Equal(t, c.step, e.Step, err)
			assert.Equal(t, c.code, e.Code, err)
			assert.Equal(t, c.class == permanent, Permanent(err), err)
			assert.Equal(t, c.class == misconfigured, Misconfigured(err), err)
			m.Script(nil)
			require.NoError(t, s.Send(t.Context(), reset()), "a later attempt succeeds")
		})
	}
}

func TestSend_serverIsAway(t *testing.T) {
	t.Parallel()
	m := start(t, servers.MailOptions{})
	require.NoError(t, m.Stop())
	err := open(t, Config{SMTP: m.URL()}).Send(t.Context(), reset())
	require.Error(t, err)
	assert.False(t, Permanent(err))
	assert.False(t, Misconfigured(err))
}

// A server that stops answering holds a caller no longer than the time for a command, whatever it waits for, and a
// server that is slow at every step no longer than the time for a mail.
func TestSend_doesNotWaitForAStalledServer(t *testing.T) {
	t.Parallel()
	for _, step := range []servers.MailStep{
		servers.MailHello, servers.MailFrom, servers.MailTo, servers.MailContent, servers.MailKept,
	} {
		for name, limit := range map[string]func(*Sender){
			"command": func(s *Sender) { s.command = 100 * time.Millisecond },
			"whole":   func(s *Sender) { s.whole = 100 * time.Millisecond },
		} {
			t.Run(string(step)+" "+name, func(t *testing.T) {
				t.Parallel()
				m := start(t, servers.MailOptions{})
				s := open(t, Config{SMTP: m.URL()})
				limit(s)
				m.Script(does(step, servers.ErrMailStalls))
				began := time.Now()
				err := s.Send(t.Context(), reset())
				require.Error(t, err)
				assert.Less(t, time.Since(began), 8*time.Second)
				assert.False(t, Permanent(err), err)
				assert.False(t, Misconfigured(err), err)
			})
		}
	}
}

// The end of the caller's context ends Send.
func TestSend_endsWithItsContext(t *testing.T) {
	t.Parallel()
	m := start(t, servers.MailOptions{})
	s := open(t, Config{SMTP: m.URL()})
	ctx, cancel := context.WithCancel(t.Context())
	m.Script(func(step servers.MailStep, _ string) error {
		if step == servers.MailContent {
			cancel()
			return servers.ErrMailStalls
		}
		return nil
	})
	require.ErrorIs(t, s.Send(ctx, reset()), context.Canceled)
}

// What a server repeats of a mail, and its own password, are not in the error, which is logged and stored.
func TestSend_errorsHideSecrets(t *testing.T) {
	t.Parallel()
	m := start(t, servers.MailOptions{User: "forum", Password: "correct horse"})
	s := open(t, Config{SMTP: m.URL()})
	m.Script(refuse(servers.MailContent, 550, [3]int{5, 1, 1},
		"<ada@example.org> refused "+token+" of correct horse "+strings.Repeat("x", 400)))
	err := s.Send(t.Context(), reset())
	require.Error(t, err)
	assert.Contains(t, err.Error(), "DATA: 550 5.1.1 <…> refused … of … xxx")
	for _, secret := range []string{token, "ada@example.org", "correct horse"} {
		assert.NotContains(t, err.Error(), secret)
	}
	assert.Less(t, len(err.Error()), 350)
}

// No text of users gets into the header, whatever it contains.
func TestSend_headerTakesNoText(t *testing.T) {
	t.Parallel()
	m := start(t, servers.MailOptions{})
	s := open(t, Config{SMTP: m.URL()})
	for _, to := range []string{
		"ada@example.org\r\nBcc: eve@example.org", "ada@example.org, eve@example.org", "ada@example.org\r\nDATA", "",
		"Ada <ada@example.org>", "ada@example.org> SIZE=1", "ada", "\x00@example.org", "ada@example.org\n",
	} {
		due := reset()
		due.To = to
		err := s.Send(t.Context(), due)
		require.Error(t, err, to)
		assert.True(t, Permanent(err), "%q: %v", to, err)
	}
	list, err := m.Mails()
	require.NoError(t, err)
	require.Empty(t, list)

	due := reset()
	due.Username = "ada\r\nBcc: eve@example.org\r\n\r\n.\r\nMAIL FROM:<eve@example.org>"
	require.NoError(t, s.Send(t.Context(), due))
	got := received(t, m)
	assert.Empty(t, got.Header.Get("Bcc"))
	assert.Contains(t, got.Body, "MAIL FROM", "the line with the dot does not end the mail")

	_, err = Open(Config{SMTP: m.URL(), From: "a@b.example", PublicURL: front, SiteName: "Forum\r\nBcc: eve@e.example"})
	require.Error(t, err)
}

// An address with other letters is sent as such; its domain is in ASCII.
func TestSend_addressesOfTheWorld(t *testing.T) {
	t.Parallel()
	m := start(t, servers.MailOptions{})
	var envelope string
	m.Script(func(step servers.MailStep, address string) error {
		if step == servers.MailTo {
			envelope = address
		}
		return nil
	})
	s := open(t, Config{SMTP: m.URL(), From: "Das Fórum <forum@forum.example>", SiteName: "Das Fórum"})
	due := reset()
	due.To = "zoë@bücher.example"
	require.NoError(t, s.Send(t.Context(), due))
	assert.Equal(t, "zoë@xn--bcher-kva.example", envelope)
	got := received(t, m)
	from, err := got.Header.AddressList("From")
	require.NoError(t, err)
	assert.Equal(t, &netmail.Address{Name: "Das Fórum", Address: "forum@forum.example"}, from[0])
	assert.Contains(t, got.Body, "your account at Das Fórum.")
}

// certificate returns the settings of a server named host, and the authority that signs its certificate.
func certificate(t *testing.T, host string) (*tls.Config, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	made := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, made, made, key.Public(), key)
	require.NoError(t, err)
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	roots := x509.NewCertPool()
	roots.AddCert(parsed)
	pair := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, roots
}

// A server on another machine gets neither the password nor a mail in clear, and none without the right certificate.
func TestSend_encryptsTheWay(t *testing.T) {
	t.Parallel()
	const host = "mail.forum.example"
	config, roots := certificate(t, host)
	_, others := certificate(t, host)
	elsewhere, elsewhereRoots := certificate(t, "other.forum.example")
	for name, c := range map[string]struct {
		options servers.MailOptions
		scheme  string
		roots   *x509.CertPool
		refused string // "": the mail arrives
	}{
		"starttls":               {servers.MailOptions{TLS: config}, "smtp", roots, ""},
		"implicit":               {servers.MailOptions{TLS: config, Implicit: true}, "smtps", roots, ""},
		"no starttls":            {servers.MailOptions{}, "smtp", roots, "does not support STARTTLS"},
		"another authority":      {servers.MailOptions{TLS: config}, "smtp", others, "unknown authority"},
		"implicit, of others":    {servers.MailOptions{TLS: config, Implicit: true}, "smtps", others, "authority"},
		"another name":           {servers.MailOptions{TLS: elsewhere}, "smtp", elsewhereRoots, "not mail.forum"},
		"no roots of the system": {servers.MailOptions{TLS: config}, "smtp", nil, "certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.options.User, c.options.Password = "forum", "correct horse"
			m := start(t, c.options)
			s := open(t, Config{SMTP: c.scheme + "://forum:correct%20horse@" + host, RootCAs: c.roots})
			_, place, _ := strings.Cut(m.URL(), "@")
			s.dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				assert.Equal(t, host+map[string]string{"smtp": ":587", "smtps": ":465"}[c.scheme], address)
				return new(net.Dialer).DialContext(ctx, network, place)
			}
			var asked []servers.MailStep
			m.Script(func(step servers.MailStep, _ string) error {
				asked = append(asked, step)
				return nil
			})
			err := s.Send(t.Context(), reset())
			if c.refused == "" {
				require.NoError(t, err)
				received(t, m)
				return
			}
			require.ErrorContains(t, err, c.refused)
			assert.True(t, Misconfigured(err), err)
			assert.False(t, Permanent(err))
			assert.NotContains(t, asked, servers.MailFrom)
		})
	}
}

func TestSend_signsIn(t *testing.T) {
	t.Parallel()
	m := start(t, servers.MailOptions{User: "forum@forum.example", Password: "correct/horse@:#?"})
	require.NoError(t, open(t, Config{SMTP: m.URL()}).Send(t.Context(), reset()))
	received(t, m)
	for _, place := range []string{
		strings.Replace(m.URL(), "correct", "wrong", 1), "smtp://" + m.URL()[strings.LastIndex(m.URL(), "@")+1:],
	} {
		err := open(t, Config{SMTP: place}).Send(t.Context(), reset())
		require.Error(t, err)
		assert.True(t, Misconfigured(err), err)
		assert.False(t, Permanent(err), err)
		assert.NotContains(t, err.Error(), "horse")
	}
}

func TestCheckServer(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]server{
		"smtp://mail.example":                {host: "mail.example", port: 587},
		"smtps://mail.example":               {host: "mail.example", port: 465, tls: true},
		"smtp://127.0.0.1:25":                {host: "127.0.0.1", port: 25},
		"smtp://[::1]:2525":                  {host: "::1", port: 2525},
		"smtps://a%40b:c%2Fd@mail.example:1": {host: "mail.example", port: 1, tls: true, user: "a@b", password: "c/d"},
	} {
		got, err := parseServer(s)
		require.NoError(t, err, s)
		assert.Equal(t, want, got, s)
	}
	for _, s := range []string{
		"", "mail.example", "mail.example:25", "http://u:secret@mail.example", "smtp:u:secret@mail.example",
		"smtp://", "smtp://:25", "smtp://u:secret@", "smtp://u@mail.example", "smtp://u:@mail.example",
		"smtp://:secret@mail.example", "smtp://u:secret@mail.example:0", "smtp://u:secret@mail.example:65536",
		"smtp://u:secret@mail.example:", "smtp://u:secret@mail.example:smtp", "smtp://u:secret@mail.example/",
		"smtp://u:secret@mail.example/x", "smtp://u:secret@mail.example?x=1", "smtp://u:secret@mail.example#",
		"smtp://u:secret/x@mail.example", "smtp://u:secret%zz@mail.example", "smtp://u:secret@mail example",
		"smtp://u:secret\n@mail.example", "smtp://u:secret@mail$.example",
	} {
		err := CheckServer(s)
		require.ErrorContains(t, err, "smtp://USER:PASSWORD@HOST:587", s)
		assert.NotContains(t, err.Error(), "secret", s)
	}
}

func TestCheckFrom(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"forum@forum.example", "Forum <forum@forum.example>", "\"Fórum, the\" <a@b>"} {
		assert.NoError(t, CheckFrom(s), s)
	}
	for _, s := range []string{"", "forum", "a@b.example, c@d.example", "a@b.example\r\nBcc: c@d", "ä@b.example"} {
		assert.Error(t, CheckFrom(s), s)
	}
}

func TestOpen_checksItsConfig(t *testing.T) {
	t.Parallel()
	good := Config{SMTP: "smtp://u:secret@mail.example", From: "a@b.example", PublicURL: front}
	_, err := Open(good)
	require.NoError(t, err)
	for name, change := range map[string]func(*Config){
		"SMTP":      func(c *Config) { c.SMTP += "/" },
		"From":      func(c *Config) { c.From = "a" },
		"PublicURL": func(c *Config) { c.PublicURL = "" },
	} {
		c := good
		change(&c)
		_, err := Open(c)
		require.ErrorContains(t, err, name)
		assert.NotContains(t, err.Error(), "secret")
	}
}
