package signin

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/alexedwards/argon2id"

	"likewise/models"
)

// Cost is the cost of new hashes: OWASP's minimum for argon2id, 19 MiB and some 20 ms of one core. Only tests change
// it, before they hash the first password.
var Cost = argon2id.Params{Memory: 19456, Iterations: 2, Parallelism: 1, SaltLength: 16, KeyLength: 32}

// noPassword returns a hash that matches no password. Comparing a password with it costs as much as with a real hash.
func noPassword() string {
	const salt, key = "AAAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	return fmt.Sprintf("$argon2id$v=19$m=%d,t=%d,p=%d$%s$%s", Cost.Memory, Cost.Iterations, Cost.Parallelism, salt, key)
}

// HashPassword returns the hash of a password, with its parameters and salt. It keeps one core busy for some 20 ms.
func HashPassword(password string) (string, error) {
	hash, err := argon2id.CreateHash(models.NormalizePassword(password), &Cost)
	if err != nil {
		return "", fmt.Errorf("hash password: %w", err)
	}
	return hash, nil
}

// Passwords hashes one password at a time for each pair of cores, so that a burst of logins neither exhausts the memory
// nor starves other requests: on two cores, a read took 2 ms during such a burst, and 37 ms when both of them hashed.
type Passwords struct {
	slots   chan struct{}
	waiting atomic.Int64
	hashed  atomic.Int64
}

// maxWaiting bounds the calls that wait: some seconds of hashing on one core, and a part of the requests in flight.
const maxWaiting = 128

// NewPasswords returns Passwords that are idle.
func NewPasswords() *Passwords {
	return &Passwords{slots: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))}
}

const messageBusy = "Too many users are signing in at the moment; try again."

// Hashed returns how many passwords were hashed, to store or to compare them.
func (p *Passwords) Hashed() int64 { return p.hashed.Load() }

func (p *Passwords) enter(ctx context.Context) error {
	defer p.waiting.Add(-1)
	if p.waiting.Add(1) > maxWaiting {
		return models.Unavailable(messageBusy, nil)
	}
	select {
	case p.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return models.Unavailable(messageBusy, ctx.Err())
	}
}

func (p *Passwords) leave() { <-p.slots }

// Hash calls HashPassword when a slot is free. It returns CodeUnavailable if too many calls wait or ctx ends before.
func (p *Passwords) Hash(ctx context.Context, password string) (string, error) {
	if err := p.enter(ctx); err != nil {
		return "", err
	}
	defer p.leave()
	p.hashed.Add(1)
	return HashPassword(password)
}

// Match reports whether the password has this hash. No password matches an empty hash, that of an account without a
// password, and the comparison takes as long. A hash of the password as it was typed matches, too: hashes were made
// before passwords were normalized. Match returns CodeUnavailable as Hash does.
func (p *Passwords) Match(ctx context.Context, password, hash string) (bool, error) {
	if err := p.enter(ctx); err != nil {
		return false, err
	}
	defer p.leave()
	p.hashed.Add(1)
	if hash == "" {
		hash = noPassword()
	}
	normal := models.NormalizePassword(password)
	ok, err := argon2id.ComparePasswordAndHash(normal, hash)
	if err == nil && !ok && normal != password {
		ok, err = argon2id.ComparePasswordAndHash(password, hash)
	}
	if err != nil {
		return false, fmt.Errorf("compare password: %w", err)
	}
	return ok, nil
}
