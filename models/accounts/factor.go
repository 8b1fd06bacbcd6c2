package accounts

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"likewise/models"
	"likewise/models/db"
)

// totpFactor is a row of totp_factors.
type totpFactor struct {
	Seed        []byte // sealed
	ConfirmedAt *time.Time
	LastStep    int64
	WrongCodes  int
	WrongSince  *time.Time
}

// Factors returns the second factors of a user, as of the last sign-in: a reset that is due is carried out at the next.
func (s *Store) Factors(ctx context.Context, userID int64) (*models.Factors, error) {
	const query = `
		SELECT
			(SELECT confirmed_at FROM totp_factors WHERE user_id=?) AS totp_since,
			(SELECT COUNT(*) FROM recovery_codes WHERE user_id=?) AS recovery_codes,
			(SELECT due_at FROM factor_resets WHERE user_id=?) AS reset_due_at`
	var f models.Factors
	row := s.Read(ctx).Raw(query, userID, userID, userID).Row()
	if err := row.Scan(&f.TOTPSince, &f.RecoveryCodes, &f.ResetDueAt); err != nil {
		return nil, fmt.Errorf("read factors of user %d: %w", userID, err)
	}
	return &f, nil
}

// lockTOTP reads the TOTP of a user whom the transaction has locked; nil if there is none.
func lockTOTP(tx *db.Tx, userID int64) (*totpFactor, error) {
	const query = `
		SELECT seed, confirmed_at, last_step, wrong_codes, wrong_since
		FROM totp_factors
		WHERE user_id=?
		FOR UPDATE`
	var found []totpFactor
	if err := tx.Raw(query, userID).Scan(&found).Error; err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// lockOwner locks a user who changes their own factors in the session of this hash, and reads their TOTP. A reset that
// is due is carried out first. CodeUnauthorized: the session has ended meanwhile.
func lockOwner(tx *db.Tx, userID int64, session [32]byte) (*totpFactor, error) {
	if _, err := lockSession(tx, userID, session, 0); err != nil {
		return nil, err
	}
	if err := resetIfDue(tx, userID, session); err != nil {
		return nil, err
	}
	return lockTOTP(tx, userID)
}

// BeginTOTP creates the seed of an app, in base32, in place of one that was not confirmed. No login needs its codes
// before ConfirmTOTP. CodeConflict: the user has an app. CodeFactorsOff: the site has no secret key.
func (s *Store) BeginTOTP(ctx context.Context, seeds *Seeds, userID int64, session [32]byte) (string, error) {
	const insert = `
		INSERT INTO totp_factors (user_id, seed, created_at)
		VALUES (?,UNHEX(?),?)
		ON DUPLICATE KEY UPDATE seed=VALUES(seed), created_at=VALUES(created_at)`
	seed, sealed, err := seeds.create(userID)
	if err != nil {
		return "", err
	}
	err = s.Transact(ctx, func(tx *db.Tx) error {
		totp, err := lockOwner(tx, userID, session)
		if err != nil {
			return err
		}
		if totp != nil && totp.ConfirmedAt != nil {
			return models.Errorf(models.CodeConflict, "You have an app for codes already; remove it first.")
		}
		return tx.Exec(insert, userID, hex.EncodeToString(sealed), models.WholeSeconds(tx.Now)).Error
	})
	if err != nil {
		return "", fmt.Errorf("begin TOTP of user %d: %w", userID, err)
	}
	return seed, nil
}

// ConfirmTOTP turns the app on with its first code. From then on each login needs a code. It returns recovery codes,
// which are stored as hashes alone, unless the user has some. The session counts as one that used a second factor; all
// others, and all API tokens, end, and ConfirmTOTP returns their hashes.
//
// CodeConflict: BeginTOTP comes first. CodeForbidden: the code is wrong. CodeFactorsOff as for BeginTOTP.
func (s *Store) ConfirmTOTP(
	ctx context.Context, seeds *Seeds, userID int64, session [32]byte, code string,
) (recovery []string, ended [][32]byte, err error) {
	const confirm = `
		UPDATE totp_factors
		SET confirmed_at=?, last_step=?
		WHERE user_id=? AND confirmed_at IS NULL`
	err = s.Transact(ctx, func(tx *db.Tx) error {
		totp, err := lockOwner(tx, userID, session)
		if err != nil {
			return err
		}
		if totp == nil || totp.ConfirmedAt != nil {
			return models.Errorf(models.CodeConflict, "No app for codes waits for its first code.")
		}
		step, err := totp.step(seeds, userID, code, tx.Now)
		if err != nil {
			return err
		}
		if step == 0 {
			return errWrongCode()
		}
		if err := tx.Exec(confirm, models.WholeSeconds(tx.Now), step, userID).Error; err != nil {
			return err
		}
		if recovery, err = createRecoveryCodes(tx, userID); err != nil {
			return err
		}
		if err := setSecondFactor(tx, session, true); err != nil {
			return err
		}
		ended, err = factorsChanged(tx, userID, session, eventFactorAdded)
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("confirm TOTP of user %d: %w", userID, err)
	}
	return recovery, ended, nil
}

// RemoveTOTP removes the app of a user, and the recovery codes with it. No session counts as one that used a second
// factor any longer. All sessions except this one, and all API tokens, end, and RemoveTOTP returns their hashes.
// CodeNotFound: there is no app.
func (s *Store) RemoveTOTP(ctx context.Context, userID int64, session [32]byte) (ended [][32]byte, err error) {
	err = s.Transact(ctx, func(tx *db.Tx) error {
		totp, err := lockOwner(tx, userID, session)
		if err != nil {
			return err
		}
		if totp == nil {
			return models.Errorf(models.CodeNotFound, "You have no app for codes.")
		}
		if err := DropFactors(tx, userID); err != nil || totp.ConfirmedAt == nil {
			return err
		}
		if err := setSecondFactor(tx, session, false); err != nil {
			return err
		}
		ended, err = factorsChanged(tx, userID, session, eventFactorRemoved)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("remove TOTP of user %d: %w", userID, err)
	}
	return ended, nil
}

// ReplaceRecoveryCodes voids the recovery codes of a user and returns new ones. CodeConflict: the user has no second
// factor that they could stand in for.
func (s *Store) ReplaceRecoveryCodes(
	ctx context.Context, userID int64, session [32]byte,
) (recovery []string, err error) {
	err = s.Transact(ctx, func(tx *db.Tx) error {
		totp, err := lockOwner(tx, userID, session)
		if err != nil {
			return err
		}
		if totp == nil || totp.ConfirmedAt == nil {
			return models.Errorf(models.CodeConflict, "Recovery codes stand in for an app for codes; add one first.")
		}
		if err := dropRecoveryCodes(tx, userID); err != nil {
			return err
		}
		if recovery, err = createRecoveryCodes(tx, userID); err != nil {
			return err
		}
		return noticeFactors(tx, userID, eventRecoveryReplaced)
	})
	if err != nil {
		return nil, fmt.Errorf("replace recovery codes of user %d: %w", userID, err)
	}
	return recovery, nil
}

// factorsChanged ends all sessions and API tokens of a user except one session, voids the logins that wait for a code
// and the links of the user, and sends a notice. Each change of factors calls it.
func factorsChanged(tx *db.Tx, userID int64, keep [32]byte, kind string) (ended [][32]byte, err error) {
	if ended, err = EndSessions(tx, userID, db.Matching("token_hash<>UNHEX(?)", db.HexOf(keep))); err != nil {
		return nil, err
	}
	if err := SessionsChanged(tx, userID); err != nil { // the one that stays, too
		return nil, err
	}
	if err := VoidChallenges(tx, userID); err != nil {
		return nil, err
	}
	if err := endLinksOf(tx, userID); err != nil {
		return nil, err
	}
	return ended, noticeFactors(tx, userID, kind)
}

// noticeFactors records an event about the factors of a user, and sends a notice of it.
func noticeFactors(tx *db.Tx, userID int64, kind string) error {
	if err := notify(tx, userID, kind); err != nil {
		return err
	}
	return LogSecurity(tx, SecurityEvent{Kind: kind, UserID: userID})
}

// setSecondFactor sets whether a session has used a second factor.
func setSecondFactor(tx *db.Tx, session [32]byte, used bool) error {
	const update = `
		UPDATE sessions
		SET second_factor=?
		WHERE token_hash=UNHEX(?)`
	return tx.Exec(update, used, db.HexOf(session)).Error
}

// createRecoveryCodes creates the recovery codes of a user whom the transaction has locked; none if the user has some.
func createRecoveryCodes(tx *db.Tx, userID int64) ([]string, error) {
	const count = `
		SELECT COUNT(*)
		FROM recovery_codes
		WHERE user_id=?`
	var n int
	if err := tx.Raw(count, userID).Scan(&n).Error; err != nil || n > 0 {
		return nil, err
	}
	codes := make([]string, models.RecoveryCodes)
	var args []any
	now := models.WholeSeconds(tx.Now)
	for i := range codes {
		code, hash := models.NewRecoveryCode()
		codes[i] = code
		args = append(args, userID, db.HexOf(hash), now)
	}
	const row = "(?,UNHEX(?),?)"
	insert := `
		INSERT INTO recovery_codes (user_id, code_hash, created_at)
		VALUES ` + row + strings.Repeat(","+row, len(codes)-1)
	return codes, tx.Exec(insert, args...).Error
}

func dropRecoveryCodes(tx *db.Tx, userID int64) error {
	const remove = `
		DELETE FROM recovery_codes
		WHERE user_id=?`
	return tx.Exec(remove, userID).Error
}

// DropFactors removes the second factors of a user whom the transaction has locked, and what waits for them.
func DropFactors(tx *db.Tx, userID int64) error {
	const removeTOTP = `
		DELETE FROM totp_factors
		WHERE user_id=?`
	const removeReset = `
		DELETE FROM factor_resets
		WHERE user_id=?`
	for _, remove := range []string{removeTOTP, removeReset} {
		if err := tx.Exec(remove, userID).Error; err != nil {
			return err
		}
	}
	if err := dropRecoveryCodes(tx, userID); err != nil {
		return err
	}
	return VoidChallenges(tx, userID)
}
