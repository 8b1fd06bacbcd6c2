package handlers_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/likes"
)

// gate records its calls.
type gate struct {
	closed []models.Target
	err    error
}

func (g *gate) CloseTargets(_ context.Context, targets []models.Target) error {
	g.closed = append(g.closed, targets...)
	return g.err
}

func newGated(t *testing.T, g *gate) *api {
	t.Helper()
	store := openStore(t, testkit.Database(t))
	return serve(t, store, behindGate(likes.New(store), g))
}

func targetOf(content any) models.Target {
	switch c := content.(type) {
	case post:
		return models.Target{Kind: models.KindPost, ID: c.ID}
	case comment:
		return models.Target{Kind: models.KindComment, ID: c.ID}
	}
	panic("neither a post nor a comment")
}

func TestGate_closesDeletedTargets(t *testing.T) {
	t.Parallel()
	g := &gate{}
	a := newGated(t, g)
	ada := a.account(t)
	p := a.newPost(t, ada)
	c := a.newComment(t, ada, p.ID)
	r := a.newReply(t, ada, c.ID)
	if len(g.closed) != 0 {
		t.Errorf("closed %v", g.closed)
	}
	a.must(t, 204, ada, "DELETE", pathOf(c), nil)
	if want := []models.Target{targetOf(c)}; !slices.Equal(g.closed, want) {
		t.Errorf("closed %v, want %v", g.closed, want)
	}
	a.fill(t, 1100, ada, p.ID, 0) // more than go to the gate at a time
	g.closed = nil
	a.must(t, 204, ada, "DELETE", pathOf(p), nil)
	if len(g.closed) != 1+1+1100 || g.closed[0] != targetOf(p) || g.closed[1] != targetOf(r) {
		t.Errorf("closed %d targets, %v first", len(g.closed), g.closed[:min(3, len(g.closed))])
	}
	slices.SortFunc(g.closed, func(a, b models.Target) int { return int(a.ID - b.ID) })
	if once := slices.Compact(slices.Clone(g.closed)); len(once) != len(g.closed) {
		t.Errorf("%d of %d targets were closed twice", len(g.closed)-len(once), len(g.closed))
	}
}

func TestGate_failureDoesNotFailRequests(t *testing.T) {
	t.Parallel()
	g := &gate{err: errors.New("redis is away")}
	a := newGated(t, g)
	ada := a.account(t)
	p := a.newPost(t, ada)
	c := a.newComment(t, ada, p.ID)
	a.must(t, 204, ada, "DELETE", pathOf(c), nil)
	a.must(t, 204, ada, "DELETE", pathOf(p), nil)
}
