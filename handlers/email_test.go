package handlers_test

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/handlers"
	"likewise/models"
	"likewise/models/accounts"
)

const newPassword = "seventeen violet umbrellas"

var mailKey = []byte("a key of 32 bytes for the tests.")

func withMail(c *handlers.Config) { c.Mail = true }

// kinds returns the statements since the last call, without the values in them.
func (s *sentStatements) kinds() []string {
	list := s.take()
	for i, statement := range list {
		list[i] = literal.ReplaceAllString(statement, "?")
	}
	return list
}

var literal = regexp.MustCompile(`'[^']*'|\b[0-9]+\b`)

// mails returns the mails that are due, as a mailer gets them.
func (a *api) mails(t *testing.T) []models.Mail {
	t.Helper()
	list, err := accounts.New(a.store).DueMails(t.Context(), mailKey, 100)
	require.NoError(t, err)
	for _, m := range list {
		require.NoError(t, accounts.New(a.store).MailSent(t.Context(), m.ID))
	}
	return list
}

// mail returns the only mail that is due.
func (a *api) mail(t *testing.T, kind models.MailKind, to string) models.Mail {
	t.Helper()
	list := a.mails(t)
	require.Len(t, list, 1)
	require.Equal(t, kind, list[0].Kind)
	require.Equal(t, to, list[0].To)
	return list[0]
}

// registered registers ada and passes over the mail that asks her to confirm her address.
func (a *api) registered(t *testing.T, name string) session {
	t.Helper()
	r := a.must(t, 201, account{}, "POST", "/v1/auth/register",
		obj{"username": name, "email": name + "@example.org", "password": "difference engine"})
	a.mails(t)
	return read[session](t, r)
}

// reset asks for a reset and returns the token of the link.
func (a *api) reset(t *testing.T, email string) string {
	t.Helper()
	a.must(t, 202, account{}, "POST", "/v1/auth/password-reset", obj{"email": email})
	return a.mail(t, models.MailPasswordReset, email).Token
}

func (a *api) badLink(t *testing.T, path string, in obj) {
	t.Helper()
	a.refused(t, 403, "bad_link", account{}, "POST", path, in)
}

const confirmReset = "/v1/auth/password-reset/confirm"

func TestReset_replacesThePasswordAndEndsAllAccess(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[1], withMail)
	ada := a.registered(t, "ada")
	as := account{Token: ada.Token}
	script := read[struct{ Token string }](t, a.must(t, 201, as, "POST", "/v1/me/tokens",
		obj{"name": "script", "scopes": []string{"read"}}))
	token := a.reset(t, "ada@example.org")

	a.refusedField(t, 422, "invalid", "password", account{}, "POST", confirmReset,
		obj{"token": token, "password": "ada"})
	r := a.must(t, 204, account{}, "POST", confirmReset, obj{"token": token, "password": newPassword})
	assert.Empty(t, r.Body, "a reset signs nobody in")
	a.refused(t, 401, "unauthorized", as, "GET", "/v1/me", nil)
	a.refused(t, 401, "unauthorized", account{Token: script.Token}, "GET", "/v1/me", nil)
	a.badLink(t, confirmReset, obj{"token": token, "password": newPassword})
	a.mail(t, models.MailPasswordChanged, "ada@example.org")

	a.refused(t, 401, "unauthorized", account{}, "POST", "/v1/auth/login",
		obj{"login": "ada", "password": "difference engine"})
	in := read[session](t, a.must(t, 200, account{}, "POST", "/v1/auth/login",
		obj{"login": "ada", "password": newPassword}))
	me := read[addresses](t, a.must(t, 200, account{Token: in.Token}, "GET", "/v1/me", nil))
	assert.True(t, me.EmailVerified, "the link has shown that the address is hers")
	assert.Nil(t, me.PendingEmail)
}

func TestReset_isTheSameForEveryAddress(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[1], withMail)
	a.registered(t, "ada")
	ask := func(email string) (string, []string) {
		a.sent.take()
		r := a.must(t, 202, account{}, "POST", "/v1/auth/password-reset", obj{"email": email})
		return string(r.Body), a.sent.kinds()
	}
	body, statements := ask("ada@example.org")
	other, others := ask("nobody@example.org")
	assert.Equal(t, body, other)
	require.NotEmpty(t, statements)
	assert.Equal(t, statements, others)
	require.Len(t, a.mails(t), 1, "nobody has no account, and gets no mail")
}

