package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// ended is when an operation of the tests can no longer take effect.
func ended(o op) time.Duration { return o.end }

// history returns a register with operations. + is a like and - an unlike; o means ok, ? unknown (503), ! unknown for
// want of an answer, and x failed.
func history(t *testing.T, words ...string) *register {
	t.Helper()
	r := &register{target: &target{kind: "posts", id: 1}, user: newAccount(7, "")}
	for i, w := range words {
		o := op{
			want:    w[0] == '+',
			outcome: map[byte]outcome{'o': ok, '?': unknown, '!': unknown, 'x': failed}[w[1]],
			start:   time.Duration(i),
		}
		if w[1] == '?' {
			o.status = 503
		}
		came, went := r.begin(o.want)
		r.finish(o, came, went)
	}
	return r
}

func TestRegister_endsAsLastAcknowledgedOrLaterUnknown(t *testing.T) {
	cases := []struct {
		words    []string
		liked    bool
		notLiked bool
	}{
		{nil, false, true},
		{[]string{"+o"}, true, false},
		{[]string{"+o", "-o"}, false, true},
		{[]string{"+o", "-?"}, true, true},
		{[]string{"-o", "+?"}, true, true},
		{[]string{"+?", "-o"}, false, true}, // the unknown one is earlier
		{[]string{"+?", "-?", "+o"}, true, false},
		{[]string{"+o", "+?"}, true, false},
		{[]string{"+o", "-x"}, true, false},
		{[]string{"+x"}, false, true},
		{[]string{"+?"}, true, true},
	}
	for _, c := range cases {
		liked, notLiked := history(t, c.words...).possible(ended)
		assert.Equal(t, c.liked, liked, "liked after %v", c.words)
		assert.Equal(t, c.notLiked, notLiked, "not liked after %v", c.words)
	}
}

// A client that gives up continues with its next operation. Until the API's own deadline, the first operation may take
// effect after later ones.
func TestRegister_operationsWithoutAnAnswerMayBeLate(t *testing.T) {
	late := func(words ...string) *register {
		r := history(t, words...)
		for i := range r.ops {
			r.ops[i].start, r.ops[i].end = time.Duration(10*i), time.Duration(10*i+5)
		}
		return r
	}
	last := func(o op) time.Duration {
		if o.status == noStatus && o.outcome == unknown {
			return o.start + 12
		}
		return o.end
	}
	liked, not := late("+!", "-o").possible(last)
	assert.Equal(t, []bool{true, true}, []bool{liked, not}, "the like may be applied after the unlike")
	liked, not = late("+!", "-o", "-o").possible(last)
	assert.Equal(t, []bool{false, true}, []bool{liked, not}, "the second unlike came when the like had ended")
	liked, not = late("+o", "-!", "+o", "+o").possible(last)
	assert.Equal(t, []bool{true, false}, []bool{liked, not})
}

func TestRegister_endsWithoutTheLikesThatWereWithdrawn(t *testing.T) {
	const s = time.Second
	period := func(since, until time.Duration, certain bool) void {
		return void{start: 100 * s, since: since, until: until, certain: certain}
	}
	sure, perhaps := []void{period(0, 50*s, true)}, []void{period(0, 50*s, false)}
	account := []void{{start: 100 * s, all: true, certain: true}}
	type times []time.Duration
	for name, c := range map[string]struct {
		voids          []void
		at             times
		words          []string
		liked, unliked bool
	}{
		"in the period":        {sure, times{10 * s}, []string{"+o"}, false, true},
		"perhaps requested":    {perhaps, times{10 * s}, []string{"+o"}, true, true},
		"at its edge":          {sure, times{49 * s}, []string{"+o"}, true, true},
		"after it":             {sure, times{60 * s}, []string{"+o"}, true, false},
		"liked again after it": {sure, times{10 * s, 60 * s, 70 * s}, []string{"+o", "-o", "+o"}, true, false},
		"repeated after it":    {sure, times{10 * s, 60 * s}, []string{"+o", "+o"}, false, true},
		"repeated later":       {sure, times{10 * s, 110 * s}, []string{"+o", "+o"}, true, true},
		"with its account":     {account, times{10 * s, 110 * s}, []string{"+o", "+o"}, false, true},
	} {
		r := history(t, c.words...)
		for i, at := range c.at {
			r.ops[i].start, r.ops[i].end = at, at+s/10
		}
		r.user.voids = c.voids
		liked, not := r.possible(ended)
		assert.Equal(t, [2]bool{c.liked, c.unliked}, [2]bool{liked, not}, name)
	}
}

