package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/valyala/fasthttp"

	"likewise/counters"
	"likewise/internal/servers"
	"likewise/models"
)

// The names of scenarios that are used again: in a comparison, or with an open loop.
const (
	bareRoute      = "bare route (/healthz)"
	hotToggled     = "hot post, liked and unliked"
	hotDirect      = "hot post, liked and unliked, direct mode"
	listOwn        = "list of 20 posts, signed in"
	hotOnce        = "hot post, liked by all accounts once"
	spreadOnce     = "1,000 posts, liked once"
	zipfOnce       = "posts by Zipf's law, liked once"
	coldOnce       = "cold posts, each liked once"
	likedAgain     = "the same like again"
	dropOnce       = "claims of a hot drop, once"
	listAnonymous  = "list of 20 posts, anonymous"
	onePost        = "one post, signed in"
	onePostOnce    = "one post, signed in, each reader once"
	commentsOfPost = "comments of a post, anonymous"
	ofOneThread    = "thread of 100 comments, signed in"
	plainly        = ", without logs and limits"
)

// scenario is a row of the table of what is measured over HTTP.
type scenario struct {
	name    string
	against string // the scenario that it is compared with, if not the bare route
	loose   bool   // --quick does not compare the ratio: it depends on luck or the disk, or is better when smaller
	settles bool   // its likes and claims go through the gate: a round ends when their rows are in MySQL
	prepare func(ctx context.Context) (*job, error)
}

// scenarios returns the table. Each is prepared anew for each round, with posts of its own. "Once" means that each
// request is another user's, whom the API has not seen before. The bare route is between the groups again, so
// that other work on the machine during one of its samples does not move all ratios.
func (b *bench) scenarios() []*scenario {
	base := &scenario{name: bareRoute, prepare: b.bare(b.production)}
	return []*scenario{
		base,

		// Likes
		{name: hotToggled, settles: true, prepare: b.toggle(b.gated, b.production, 1)},
		{name: hotOnce, settles: true, prepare: b.once(b.Users, b.theHotPost)},
		{name: spreadOnce, settles: true, prepare: b.once(b.Likes, b.evenly(1000, 0))},
		{name: zipfOnce, settles: true, prepare: b.once(b.Likes, b.zipf)},
		{name: coldOnce, settles: true, prepare: b.once(b.Likes, b.evenly(b.Likes, 3))},
		{name: likedAgain, prepare: b.repeat()},
		{name: hotDirect, loose: true, prepare: b.toggle(b.direct, b.immediate, 1)},
		{name: hotToggled, against: hotDirect, loose: true, settles: true},

		// Claims
		base,
		{name: dropOnce, settles: true, prepare: b.claimOnce},
		{name: "claims of a sold-out drop", against: hotToggled, prepare: b.claimSoldOut()},

		// Reads
		base,
		{name: listOwn, prepare: b.list(b.production, true)},
		{name: listAnonymous, prepare: b.list(b.production, false)},
		{name: onePost, prepare: b.read("", true, `"liked":true`, 1)},
		{name: onePostOnce, prepare: b.readOnce()},
		{name: commentsOfPost, prepare: b.read("/comments?limit=20", false, `"content":`, 20)},
		{name: ofOneThread,
			prepare: b.read("/thread?limit=100&depth=2", true, `"content":`, 100)},

		// What logs and limits cost
		base,
		{name: bareRoute + plainly, against: bareRoute, loose: true, prepare: b.bare(b.plain)},
		{name: hotToggled + plainly, against: hotToggled, loose: true, settles: true,
			prepare: b.toggle(b.gated, b.plain, 1)},
		{name: listOwn + plainly, against: listOwn, loose: true, prepare: b.list(b.plain, true)},

		// An overload of direct mode, which saturates first
		{name: "direct mode, 16 × the clients", against: hotDirect, loose: true,
			prepare: b.toggle(b.direct, b.crowded, crowd)},
	}
}