func TestReset_worksOnceAmongMany(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[1], withMail)
	a.registered(t, "ada")
	token := a.reset(t, "ada@example.org")
	var wg sync.WaitGroup
	var done, refused atomic.Int32
	for range 50 {
		wg.Go(func() {
			r := a.send(t, account{}, "POST", confirmReset, obj{"token": token, "password": newPassword})
			switch r.Status {
			case http.StatusNoContent:
				done.Add(1)
			case http.StatusForbidden:
				refused.Add(1)
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, 1, done.Load())
	assert.EqualValues(t, 49, refused.Load())
}

func TestReset_linkEnds(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[1], withMail)
	ada := a.registered(t, "ada")
	as := account{Token: ada.Token}
	ended := func(why, token string) {
		t.Helper()
		t.Log(why)
		a.badLink(t, confirmReset, obj{"token": token, "password": newPassword})
	}
	old := a.reset(t, "ada@example.org")
	token := a.reset(t, "ada@example.org")
	ended("a newer one replaces it", old)

	a.badLink(t, "/v1/auth/email/confirm", obj{"token": token}) // another purpose
	a.badLink(t, "/v1/auth/email/undo", obj{"token": token})

	a.must(t, 204, as, "PUT", "/v1/me/password",
		obj{"current_password": "difference engine", "new_password": newPassword})
	ended("the password was changed", token)
	a.mails(t)

	token = a.reset(t, "ada@example.org")
	a.exec(t, "UPDATE account_links SET expires_at=UTC_TIMESTAMP() WHERE ended_at IS NULL")
	ended("it has expired", token)

	a.must(t, 202, account{}, "POST", "/v1/auth/password-reset", obj{"email": "ada@example.org"})
	a.must(t, 204, as, "PUT", "/v1/me/password",
		obj{"current_password": newPassword, "new_password": "difference engine"})
	for _, m := range a.mails(t) {
		assert.NotEqual(t, models.MailPasswordReset, m.Kind, "a mail that was asked for before the change")
	}

	token = a.reset(t, "ada@example.org")
	a.must(t, 202, as, "PUT", "/v1/me/email", obj{"email": "lovelace@example.org"})
	confirm := a.mail(t, models.MailEmailConfirm, "lovelace@example.org").Token
	a.must(t, 204, account{}, "POST", "/v1/auth/email/confirm", obj{"token": confirm})
	ended("the address was changed", token)
}

// A mail whose server hung up after it had taken it is sent again. Its reader may have used the link meanwhile.
func TestReset_repeatedMailRevivesNoLink(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[1], withMail)
	a.registered(t, "ada")
	store := accounts.New(a.store)
	due := func() []models.Mail {
		list, err := store.DueMails(t.Context(), mailKey, 10)
		require.NoError(t, err)
		return list
	}
	a.must(t, 202, account{}, "POST", "/v1/auth/password-reset", obj{"email": "ada@example.org"})
	first := due()
	require.Len(t, first, 1)
	assert.Empty(t, due(), "another mailer has it")
	a.exec(t, "UPDATE mails SET due_at=created_at WHERE due_at IS NOT NULL")
	again := due()
	require.Len(t, again, 1)
	assert.Equal(t, first[0].Token, again[0].Token)

	a.must(t, 204, account{}, "POST", confirmReset, obj{"token": first[0].Token, "password": newPassword})
	a.exec(t, "UPDATE mails SET due_at=created_at WHERE kind='password_reset'")
	for _, m := range due() {
		assert.NotEqual(t, models.MailPasswordReset, m.Kind)
	}
	a.badLink(t, confirmReset, obj{"token": first[0].Token, "password": newPassword})
}

func TestMail_isRefusedWithoutMail(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.registered(t, "ada")
	a.refused(t, 403, "mail_off", account{}, "POST", "/v1/auth/password-reset", obj{"email": "ada@example.org"})
	a.refused(t, 403, "mail_off", account{Token: ada.Token}, "PUT", "/v1/me/email", obj{"email": "b@example.org"})
}

// me is the part of an account that its address changes.
type addresses struct {
	Email         *string
	EmailVerified bool    `json:"email_verified"`
	PendingEmail  *string `json:"pending_email"`
}

