package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/valyala/fasthttp"

	"likewise/models"
)

// loadsOf are the scenarios that are also measured with an open loop.
var loadsOf = []string{hotToggled, hotDirect, listOwn}

// scenario returns the row of this name that has a job.
func (b *bench) scenario(name string) *scenario {
	table := b.scenarios()
	return table[slices.IndexFunc(table, func(s *scenario) bool { return s.name == name && s.prepare != nil })]
}

// capacity returns the answers a second of a scenario in one closed loop.
func (b *bench) capacity(ctx context.Context, name string) (perSecond float64, err error) {
	var s samples
	if err := b.takeTurn(ctx, b.scenario(name), &s); err != nil {
		return 0, fmt.Errorf("%s: %w", name, err)
	}
	return s.rates[0], nil
}

// halvesOf are the scenarios that are measured with an open loop at half of their rate, with those of loadsOf. The bare
// route shows what of a latency is that of the machine and its clients.
var halvesOf = []string{
	bareRoute, hotOnce, spreadOnce, zipfOnce, coldOnce, likedAgain, dropOnce, listAnonymous, onePost, commentsOfPost,
	ofOneThread,
}

// measureLoads sends some scenarios at constant rates, each a part of what a closed loop has reached before.
func (b *bench) measureLoads(ctx context.Context) error {
	for _, name := range loadsOf {
		highest, err := b.capacity(ctx, name)
		if err != nil {
			return err
		}
		for _, part := range b.Loads {
			point, err := b.offer(ctx, name, part*highest)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			b.report.Loads = append(b.report.Loads, point)
		}
	}
	for _, name := range halvesOf {
		highest, err := b.capacity(ctx, name)
		if err != nil {
			return err
		}
		point, err := b.offer(ctx, name, highest/2)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		b.report.Halves = append(b.report.Halves, point)
	}
	return nil
}

// offer sends requests of a scenario at a constant rate: all that it has, as in a closed loop, or as many as fit into
// the length of a round.
func (b *bench) offer(ctx context.Context, name string, rate float64) (loadPoint, error) {
	s := b.scenario(name)
	j, err := b.prepared(ctx, s)
	if err != nil {
		return loadPoint{}, err
	}
	requests := max(1, int(rate*b.Length.Seconds()))
	if j.total > 0 {
		requests = j.total // a part would have more likes that are the first of a cold post
	}
	before, err := b.gated.queries(ctx)
	if err != nil {
		return loadPoint{}, err
	}
	l, err := j.run(ctx, openLoop(requests, rate))
	if err == nil && s.settles {
		err = b.settle(ctx)
	}
	if err != nil {
		return loadPoint{}, err
	}
	after, err := b.gated.queries(ctx)
	if err == nil && j.check != nil {
		err = j.check(ctx, l.requests)
	}
	if err != nil {
		return loadPoint{}, err
	}
	b.log.InfoContext(ctx, "bench measured", "scenario", name, "offered", int(rate), "reached", int(l.rate()))
	return loadPoint{
		Name: name, Offered: rate, Reached: l.rate(), Queries: float64(after-before) / float64(l.requests),
		latency: newLatency(l.latencies),
	}, nil
}

// likesPerPost is the number of likes of each post that measureSizes adds.
const likesPerPost = 10

// measureSizes adds posts with likes, and measures the same requests at each size of the site.
func (b *bench) measureSizes(ctx context.Context) error {
	var filled []int64
	for _, size := range slices.Sorted(slices.Values(b.Sizes)) {
		began := time.Now()
		more := max(0, size-len(filled))
		first, err := b.gated.loadPosts(ctx, more, likesPerPost)
		if err != nil {
			return err
		}
		for i := range more {
			filled = append(filled, first+int64(i))
		}
		b.log.InfoContext(ctx, "bench filled", "posts", size, "likes", size*likesPerPost,
			"seconds", int(time.Since(began).Seconds()))
		table := []*scenario{
			{name: bareRoute, prepare: b.bare(b.production)},
			{name: hotToggled, settles: true, prepare: b.toggle(b.gated, b.production, 1)},
			{name: "hot post, liked once", settles: true, prepare: b.once(b.Likes, b.theHotPost)},
			{name: spreadOnce, settles: true, prepare: b.onceAmong(filled, false)},
			{name: coldOnce, settles: true, prepare: b.onceAmong(filled, true)},
			{name: listOwn, prepare: b.list(b.production, true)},
			{name: "page of 20 by likes, anonymous", prepare: b.top()},
			{name: onePost, prepare: b.read("", true, `"liked":true`, 1)},
			{name: "any post, signed in", prepare: b.anyPost(filled)},
			{name: ofOneThread, prepare: b.read("/thread?limit=100&depth=2", true, `"content":`, 100)},
		}
		all, err := b.takeTurns(ctx, table)
		if err != nil {
			return err
		}
		base := median(all[0].rates)
		for _, s := range all[1:] {
			r := s.result("requests/s")
			r.Ratio = r.Value / base
			b.report.Sizes = append(b.report.Sizes, sizePoint{Posts: size, figure: r})
		}
	}
	return nil
}

// scattered returns the i-th of a walk over posts that is not in their order.
func scattered(ids []int64, i int) int64 {
	const step = 7_919_317 // a prime
	return ids[i*step%len(ids)]
}

// onceAmong makes newcomers like posts that were filled: if cold, each another one that Redis does not know, and
// otherwise the same 1,000 in turn.
func (b *bench) onceAmong(filled []int64, cold bool) func(context.Context) (*job, error) {
	from := 0
	return func(ctx context.Context) (*job, error) {
		likes, posts := b.Likes, min(1000, len(filled))
		if cold {
			likes = min(likes, len(filled))
			posts = likes
		}
		chosen := make([]int64, posts)
		for i := range chosen {
			chosen[i] = scattered(filled, from+i)
		}
		if cold {
			from += likes
			if err := errors.Join(b.settle(ctx), b.gated.cool(ctx, chosen)); err != nil {
				return nil, err
			}
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
				r.SetRequestURI(postPath(chosen[t.i%len(chosen)]) + "/like")
			},
			check: func(ctx context.Context, _ int) error {
				return b.gated.checkLikes(ctx, chosen[0], chosen[0]+1000, -1)
			},
		}, nil
	}
}

// anyPost reads posts all over the site.
func (b *bench) anyPost(filled []int64) func(context.Context) (*job, error) {
	return func(context.Context) (*job, error) {
		return &job{
			api: b.production,
			request: func(t turn, r *fasthttp.Request) {
				authorize(r, b.gated.tokens[t.i%b.readers()])
				r.SetRequestURI(postPath(scattered(filled, t.i)))
			},
		}, nil
	}
}

// top reads the page of posts with the most likes.
func (b *bench) top() func(context.Context) (*job, error) {
	return func(context.Context) (*job, error) {
		path := "/v1/posts?limit=20&sort=" + string(models.PostsTop)
		return b.reading(b.production, path, false, `"liked":false`, 1), nil
	}
}
