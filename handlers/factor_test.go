package handlers_test

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/handlers"
	"likewise/models"
)

type factors struct {
	TOTP *struct {
		CreatedAt time.Time `json:"created_at"`
	}
	RecoveryCodesLeft int        `json:"recovery_codes_left"`
	ResetDueAt        *time.Time `json:"reset_due_at"`
}

// keyed is an account with an app for codes.
type keyed struct {
	account

	seed     string
	recovery []string
}

func withKey(key string) func(*handlers.Config) {
	return func(c *handlers.Config) { c.SecretKey = []byte(key) }
}

// testKey is the secret key of tests.
const testKey = "a secret key for tests, of at least 32 bytes"

var secretKey = withKey(testKey)

// code returns the present code of an app. The server accepts it once; see forgetStep.
func code(t testing.TB, seed string) string {
	t.Helper()
	code, err := totp.GenerateCode(seed, time.Now())
	require.NoError(t, err)
	return code
}

// wrongCode returns a code that is not one of the app for some minutes.
func wrongCode(t testing.TB, seed string) string {
	t.Helper()
	near := map[string]bool{}
	for step := -10; step <= 10; step++ {
		code, err := totp.GenerateCode(seed, time.Now().Add(time.Duration(step)*30*time.Second))
		require.NoError(t, err)
		near[code] = true
	}
	for _, code := range []string{"000000", "111111", "222222"} {
		if !near[code] {
			return code
		}
	}
	t.Fatal("all codes are near")
	return ""
}

// arm adds an app for codes to an account.
func (a *api) arm(t *testing.T, as account) keyed {
	t.Helper()
	begun := read[struct{ Secret, URI string }](t, a.must(t, 200, as, "POST", "/v1/me/factors/totp", nil))
	assert.Contains(t, begun.URI, "otpauth://totp/forum.example:"+as.Name+"?")
	assert.Contains(t, begun.URI, "secret="+begun.Secret)
	in := read[struct {
		RecoveryCodes []string `json:"recovery_codes"`
	}](t, a.must(t, 200, as, "POST", "/v1/me/factors/totp/confirm", obj{"code": code(t, begun.Secret)}))
	assert.Len(t, in.RecoveryCodes, models.RecoveryCodes)
	return keyed{as, begun.Secret, in.RecoveryCodes}
}

// forgetStep has the server accept the present code of all apps once more, as if its time had come later.
func (a *api) forgetStep(t *testing.T) {
	t.Helper()
	a.exec(t, "UPDATE totp_factors SET last_step=0")
}

// challenge begins a login.
func (a *api) challenge(t testing.TB, name string) string {
	t.Helper()
	var p struct {
		Challenge string
		Factors   []string
	}
	_, r := a.refused(t, 401, "second_factor_required", account{}, "POST", "/v1/auth/login",
		obj{"login": name, "password": password})
	r.into(t, &p)
	require.Len(t, p.Challenge, 43)
	assert.Equal(t, []string{"totp", "recovery_code"}, p.Factors)
	return p.Challenge
}

const challengePath = "/v1/auth/challenge"

// answer ends a login.
func (a *api) answer(t *testing.T, challenge, code string) account {
	t.Helper()
	in := read[session](t, a.must(t, 200, account{}, "POST", challengePath, obj{"challenge": challenge, "code": code}))
	return account{in.User.ID, "", in.Token}
}

func (a *api) refusedCode(t *testing.T, challenge, code string) {
	t.Helper()
	a.refusedField(t, 403, "forbidden", "code", account{}, "POST", challengePath,
		obj{"challenge": challenge, "code": code})
}

func (a *api) refusedChallenge(t *testing.T, challenge, code string) {
	t.Helper()
	a.refused(t, 401, "unauthorized", account{}, "POST", challengePath, obj{"challenge": challenge, "code": code})
}

