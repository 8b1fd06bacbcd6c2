package handlers

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/alexedwards/argon2id"

	"likewise/models"
)

// passwordCost is OWASP's minimum for argon2id: 19 MiB and some 20 ms of one core.
var passwordCost = argon2id.Params{Memory: 19456, Iterations: 2, Parallelism: 1, SaltLength: 16, KeyLength: 32}

// noPassword returns a hash that no password has: checking against it costs what a real check costs.
func noPassword() string {
	return fmt.Sprintf("$argon2id$v=19$m=%d,t=%d,p=%d$AAAAAAAAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
		passwordCost.Memory, passwordCost.Iterations, passwordCost.Parallelism)
}

// HashPassword gives the form in which a password is stored. It keeps one core busy for some 20 ms.
func HashPassword(password string) (string, error) {
	hash, err := argon2id.CreateHash(password, &passwordCost)
	if err != nil {
		return "", fmt.Errorf("hash password: %w", err)
	}
	return hash, nil
}

// passwords hashes as many passwords at once as there are pairs of cores, so that a wave of logins neither takes the
// memory nor starves all else: on two cores a read took 2 ms in such a wave, and 37 ms when both of them hashed.
type passwords struct {
	slots   chan struct{}
	waiting atomic.Int64
	hashed  atomic.Int64 // how often
}

// maxWaiting bounds the wave: some seconds of hashing on one core, and a part of the requests that may be in flight.
const maxWaiting = 128

func newPasswords() *passwords {
	return &passwords{slots: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))}
}

func (p *passwords) enter(ctx context.Context) error {
	defer p.waiting.Add(-1)
	if p.waiting.Add(1) > maxWaiting {
		return models.Errorf(models.CodeUnavailable, "Too many are signing in at the moment; try again.")
	}
	select {
	case p.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return models.Unavailable("Too many are signing in at the moment; try again.", ctx.Err())
	}
}

func (p *passwords) leave() { <-p.slots }

// hash is HashPassword in turn. CodeUnavailable when the turn does not come before the deadline.
func (p *passwords) hash(ctx context.Context, password string) (string, error) {
	if err := p.enter(ctx); err != nil {
		return "", err
	}
	defer p.leave()
	p.hashed.Add(1)
	return HashPassword(password)
}

// match reports whether the password has this hash. An empty hash is that of an account without a password: nothing
// matches it, and finding out takes as long. CodeUnavailable as for hash.
func (p *passwords) match(ctx context.Context, password, hash string) (bool, error) {
	if err := p.enter(ctx); err != nil {
		return false, err
	}
	defer p.leave()
	p.hashed.Add(1)
	if hash == "" {
		hash = noPassword()
	}
	ok, err := argon2id.ComparePasswordAndHash(password, hash)
	if err != nil {
		return false, fmt.Errorf("compare password: %w", err)
	}
	return ok, nil
}
