package models

import (
	"crypto/rand"
	"encoding/base32"
	"strings"
	"time"
)

// Factors is the second factors of an account.
type Factors struct {
	TOTPSince     *time.Time // nil: the account has no app that makes codes
	RecoveryCodes int64      // that are left
	ResetDueAt    *time.Time // nil: no admin has requested a reset
}

// Factor is a kind of second factor.
type Factor string

// The kinds.
const (
	FactorTOTP     Factor = "totp"
	FactorRecovery Factor = "recovery_code"
)

// Challenge is the second half of a login: the password was right, and a code of one of the factors is due.
type Challenge struct {
	Token   string // opaque; it is stored as a hash
	Factors []Factor
}

// Limits on second factors.
const (
	ChallengeLife    = 5 * time.Minute
	MaxTries         = 5  // wrong codes of one challenge
	MaxWrongCodes    = 10 // wrong codes of an account in WrongCodesEvery
	WrongCodesEvery  = time.Hour
	RecoveryCodes    = 10 // at a time
	FactorResetDelay = 24 * time.Hour
)

var recoveryEncoding = base32.StdEncoding.WithPadding(base32.NoPadding)

// NewRecoveryCode returns a recovery code, 128 random bits as "xxxxx-xxxxx-xxxxx-xxxxx-xxxxxx", and the hash under
// which it is stored.
func NewRecoveryCode() (code string, hash [32]byte) {
	const group, groups = 5, 5 // the last one has a character more
	var secret [16]byte
	rand.Read(secret[:]) // never fails: crypto/rand ends the process instead
	text := strings.ToLower(recoveryEncoding.EncodeToString(secret[:]))
	var parts [groups]string
	for i := range parts {
		parts[i] = text[i*group : (i+1)*group]
	}
	parts[groups-1] = text[(groups-1)*group:]
	code = strings.Join(parts[:], "-")
	return code, HashRecoveryCode(code)
}

// HashRecoveryCode returns the hash under which a recovery code is stored. Case, spaces and hyphens do not count.
func HashRecoveryCode(code string) [32]byte { return HashToken(plainCode(code)) }

// plainCode returns a code as people type it without what does not count.
func plainCode(code string) string {
	return strings.ToLower(strings.NewReplacer(" ", "", "-", "").Replace(code))
}

const totpDigits = 6

// ParseTOTP returns the digits of the code of an app; ok is false if it cannot be one.
func ParseTOTP(code string) (digits string, ok bool) {
	digits = plainCode(code)
	return digits, len(digits) == totpDigits && strings.Trim(digits, "0123456789") == ""
}
