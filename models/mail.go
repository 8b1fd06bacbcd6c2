package models

import "time"

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
