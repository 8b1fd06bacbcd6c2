package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"likewise/internal/faults/oracle"
)

const (
	keepers   = 2
	keptDrops = 6 // open ones of a keeper
)

// keeper creates drops, changes their stock and closes them, in the name of the authors of their posts.
type keeper struct {
	route

	st   *storm
	rng  *rand.Rand
	n    int
	made int
	kept []*keeping
}

// keeping is an open drop of a keeper.
type keeping struct {
	*oracle.Drop

	stock, version int64
	etag           string
	stale          bool // they are to be read again
	// since is when the first request without an answer was sent that may still take effect; 0 for none.
	since time.Duration
}

// run acts until ctx ends.
func (k *keeper) run(ctx context.Context) {
	for wait(ctx, time.Duration(50+k.rng.IntN(300))*time.Millisecond) == nil {
		k.st.quiet.RLock()
		if ctx.Err() == nil {
			k.act(context.WithoutCancel(ctx))
		}
		k.st.quiet.RUnlock()
	}
}

func (k *keeper) act(ctx context.Context) {
	now := k.st.site.since()
	k.kept = slices.DeleteFunc(k.kept, func(kept *keeping) bool {
		over := kept.Ends != 0 && now > kept.Ends
		if over {
			k.st.drops.end(kept.Drop)
		}
		return over
	})
	if len(k.kept) < keptDrops {
		k.create(ctx)
		return
	}
	i := k.rng.IntN(len(k.kept))
	switch kept := k.kept[i]; {
	case len(kept.Closing) > 0:
		k.close(ctx, kept)
	case kept.stale:
		k.read(ctx, kept)
	case k.rng.IntN(15) == 0:
		k.close(ctx, kept)
	default:
		k.edit(ctx, kept)
	}
}

// send sends a request of the author of a post. 404 is a wrong answer unless the post may be deleted.
func (k *keeper) send(ctx context.Context, post *oracle.Target, q request) (a answer, s oracle.Setting) {
	trouble := k.st.site.trouble.Load()
	s.Start = k.st.site.since()
	q.as, q.excused = post.Author, append(q.excused, http.StatusNotFound)
	a = k.st.send(ctx, k.route, q)
	s.End, s.Outcome = k.st.site.since(), a.outcome
	s.Calm = a.outcome == oracle.OK && trouble%2 == 0 && k.st.site.trouble.Load() == trouble
	if a.status == http.StatusNotFound && !post.MayBeGone(s.Start) {
		k.st.violations.Addf(oracle.BlamedClient, s.End, "%s: %s answers 404 %s", k.name(), q, a.body)
	}
	if a.status == oracle.NoStatus {
		k.route = k.other()
	}
	k.st.tally.writes[a.outcome].Add(1)
	return a, s
}

// post returns the post of a new drop: mostly one that nobody deletes.
func (k *keeper) post() *oracle.Target {
	k.st.targets.mu.RLock()
	defer k.st.targets.mu.RUnlock()
	t := k.st.targets
	lasting := slices.Concat(t.hot, t.cold[:probed])
	switch k.rng.IntN(10) {
	case 0:
		return t.disputed
	case 1, 2:
		if p := t.cold[probed+k.rng.IntN(len(t.cold)-probed)]; p.Kind == "posts" && p.Author != nil {
			return p
		}
	}
	return lasting[k.rng.IntN(len(lasting))]
}

// create creates a drop. After an unknown outcome, nobody knows its id, and nobody claims it.
func (k *keeper) create(ctx context.Context) {
	post := k.post()
	d := &oracle.Drop{Post: post}
	k.made++
	body := map[string]any{"title": fmt.Sprintf("drop-%d-%d", k.n, k.made)}
	stock := int64(1 + k.rng.IntN(20))
	body["stock"] = stock
	s := k.st.site
	at := func(in time.Duration) (string, time.Duration) {
		t := time.Now().Add(in).UTC().Truncate(time.Millisecond)
		return t.Format(timestamp), t.Sub(s.began)
	}
	if k.rng.IntN(5) < 2 {
		d.Within = time.Duration(10+k.rng.IntN(5)) * time.Second
		body["confirm_within"] = int64(d.Within / time.Second)
	}
	if k.rng.IntN(5) == 0 {
		body["begins_at"], d.Begins = at(time.Duration(1000+k.rng.IntN(3000)) * time.Millisecond)
	}
	if k.rng.IntN(5) == 0 {
		body["ends_at"], d.Ends = at(time.Duration(15+k.rng.IntN(45)) * time.Second)
	}
	a, set := k.send(ctx, post, request{method: http.MethodPost, path: post.Path() + "/drops", body: body})
	set.Stock = stock
	if a.outcome != oracle.OK {
		return
	}
	var seen dropSeen
	if err := json.Unmarshal(a.body, &seen); err != nil || seen.ID == 0 || seen.Stock != stock || seen.Claimed != 0 ||
		seen.Remaining != stock {
		k.st.violations.Addf(oracle.WrongAnswer, set.End, "POST %s/drops answers %s", post.Path(), a.body)
		return
	}
	set.Calm = true // the gate cannot have learned of another stock before
	d.ID, d.Stocks = seen.ID, []oracle.Setting{set}
	k.kept = append(k.kept, &keeping{Drop: d, stock: stock, version: seen.Version, etag: a.etag})
	k.st.drops.add(d)
	k.st.tally.claims[dropsMade].Add(1)
}