func TestFactors_areAddedAndRemoved(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], secretKey)
	as := a.person(t, "ada")
	none := read[factors](t, a.must(t, 200, as, "GET", "/v1/me/factors", nil))
	assert.Equal(t, factors{}, none)
	a.refused(t, 409, "conflict", as, "POST", "/v1/me/factors/totp/confirm", obj{"code": "123456"})
	a.refused(t, 409, "conflict", as, "POST", "/v1/me/factors/recovery-codes", nil)
	a.refused(t, 404, "not_found", as, "DELETE", "/v1/me/factors/totp", nil)

	// An app that was not confirmed changes nothing.
	begun := read[struct{ Secret string }](t, a.must(t, 200, as, "POST", "/v1/me/factors/totp", nil))
	phone := a.login(t, "ada", password)
	bot := as.with(a.newToken(t, as, "read").Token)
	a.refusedField(t, 403, "forbidden", "code", as, "POST", "/v1/me/factors/totp/confirm",
		obj{"code": wrongCode(t, begun.Secret)})

	ada := a.arm(t, as)
	a.refused(t, 401, "unauthorized", phone, "GET", "/v1/me", nil)
	a.refused(t, 401, "unauthorized", bot, "GET", "/v1/me", nil)
	a.refused(t, 409, "conflict", as, "POST", "/v1/me/factors/totp", nil)
	have := read[factors](t, a.must(t, 200, as, "GET", "/v1/me/factors", nil))
	assert.NotNil(t, have.TOTP)
	assert.Equal(t, models.RecoveryCodes, have.RecoveryCodesLeft)

	a.forgetStep(t)
	phone = a.answer(t, a.challenge(t, "ada"), code(t, ada.seed))
	a.must(t, 200, phone, "GET", "/v1/me", nil)
	replaced := read[struct {
		RecoveryCodes []string `json:"recovery_codes"`
	}](t, a.must(t, 200, phone, "POST", "/v1/me/factors/recovery-codes", nil)).RecoveryCodes
	challenge := a.challenge(t, "ada")
	a.refusedCode(t, challenge, ada.recovery[0])
	a.answer(t, challenge, strings.ToUpper(strings.ReplaceAll(replaced[0], "-", " ")))

	open := a.challenge(t, "ada")
	a.must(t, 204, phone, "DELETE", "/v1/me/factors/totp", nil)
	a.refused(t, 401, "unauthorized", as, "GET", "/v1/me", nil)
	a.refusedChallenge(t, open, replaced[1])
	assert.Equal(t, factors{}, read[factors](t, a.must(t, 200, phone, "GET", "/v1/me/factors", nil)))
	a.login(t, "ada", password)
	for _, kind := range []string{"factor.added", "factor.removed", "recovery_codes.replaced", "factor.failed"} {
		assert.NotZero(t, a.number(t, "SELECT COUNT(*) FROM security_log WHERE user_id=? AND kind=?", as.ID, kind),
			kind)
	}
}

func TestChallenge_acceptsEachCodeOnce(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], secretKey)
	ada := a.arm(t, a.person(t, "ada"))
	// The code that confirmed the app.
	a.refusedCode(t, a.challenge(t, "ada"), code(t, ada.seed))
	a.forgetStep(t)
	challenge, now := a.challenge(t, "ada"), code(t, ada.seed)
	a.answer(t, challenge, now)
	a.refusedChallenge(t, challenge, now)
	a.refusedCode(t, a.challenge(t, "ada"), now)
	// A code of the step before it.
	before, err := totp.GenerateCode(ada.seed, time.Now().Add(-30*time.Second))
	require.NoError(t, err)
	a.refusedCode(t, a.challenge(t, "ada"), before)

	a.answer(t, a.challenge(t, "ada"), ada.recovery[3])
	a.refusedCode(t, a.challenge(t, "ada"), ada.recovery[3])
	left := read[factors](t, a.must(t, 200, ada.account, "GET", "/v1/me/factors", nil)).RecoveryCodesLeft
	assert.Equal(t, models.RecoveryCodes-1, left)
}