func TestSpell_mayAndMustHold(t *testing.T) {
	var s spell
	assert.False(t, s.may(0))
	assert.True(t, s.take())
	assert.False(t, s.take())
	s.begin(10, 4)
	assert.True(t, s.may(5))
	assert.False(t, s.must(50, 4), "it is not acknowledged")
	s.confirm(20)
	assert.True(t, s.must(21, 4))
	assert.False(t, s.must(15, 4), "it began later")
	assert.False(t, s.must(21, 6), "a fault was injected since")
	s.beginEnd(30)
	assert.True(t, s.may(40))
	assert.False(t, s.must(40, 4))
	s.end(50)
	assert.True(t, s.may(49))
	assert.False(t, s.may(51))
	s.release()
	assert.True(t, s.take())
}

func TestTarget_boundsHoldEveryPossibleCount(t *testing.T) {
	for _, c := range []struct {
		words       []string
		least, most int64
	}{
		{[]string{"+o"}, 1, 1},
		{[]string{"+o", "-o"}, 0, 0},
		{[]string{"+?"}, 0, 1},
		{[]string{"+?", "-?"}, 0, 1},
		{[]string{"+o", "-?"}, 0, 1},
		{[]string{"+o", "-?", "+o"}, 1, 1},
		{[]string{"+o", "-x"}, 1, 1},
		{[]string{"+x"}, 0, 0},
		{[]string{"+?", "-o", "+x"}, 0, 0},
		{[]string{"+!", "-o"}, 0, 1},
		{[]string{"+o", "-!", "+o"}, 0, 1},
	} {
		r := history(t, c.words...)
		least, most := r.target.since(r.target.bounds())
		assert.Equal(t, c.least, least, "least after %v", c.words)
		assert.Equal(t, c.most, most, "most after %v", c.words)
	}

	r := history(t, "+o")
	before := r.target.bounds()
	came, went := r.begin(false)
	r.finish(op{want: false, outcome: ok}, came, went)
	least, most := r.target.since(before)
	assert.Equal(t, []int64{0, 1}, []int64{least, most}, "while it is unliked both are honest")
}

func sorts(st *storm) []string {
	var list []string
	for _, v := range st.violations.list {
		list = append(list, v.Sort)
	}
	slices.Sort(list)
	return list
}

func newOracle() *storm { return newStorm(&site{began: time.Now()}) }

func TestOracle_findsLikesThatAreNotAsAcknowledged(t *testing.T) {
	lost, kept, back, either := history(t, "+o"), history(t, "-?", "+o"), history(t, "+o", "-o"), history(t, "+?")
	key := func(r *register) registerKey { return registerKey{r.target, r.user.id} }
	nobodys := registerKey{&target{kind: "comments", id: 3}, 7}
	st := newOracle()
	st.judgeLikes(
		[]*register{lost, kept, back, either},
		map[registerKey]bool{key(kept): true, key(back): true, key(either): true, nobodys: true},
	)
	assert.Equal(
		t,
		[]string{"a like that nobody made", "an acknowledged like is lost", "liked after an acknowledged unlike"},
		sorts(st),
	)

	st = newOracle()
	st.judgeLikes([]*register{kept, either}, map[registerKey]bool{key(kept): true})
	assert.Empty(t, sorts(st))
}

func TestOracle_findsCreationsThatAreNotAsAcknowledged(t *testing.T) {
	made := []*creation{
		{kind: "posts", marker: "lost", outcome: ok, id: 1},
		{kind: "posts", marker: "twice", outcome: unknown},
		{kind: "posts", marker: "refused", outcome: failed},
		{kind: "posts", marker: "well", outcome: ok, id: 5},
		{kind: "posts", marker: "perhaps", outcome: unknown},
		{kind: "posts", marker: "perhaps not", outcome: unknown},
		{kind: "comments", marker: "of another kind", outcome: ok, id: 9},
	}
	for _, c := range made {
		c.author = newAccount(7, "")
	}
	there := []content{
		{id: 2, marker: "twice"},
		{id: 3, marker: "twice"},
		{id: 4, marker: "refused"},
		{id: 5, marker: "well"},
		{id: 6, marker: "perhaps"},
		{id: 7, marker: "out of nowhere"},
	}
	st := newOracle()
	st.judgeCreations("posts", there, made)
	assert.Equal(
		t,
		[]string{
			"a creation that nobody made",
			"an acknowledged creation is lost",
			"made though refused",
			"made twice",
		},
		sorts(st),
	)
}

