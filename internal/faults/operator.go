package main

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"
)

// The acts of an operator that the report counts.
const (
	verifications = iota
	reconciliations
	coolings
	operations
)

var operationNames = [operations]string{"verify --repair", "cron run reconcile", "cool"}

// operator runs commands of the product in the middle of the storm. None of them may change what users see, whatever
// the state of the site is. A command may fail while a fault is active.
type operator struct {
	st  *storm
	rng *rand.Rand
}

// run acts until ctx ends.
func (o *operator) run(ctx context.Context) {
	for wait(ctx, time.Duration(2000+o.rng.IntN(6000))*time.Millisecond) == nil {
		o.act(ctx)
	}
}

func (o *operator) act(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	kind, args := verifications, []string{"verify", "--repair"}
	switch o.rng.IntN(3) {
	case 0:
		kind, args = reconciliations, []string{"cron", "run", "reconcile", "--timeout=20s"}
	case 1:
		kind, args = coolings, []string{"cool", o.target()}
	}
	out, err := o.st.site.command(ctx, args...)
	if err == nil {
		o.st.tally.operated[kind].Add(1)
	}
	if i := collapse.FindStringIndex(out); i != nil {
		o.st.violations.Addf("a crash", o.st.site.since(), "%s: %s", strings.Join(args, " "), tail(out[i[0]:], 2000))
	}
}

// target returns a post or comment, hot or cold, in the form of the command line.
func (o *operator) target() string {
	o.st.targets.mu.RLock()
	defer o.st.targets.mu.RUnlock()
	t := o.st.targets.hot[o.rng.IntN(len(o.st.targets.hot))]
	if o.rng.IntN(2) == 0 {
		t = o.st.targets.cold[o.rng.IntN(len(o.st.targets.cold))]
	}
	return strings.Replace(t.Name(), " ", ":", 1)
}