func TestChallenge_opensOneSessionForManyAnswersAtOnce(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], secretKey)
	ada := a.arm(t, a.person(t, "ada"))
	for name, sent := range map[string]func() string{
		"an app":          func() string { a.forgetStep(t); return code(t, ada.seed) },
		"a recovery code": func() string { return ada.recovery[0] },
	} {
		code, challenges := sent(), [50]string{}
		for i := range challenges {
			if challenges[i] = challenges[0]; i%2 == 0 { // half of them share a challenge
				challenges[i] = a.challenge(t, "ada")
			}
		}
		var opened atomic.Int64
		var wg sync.WaitGroup
		for _, challenge := range challenges {
			wg.Go(func() {
				r, err := a.try(account{}, "POST", challengePath, obj{"challenge": challenge, "code": code})
				if assert.NoError(t, err) && r.Status == http.StatusOK {
					opened.Add(1)
				}
			})
		}
		wg.Wait()
		assert.EqualValues(t, 1, opened.Load(), name)
		a.exec(t, "UPDATE totp_factors SET wrong_codes=0")
	}
}

func TestChallenge_isVoidAfterItsTimeAndChangesOfTheAccount(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], secretKey)
	ada := a.arm(t, a.person(t, "ada"))
	bob := a.arm(t, a.person(t, "bob"))
	a.refusedChallenge(t, "x", ada.recovery[0])
	a.refusedChallenge(t, "", ada.recovery[0])
	a.refusedCode(t, a.challenge(t, "bob"), ada.recovery[0]) // the code of another account

	challenge := a.challenge(t, "ada")
	a.exec(t, "UPDATE login_challenges SET expires_at=expires_at - INTERVAL 5 MINUTE")
	a.refusedChallenge(t, challenge, ada.recovery[0])

	challenge = a.challenge(t, "ada")
	a.must(t, 204, ada.account, "PUT", "/v1/me/password",
		obj{"current_password": password, "new_password": "analytical engine"})
	a.refusedChallenge(t, challenge, ada.recovery[0])

	challenge = a.challenge(t, "bob")
	admin := a.promoted(t, a.account(t), models.RoleAdmin)
	a.must(t, 200, admin, "POST", adminPath(bob.account, "ban"), obj{"reason": "Spam."})
	a.must(t, 204, admin, "POST", adminPath(bob.account, "unban"), obj{"reason": "A mistake."})
	a.refusedChallenge(t, challenge, bob.recovery[0])

	challenge = a.challenge(t, "bob")
	again := a.answer(t, a.challenge(t, "bob"), bob.recovery[1])
	a.must(t, 204, again, "DELETE", "/v1/me", obj{"password": password})
	a.refusedChallenge(t, challenge, bob.recovery[0])
	for _, table := range []string{"totp_factors", "recovery_codes", "login_challenges"} {
		assert.Zero(t, a.number(t, "SELECT COUNT(*) FROM "+table+" WHERE user_id=?", bob.ID), table)
	}
}

// A new challenge allows nobody more guesses. Recovery codes cannot be guessed, so the owner gets in all the same.
func TestChallenge_boundsWrongCodes(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], secretKey)
	ada := a.arm(t, a.person(t, "ada"))
	wrong := wrongCode(t, ada.seed)
	for range models.MaxWrongCodes / models.MaxTries {
		challenge := a.challenge(t, "ada")
		for range models.MaxTries {
			a.refusedCode(t, challenge, wrong)
		}
		a.refusedChallenge(t, challenge, ada.recovery[0])
	}
	a.forgetStep(t)
	right := code(t, ada.seed)
	_, r := a.refused(t, 429, "rate_limited", account{}, "POST", challengePath,
		obj{"challenge": a.challenge(t, "ada"), "code": right})
	assert.NotEmpty(t, r.Header.Get("Retry-After"))
	a.answer(t, a.challenge(t, "ada"), ada.recovery[0])
	a.exec(t, "UPDATE totp_factors SET wrong_since=wrong_since - INTERVAL 1 HOUR")
	a.forgetStep(t)
	a.answer(t, a.challenge(t, "ada"), code(t, ada.seed))
}

