package mail

import (
	"embed"
	"fmt"
	"net/url"
	"strings"
	"text/template"

	"likewise/models"
)

//go:embed texts/*.txt
var files embed.FS

var templates = template.Must(template.New("").Option("missingkey=error").ParseFS(files, "texts/*.txt"))

// kinds has what the templates, which are named after the kinds, do not have. A subject contains nothing that users
// write: %s is the name of the site. A mail with a path has a link.
var kinds = map[models.MailKind]struct{ subject, path string }{
	models.MailPasswordReset:   {"Choose a new password for %s", "/reset"},
	models.MailPasswordChanged: {"Your password for %s was changed", ""},
	models.MailEmailConfirm:    {"Confirm your address for %s", "/confirm"},
	models.MailEmailChanged:    {"Your address for %s was changed", "/undo"},
	models.MailRegistration:    {"Confirm your registration at %s", "/confirm"},
	models.MailAccountExists:   {"You already have an account at %s", ""},
	models.MailSecurity:        {"Your account at %s was changed", ""},
}

// changes says what the events of the security log mean to the owner of the account.
var changes = map[string]string{
	"username.changed": "Your username was changed.",
	"email.restored":   "A change of your address was undone.",
	"factor.added":     "A second factor was added.",
	"factor.removed":   "Your second factor was removed.",
	"factor.reset":     "Your second factor was removed, as an administrator requested.",
	"factor.reset_requested": "An administrator wants to remove your second factor, in a day. " +
		"If you did not ask for it, tell them.",
	"factor.reset_canceled":   "Your second factor is not going to be removed.",
	"recovery_codes.replaced": "New recovery codes were made. The old ones no longer work.",
}

// text is what people read of a mail.
type text struct{ subject, body string }

// compose returns the text of a mail. It returns an error for a kind without a text, and for a mail that lacks its
// link.
func (s *Sender) compose(m models.Mail) (*text, error) {
	kind, ok := kinds[m.Kind]
	if !ok {
		return nil, fmt.Errorf("mails of the kind %q have no text", m.Kind)
	}
	if (kind.path != "") != (m.Token != "") {
		return nil, fmt.Errorf("a mail of the kind %q has a link, or lacks it", m.Kind)
	}
	data := struct{ Site, URL, Username, Link, Until, Change string }{
		Site: s.site, URL: s.publicURL, Username: m.Username, Change: changes[m.Detail],
	}
	if data.Change == "" {
		data.Change = "A setting of its security was changed."
	}
	if kind.path != "" {
		data.Link = s.publicURL + kind.path + "?token=" + url.QueryEscape(m.Token)
		data.Until = m.Expires.UTC().Format("2 January 2006, 15:04") + " UTC"
	}
	var b strings.Builder
	if err := templates.ExecuteTemplate(&b, string(m.Kind)+".txt", data); err != nil {
		return nil, fmt.Errorf("text of a mail: %w", err)
	}
	return &text{fmt.Sprintf(kind.subject, s.site), b.String()}, nil
}
