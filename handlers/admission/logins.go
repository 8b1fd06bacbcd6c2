package admission

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"likewise/counters"
	"likewise/models"
)

// Attempts at one password. An account allows more attempts than one address may make against it, so no single address
// can lock it out. If many addresses together exhaust them, users can still log in from addresses used before.
var (
	pairRate    = counters.Rate{Burst: 10, Every: 90 * time.Second} // of a login as typed, from an address
	accountRate = counters.Rate{Burst: 100, Every: 36 * time.Second}
	// knownMark is not a limit. It is spent once the account has logged in from an address.
	knownMark = counters.Rate{Burst: 1, Every: 30 * 24 * time.Hour}
)

// Login is an attempt at a password.
type Login struct {
	pair, known string
	// Blocked reports whether the account was attempted too often, from any address and under any of its names. It is
	// answered like a wrong password: a different answer would leak which names and addresses belong to one account.
	Blocked bool
}

// Login counts an attempt at the password of an account, which is named as typed; account 0 stands for an unknown name.
// It returns CodeRateLimited if the name was attempted too often from this address, whether it exists or not.
func (r *Rates) Login(ctx context.Context, from Client, account int64, name string) (Login, error) {
	if r.limiter == nil {
		return Login{}, nil
	}
	sum := sha256.Sum256([]byte(models.NormalizeLogin(name)))
	typed := "typed:" + hex.EncodeToString(sum[:16])
	limit := func(kind string) string { return typed + "/" + kind } // an unknown name costs the same work
	if account != 0 {
		limit = func(kind string) string { return counters.AccountLimit(account, kind) }
	}
	l := Login{pair: typed + "/login:" + from.Address, known: limit("known:" + from.Address)}
	rate := pairRate.Scale(r.factor)
	if taken := r.limiter.Take(ctx, l.pair, rate, 1); !taken.OK {
		return l, r.refuse(from, "logins-of-account-by-address", rate, taken)
	}
	taken := r.limiter.Take(ctx, limit("login"), accountRate.Scale(r.factor), 1)
	l.Blocked = !taken.OK && r.limiter.Take(ctx, l.known, knownMark, 0).Remaining > 0
	if l.Blocked {
		r.refused("logins-of-account")
	}
	return l, nil
}

// LoggedIn forgets the attempts with this name from this address, and remembers the address.
func (r *Rates) LoggedIn(ctx context.Context, l Login) {
	if r.limiter != nil {
		r.limiter.Forget(ctx, l.pair)
		r.limiter.Forget(ctx, l.known) // otherwise the existing mark would not be renewed
		r.limiter.Take(ctx, l.known, knownMark, 1)
	}
}