func TestEmail_changesWhenItIsConfirmed(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[1], withMail)
	ada := a.registered(t, "ada")
	as := account{Token: ada.Token}
	me := func() addresses { return read[addresses](t, a.must(t, 200, as, "GET", "/v1/me", nil)) }
	assert.False(t, me().EmailVerified)

	a.refusedField(t, 422, "invalid", "email", as, "PUT", "/v1/me/email", obj{"email": "nowhere"})
	a.must(t, 202, as, "PUT", "/v1/me/email", obj{"email": "first@example.org"})
	first := a.mail(t, models.MailEmailConfirm, "first@example.org").Token
	// A link must not confirm the address that took the place of its own.
	a.must(t, 202, as, "PUT", "/v1/me/email", obj{"email": "second@example.org"})
	a.badLink(t, "/v1/auth/email/confirm", obj{"token": first})
	second := a.mail(t, models.MailEmailConfirm, "second@example.org").Token
	a.badLink(t, "/v1/auth/email/confirm", obj{"token": first})
	assert.Equal(t, "ada@example.org", *me().Email)

	a.must(t, 204, account{}, "POST", "/v1/auth/email/confirm", obj{"token": second})
	a.badLink(t, "/v1/auth/email/confirm", obj{"token": second})
	now := me()
	assert.Equal(t, "second@example.org", *now.Email)
	assert.True(t, now.EmailVerified)
	assert.Nil(t, now.PendingEmail)

	undo := a.mail(t, models.MailEmailChanged, "ada@example.org").Token
	a.must(t, 204, account{}, "POST", "/v1/auth/email/undo", obj{"token": undo})
	a.refused(t, 401, "unauthorized", as, "GET", "/v1/me", nil)
	assert.EqualValues(t, 1, a.number(t, "SELECT COUNT(*) FROM users WHERE email='ada@example.org'"))
	a.badLink(t, "/v1/auth/email/undo", obj{"token": undo})
}

// Somebody who has taken over an account changes the address twice, and the password. The owner can undo it, and the
// thief cannot undo that.
func TestEmail_undoOutlivesLaterChanges(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[1], withMail)
	as := account{Token: a.registered(t, "ada").Token}
	var undo []string
	for _, email := range []string{"thief1@example.org", "thief2@example.org"} {
		a.must(t, 202, as, "PUT", "/v1/me/email", obj{"email": email})
		a.must(t, 204, account{}, "POST", "/v1/auth/email/confirm",
			obj{"token": a.mail(t, models.MailEmailConfirm, email).Token})
		list := a.mails(t)
		require.Len(t, list, 1)
		undo = append(undo, list[0].Token)
	}
	a.must(t, 204, as, "PUT", "/v1/me/password",
		obj{"current_password": "difference engine", "new_password": newPassword})
	a.must(t, 204, account{}, "POST", "/v1/auth/email/undo", obj{"token": undo[0]})
	a.badLink(t, "/v1/auth/email/undo", obj{"token": undo[1]})
	assert.EqualValues(t, 1, a.number(t, "SELECT COUNT(*) FROM users WHERE email='ada@example.org'"))
}

// Whether an address is known is told to its owner alone.
func TestEmail_ofAnotherAccountIsNotRevealed(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[1], withMail)
	as := account{Token: a.registered(t, "ada").Token}
	a.registered(t, "bob")
	a.must(t, 202, as, "PUT", "/v1/me/email", obj{"email": "bob@example.org"})
	m := a.mail(t, models.MailAccountExists, "bob@example.org")
	assert.Empty(t, m.Token)
	assert.Empty(t, m.Username)
	assert.Zero(t, a.number(t, `
		SELECT COUNT(*)
		FROM account_links l
		JOIN users u ON u.id=l.user_id
		WHERE l.ended_at IS NULL AND l.address LIKE 'bob%' AND u.username='ada'`))
}

func TestRegister_verifiesTheAddressFirst(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[1], withMail, func(c *handlers.Config) { c.Registration = handlers.RegistrationVerified })
	register := func(name, email string) string {
		a.sent.take()
		r := a.must(t, 202, account{}, "POST", "/v1/auth/register",
			obj{"username": name, "email": email, "password": "difference engine"})
		return string(r.Body) + strings.Join(a.sent.kinds(), "\n")
	}
	unknown := register("ada", "ada@example.org")
	retried := header{"Idempotency-Key", "a registration that is repeated"}
	for range 2 {
		a.must(t, 202, account{}, "POST", "/v1/auth/register",
			obj{"username": "grace", "email": "grace@example.org", "password": "difference engine"}, retried)
	}
	assert.EqualValues(t, 1, a.number(t, "SELECT COUNT(*) FROM registrations WHERE username='grace'"))
	a.exec(t, "DELETE FROM mails WHERE address='grace@example.org'")
	token := a.mail(t, models.MailRegistration, "ada@example.org").Token
	a.refused(t, 401, "unauthorized", account{}, "POST", "/v1/auth/login",
		obj{"login": "ada", "password": "difference engine"})
	a.must(t, 204, account{}, "POST", "/v1/auth/email/confirm", obj{"token": token})
	in := read[session](t, a.must(t, 200, account{}, "POST", "/v1/auth/login",
		obj{"login": "ada", "password": "difference engine"}))
	assert.True(t, read[addresses](t, a.must(t, 200, account{Token: in.Token}, "GET", "/v1/me", nil)).EmailVerified)
	a.badLink(t, "/v1/auth/email/confirm", obj{"token": token})

	assert.Equal(t, unknown, register("ada2", "ada@example.org"), "a known address")
	assert.Empty(t, a.mail(t, models.MailAccountExists, "ada@example.org").Token)
	a.refusedField(t, 409, "conflict", "username", account{}, "POST", "/v1/auth/register",
		obj{"username": "ada", "email": "new@example.org", "password": "difference engine"})

	// Nothing is reserved meanwhile: of two with the same name, one gets it.
	register("eve", "eve1@example.org")
	first := a.mail(t, models.MailRegistration, "eve1@example.org").Token
	register("eve", "eve2@example.org")
	second := a.mail(t, models.MailRegistration, "eve2@example.org").Token
	a.must(t, 204, account{}, "POST", "/v1/auth/email/confirm", obj{"token": second})
	a.refusedField(t, 409, "conflict", "username", account{}, "POST", "/v1/auth/email/confirm", obj{"token": first})
}

