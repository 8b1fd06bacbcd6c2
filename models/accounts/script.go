package accounts

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"likewise/models"
	"likewise/models/db"
)

// CreateScripts creates n accounts without a password for scripts, as a command of the operator, and returns their ids.
// They are named script-1, script-2 and so on, where these names and their e-mail addresses are free. CodeConflict:
// somebody else took one of the names meanwhile; the accounts that were created until then stay.
func (s *Store) CreateScripts(ctx context.Context, n int) ([]int64, error) {
	const atOnce = 1000
	ids := make([]int64, 0, n)
	for first := 1; len(ids) < n; first += atOnce {
		users := make([]*models.User, atOnce)
		for i := range users {
			name := "script-" + strconv.Itoa(first+i)
			users[i] = &models.User{Username: name, Email: name + "@script" + models.NoEmailDomain,
				Role: models.RoleUser}
		}
		var created []int64
		err := s.Transact(ctx, func(tx *db.Tx) error {
			free, err := freeNames(tx, users)
			if err != nil {
				return err
			}
			created, err = createUsers(tx, free[:min(len(free), n-len(ids))])
			return err
		})
		if models.MySQLCode(err) == db.DuplicateKey {
			return nil, models.Errorf(models.CodeConflict,
				"Somebody took a name from script-%d on meanwhile; try again.", first)
		}
		if err != nil {
			return nil, fmt.Errorf("create accounts for scripts: %w", err)
		}
		ids = append(ids, created...)
	}
	return ids, nil
}

// freeNames returns the users whose username and e-mail address are neither taken nor held by a ban.
func freeNames(tx *db.Tx, users []*models.User) ([]*models.User, error) {
	var names, emails, hashes []string
	for _, u := range users {
		names, emails = append(names, u.Username), append(emails, u.Email)
		hashes = append(hashes, heldKeys(tx, u)...)
	}
	const readTaken = `
		SELECT username
		FROM users
		WHERE username IN ?
		UNION
		SELECT username
		FROM former_usernames
		WHERE username IN ?
		UNION
		SELECT SUBSTRING_INDEX(email, '@', 1)
		FROM users
		WHERE email IN ?`
	var taken, held []string
	if err := tx.Raw(readTaken, names, names, emails).Scan(&taken).Error; err != nil {
		return nil, err
	}
	readHeld := `
		SELECT HEX(name_hash)
		FROM held_names
		WHERE held_until>? AND name_hash IN (x'` + strings.Join(hashes, "',x'") + `')`
	if err := tx.Raw(readHeld, tx.Now).Scan(&held).Error; err != nil {
		return nil, err
	}
	unfit := make(map[string]bool, len(taken)+len(held))
	for _, name := range append(taken, held...) {
		unfit[strings.ToLower(name)] = true
	}
	var free []*models.User
	for _, u := range users {
		keys := heldKeys(tx, u)
		if !unfit[u.Username] && !unfit[keys[0]] && !unfit[keys[1]] {
			free = append(free, u)
		}
	}
	return free, nil
}

// heldKeys returns the keys in held_names of a user's username and e-mail address, in hexadecimal.
func heldKeys(tx *db.Tx, u *models.User) []string {
	return []string{db.HexOf(HeldHash(tx, "username", u.Username)), db.HexOf(HeldHash(tx, "email", u.Email))}
}

// createUsers inserts accounts and logs that the operator created them. It returns their ids.
func createUsers(tx *db.Tx, users []*models.User) ([]int64, error) {
	if len(users) == 0 {
		return nil, nil
	}
	const read = `
		SELECT id
		FROM users
		WHERE username IN ?
		ORDER BY id`
	now := models.WholeSeconds(tx.Now)
	names := make([]string, len(users))
	for i, u := range users {
		u.ID, u.CreatedAt, u.UpdatedAt = 0, now, now // the transaction may be retried
		names[i] = u.Username
	}
	if err := tx.Create(users).Error; err != nil {
		return nil, err
	}
	var ids []int64 // a server may leave gaps between the ids of one INSERT
	if err := tx.Raw(read, names).Scan(&ids).Error; err != nil {
		return nil, err
	}
	return ids, logSecurityOfAll(tx, eventAccountCreated, ids)
}