// read reads the settings after a request without an answer.
func (k *keeper) read(ctx context.Context, kept *keeping) {
	a, set := k.send(ctx, kept.Post, request{method: http.MethodGet, path: kept.Path()})
	if a.outcome != oracle.OK {
		return
	}
	seen, is := k.st.holdDrop(kept.Drop, a.body, "GET "+kept.Path())
	if !is {
		return
	}
	if seen.Version > kept.version {
		// One of the requests took effect, and the others cannot any more: they name an older version.
		set.Stock, set.Start, set.Calm = seen.Stock, kept.since, false
		kept.Ask(&kept.Stocks, set)(set)
		kept.since = 0
	}
	kept.stock, kept.version, kept.etag, kept.stale = seen.Stock, seen.Version, a.etag, false
}

// edit raises or lowers the stock.
func (k *keeper) edit(ctx context.Context, kept *keeping) {
	stock := kept.stock + int64(1+k.rng.IntN(8))
	if k.rng.IntN(2) == 0 {
		stock = max(1, kept.stock-int64(1+k.rng.IntN(8)))
	}
	if stock == kept.stock || stock > 60 {
		return
	}
	answered := kept.Ask(&kept.Stocks, oracle.Setting{Stock: stock, Start: k.st.site.since()})
	a, set := k.send(ctx, kept.Post, request{
		method: http.MethodPatch, path: kept.Path(), body: map[string]any{"stock": stock},
		header:  map[string]string{"If-Match": kept.etag},
		excused: []int{http.StatusConflict, http.StatusPreconditionFailed},
	})
	set.Stock = stock
	answered(set)
	wrong := func(why string) {
		k.st.violations.Addf(oracle.BlamedClient, set.End, "PATCH %s to a stock of %d, from %d: %s: %d %s", kept.Path(),
			stock, kept.stock, why, a.status, a.body)
	}
	switch {
	case a.outcome == oracle.Unknown:
		if !kept.stale {
			kept.stale, kept.since = true, set.Start
		}
	case a.status == http.StatusPreconditionFailed:
		if kept.since == 0 {
			wrong("nobody else changes it")
		}
		kept.stale = true
	case a.status == http.StatusConflict:
		if stock > kept.stock && kept.since == 0 || stock >= kept.Claimants.Load() {
			wrong("so many cannot be claimed")
		}
		kept.stale = kept.since != 0
	case a.outcome == oracle.OK:
		seen, is := k.st.holdDrop(kept.Drop, a.body, "PATCH "+kept.Path())
		if is && (seen.Stock != stock || seen.Version <= kept.version) {
			k.st.violations.Addf(oracle.WrongAnswer, set.End, "PATCH %s answers %s", kept.Path(), a.body)
		}
		kept.stock, kept.version, kept.etag, kept.since = stock, seen.Version, a.etag, 0
		k.st.tally.claims[stocksChanged].Add(1)
	}
}

// close closes a drop. The request is repeated until it is acknowledged.
func (k *keeper) close(ctx context.Context, kept *keeping) {
	answered := kept.Ask(&kept.Closing, oracle.Setting{Start: k.st.site.since()})
	a, set := k.send(ctx, kept.Post, request{method: http.MethodPost, path: kept.Path() + "/close"})
	answered(set)
	if a.outcome == oracle.Failed {
		return // its post is deleted, or it was not sent
	}
	k.st.drops.end(kept.Drop)
	if a.outcome != oracle.OK {
		return // it is sent again
	}
	if seen, is := k.st.holdDrop(kept.Drop, a.body, "POST "+kept.Path()+"/close"); is && seen.ClosedAt == nil {
		k.st.violations.Addf(oracle.WrongAnswer, set.End, "POST %s/close answers %s", kept.Path(), a.body)
	}
	k.kept = slices.DeleteFunc(k.kept, func(item *keeping) bool { return item == kept })
	k.st.tally.claims[dropsClosed].Add(1)
}
