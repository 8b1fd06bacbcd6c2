package handlers

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"
)

// totpJSON is the app of an account that makes codes.
type totpJSON struct {
	CreatedAt time.Time `json:"created_at"` // when its first code was sent
}

// factorsJSON is the second factors of an account, without their secrets.
type factorsJSON struct {
	TOTP              *totpJSON  `json:"totp"` // null: there is none
	RecoveryCodesLeft int64      `json:"recovery_codes_left"`
	ResetDueAt        *time.Time `json:"reset_due_at"` // null: no admin has requested a reset
}

// newTOTPJSON is the only answer that contains a seed.
type newTOTPJSON struct {
	Secret string `json:"secret"` // in base32
	URI    string `json:"uri"`    // otpauth://, for a QR code
}

type recoveryCodesJSON struct {
	RecoveryCodes []string `json:"recovery_codes"`
}

type factorResetJSON struct {
	DueAt time.Time `json:"due_at"`
}

func (s *Server) readFactors(c *fiber.Ctx) error {
	f, err := s.accounts.Factors(c.UserContext(), viewerID(c))
	if err != nil {
		return err
	}
	out := factorsJSON{RecoveryCodesLeft: f.RecoveryCodes, ResetDueAt: f.ResetDueAt}
	if f.TOTPSince != nil {
		out.TOTP = &totpJSON{*f.TOTPSince}
	}
	return c.JSON(out)
}

func (s *Server) beginTOTP(c *fiber.Ctx) error {
	seed, err := s.accounts.BeginTOTP(c.UserContext(), s.seeds, viewerID(c), sessionHash(c))
	if err != nil {
		return err
	}
	return c.JSON(newTOTPJSON{seed, s.totpURI(viewer(c).Username, seed)})
}

// totpURI returns the URI from which an app reads a seed, as described at
// https://github.com/google/google-authenticator/wiki/Key-Uri-Format. Some apps read no plus sign as a space.
func (s *Server) totpURI(username, seed string) string {
	issuer := "Likewise"
	if u, err := url.Parse(string(s.publicURL)); err == nil && u.Host != "" {
		issuer = u.Hostname()
	}
	query := url.Values{"secret": {seed}, "issuer": {issuer}}
	return "otpauth://totp/" + url.PathEscape(issuer) + ":" + url.PathEscape(username) + "?" +
		strings.ReplaceAll(query.Encode(), "+", "%20")
}

func (s *Server) confirmTOTP(c *fiber.Ctx) error {
	var code string
	if err := decode(c, fields{"code": &code}); err != nil {
		return err
	}
	hash := sessionHash(c)
	recovery, ended, err := s.accounts.ConfirmTOTP(c.UserContext(), s.seeds, viewerID(c), hash, code)
	if err != nil {
		return err
	}
	s.sessions.Forget(ended...)
	s.sessions.Refresh(hash) // it has used a second factor now
	if recovery == nil {
		recovery = []string{}
	}
	return c.JSON(recoveryCodesJSON{recovery})
}

func (s *Server) removeTOTP(c *fiber.Ctx) error {
	hash := sessionHash(c)
	ended, err := s.accounts.RemoveTOTP(c.UserContext(), viewerID(c), hash)
	if err == nil {
		s.sessions.Refresh(hash)
	}
	return s.endSessions(c)(ended, err)
}

func (s *Server) replaceRecoveryCodes(c *fiber.Ctx) error {
	recovery, err := s.accounts.ReplaceRecoveryCodes(c.UserContext(), viewerID(c), sessionHash(c))
	if err != nil {
		return err
	}
	return c.JSON(recoveryCodesJSON{recovery})
}

// answerChallenge opens the session of a login that needed a code of a second factor, too.
func (s *Server) answerChallenge(c *fiber.Ctx) error {
	var challenge, code string
	if err := decode(c, fields{"challenge": &challenge, "code": &code}); err != nil {
		return err
	}
	id, token, err := s.accounts.AnswerChallenge(c.UserContext(), s.seeds, challenge, code, userAgent(c))
	if err != nil {
		return err
	}
	user, err := s.accounts.UserByID(c.UserContext(), id)
	if err != nil {
		return err
	}
	return c.JSON(sessionJSON{s.newUserJSON(user), token})
}

// requestFactorReset has the second factors of the user in the path removed after a delay.
func (s *Server) requestFactorReset(c *fiber.Ctx) error {
	id, reason, err := pathIDAndReason(c, "user")
	if err != nil {
		return err
	}
	due, err := s.accounts.RequestFactorReset(c.UserContext(), viewerID(c), id, reason)
	if err != nil {
		return err
	}
	return c.JSON(factorResetJSON{due})
}

func (s *Server) cancelFactorReset(c *fiber.Ctx) error {
	id, err := pathID(c, "user")
	if err != nil {
		return err
	}
	if err := s.accounts.CancelFactorReset(c.UserContext(), viewerID(c), id); err != nil {
		return err
	}
	return c.SendStatus(http.StatusNoContent)
}