// Milestones count the likes of others than the author.
func TestOracle_findsNotificationsOfMilestonesThatAreWrong(t *testing.T) {
	st := newOracle()
	author := newAccount(7, "")
	own, liked := st.born(&creation{kind: "posts", id: 1, author: author}),
		st.born(&creation{kind: "comments", parent: 1, id: 2, author: author})
	registers := []*register{{target: own, user: author, ever: true}}
	own.likers.Store(1)
	liked.likers.Store(9)
	first, ofComment := notice{user: 7, post: 1, milestone: 1}, notice{user: 7, post: 1, comment: 2, milestone: 1}

	st.judgeReached(map[notice]int{ofComment: 1}, registers)
	assert.Empty(t, sorts(st))
	tenth := ofComment
	tenth.milestone = 10
	st.judgeReached(map[notice]int{ofComment: 2, first: 1, tenth: 1}, registers)
	assert.Equal(
		t,
		[]string{"notified otherwise than it is", "notified otherwise than it is", "notified twice"},
		sorts(st),
	)

	st = newOracle()
	target := st.born(&creation{kind: "posts", id: 1, author: author})
	there := map[registerKey]bool{{target, author.id}: true}
	st.judgeMissed(nil, "posts", []content{{id: 1, likes: 1}}, there)
	st.judgeMissed(map[notice]int{first: 1}, "posts", []content{{id: 1, likes: 10}}, there)
	assert.Empty(t, sorts(st))
	st.judgeMissed(map[notice]int{first: 1}, "posts", []content{{id: 1, likes: 10}}, nil)
	st.judgeMissed(nil, "posts", []content{{id: 1, likes: 2}}, there)
	assert.Equal(
		t,
		[]string{"a milestone without its notification", "a milestone without its notification"},
		sorts(st),
	)
}

func TestViolations_keepsSomeAndCountsAll(t *testing.T) {
	var v violations
	for range 100 {
		v.addf("a sort", 0, "text")
	}
	assert.Equal(t, 100, v.total())
	assert.Len(t, v.list, keptOfSort)
}

// With the same seed and the same number, a fault makes the same choices, regardless of earlier faults.
func TestInjection_followsFromSeedAndNumber(t *testing.T) {
	draw := func(seed uint64, number int) uint64 { return newInjection(newOracle(), seed, number).rng.Uint64() }
	first := draw(1, 2)
	assert.Equal(t, first, draw(1, 2))
	assert.NotEqual(t, draw(1, 2), draw(1, 3))
	assert.NotEqual(t, draw(1, 2), draw(2, 2))
}

func TestFaults_areManyAndDifferent(t *testing.T) {
	kinds := map[string]bool{}
	for _, f := range faults() {
		assert.False(t, kinds[f.kind], "%s is there twice", f.kind)
		kinds[f.kind] = true
	}
	assert.GreaterOrEqual(t, len(kinds), 60)
}

func TestInternals_areRecognized(t *testing.T) {
	for _, text := range []string{
		"dial tcp 10.0.0.1:6379: connection refused",
		"Error 1213: Deadlock found",
		"READONLY redis replica",
		"goroutine 1 [running]",
		"open /tmp/x",
		"unexpected EOF",
		"context deadline exceeded",
		"kafka: client has run out of brokers",
	} {
		assert.Regexp(t, internals, text)
	}
	assert.NotRegexp(
		t,
		internals,
		`{"type":"about:blank","title":"Service Unavailable","code":"unavailable",`+
			`"detail":"The server cannot do this at the moment; try again."}`,
	)
}

// A request may have been carried out although its connection broke. If it were sent again, the judge would see the
// second outcome alone.
func TestSend_sendsEachRequestOnce(t *testing.T) {
	var arrived atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if arrived.Add(1) > 1 {
			panic(http.ErrAbortHandler)
		}
	}))
	defer server.Close()
	st := newOracle()
	st.site.urls, st.http = []string{server.URL}, server.Client()
	q := request{method: http.MethodPost, path: "/v1/posts", body: map[string]any{"title": "T"},
		header: map[string]string{"Idempotency-Key": "key"}}
	by := route{0, 5 * time.Second}
	assert.Equal(t, ok, st.send(t.Context(), by, q).outcome, "opens the connection")
	assert.Equal(t, unknown, st.send(t.Context(), by, q).outcome)
	assert.EqualValues(t, 2, arrived.Load())
}
