package accounts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"likewise/models"
	"likewise/models/db"
)

// errFactorDue is the error of a login that needs the code of a second factor.
var errFactorDue = errors.New("a second factor is due")

// step returns the step of a code of the app that was not accepted before; 0 if the code is wrong. CodeFactorsOff: the
// seed cannot be opened.
func (f *totpFactor) step(seeds *Seeds, userID int64, code string, now time.Time) (int64, error) {
	seed, err := seeds.open(userID, f.Seed)
	if err != nil {
		return 0, err
	}
	digits, ok := models.ParseTOTP(code)
	if !ok {
		return 0, nil
	}
	return stepOf(seed, digits, now, f.LastStep)
}

func errWrongCode() *models.Error {
	return &models.Error{Code: models.CodeForbidden, Message: "The code is wrong.",
		Fields: []models.FieldError{
			models.Broken(models.FieldWrongCode, "is neither a present code of the app nor an unused recovery code").
				In("code"),
		}}
}

func errNoChallenge() *models.Error {
	return models.Errorf(models.CodeUnauthorized, "The login has expired, or too many codes were wrong; log in again.")
}

// needFactor returns errFactorDue if a login of a user whom the transaction has locked needs a code.
func needFactor(tx *db.Tx, userID int64) error {
	if err := resetIfDue(tx, userID, [32]byte{}); err != nil {
		return err
	}
	totp, err := lockTOTP(tx, userID)
	if err == nil && totp != nil && totp.ConfirmedAt != nil {
		err = errFactorDue
	}
	return err
}

// passwordMark returns what a challenge keeps of the hash of a password.
func passwordMark(hash string) string { return db.HexOf(sha256.Sum256([]byte(hash))) }

// challenge returns the error of a login that needs a code, with a new Challenge. The login has had no effect, so the
// challenge is not the effect of an idempotent request either.
func (s *Store) challenge(ctx context.Context, u *models.User) error {
	const insert = `
		INSERT INTO login_challenges (challenge_hash, user_id, password_hash, expires_at)
		VALUES (UNHEX(?),?,UNHEX(?),?)`
	token, hash := models.NewToken()
	_, err := s.Write(db.Aside(ctx), insert, db.HexOf(hash), u.ID, passwordMark(u.PasswordHash),
		models.WholeSeconds(s.Now()).Add(models.ChallengeLife))
	if err != nil {
		return fmt.Errorf("create challenge: %w", err)
	}
	return &models.Error{Code: models.CodeSecondFactor, Message: "The login needs a code of a second factor, too.",
		Challenge: &models.Challenge{Token: token, Factors: []models.Factor{models.FactorTOTP, models.FactorRecovery}}}
}

// waiting is a login that waits for a code.
type waiting struct {
	UserID       int64
	PasswordHash []byte // see passwordMark
	Tries        int
	ExpiresAt    time.Time
}

func readChallenge(tx *db.Tx, hash [32]byte, lock string) (*waiting, error) {
	query := `
		SELECT user_id, password_hash, tries, expires_at
		FROM login_challenges
		WHERE challenge_hash=UNHEX(?)` + lock
	var found []waiting
	if err := tx.Raw(query, db.HexOf(hash)).Scan(&found).Error; err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, errNoChallenge()
	}
	return &found[0], nil
}

// lockChallenge locks a challenge and its user. CodeUnauthorized: the challenge has expired or was used, or the
// password was changed or the account deleted since. CodeBanned: the account is banned.
func lockChallenge(tx *db.Tx, hash [32]byte) (*waiting, error) {
	w, err := readChallenge(tx, hash, "")
	if err != nil {
		return nil, err
	}
	found, err := LockStandings(tx, w.UserID) // before the challenge, in the order of locks
	if err != nil {
		return nil, err
	}
	if w, err = readChallenge(tx, hash, " FOR UPDATE"); err != nil {
		return nil, err
	}
	user := found[w.UserID]
	if user == nil || passwordMark(user.PasswordHash) != hex.EncodeToString(w.PasswordHash) ||
		w.Tries >= models.MaxTries || !w.ExpiresAt.After(tx.Now) {
		return nil, errNoChallenge()
	}
	if ban := user.Ban(tx.Now); ban != nil {
		return nil, ErrBanned(*ban)
	}
	return w, nil
}

