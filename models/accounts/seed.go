package accounts

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/pquerna/otp"
	"github.com/pquerna/otp/hotp"

	"likewise/models"
)

const (
	seedBytes = 20 // as RFC 4226 recommends; apps expect it
	// stepSeconds is the period of a code.
	stepSeconds = 30
	// stepSkew is how many steps the clock of an app may be ahead or behind.
	stepSkew = 1
)

var seedEncoding = base32.StdEncoding.WithPadding(base32.NoPadding)

// Seeds seals the seeds of TOTP, so that a dump of the database contains none. The key is derived from the secret key
// of the site. A nil Seeds belongs to a site without such a key; its methods return CodeFactorsOff.
type Seeds struct{ aead cipher.AEAD }

// NewSeeds returns the Seeds of a site; nil if the key is empty.
func NewSeeds(secretKey []byte) (*Seeds, error) {
	if len(secretKey) == 0 {
		return nil, nil
	}
	const bits256 = 32
	key, err := hkdf.Key(sha256.New, secretKey, nil, "likewise totp seeds", bits256)
	if err != nil {
		return nil, fmt.Errorf("derive key of seeds: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("key of seeds: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("key of seeds: %w", err)
	}
	return &Seeds{aead}, nil
}

func errFactorsOff(err error) *models.Error {
	return &models.Error{Code: models.CodeFactorsOff, Err: err,
		Message: "Codes of apps cannot be checked on this site at the moment. A recovery code can be used instead."}
}

var errNoSecretKey = errors.New("the site has no secret key: set --secret-key-file")

// owner returns the additional data of a sealed seed. It binds the seed to its user, so that nobody who can write to
// the database can give their own seed to another account.
func owner(userID int64) []byte { return strconv.AppendInt([]byte("totp "), userID, 10) }

// create returns a new seed, in base32, and the same sealed for a user.
func (s *Seeds) create(userID int64) (seed string, sealed []byte, err error) {
	if s == nil {
		return "", nil, errFactorsOff(errNoSecretKey)
	}
	var random [seedBytes]byte
	rand.Read(random[:])
	nonce := make([]byte, s.aead.NonceSize())
	rand.Read(nonce)
	return seedEncoding.EncodeToString(random[:]), s.aead.Seal(nonce, nonce, random[:], owner(userID)), nil
}

// open returns a seed, in base32. CodeFactorsOff: the seed was sealed with another key or for another user.
func (s *Seeds) open(userID int64, sealed []byte) (string, error) {
	if s == nil {
		return "", errFactorsOff(errNoSecretKey)
	}
	if len(sealed) < s.aead.NonceSize() {
		return "", errFactorsOff(fmt.Errorf("seed of user %d has %d bytes", userID, len(sealed)))
	}
	nonce, text := sealed[:s.aead.NonceSize()], sealed[s.aead.NonceSize():]
	seed, err := s.aead.Open(nil, nonce, text, owner(userID))
	if err != nil {
		return "", errFactorsOff(fmt.Errorf("open seed of user %d: %w", userID, err))
	}
	return seedEncoding.EncodeToString(seed), nil
}

// stepOf returns the step whose code this is, of those that are near now and after last; 0 if it is none of them.
// hotp alone would accept a code more than once.
func stepOf(seed, code string, now time.Time, last int64) (int64, error) {
	present := now.Unix() / stepSeconds
	var found int64
	for step := present - stepSkew; step <= present+stepSkew; step++ {
		expected, err := hotp.GenerateCodeCustom(seed, uint64(step), hotp.ValidateOpts{
			Digits: otp.DigitsSix, Algorithm: otp.AlgorithmSHA1,
		})
		if err != nil {
			return 0, fmt.Errorf("make code: %w", err)
		}
		if subtle.ConstantTimeCompare([]byte(expected), []byte(code)) == 1 && step > last {
			found = step
		}
	}
	return found, nil
}
