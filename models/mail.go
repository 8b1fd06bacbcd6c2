package models

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"time"
)

// MailKind says what a mail is about.
type MailKind string

// The kinds of mails. Those with a link have its path at the public URL.
const (
	MailPasswordReset   MailKind = "password_reset"   // link to /reset, 30 minutes
	MailPasswordChanged MailKind = "password_changed" // a notice
	MailEmailConfirm    MailKind = "email_confirm"    // to a new address; link to /confirm, 24 hours
	MailEmailChanged    MailKind = "email_changed"    // to the address before; link to /undo, 72 hours
	MailRegistration    MailKind = "registration"     // link to /confirm, 24 hours
	MailAccountExists   MailKind = "account_exists"   // a notice to the owner of an address that registers again
	MailSecurity        MailKind = "security"         // a notice; Detail is a kind of event in the security log
)

// Mail is a mail that is due.
type Mail struct {
	ID        int64
	Kind      MailKind
	To        string    // an address
	Username  string    // of the account; "" if there is none
	Token     string    // of the link; "" if the mail has none
	Expires   time.Time // of the link
	Detail    string
	CreatedAt time.Time
	Attempts  int // that failed
}

// The lives of links, from the time when the mail is first sent.
const (
	ResetLinkLife   = 30 * time.Minute
	ConfirmLinkLife = 24 * time.Hour
	UndoLinkLife    = 72 * time.Hour
)

// LinkLife returns how long the link of a mail can be used; 0 if mails of this kind have none.
func (k MailKind) LinkLife() time.Duration {
	switch k {
	case MailPasswordReset:
		return ResetLinkLife
	case MailEmailConfirm, MailRegistration:
		return ConfirmLinkLife
	case MailEmailChanged:
		return UndoLinkLife
	}
	return 0
}

// MailLife is the time after which a mail that could not be sent is given up.
const MailLife = 24 * time.Hour

// MailsKept is how long a mail is listed after it was written.
const MailsKept = 30 * 24 * time.Hour

// LinkToken returns the token in the link of a mail, and its hash. It is derived from the id of the mail by a key of
// the site, so that it is stored nowhere and each attempt to send the mail sends the same link.
func LinkToken(key []byte, mailID int64) (token string, hash [32]byte) {
	h := hmac.New(sha256.New, key)
	fmt.Fprintf(h, "likewise link %d", mailID)
	token = base64.RawURLEncoding.EncodeToString(h.Sum(nil))
	return token, HashToken(token)
}