// samples are what the rounds of a contender have measured.
type samples struct {
	name, against string
	loose         bool
	rates         []float64 // one a round
	settled       []float64 // one a round: the rate until the rows are in MySQL
	objects       []float64 // allocated by the API for a request, one a round
	bytes         []float64
	cpu           map[string][]float64    // microseconds of processors for a request, by role, one a round
	latencies     *hdrhistogram.Histogram // of all rounds
}

// median returns the median of a list; 0 if it is empty.
func median(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(list))[len(list)/2]
}

// result returns the median round.
func (s *samples) result(unit string) figure {
	r := figure{
		Name: s.name, Unit: unit, Value: median(s.rates), Settled: median(s.settled),
		Objects: median(s.objects), Bytes: median(s.bytes), Against: s.against, Loose: s.loose,
	}
	if s.latencies != nil {
		r.latency = newLatency(s.latencies)
	}
	if len(s.cpu) > 0 {
		r.CPU = map[string]float64{}
		for role, list := range s.cpu {
			r.CPU[role] = median(list)
		}
	}
	return r
}

func (s *samples) record(l *load) {
	s.rates = append(s.rates, l.rate())
	if s.latencies == nil {
		s.latencies = newLatencies()
	}
	s.latencies.Merge(l.latencies)
}

// measureScenarios lets all scenarios take turns.
func (b *bench) measureScenarios(ctx context.Context) error {
	all, err := b.takeTurns(ctx, b.chosen(b.scenarios()))
	if err != nil {
		return err
	}
	for _, s := range all {
		b.add(&b.report.Scenarios, s.result("requests/s"))
	}
	return nil
}

// takeTurns runs each row of the table in each round. A row without a job of its own is a comparison of an earlier one.
func (b *bench) takeTurns(ctx context.Context, table []*scenario) (all []*samples, err error) {
	of := map[string]*samples{}
	for i, s := range table {
		if slices.Index(table, s) < i {
			continue // another sample of the same
		}
		row := &samples{name: s.name, against: s.against, loose: s.loose}
		if row.against == "" && s.name != bareRoute {
			row.against = bareRoute
		}
		all = append(all, row)
		if s.prepare != nil {
			of[s.name] = row
		}
	}
	for round := range b.Rounds {
		for _, s := range table {
			if s.prepare == nil {
				continue
			}
			if err := b.takeTurn(ctx, s, of[s.name]); err != nil {
				return nil, fmt.Errorf("%s: %w", s.name, err)
			}
			row := of[s.name]
			b.log.InfoContext(ctx, "bench measured", "round", round+1, "of", b.Rounds, "scenario", s.name,
				"per_second", int(row.rates[len(row.rates)-1]))
		}
	}
	for _, row := range all {
		if measured := of[row.name]; measured != row {
			against, loose := row.against, row.loose
			*row = *measured
			row.against, row.loose = against, loose
		}
	}
	return all, nil
}

// takeTurn runs one round of a scenario.
func (b *bench) takeTurn(ctx context.Context, s *scenario, into *samples) error {
	j, err := b.prepared(ctx, s)
	if err != nil {
		return err
	}
	before, err := allocated(ctx, j.api)
	if err != nil {
		return err
	}
	usedBefore, err := b.used(j.api)
	if err != nil {
		return err
	}
	began := time.Now()
	l, err := j.run(ctx, closedLoop(j.total, b.Length))
	if err != nil {
		return err
	}
	after, err := allocated(ctx, j.api)
	if err != nil {
		return err
	}
	into.record(l)
	into.objects = append(into.objects, (after.objects-before.objects)/float64(l.requests))
	into.bytes = append(into.bytes, (after.bytes-before.bytes)/float64(l.requests))
	if s.settles {
		if err := b.settle(ctx); err != nil {
			return err
		}
		into.settled = append(into.settled, float64(l.requests)/time.Since(began).Seconds())
	}
	used, err := b.used(j.api)
	if err != nil {
		return err
	}
	if into.cpu == nil {
		into.cpu = map[string][]float64{}
	}
	for role, time := range used {
		spent := float64((time - usedBefore[role]).Microseconds()) / float64(l.requests)
		into.cpu[role] = append(into.cpu[role], spent)
	}
	if j.check != nil {
		return j.check(ctx, l.requests)
	}
	return nil
}

