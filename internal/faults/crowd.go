package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"likewise/internal/faults/oracle"
)

// crowdStock is the stock that a crowd wants.
const crowdStock = 100

const (
	rushBegins = time.Second            // after the drop was made
	rushFor    = 900 * time.Millisecond // in which every user asks for the first time
	killsBegin = 200 * time.Millisecond // before the rush
	killsFor   = 8 * time.Second        // after its begin
	// The users reach an API over this many connections, as behind a balancer of load.
	connections = 512
)

// rush is the outcome of a run with a crowd: as many users as --crowd names want one of the stock in the same second,
// while servers and workers are killed.
type rush struct {
	Seed       uint64             `json:"seed"`
	Users      int                `json:"users"`
	Asked      time.Duration      `json:"asked_within_ns"` // from the first to the last user's first request
	Requests   int                `json:"requests"`
	Made       int                `json:"made"`     // 201
	Repeated   int                `json:"repeated"` // 200
	SoldOut    int                `json:"sold_out"`
	Unknown    int                `json:"unknown"`
	Kills      []string           `json:"kills"`
	Answered   time.Duration      `json:"answered_after_ns"` // until every user had an answer
	Flushed    time.Duration      `json:"flushed_after_ns"`  // until a flush succeeded
	Rows       int                `json:"rows"`
	Violations int                `json:"violations"`
	Told       []oracle.Violation `json:"violations_told"`
}

// rush lets a crowd claim the stock of one drop, and judges the result: exactly the stock is claimed, each user has one
// answer, and every user with a positive answer has a row.
func (st *storm) rush(ctx context.Context, o options, say func(string, ...any)) (*rush, error) {
	s := st.site
	st.http.Transport = &http.Transport{
		MaxIdleConnsPerHost: connections, MaxConnsPerHost: connections, DisableCompression: true,
		DialContext: (&net.Dialer{Timeout: 3 * time.Second}).DialContext,
	}
	out, err := s.command(ctx, "user", "token", "--count", fmt.Sprint(o.crowd+1))
	if err != nil {
		return nil, fmt.Errorf("make users: %w: %s", err, out)
	}
	users, err := readTokens(out)
	if err != nil {
		return nil, err
	}
	author, users := users[0], users[1:]
	s.trouble.Store(1)
	say("%d users made", len(users))
	d, err := st.offer(ctx, o, author, users)
	if err != nil {
		return nil, err
	}
	begin := s.began.Add(d.Begins)
	say("%d users want %s in the second after %.3f s", len(users), d.Name(), d.Begins.Seconds())

	r := &rush{Seed: o.seed, Users: len(users)}
	var killing, asking sync.WaitGroup
	sold := make(chan struct{})
	var once sync.Once
	var kills []*killer
	for i, v := range s.victims() {
		k := &killer{victim: v, sold: sold, rng: rand.New(rand.NewPCG(o.seed, uint64(i)+1<<33))}
		kills = append(kills, k)
		killing.Go(func() { k.run(ctx, begin) })
	}
	for i, u := range users {
		rng := rand.New(rand.NewPCG(o.seed, uint64(i)+1<<34))
		asking.Go(func() {
			if wait(ctx, time.Until(begin)+time.Duration(rng.Int64N(int64(rushFor)))) == nil {
				st.want(ctx, rng, d.Share(u), func() { once.Do(func() { close(sold) }) })
			}
		})
	}
	asking.Wait()
	killing.Wait()
	for _, k := range kills {
		r.Kills = append(r.Kills, fmt.Sprintf("%s %d", k.name, k.times))
		if k.err != nil {
			return nil, fmt.Errorf("kill %s: %w", k.name, k.err)
		}
	}
	if err := s.revive(ctx); err != nil {
		return nil, err
	}
	healed := s.since()
	for {
		out, err := s.command(ctx, "cron", "run", "flush", "--timeout=60s")
		if err == nil {
			break
		}
		if s.since() > healed+patience {
			st.violations.Addf("no recovery", s.since(), "flush fails for %v: %v: %s", patience, err, out)
			break
		}
		if err := wait(ctx, 100*time.Millisecond); err != nil {
			return nil, err
		}
	}
	r.Flushed = s.since() - d.Begins
	if err := st.judgeClaims(ctx, st.judge(), users); err != nil {
		return nil, err
	}
	if err := st.judgeRush(ctx, d, r); err != nil {
		return nil, err
	}
	st.verify(ctx)
	if err := st.judgeLosses(ctx); err != nil {
		return nil, err
	}
	if err := st.judgeLogs(); err != nil {
		return nil, err
	}
	r.Violations, r.Told = st.violations.Total(), st.violations.List
	return r, nil
}

