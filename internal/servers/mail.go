package servers

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/mail"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// Mail is an SMTP server in this process. It keeps each mail as a file that ends in .eml, and delivers none. Files are
// complete when they have their names, and their order is that in which the mails arrived. It is safe for concurrent
// use.
type Mail struct {
	dir      string
	options  MailOptions
	server   *smtp.Server
	listener net.Listener
	stopped  chan struct{} // closed by Stop
	served   chan struct{} // closed when nothing is accepted any longer

	mu     sync.Mutex
	script MailScript
	last   time.Time // of the last file, so that no two have the same
}

// MailOptions choose how a server is reached.
type MailOptions struct {
	TLS            *tls.Config // of STARTTLS; nil: the server has none
	Implicit       bool        // TLS from the first byte
	User, Password string      // that a client needs; "" for none
}

// MailStep is where a script acts on what a client does.
type MailStep string

// The steps of a mail.
const (
	MailHello     MailStep = "EHLO"
	MailFrom      MailStep = "MAIL FROM"
	MailTo        MailStep = "RCPT TO"
	MailContent   MailStep = "DATA"       // after the content; the mail is not kept yet
	MailKept      MailStep = "after DATA" // the mail is kept, and the server has not answered yet
	maxMailBytes           = 10 << 20
	mailIdleLimit          = time.Minute
)

// MailScript is called at each step, with the address of that step, which is the recipient's from MailTo on. It returns
// nil to go on, or what the server does instead: an answer of RefuseMail, ErrMailStalls or ErrMailHangsUp.
type MailScript func(step MailStep, address string) error

// What a script makes the server do.
var (
	ErrMailStalls  = errors.New("the server does not answer until it is stopped")
	ErrMailHangsUp = errors.New("the server closes the connection")
)

// RefuseMail returns an answer with a code such as 550, and an enhanced code such as 5.1.1.
func RefuseMail(code int, enhanced [3]int, text string) error {
	return &smtp.SMTPError{Code: code, EnhancedCode: enhanced, Message: text}
}

// StartMail starts a server on a free port of this machine. It keeps mails in the folder dir, which it makes if it is
// missing. The mails contain links with which accounts can be taken over, so only the owner can read them.
func StartMail(dir string, options MailOptions) (*Mail, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of mails: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for mails: %w", err)
	}
	m := &Mail{dir: dir, options: options, listener: listener,
		stopped: make(chan struct{}), served: make(chan struct{})}
	m.server = smtp.NewServer(smtp.BackendFunc(m.session))
	m.server.Domain = "localhost"
	m.server.AllowInsecureAuth = true // clients and server are on one machine
	m.server.MaxMessageBytes, m.server.MaxRecipients = maxMailBytes, 50
	m.server.ReadTimeout, m.server.WriteTimeout = mailIdleLimit, mailIdleLimit
	m.server.EnableSMTPUTF8 = true
	m.server.ErrorLog = silence{}
	served := listener
	switch {
	case options.Implicit:
		served = tls.NewListener(listener, options.TLS)
	case options.TLS != nil:
		m.server.TLSConfig = options.TLS
	}
	go func() {
		defer close(m.served)
		_ = m.server.Serve(served) // until Stop
	}()
	return m, nil
}

// silence is the log of clients that hang up.
type silence struct{}

func (silence) Printf(string, ...any) {}
func (silence) Println(...any)        {}

// Stop closes the listener and all connections. Mails stay in the folder. Only the first call has an effect.
func (m *Mail) Stop() error {
	m.mu.Lock()
	select {
	case <-m.stopped:
		m.mu.Unlock()
		return nil
	default:
		close(m.stopped)
	}
	m.mu.Unlock()
	err := m.server.Close()
	m.listener.Close() // Close does not know it if Serve has not begun
	<-m.served
	return err
}

// URL returns the address of the server, in the form of --smtp.
func (m *Mail) URL() string {
	u := url.URL{Scheme: "smtp", Host: m.listener.Addr().String()}
	if m.options.Implicit {
		u.Scheme = "smtps"
	}
	if m.options.User != "" {
		u.User = url.UserPassword(m.options.User, m.options.Password)
	}
	return u.String()
}

// Script sets what the server does from now on; nil: it accepts every mail.
func (m *Mail) Script(s MailScript) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.script = s
}

