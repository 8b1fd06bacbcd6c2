package likes

import (
	"maps"
	"slices"
	"sync"

	"likewise/models"
	"likewise/models/db"
)

// rememberedUsers is half of the number of users that userRows remembers, in some 5 MB.
const rememberedUsers = 50_000

// userRows remembers users who have a row, so that a batch asks MySQL for the others alone. A row of users is never
// deleted. userRows is safe for concurrent use.
type userRows struct {
	mu            sync.Mutex
	recent, older map[int64]struct{}
}

// has reports whether the user is known to have a row.
func (u *userRows) has(id int64) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, ok := u.recent[id]; ok {
		return true
	}
	_, ok := u.older[id]
	return ok
}

// add remembers users. When recent is full, it takes the place of older.
func (u *userRows) add(ids map[int64]bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.recent == nil || len(u.recent)+len(ids) > rememberedUsers {
		u.recent, u.older = make(map[int64]struct{}, len(ids)), u.recent
	}
	for id := range ids {
		u.recent[id] = struct{}{}
	}
}

// dropStrangers removes the likes of users who have no row, and returns the events of drops without their claims. Their
// unlikes and returns stay, because they only take rows away.
func dropStrangers(
	tx *db.Tx, last map[models.LikeKey]models.Event, ofDrops []models.Event, known *userRows,
	done *models.LikesApplied,
) ([]models.Event, error) {
	users := map[int64]bool{}
	for key, e := range last {
		if e.Liked() && !known.has(key.UserID) {
			users[key.UserID] = true
		}
	}
	for _, e := range ofDrops {
		if e.Type == models.ClaimTaken && !known.has(e.UserID) {
			users[e.UserID] = true
		}
	}
	if len(users) == 0 {
		return ofDrops, nil
	}
	found, err := db.IDsWhere(tx, "users", db.Conditions{}, slices.Sorted(maps.Keys(users)))
	if err != nil {
		return nil, err
	}
	known.add(found)
	if len(found) == len(users) {
		return ofDrops, nil
	}
	before := len(last) + len(ofDrops)
	maps.DeleteFunc(
		last,
		func(key models.LikeKey, e models.Event) bool {
			return e.Liked() && users[key.UserID] && !found[key.UserID]
		},
	)
	ofDrops = slices.DeleteFunc(ofDrops, func(e models.Event) bool {
		return e.Type == models.ClaimTaken && users[e.UserID] && !found[e.UserID]
	})
	done.Strangers = before - len(last) - len(ofDrops)
	return ofDrops, nil
}