// prepared returns the job of a scenario, after its probe.
func (b *bench) prepared(ctx context.Context, s *scenario) (*job, error) {
	j, err := s.prepare(ctx)
	if err != nil {
		return nil, err
	}
	if j.clients == 0 {
		j.clients = b.Clients
	}
	if j.probe == nil {
		return j, nil
	}
	body, err := j.first(ctx)
	if err != nil {
		return nil, err
	}
	return j, j.probe(body)
}

func authorize(r *fasthttp.Request, token string) { r.Header.Set("Authorization", "Bearer "+token) }

func postPath(id int64) string { return "/v1/posts/" + strconv.FormatInt(id, 10) }

// bare requests a route that does nothing. All ratios have this base.
func (b *bench) bare(api *servers.Product) func(context.Context) (*job, error) {
	return func(context.Context) (*job, error) {
		return &job{api: api, request: func(_ turn, r *fasthttp.Request) { r.SetRequestURI("/healthz") }}, nil
	}
}

// toggle makes users like a new post, and then unlike it, again and again. Each client has users of its own, so that
// the requests of one user are in order.
func (b *bench) toggle(site *site, api *servers.Product, times int) func(context.Context) (*job, error) {
	return func(ctx context.Context) (*job, error) {
		target, err := site.createPost(ctx)
		if err != nil {
			return nil, err
		}
		path := postPath(target.ID) + "/like"
		clients := times * b.Clients
		liked := make([]bool, len(site.tokens)) // each element belongs to one client
		return &job{
			api:     api,
			clients: clients,
			// On a busy machine, the time of some of a crowd is over before MySQL has answered.
			mayRefuse: times > 1,
			request: func(t turn, r *fasthttp.Request) {
				own := (len(liked) - t.client + clients - 1) / clients
				user := t.client + t.n%own*clients
				liked[user] = t.n/own%2 == 0
				r.Header.SetMethod(fasthttp.MethodPut)
				if !liked[user] {
					r.Header.SetMethod(fasthttp.MethodDelete)
				}
				authorize(r, site.tokens[user])
				r.SetRequestURI(path)
			},
			check: func(ctx context.Context, _ int) error {
				want := int64(-1) // which of a crowd were refused is not recorded
				if times == 1 {
					want = 0
					for _, is := range liked {
						if is {
							want++
						}
					}
				}
				return site.checkLikes(ctx, target.ID, target.ID, want)
			},
		}, nil
	}
}

// posts are those that a scenario likes: as many as count, from first on. The i-th like is of the post first+of(i).
type posts struct {
	first int64
	count int
	had   int // likes of each post before
	of    func(i int) int
}

// once makes users like posts. Each is new, comes once and likes one of them.
func (b *bench) once(likes int, choose func(context.Context) (posts, error)) func(context.Context) (*job, error) {
	return func(ctx context.Context) (*job, error) {
		chosen, err := choose(ctx)
		if err != nil {
			return nil, err
		}
		tokens, err := b.gated.newcomers(ctx, likes)
		if err != nil {
			return nil, err
		}
		return &job{
			api:   b.production,
			total: likes,
			request: func(t turn, r *fasthttp.Request) {
				r.Header.SetMethod(fasthttp.MethodPut)
				authorize(r, tokens[t.i])
				r.SetRequestURI(postPath(chosen.first+int64(chosen.of(t.i))) + "/like")
			},
			check: func(ctx context.Context, requests int) error {
				want := int64(requests + chosen.count*chosen.had)
				return b.gated.checkLikes(ctx, chosen.first, chosen.first+int64(chosen.count)-1, want)
			},
		}, nil
	}
}

