// Package mail sends the mails of accounts to an SMTP server.
//
// A mail is sent at least once. Its Message-ID depends on its row alone, so that a receiver can recognize a duplicate.
// Every connection is encrypted, unless the server is on this machine. Send returns within half a minute, whatever the
// server does. Errors contain neither the recipient, nor the token of a link, nor a password.
package mail

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	netmail "net/mail"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	gomail "github.com/wneessen/go-mail"
	"github.com/wneessen/go-mail/smtp"
	"golang.org/x/net/idna"

	"likewise/models"
)

// The time that a server may take.
const (
	commandTimeout = 10 * time.Second // for the connection, and for each command
	sendTimeout    = 30 * time.Second // for a mail
	quitTimeout    = time.Second      // to answer QUIT, after the mail is accepted
)

// agent is the User-Agent of mails.
const agent = "Likewise"

// Config holds the settings of a Sender.
type Config struct {
	SMTP      string // smtp[s]://USER:PASSWORD@HOST:PORT; see CheckServer
	From      string // an address, with or without a name; see CheckFrom
	PublicURL string // of the front end, which the links lead to, without a slash at its end
	SiteName  string // "" means the host of PublicURL

	RootCAs *x509.CertPool // that sign the certificate of the server; nil means those of the system
}

// Sender sends mails. It is safe for concurrent use. It keeps no connection.
type Sender struct {
	server    server
	from      *netmail.Address
	site      string
	publicURL string
	host      string // of publicURL
	roots     *x509.CertPool

	command, whole time.Duration // see commandTimeout and sendTimeout
	dial           func(ctx context.Context, network, address string) (net.Conn, error)
}

// Open returns a Sender. It connects to nothing.
func Open(c Config) (*Sender, error) {
	to, err := parseServer(c.SMTP)
	if err != nil {
		return nil, fmt.Errorf("mail: Config.SMTP %w", err)
	}
	from, err := parseFrom(c.From)
	if err != nil {
		return nil, fmt.Errorf("mail: Config.From %w", err)
	}
	u, err := url.Parse(c.PublicURL)
	if err != nil || u.Hostname() == "" || strings.HasSuffix(c.PublicURL, "/") {
		return nil, fmt.Errorf("mail: Config.PublicURL %q is not of the form https://HOST", c.PublicURL)
	}
	if strings.ContainsFunc(c.SiteName, func(r rune) bool { return r < ' ' || r == '\x7f' }) {
		return nil, errors.New("mail: Config.SiteName has a control character")
	}
	host, err := idna.Lookup.ToASCII(u.Hostname())
	if err != nil {
		host = u.Hostname() // an address
	}
	if from.Name == "" {
		from.Name = c.SiteName
	}
	s := &Sender{
		server: to, from: from, site: c.SiteName, publicURL: c.PublicURL, host: host, roots: c.RootCAs,
		command: commandTimeout, whole: sendTimeout, dial: new(net.Dialer).DialContext,
	}
	if s.site == "" {
		s.site = u.Host
	}
	return s, nil
}

// server is the place of an SMTP server.
type server struct {
	host           string
	port           int
	tls            bool // from the first byte
	user, password string
}

// serverForm is the form of the place, with the usual ports.
const serverForm = "smtp://USER:PASSWORD@HOST:587 or smtps://USER:PASSWORD@HOST:465" //nolint:gosec // placeholders

// CheckServer returns an error unless s is of the form smtp[s]://[USER:PASSWORD@]HOST[:PORT]. With smtp the connection
// begins in clear and is encrypted by STARTTLS; with smtps it is encrypted from the start. The error does not contain
// s, which has a password.
func CheckServer(s string) error {
	_, err := parseServer(s)
	return err
}