// lookAt lets every user read the post.
func (st *storm) lookAt(ctx context.Context, post *oracle.Target, users []*oracle.Account) error {
	errs := make([]error, connections)
	var looking sync.WaitGroup
	for n := range errs {
		looking.Go(func() {
			for i := n; i < len(users) && errs[n] == nil; i += len(errs) {
				var page seen
				errs[n] = st.mustRead(ctx, route{i % 2, patientLimit}, users[i], post.Path(), &page)
			}
		})
	}
	looking.Wait()
	return errors.Join(errs...)
}

// offer makes a post, at which every user looks, and then a drop of it that begins soon.
func (st *storm) offer(
	ctx context.Context, o options, author *oracle.Account, users []*oracle.Account,
) (*oracle.Drop, error) {
	c := newClient(st, 0, o.seed, []*oracle.Account{author})
	var post *oracle.Target
	for post == nil {
		if made := c.create(ctx, &oracle.Creation{Kind: "posts"}); made.Outcome == oracle.OK {
			post = st.born(made)
		} else if st.site.since() > 2*patience {
			return nil, fmt.Errorf("the site did not start: %s", made.Story())
		} else if err := wait(ctx, 100*time.Millisecond); err != nil {
			return nil, err
		}
	}
	if err := st.lookAt(ctx, post, users); err != nil {
		return nil, err
	}
	begins := time.Now().Add(rushBegins).UTC().Truncate(time.Millisecond)
	d := &oracle.Drop{Post: post, Begins: begins.Sub(st.site.began)}
	set := oracle.Setting{Stock: crowdStock, Start: st.site.since(), Outcome: oracle.OK, Calm: true}
	a := st.eventually(ctx, c.route, request{
		as: author, method: http.MethodPost, path: post.Path() + "/drops",
		body: map[string]any{
			"title": "One of a hundred", "stock": crowdStock, "begins_at": begins.Format(timestamp),
		},
	})
	var seen dropSeen
	if err := json.Unmarshal(a.body, &seen); err != nil || a.outcome != oracle.OK {
		return nil, fmt.Errorf("make a drop: %d %s", a.status, a.body)
	}
	set.End = st.site.since()
	d.ID, d.Stocks = seen.ID, []oracle.Setting{set}
	st.drops.add(d)
	return d, nil
}

// want repeats a claim until it is answered: the user has one, or nothing is left.
func (st *storm) want(ctx context.Context, rng *rand.Rand, s *oracle.Share, won func()) {
	by := route{rng.IntN(2), patientLimit}
	for n := 1; ; n++ {
		o := st.claim(context.WithoutCancel(ctx), by, s, oracle.Claims, 0)
		if o.Outcome == oracle.OK {
			won()
		}
		if o.Outcome == oracle.OK || o.Code == "sold_out" {
			return
		}
		if o.Status == oracle.NoStatus {
			by = by.other()
		}
		if wait(ctx, time.Duration(min(n, 4)*(300+rng.IntN(1000)))*time.Millisecond) != nil {
			return
		}
	}
}