func TestRegister_canBeClosed(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], func(c *handlers.Config) { c.Registration = handlers.RegistrationClosed })
	a.refused(t, 403, "registration_closed", account{}, "POST", "/v1/auth/register",
		obj{"username": "ada", "email": "ada@example.org", "password": "difference engine"})
}

// No dump of the database has a token that works.
func TestMail_tokenIsNowhere(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[1], withMail)
	a.registered(t, "ada")
	token := a.reset(t, "ada@example.org")
	for _, table := range []string{"mails", "account_links", "users", "security_log", "idempotency_keys"} {
		var rows []map[string]any
		require.NoError(t, a.store.Read(t.Context()).Table(table).Find(&rows).Error)
		assert.NotContains(t, fmt.Sprintf("%s", rows), token, table)
	}
	assert.NotContains(t, a.log.String(), token)
}

// A mail that cannot be sent is tried again after a pause that grows, and given up after a day.
func TestMail_isTriedForADay(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], withMail)
	store := accounts.New(a.store)
	a.must(t, 201, account{}, "POST", "/v1/auth/register",
		obj{"username": "ada", "email": "ada@example.org", "password": "difference engine"})
	oldest, err := store.OldestMail(t.Context())
	require.NoError(t, err)
	assert.WithinDuration(t, time.Now(), oldest, time.Minute)
	list, err := store.DueMails(t.Context(), mailKey, 10)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.NoError(t, store.MailFailed(t.Context(), list[0].ID, false, "451 try\r\nagain\x00 later"))
	assert.EqualValues(t, 1, a.number(t, `SELECT COUNT(*) FROM mails WHERE attempts=1 AND outcome='' AND
		due_at>UTC_TIMESTAMP() AND failure<>''`))
	a.exec(t, "UPDATE mails SET due_at=created_at, created_at=created_at - INTERVAL 1 DAY")
	list, err = store.DueMails(t.Context(), mailKey, 10)
	require.NoError(t, err)
	assert.Empty(t, list)
	assert.EqualValues(t, 1, a.number(t, "SELECT COUNT(*) FROM mails WHERE outcome='expired' AND due_at IS NULL"))
	oldest, err = store.OldestMail(t.Context())
	require.NoError(t, err)
	assert.Zero(t, oldest)

	a.must(t, 202, account{}, "POST", "/v1/auth/password-reset", obj{"email": "ada@example.org"})
	list, err = store.DueMails(t.Context(), mailKey, 10)
	require.NoError(t, err)
	require.Len(t, list, 1)
	require.NoError(t, store.MailFailed(t.Context(), list[0].ID, true, "550 no such user"))
	assert.EqualValues(t, 1, a.number(t, "SELECT COUNT(*) FROM mails WHERE outcome='refused' AND due_at IS NULL"))
	assert.EqualValues(t, 1, a.number(t, "SELECT COUNT(*) FROM users WHERE email_undeliverable"))
}

// A deleted account leaves no mail, no link and no address behind.
func TestDeleteMe_forgetsMail(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], withMail)
	as := account{Token: a.registered(t, "ada").Token}
	token := a.reset(t, "ada@example.org")
	a.must(t, 202, as, "PUT", "/v1/me/email", obj{"email": "lovelace@example.org"})
	a.must(t, 202, account{}, "POST", "/v1/auth/password-reset", obj{"email": "ada@example.org"})
	a.must(t, 204, as, "DELETE", "/v1/me", obj{"password": "difference engine"})
	assert.Zero(t, a.number(t, "SELECT (SELECT COUNT(*) FROM mails) + (SELECT COUNT(*) FROM account_links)"))
	assert.Zero(t, a.number(t, "SELECT COUNT(*) FROM users WHERE email LIKE '%example.org' OR pending_email<>''"))
	a.badLink(t, confirmReset, obj{"token": token, "password": newPassword})
}