func parseServer(s string) (to server, err error) {
	form := func(what string) error { return fmt.Errorf("%s; it must be of the form %s", what, serverForm) }
	u, err := url.Parse(s)
	if err != nil {
		// The cause would show the password.
		return to, form("cannot be read, or has a password that is not percent-encoded")
	}
	password, hasPassword := u.User.Password()
	to = server{host: u.Hostname(), user: u.User.Username(), password: password, tls: u.Scheme == "smtps"}
	switch {
	case u.Scheme != "smtp" && u.Scheme != "smtps":
		return to, form("does not begin with smtp:// or smtps://")
	case to.host == "" || u.Opaque != "":
		return to, form("has no host")
	case u.Path != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.HasSuffix(s, "#"):
		return to, form("has more than a host and a port, or a password that is not percent-encoded")
	case u.User != nil && (to.user == "" || !hasPassword || password == ""):
		return to, form("has a user without a password, or a password without a user")
	case !validHost(to.host):
		return to, form("has a host that cannot be read")
	}
	port := u.Port()
	switch {
	case port != "":
	case strings.HasSuffix(u.Host, ":"):
		return to, form("has no port behind its colon")
	case to.tls:
		port = "465"
	default:
		port = "587"
	}
	if to.port, err = strconv.Atoi(port); err != nil || to.port < 1 || to.port > 65535 {
		return to, form("has a port that is not from 1 to 65535")
	}
	return to, nil
}

// validHost reports whether a host is an address or a name.
func validHost(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return !strings.ContainsFunc(host, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune(".-_", r)
	})
}

// local reports whether the server is on this machine.
func (s server) local() bool {
	ip, err := netip.ParseAddr(s.host)
	return s.host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// CheckFrom returns an error unless s is an address such as forum@forum.example, or "Forum <forum@forum.example>".
func CheckFrom(s string) error {
	_, err := parseFrom(s)
	return err
}

func parseFrom(s string) (*netmail.Address, error) {
	a, err := netmail.ParseAddress(s)
	if err != nil || !plain(a.Address) || strings.ContainsFunc(a.Name, func(r rune) bool { return r < ' ' }) {
		return nil, fmt.Errorf("%q is not an address such as forum@forum.example or Forum <forum@forum.example>", s)
	}
	return a, nil
}

// plain reports whether every mail server accepts the characters of an address.
func plain(address string) bool {
	return !strings.ContainsFunc(address, func(r rune) bool { return r <= ' ' || r >= '\x7f' })
}

// Send sends a mail. It returns nil once the server has accepted the mail, and otherwise an *Error. After one that is
// not Permanent the mail may have been accepted: if the connection was lost, nobody knows.
func (s *Sender) Send(ctx context.Context, m models.Mail) error {
	ctx, cancel := context.WithTimeout(ctx, s.whole)
	defer cancel()
	e := s.send(ctx, m)
	if e == nil {
		return nil
	}
	if ctx.Err() != nil {
		e.cause = ctx.Err() // and not that the connection was closed
	}
	e.hide(m.Token, m.To, s.server.password)
	return e
}

func (s *Sender) send(ctx context.Context, m models.Mail) *Error {
	to, err := recipient(m.To)
	if err != nil {
		return &Error{Step: StepRecipient, permanent: true, cause: err}
	}
	body, err := s.compose(m)
	if err != nil {
		return &Error{Step: StepCompose, cause: err}
	}
	client, done, err := s.connect(ctx, plain(to))
	if err != nil {
		return failed(StepConnect, err)
	}
	defer done()
	text := s.message(m, to, body, client)
	for _, command := range []struct {
		step Step
		run  func() error
	}{
		{StepSender, func() error { return client.Mail(angled(s.from.Address)) }},
		{StepRecipient, func() error { return client.Rcpt(angled(to)) }},
		{StepContent, func() error { return transmit(client, text) }},
	} {
		if err := client.UpdateDeadline(s.command); err != nil {
			return failed(command.step, err)
		}
		if err := command.run(); err != nil {
			return failed(command.step, err)
		}
	}
	if client.UpdateDeadline(quitTimeout) == nil {
		_ = client.Quit() // the mail is accepted, whatever the server answers now
	}
	return nil
}

// recipient returns the address in the form of the envelope, whose domain is in ASCII.
func recipient(address string) (string, error) {
	a, err := netmail.ParseAddress(address)
	if err != nil || a.Address != address || strings.ContainsFunc(address, func(r rune) bool { return r <= ' ' }) {
		return "", errors.New("the address is not valid")
	}
	at := strings.LastIndexByte(address, '@')
	if domain, err := idna.Lookup.ToASCII(address[at+1:]); err == nil {
		return address[:at+1] + domain, nil
	}
	return address, nil
}

// angled returns an address as the commands have it.
func angled(address string) string { return (&netmail.Address{Address: address}).String() }

// connect returns a client that has signed in. The caller calls done, which closes the connection. The end of ctx
// closes it, too. The client of the library changes while it connects, so each mail has one of its own.
func (s *Sender) connect(ctx context.Context, ascii bool) (_ *smtp.Client, done func(), err error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: s.server.host, RootCAs: s.roots}
	end := func() {}
	dial := func(dialing context.Context, network, address string) (net.Conn, error) {
		conn, err := s.dial(dialing, network, address)
		if err != nil {
			return nil, err
		}
		stop := context.AfterFunc(ctx, func() { conn.Close() })
		end = func() { stop(); conn.Close() }
		if !s.server.tls {
			return conn, nil
		}
		encrypted := tls.Client(conn, config)
		return encrypted, encrypted.HandshakeContext(dialing)
	}
	options := []gomail.Option{
		gomail.WithPort(s.server.port), gomail.WithTimeout(s.command), gomail.WithHELO(literal(s.host)),
		gomail.WithTLSConfig(config), gomail.WithTLSPolicy(gomail.TLSMandatory), gomail.WithDialContextFunc(dial),
	}
	switch {
	case s.server.tls:
		options = append(options, gomail.WithSSL())
	case s.server.local(): // whose certificate would name another host
		options = append(options, gomail.WithTLSPolicy(gomail.NoTLS))
	}
	if ascii {
		options = append(options, gomail.WithoutSMTPUTF8())
	}
	if s.server.user != "" {
		options = append(options, gomail.WithUsername(s.server.user), gomail.WithPassword(s.server.password),
			gomail.WithOpportunisticSMTPAuth(gomail.SMTPAuthSCRAMSHA256, gomail.SMTPAuthPlain, gomail.SMTPAuthLogin))
	}
	library, err := gomail.NewClient(s.server.host, options...)
	if err != nil {
		return nil, nil, err
	}
	client, err := library.DialToSMTPClientWithContext(ctx)
	if err != nil {
		end()
		return nil, nil, err
	}
	return client, end, nil
}