// A site that has lost its key asks for a code all the same.
func TestChallenge_needsTheKeyOfTheSeed(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], secretKey)
	ada := a.arm(t, a.person(t, "ada"))
	a.forgetStep(t)
	for i, changed := range []func(*handlers.Config){
		withKey("another key for tests, of at least 32 bytes"), func(*handlers.Config) {},
	} {
		b := serve(t, a.store, changed)
		challenge := b.challenge(t, "ada")
		b.refused(t, 403, "second_factors_off", account{}, "POST", challengePath,
			obj{"challenge": challenge, "code": code(t, ada.seed)})
		b.answer(t, challenge, ada.recovery[i])
	}
	bare := serve(t, a.store)
	bare.refused(t, 403, "second_factors_off", a.person(t, "bob"), "POST", "/v1/me/factors/totp", nil)
	// Nor does the seed of one account open for another.
	bob := a.arm(t, a.login(t, "bob", password))
	a.exec(t, `
		UPDATE totp_factors t
		JOIN totp_factors o ON o.user_id=?
		SET t.seed=o.seed, t.last_step=0
		WHERE t.user_id=?`, bob.ID, ada.ID)
	a.refused(t, 403, "second_factors_off", account{}, "POST", challengePath,
		obj{"challenge": a.challenge(t, "ada"), "code": code(t, bob.seed)})
}

func TestStaff_needASecondFactor(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], secretKey, func(c *handlers.Config) { c.StaffSecondFactor = true })
	a.person(t, "grace")
	a.exec(t, "UPDATE users SET role=2 WHERE username='grace'")
	mod := a.login(t, "grace", password)
	const path = "/v1/admin/reports"
	bot := mod.with(a.newToken(t, mod, "moderate").Token)
	a.refused(t, 403, "second_factor_missing", mod, "GET", path, nil)
	a.refused(t, 403, "second_factor_missing", bot, "GET", path, nil)
	a.must(t, 200, mod, "GET", "/v1/me", nil)

	staff := a.arm(t, mod)
	a.must(t, 200, mod, "GET", path, nil) // it has shown a code
	bot = mod.with(a.newToken(t, mod, "moderate").Token)
	a.must(t, 200, bot, "GET", path, nil)
	a.must(t, 200, a.answer(t, a.challenge(t, "grace"), staff.recovery[0]), "GET", path, nil)
	a.must(t, 204, mod, "DELETE", "/v1/me/factors/totp", nil)
	a.refused(t, 403, "second_factor_missing", mod, "GET", path, nil)
}

func TestFactorReset_takesADay(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0], secretKey)
	ada := a.arm(t, a.person(t, "ada"))
	admin := a.promoted(t, a.account(t), models.RoleAdmin)
	mod := a.promoted(t, a.account(t), models.RoleModerator)
	path, reason := adminPath(ada.account, "factor-reset"), obj{"reason": "She lost her phone."}
	a.refused(t, 403, "forbidden", mod, "POST", path, reason)
	a.refused(t, 409, "conflict", admin, "POST", adminPath(mod, "factor-reset"), reason)
	a.refused(t, 404, "not_found", admin, "DELETE", path, nil)

	a.must(t, 200, admin, "POST", path, reason)
	a.must(t, 204, admin, "DELETE", path, nil)
	assert.Nil(t, read[factors](t, a.must(t, 200, ada.account, "GET", "/v1/me/factors", nil)).ResetDueAt)
	due := read[struct {
		DueAt time.Time `json:"due_at"`
	}](t, a.must(t, 200, admin, "POST", path, reason)).DueAt
	assert.WithinDuration(t, time.Now().Add(models.FactorResetDelay), due, time.Minute)
	seen := read[factors](t, a.must(t, 200, ada.account, "GET", "/v1/me/factors", nil))
	require.NotNil(t, seen.ResetDueAt)
	assert.Equal(t, due, *seen.ResetDueAt)

	a.challenge(t, "ada") // not yet
	a.exec(t, "UPDATE factor_resets SET due_at=due_at - INTERVAL 1 DAY")
	phone := a.login(t, "ada", password)
	assert.Equal(t, factors{}, read[factors](t, a.must(t, 200, phone, "GET", "/v1/me/factors", nil)))
	for _, kind := range []string{"factor.reset_requested", "factor.reset_canceled", "factor.reset"} {
		assert.NotZero(t, a.number(t, "SELECT COUNT(*) FROM security_log WHERE user_id=? AND kind=?", ada.ID, kind),
			kind)
	}
	assert.EqualValues(t, 2, a.acts(t, "user.factor_reset"))
}