// theHotPost chooses one post.
func (b *bench) theHotPost(ctx context.Context) (posts, error) {
	target, err := b.gated.createPost(ctx)
	return posts{first: target.ID, count: 1, of: func(int) int { return 0 }}, err
}

// evenly chooses new posts in turn. If they have likes already, those are of accounts that like other posts now.
func (b *bench) evenly(count, had int) func(context.Context) (posts, error) {
	return func(ctx context.Context) (posts, error) {
		first, err := b.gated.loadPosts(ctx, count, had)
		return posts{first: first, count: count, had: had, of: func(i int) int { return i % count }}, err
	}
}

// zipf chooses new posts by Zipf's law, the same in each run.
func (b *bench) zipf(ctx context.Context) (posts, error) {
	first, err := b.gated.loadPosts(ctx, b.Posts, 0)
	if err != nil {
		return posts{}, err
	}
	law := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, uint64(b.Posts-1))
	drawn := make([]int, b.Likes)
	for i := range drawn {
		drawn[i] = int(law.Uint64())
	}
	return posts{first: first, count: b.Posts, of: func(i int) int { return drawn[i] }}, nil
}

// repeat makes users like a post that they like already.
func (b *bench) repeat() func(context.Context) (*job, error) {
	var target models.Target // of all rounds
	return func(ctx context.Context) (j *job, err error) {
		likers := b.likers()
		if target.ID == 0 {
			if target, err = b.gated.createPost(ctx); err != nil {
				return nil, err
			}
			if err := b.likeAll(ctx, target, b.gated.customers[:likers]); err != nil {
				return nil, err
			}
		}
		path := postPath(target.ID) + "/like"
		return &job{
			api: b.production,
			request: func(t turn, r *fasthttp.Request) {
				r.Header.SetMethod(fasthttp.MethodPut)
				authorize(r, b.gated.tokens[t.i%likers])
				r.SetRequestURI(path)
			},
			check: func(ctx context.Context, _ int) error {
				return errors.Join(b.settle(ctx), b.gated.checkLikes(ctx, target.ID, target.ID, int64(likers)))
			},
		}, nil
	}
}

// claimOnce makes users claim a share of a new drop. Each is new, comes once and claims once.
func (b *bench) claimOnce(ctx context.Context) (*job, error) {
	drop, err := b.gated.createDrop(ctx, models.MaxStock)
	if err != nil {
		return nil, err
	}
	tokens, err := b.gated.newcomers(ctx, b.Likes)
	if err != nil {
		return nil, err
	}
	path := claimsPath(drop)
	return &job{
		api:    b.production,
		total:  b.Likes,
		status: fasthttp.StatusCreated,
		request: func(t turn, r *fasthttp.Request) {
			r.Header.SetMethod(fasthttp.MethodPost)
			authorize(r, tokens[t.i])
			r.SetRequestURI(path)
		},
		check: func(ctx context.Context, requests int) error {
			return b.gated.checkDrop(ctx, drop, int64(requests))
		},
	}, nil
}

func claimsPath(drop int64) string { return "/v1/drops/" + strconv.FormatInt(drop, 10) + "/claims" }

// claimSoldOut makes users claim a drop of which nothing is left.
func (b *bench) claimSoldOut() func(context.Context) (*job, error) {
	var drop int64 // of all rounds
	return func(ctx context.Context) (j *job, err error) {
		if drop == 0 {
			if drop, err = b.soldOutDrop(ctx); err != nil {
				return nil, err
			}
		}
		path, users := claimsPath(drop), b.gated.tokens[1:] // the first has the only share
		return &job{
			api:    b.production,
			status: fasthttp.StatusConflict,
			request: func(t turn, r *fasthttp.Request) {
				r.Header.SetMethod(fasthttp.MethodPost)
				authorize(r, users[t.i%len(users)])
				r.SetRequestURI(path)
			},
		}, nil
	}
}