// KeptMail is a mail that the server has kept.
type KeptMail struct {
	Name   string // of its file
	Header mail.Header
	Body   string
}

// Mails returns the mails, the oldest first.
func (m *Mail) Mails() ([]KeptMail, error) {
	names, err := m.names()
	if err != nil {
		return nil, err
	}
	var list []KeptMail
	for _, name := range names {
		kept, err := m.read(name)
		if err != nil {
			return nil, err
		}
		list = append(list, *kept)
	}
	return list, nil
}

const mailExt = ".eml"

func (m *Mail) names() ([]string, error) {
	entries, err := os.ReadDir(m.dir)
	if err != nil {
		return nil, fmt.Errorf("list mails: %w", err)
	}
	var names []string
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), mailExt) {
			names = append(names, entry.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

func (m *Mail) read(name string) (*KeptMail, error) {
	content, err := os.ReadFile(filepath.Join(m.dir, name)) //nolint:gosec // callers have it from names
	if err != nil {
		return nil, fmt.Errorf("read mail: %w", err)
	}
	parsed, err := mail.ReadMessage(bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("read mail %s: %w", name, err)
	}
	body, err := io.ReadAll(parsed.Body)
	if err != nil {
		return nil, fmt.Errorf("read mail %s: %w", name, err)
	}
	return &KeptMail{name, parsed.Header, strings.ReplaceAll(string(body), "\r\n", "\n")}, nil
}

// keep writes a mail. It renames the file last, so that no reader sees a part of it.
func (m *Mail) keep(content []byte) error {
	m.mu.Lock()
	now := time.Now().UTC()
	if !now.After(m.last) {
		now = m.last.Add(time.Nanosecond)
	}
	m.last = now
	m.mu.Unlock()
	path := filepath.Join(m.dir, now.Format("20060102T150405.000000000Z")+"-"+rand.Text()[:6])
	if err := os.WriteFile(path+".part", content, 0o600); err != nil {
		return fmt.Errorf("keep mail: %w", err)
	}
	if err := os.Rename(path+".part", path+mailExt); err != nil {
		return fmt.Errorf("keep mail: %w", err)
	}
	return nil
}

// mailSession is a connection of a client.
type mailSession struct {
	mail     *Mail
	conn     *smtp.Conn
	signedIn bool
	to       string // the last recipient
}

func (m *Mail) session(c *smtp.Conn) (smtp.Session, error) {
	s := &mailSession{mail: m, conn: c, signedIn: m.options.User == ""}
	return s, s.act(MailHello, "")
}

// act does what the script wants.
func (s *mailSession) act(step MailStep, address string) error {
	s.mail.mu.Lock()
	script := s.mail.script
	s.mail.mu.Unlock()
	if script == nil {
		return nil
	}
	err := script(step, address)
	switch {
	case errors.Is(err, ErrMailStalls):
		<-s.mail.stopped
	case errors.Is(err, ErrMailHangsUp):
		_ = s.conn.Conn().Close() // the answer goes nowhere
	}
	return err
}

// AuthMechanisms returns the methods of signing in; none if no client needs to.
func (s *mailSession) AuthMechanisms() []string {
	if s.mail.options.User == "" {
		return nil
	}
	return []string{sasl.Plain}
}

// Auth returns what checks a password.
func (s *mailSession) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if user != s.mail.options.User || password != s.mail.options.Password {
			return smtp.ErrAuthFailed
		}
		s.signedIn = true
		return nil
	}), nil
}

// Mail begins a mail.
func (s *mailSession) Mail(from string, _ *smtp.MailOptions) error {
	if !s.signedIn {
		return smtp.ErrAuthRequired
	}
	return s.act(MailFrom, from)
}

// Rcpt adds a recipient.
func (s *mailSession) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.to = to
	return s.act(MailTo, to)
}

// Data receives the content.
func (s *mailSession) Data(r io.Reader) error {
	content, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if err := s.act(MailContent, s.to); err != nil {
		return err
	}
	if err := s.mail.keep(content); err != nil {
		return err
	}
	return s.act(MailKept, s.to)
}

// Reset forgets the mail that has begun.
func (s *mailSession) Reset() { s.to = "" }

// Logout has nothing to free.
func (s *mailSession) Logout() error { return nil }
