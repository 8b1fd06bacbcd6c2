package handlers

import (
	"context"
	"testing"
	"time"

	"likewise/internal/testkit"
	"likewise/models"
)

// An address has its share and no more: what is over waits, and others do not wait for it.
func TestShares_holdEachAddressToItsOwn(t *testing.T) {
	s := newShares(8, 4) // two at once, one waits
	enter := func(address string) (func(), error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		t.Cleanup(cancel)
		return s.enter(ctx, address)
	}
	first, err1 := enter("a")
	second, err2 := enter("a")
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.enter(ended, "a"); models.ErrorCode(err) != models.CodeUnavailable {
		t.Errorf("the third gets in at once, or not with %v", err)
	}
	third := make(chan func())
	go func() {
		leave, err := enter("a")
		if err != nil {
			t.Error(err)
		}
		third <- leave
	}()
	testkit.Eventually(t, time.Minute, func() (bool, string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.of["a"].users == 3, "nobody waits"
	})
	if _, err := enter("a"); models.ErrorCode(err) != models.CodeRateLimited {
		t.Errorf("more wait than may: %v", err)
	}
	other, err := enter("b")
	if err != nil {
		t.Fatal(err)
	}
	other()
	first()
	leave := <-third
	leave()
	second()
	if len(s.of) != 0 {
		t.Errorf("%d addresses are kept", len(s.of))
	}
}