// readersAtMost is the number of users who read.
const readersAtMost = 64

// list reads the newest 20 posts, which the readers like.
func (b *bench) list(api *servers.Product, signedIn bool) func(context.Context) (*job, error) {
	return func(ctx context.Context) (*job, error) {
		const size = 20
		first, err := b.gated.loadPosts(ctx, size, 0)
		if err != nil {
			return nil, err
		}
		for i := range size {
			post := models.Target{Kind: models.KindPost, ID: first + int64(i)}
			if err := b.likeAll(ctx, post, b.gated.customers[:b.readers()]); err != nil {
				return nil, err
			}
		}
		want := `"liked":false`
		if signedIn {
			want = `"liked":true`
		}
		return b.reading(api, "/v1/posts?limit=20", signedIn, want, size), b.settle(ctx)
	}
}

func (b *bench) readers() int { return min(b.likers(), readersAtMost) }

// read reads a part of a post with 100 comments, which the readers like.
func (b *bench) read(part string, signedIn bool, want string, times int) func(context.Context) (*job, error) {
	var post models.Target // of all rounds
	return func(ctx context.Context) (j *job, err error) {
		if post.ID == 0 {
			if post, err = b.gated.createThread(ctx); err != nil {
				return nil, err
			}
			if err := b.likeAll(ctx, post, b.gated.customers[:b.readers()]); err != nil {
				return nil, err
			}
		}
		return b.reading(b.production, postPath(post.ID)+part, signedIn, want, times), b.settle(ctx)
	}
}

// readOnce makes newcomers read a post, as they do when a link to it spreads.
func (b *bench) readOnce() func(context.Context) (*job, error) {
	post := b.read("", false, `"liked":false`, 1)
	return func(ctx context.Context) (*job, error) {
		j, err := post(ctx)
		if err != nil {
			return nil, err
		}
		tokens, err := b.gated.newcomers(ctx, b.Likes)
		if err != nil {
			return nil, err
		}
		anonymous := j.request
		j.total, j.request = len(tokens), func(t turn, r *fasthttp.Request) {
			anonymous(t, r)
			authorize(r, tokens[t.i])
		}
		return j, nil
	}
}

// reading requests a path. Its answer must have a text some times.
func (b *bench) reading(api *servers.Product, path string, signedIn bool, want string, times int) *job {
	return &job{
		api: api,
		request: func(t turn, r *fasthttp.Request) {
			if signedIn {
				authorize(r, b.gated.tokens[t.i%b.readers()])
			}
			r.SetRequestURI(path)
		},
		probe: func(body string) error {
			if n := strings.Count(body, want); n < times {
				return fmt.Errorf("the answer to %s has %s %d times, not %d: %.500s", path, want, n, times, body)
			}
			return nil
		},
	}
}

// likeAll makes users like the target through the gate, in this process.
func (b *bench) likeAll(ctx context.Context, target models.Target, users []int64) error {
	return inLanes(len(users), func(i int) error {
		_, err := b.gated.gate.SetLike(ctx, target, users[i], true)
		return err
	})
}

// soldOutDrop creates a drop behind the gate whose only share the first account claims.
func (b *bench) soldOutDrop(ctx context.Context) (id int64, err error) {
	if id, err = b.gated.createDrop(ctx, 1); err != nil {
		return 0, err
	}
	claim, err := counters.NewIDs(b.gated.redis, b.gated.store).Next(ctx, b.shard(id), b.gated.store.Shards())
	if err != nil {
		return 0, err
	}
	_, err = b.gated.claims.Claim(ctx, id, b.gated.customers[0], int64(claim))
	return id, err
}