// literal returns a host as EHLO and Message-IDs have it: an address is in brackets.
func literal(host string) string {
	ip, err := netip.ParseAddr(host)
	switch {
	case err != nil:
		return host
	case ip.Is4():
		return "[" + host + "]"
	}
	return "[IPv6:" + host + "]"
}

// message returns the mail with its header.
func (s *Sender) message(m models.Mail, to string, t *text, client *smtp.Client) *gomail.Msg {
	encoding := gomail.NoEncoding // 8bit
	if ok, _ := client.Extension("8BITMIME"); !ok {
		encoding = gomail.EncodingQP
	}
	msg := gomail.NewMsg(gomail.WithCharset(gomail.CharsetUTF8), gomail.WithEncoding(encoding))
	msg.FromMailAddress(s.from)
	msg.ToMailAddress(&netmail.Address{Address: to})
	msg.Subject(t.subject)
	msg.SetMessageIDWithValue(s.messageID(m))
	msg.SetDateWithValue(m.CreatedAt.UTC())
	msg.SetUserAgent(agent)                              // sets X-Mailer, too
	msg.SetGenHeader("Auto-Submitted", "auto-generated") // RFC 3834: nobody answers that he is on holiday
	msg.SetGenHeader("X-Auto-Response-Suppress", "All")  // the same for Exchange
	msg.SetBodyString(gomail.TypeTextPlain, t.body)
	return msg
}

// messageID returns the Message-ID of a mail, without its brackets. It is a hash, because the ids of rows would show
// how many mails a site sends.
func (s *Sender) messageID(m models.Mail) string {
	h := sha256.New()
	_ = binary.Write(h, binary.BigEndian, []int64{m.ID, m.CreatedAt.UnixMilli()}) // a hash returns no errors
	h.Write([]byte(s.publicURL + "\x00" + string(m.Kind)))
	return hex.EncodeToString(h.Sum(nil)[:16]) + "@" + literal(s.host)
}

// transmit sends the content, and returns the error of the server's answer.
func transmit(client *smtp.Client, m *gomail.Msg) error {
	w, err := client.Data()
	if err != nil {
		return err
	}
	if _, err := m.WriteTo(w); err != nil {
		return err // Close would send what ends a mail
	}
	return w.Close()
}
