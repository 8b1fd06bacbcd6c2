package handlers

import (
	"context"
	"testing"

	"likewise/models"
)

func TestExpensiveShare_leavesConnectionsToOthers(t *testing.T) {
	t.Parallel()
	s, _ := newExpensiveShares(8)
	first, err1 := s.enter(t.Context())
	second, err2 := s.enter(t.Context())
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.enter(ended); models.ErrorCode(err) != models.CodeUnavailable {
		t.Errorf("a third request of eight connections' share ends with %v", err)
	}
	third := make(chan func())
	go func() {
		leave, err := s.enter(t.Context())
		if err != nil {
			t.Error(err)
		}
		third <- leave
	}()
	select {
	case <-third:
		t.Error("the third request did not wait")
	default:
	}
	first()
	(<-third)()
	second()
	if len(s) != 0 {
		t.Errorf("%d turns were not ended", len(s))
	}
}