// victim is what is killed while the crowd claims.
type victim struct {
	name  string
	kill  func() error
	start func(context.Context) error
}

// victims returns the servers and workers.
func (s *site) victims() []victim {
	list := []victim{
		{"mysql", s.mysql.Kill, s.mysql.Start},
		{"redis", s.redis.Kill, s.redis.Start},
		{"kafka", s.kafka.Kill, s.kafka.Start},
	}
	for _, p := range s.workers {
		list = append(list, victim{
			p.name, func() error { p.kill(); return nil }, func(context.Context) error { return p.start() },
		})
	}
	return list
}

// killer kills a victim again and again, at times that depend only on the seed and on how long it takes to start. The
// first time is near the begin of the rush, or within a moment after the first claim.
type killer struct {
	victim

	sold  <-chan struct{}
	rng   *rand.Rand
	times int
	err   error
}

func (k *killer) run(ctx context.Context, rush time.Time) {
	pause := func(low, high time.Duration) time.Duration {
		return low + time.Duration(k.rng.Int64N(int64(high-low)))
	}
	at := time.Until(rush) - killsBegin + pause(0, killsBegin+rushFor/2)
	if k.rng.IntN(2) == 0 {
		select {
		case <-k.sold:
		case <-time.After(time.Until(rush) + rushFor):
		case <-ctx.Done():
		}
		at = pause(0, 60*time.Millisecond)
	}
	for wait(ctx, at) == nil && time.Since(rush) < killsFor {
		k.times++
		k.err = k.kill()
		down := wait(ctx, pause(50*time.Millisecond, 1200*time.Millisecond))
		if err := k.start(context.WithoutCancel(ctx)); k.err == nil {
			k.err = err
		}
		if k.err != nil || down != nil {
			return
		}
		at = pause(300*time.Millisecond, 2500*time.Millisecond)
	}
}

// judgeRush counts the answers, and checks that exactly the stock is claimed.
func (st *storm) judgeRush(ctx context.Context, d *oracle.Drop, r *rush) error {
	rows, err := st.claimRows(ctx)
	if err != nil {
		return err
	}
	bad := func(format string, args ...any) {
		st.violations.Addf(oracle.NotTheStock, st.site.since(), format, args...)
	}
	was := st.judge().Rush(d, crowdStock, rows[d.ID])
	r.Asked, r.Answered, r.Rows = was.Asked, was.Answered-d.Begins, len(rows[d.ID])
	r.Requests, r.Made, r.Repeated = was.Requests, was.Made, was.Repeated
	r.SoldOut, r.Unknown = was.SoldOut, was.NoAnswer
	for api := range st.site.apis {
		var seen dropSeen
		if err := st.mustRead(ctx, route{api, patientLimit}, d.Post.Author, d.Path(), &seen); err != nil {
			return err
		}
		if seen.Remaining != 0 || seen.Claimed != crowdStock {
			bad("api%d says that %d are claimed and %d remain", api+1, seen.Claimed, seen.Remaining)
		}
	}
	if was.Users != r.Users {
		bad("only %d of %d users have asked", was.Users, r.Users)
	}
	return nil
}

// write prints the outcome as a row of a table.
func (r *rush) write(w io.Writer) {
	verdict := "none"
	if r.Violations > 0 {
		verdict = fmt.Sprint(r.Violations)
	}
	fmt.Fprintf(w, "| %d | %d | %.2f | %d | %d | %d | %d | %d | %v | %.1f | %.1f | %d | %s |\n", r.Seed, r.Users,
		r.Asked.Seconds(), r.Requests, r.Made, r.Repeated, r.SoldOut, r.Unknown, r.Kills, r.Answered.Seconds(),
		r.Flushed.Seconds(), r.Rows, verdict)
	for _, v := range r.Told {
		fmt.Fprintf(w, "\n%s, at %.3f s: %s\n", v.Sort, v.At.Seconds(), v.Text)
	}
}