// AnswerChallenge opens the session of a login with a code of the app or a recovery code, and returns its user and
// token. Each challenge opens one session, and each code is accepted once.
//
// CodeUnauthorized: the challenge cannot be used any longer. CodeBanned: the account is banned. CodeForbidden: the code
// is wrong. CodeRateLimited: too many codes of the account were wrong; recovery codes, which nobody can guess, are
// accepted all the same. CodeFactorsOff: the site cannot check the code of an app.
func (s *Store) AnswerChallenge(
	ctx context.Context, seeds *Seeds, challenge, code, userAgent string,
) (userID int64, token string, err error) {
	const remove = `
		DELETE FROM login_challenges
		WHERE challenge_hash=UNHEX(?)`
	hash := models.HashToken(challenge)
	var refusal error
	err = s.Transact(ctx, func(tx *db.Tx) error {
		refusal = nil // the transaction may be retried
		w, err := lockChallenge(tx, hash)
		if err != nil {
			return err
		}
		userID = w.UserID
		if err := resetIfDue(tx, userID, [32]byte{}); err != nil {
			return err
		}
		factor, err := useCode(tx, seeds, userID, code)
		if wrong := (*models.Error)(nil); errors.As(err, &wrong) && wrong.Code == models.CodeForbidden {
			refusal = err // and what was counted is committed
			return countWrong(tx, userID, hash)
		}
		if err != nil {
			return err
		}
		if err := tx.Exec(remove, db.HexOf(hash)).Error; err != nil {
			return err
		}
		if token, err = createSession(tx, userID, userAgent); err != nil {
			return err
		}
		if err := setSecondFactor(tx, models.HashToken(token), true); err != nil {
			return err
		}
		return LogSecurity(tx, SecurityEvent{Kind: eventLogin, UserID: userID, Detail: string(factor)})
	})
	if err == nil {
		err = refusal
	}
	if err != nil {
		return 0, "", fmt.Errorf("answer challenge: %w", err)
	}
	return userID, token, nil
}

// useCode uses up a code of a user whom the transaction has locked, and returns its factor. The errors are those of
// AnswerChallenge.
func useCode(tx *db.Tx, seeds *Seeds, userID int64, code string) (models.Factor, error) {
	const useStep = `
		UPDATE totp_factors
		SET last_step=?
		WHERE user_id=? AND last_step<?`
	const useRecovery = `
		DELETE FROM recovery_codes
		WHERE user_id=? AND code_hash=UNHEX(?)`
	totp, err := lockTOTP(tx, userID)
	if err != nil {
		return "", err
	}
	if totp == nil || totp.ConfirmedAt == nil {
		return "", errNoChallenge() // the factor was removed meanwhile
	}
	if _, ok := models.ParseTOTP(code); !ok {
		used := tx.Exec(useRecovery, userID, db.HexOf(models.HashRecoveryCode(code)))
		if used.Error == nil && used.RowsAffected == 0 {
			return "", errWrongCode()
		}
		return models.FactorRecovery, used.Error
	}
	if err := totp.limited(tx.Now); err != nil {
		return "", err
	}
	step, err := totp.step(seeds, userID, code, tx.Now)
	if err != nil {
		return "", err
	}
	used := tx.Exec(useStep, step, userID, step) // step 0 uses none
	if used.Error == nil && used.RowsAffected == 0 {
		return "", errWrongCode()
	}
	return models.FactorTOTP, used.Error
}

// limited returns CodeRateLimited if too many codes were wrong lately.
func (f *totpFactor) limited(now time.Time) error {
	if f.WrongSince == nil || f.WrongCodes < models.MaxWrongCodes {
		return nil
	}
	left := f.WrongSince.Add(models.WrongCodesEvery).Sub(now)
	if left <= 0 {
		return nil
	}
	return &models.Error{Code: models.CodeRateLimited, RetryAfter: left,
		Message: "Too many codes of this account were wrong. Wait, or use a recovery code."}
}

// countWrong counts a wrong code of a challenge and of its account.
func countWrong(tx *db.Tx, userID int64, challenge [32]byte) error {
	const countTry = `
		UPDATE login_challenges
		SET tries=tries+1
		WHERE challenge_hash=UNHEX(?)`
	// MySQL assigns from left to right, so wrong_codes is computed from the wrong_since before.
	const countCode = `
		UPDATE totp_factors
		SET wrong_codes=IF(wrong_since>?,wrong_codes+1,1), wrong_since=IF(wrong_since>?,wrong_since,?)
		WHERE user_id=?`
	if err := tx.Exec(countTry, db.HexOf(challenge)).Error; err != nil {
		return err
	}
	now := models.WholeSeconds(tx.Now)
	since := now.Add(-models.WrongCodesEvery)
	if err := tx.Exec(countCode, since, since, now, userID).Error; err != nil {
		return err
	}
	return LogSecurity(tx, SecurityEvent{Kind: eventFactorFailed, UserID: userID})
}

// VoidChallenges voids the logins of a user that wait for a code.
func VoidChallenges(tx *db.Tx, userID int64) error {
	const remove = `
		DELETE FROM login_challenges
		WHERE user_id=?`
	return tx.Exec(remove, userID).Error
}

// PurgeChallenges deletes at most limit expired challenges and returns how many it deleted.
func (s *Store) PurgeChallenges(ctx context.Context, limit int) (int64, error) {
	const remove = `
		DELETE FROM login_challenges
		WHERE expires_at<=?
		ORDER BY expires_at
		LIMIT ?`
	purged, err := s.Write(ctx, remove, s.Now().UTC(), limit)
	if err != nil {
		return 0, fmt.Errorf("purge challenges: %w", err)
	}
	return purged, nil
}
