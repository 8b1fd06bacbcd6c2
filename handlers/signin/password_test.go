package signin

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"likewise/models"
)

// The cost of a comparison must not reveal whether the account has a password, so the placeholder is a real hash.
func TestPasswords_anAccountWithoutOneMatchesNothing(t *testing.T) {
	t.Parallel()
	p := NewPasswords()
	for _, password := range []string{"", "AAAA"} {
		if ok, err := p.Match(t.Context(), password, ""); ok || err != nil {
			t.Errorf("%q: %v, %v", password, ok, err)
		}
	}
	hash, err := HashPassword("difference engine")
	require.NoError(t, err)
	cost := func(hash string) string { return hash[:strings.LastIndex(hash[:strings.LastIndex(hash, "$")], "$")] }
	if nothing := noPassword(); cost(hash) != cost(nothing) || len(hash) != len(nothing) {
		t.Errorf("%s and %s do not cost the same", hash, nothing)
	}
	if !strings.HasPrefix(hash, "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Errorf("%s costs less than OWASP's minimum", hash)
	}
	if ok, err := p.Match(t.Context(), "difference engine", hash); !ok || err != nil {
		t.Errorf("the right password: %v, %v", ok, err)
	}
}

func TestPasswords_waitForATurnUntilTheDeadline(t *testing.T) {
	t.Parallel()
	p := Passwords{slots: make(chan struct{}, 1)}
	require.NoError(t, p.enter(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := p.Hash(ctx, "x"); models.ErrorCode(err) != models.CodeUnavailable {
		t.Errorf("hash: %v", err)
	}
	if _, err := p.Match(ctx, "x", ""); models.ErrorCode(err) != models.CodeUnavailable {
		t.Errorf("match: %v", err)
	}
	p.leave()
	if _, err := p.Match(t.Context(), "x", ""); err != nil {
		t.Errorf("after its turn came: %v", err)
	}
}
