package counters

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/content"
	"likewise/models/db"
)

// result is what SetLike returned.
type result struct {
	state models.LikeState
	err   error
}

// start sets a like in the background.
func start(ctx context.Context, l *Likes, target models.Target, user int64, liked bool) <-chan result {
	done := make(chan result, 1)
	go func() {
		state, err := l.SetLike(ctx, target, user, liked)
		done <- result{state, err}
	}()
	return done
}

// insist is a like of a client that retries while the gate is unavailable, as it is for calls that a busy machine
// delays.
func insist(ctx context.Context, l *Likes, target models.Target, user int64) <-chan result {
	done := make(chan result, 1)
	go func() {
		state, err := l.SetLike(ctx, target, user, true)
		for models.ErrorCode(err) == models.CodeUnavailable && ctx.Err() == nil {
			state, err = l.SetLike(ctx, target, user, true)
		}
		done <- result{state, err}
	}()
	return done
}

// soon returns the result of a call that must end by itself.
func soon(t testing.TB, done <-chan result) result {
	t.Helper()
	select {
	case r := <-done:
		return r
	case <-time.After(20 * time.Second):
		t.Fatal("the call was never answered")
		return result{}
	}
}

// await waits for a signal that must come.
func await(t testing.TB, signal <-chan struct{}) {
	t.Helper()
	select {
	case <-signal:
	case <-time.After(20 * time.Second):
		t.Fatal("the signal never came")
	}
}

// process returns another Likes on the same Redis and MySQL, which counts its outcomes.
func (f *forum) process(t testing.TB) *forum {
	t.Helper()
	r, _ := openRedis(t, urlOf(f.plain))
	seen, queries := watch(t, f.dsn)
	store, err := db.Open(t.Context(), seen, db.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { store.Close() })
	other := &forum{plain: f.plain, queries: queries, dsn: f.dsn, author: f.author, outcomes: map[Outcome]int{}}
	other.Likes = NewLikes(r, store, LikesOptions{Count: func(o Outcome) {
		other.mu.Lock()
		defer other.mu.Unlock()
		other.outcomes[o]++
	}})
	return other
}

// awaitCount waits until an outcome has been counted n times.
func (f *forum) awaitCount(t testing.TB, o Outcome, n int) {
	t.Helper()
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		return f.counted(o) >= n, fmt.Sprintf("%s was counted %d times", o, f.counted(o))
	})
}

// awaitWaiting waits until n calls wait in the lane of a target.
func (f *forum) awaitWaiting(t testing.TB, target models.Target, n int) {
	t.Helper()
	lane := f.lanes[target.Shard(shards)]
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		lane.mu.Lock()
		defer lane.mu.Unlock()
		return len(lane.waiting) >= n, fmt.Sprintf("%d calls wait", len(lane.waiting))
	})
}

// awaitParked waits until n calls are parked that wait for a target.
func (f *forum) awaitParked(t testing.TB, target models.Target, n int) {
	t.Helper()
	lane := f.lanes[target.Shard(shards)]
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		lane.mu.Lock()
		defer lane.mu.Unlock()
		parked := 0
		if p := lane.parked[target]; p != nil {
			parked = len(p.all())
		}
		return parked >= n, fmt.Sprintf("%d calls are parked", parked)
	})
}

// barrier holds the calls of the gate of one process before they are sent.
type barrier struct {
	arrived chan struct{} // one for each call
	let     chan struct{}
	once    sync.Once
}

func holdGate(t testing.TB, r *Redis) *barrier {
	t.Helper()
	b := &barrier{arrived: make(chan struct{}, 1000), let: make(chan struct{})}
	hookBefore(r, "like", func() {
		b.arrived <- struct{}{}
		<-b.let
	})
	t.Cleanup(b.open)
	return b
}

func (b *barrier) open() { b.once.Do(func() { close(b.let) }) }

// holdAll holds the queries that contain part, until the returned function is called.
func (q *queries) holdAll(t testing.TB, part string) (caught <-chan struct{}, let func()) {
	t.Helper()
	seen, open := make(chan struct{}, 1000), make(chan struct{})
	q.hold(func(query string) {
		if strings.Contains(query, part) {
			seen <- struct{}{}
			<-open
		}
	})
	let = sync.OnceFunc(func() { close(open) })
	t.Cleanup(let)
	return seen, let
}

// The gate answers each of the likes that arrive together. They cost one call and one entry of the outbox.
func TestBatch_likesThatArriveTogetherShareACall(t *testing.T) {
	t.Parallel()
	const likes = 64
	f := newForum(t)
	target := f.post(t)
	shard := target.Shard(shards)
	f.like(t, target, 1000)
	entriesBefore := f.plain.XLen(t.Context(), outboxKey(shard)).Val()
	gate := holdGate(t, f.redis)
	first := start(t.Context(), f.Likes, target, 1, true)
	await(t, gate.arrived)
	var rest []<-chan result
	for user := int64(2); user <= likes; user++ {
		rest = append(rest, start(t.Context(), f.Likes, target, user, true))
	}
	f.awaitWaiting(t, target, likes-1)
	gate.open()
	counts := map[int64]bool{}
	for _, done := range append(rest, first) {
		got := soon(t, done)
		require.NoError(t, got.err)
		require.True(t, got.state.Liked)
		counts[got.state.Count] = true
	}
	require.Len(t, counts, likes, "each has its own answer")
	require.Len(t, gate.arrived, 1, "one more call for all that waited")
	require.EqualValues(t, 2, f.plain.XLen(t.Context(), outboxKey(shard)).Val()-entriesBefore)
	require.Len(t, fold(t, t.Context(), f.plain, shard)[target], likes+1)
}

func TestBatch_isBounded(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	target := f.post(t)
	f.like(t, target, 1000)
	gate := holdGate(t, f.redis)
	calls := []<-chan result{start(t.Context(), f.Likes, target, 1, true)}
	await(t, gate.arrived)
	for user := int64(2); user <= 2*maxBatch+2; user++ {
		calls = append(calls, start(t.Context(), f.Likes, target, user, true))
	}
	f.awaitWaiting(t, target, 2*maxBatch+1)
	gate.open()
	for _, done := range calls {
		require.NoError(t, soon(t, done).err)
	}
	require.Len(t, gate.arrived, 3)
}

// together sets likes whose calls of the gate are sent together: one for each target.
func (f *forum) together(t testing.TB, targets ...models.Target) []result {
	t.Helper()
	gate := holdGate(t, f.redis)
	first := start(t.Context(), f.Likes, targets[0], 4000, true)
	await(t, gate.arrived)
	var calls []<-chan result
	for i, target := range targets {
		calls = append(calls, start(t.Context(), f.Likes, target, 5000+int64(i), true))
	}
	f.awaitWaiting(t, targets[0], len(targets))
	gate.open()
	soon(t, first)
	var results []result
	for _, done := range calls {
		results = append(results, soon(t, done))
	}
	return results
}

// sameShard creates posts of one shard.
func (f *forum) sameShard(t testing.TB, n int) []models.Target {
	t.Helper()
	list := []models.Target{f.post(t)}
	for len(list) < n {
		if item := f.post(t); item.Shard(shards) == list[0].Shard(shards) {
			list = append(list, item)
		}
	}
	return list
}

func TestBatch_keyOfAWrongTypeRefusesItsOwnLikesOnly(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	posts := f.sameShard(t, 4)
	for _, target := range posts {
		f.like(t, target, 7)
	}
	hashKey, setKey := f.redis.keys(posts[1]).likes, f.setOf(t, posts[2], 7)
	for _, key := range []string{hashKey, setKey} {
		require.NoError(t, f.plain.Del(t.Context(), key).Err())
		require.NoError(t, f.plain.Set(t.Context(), key, "of a wrong type", 0).Err())
	}
	results := f.together(t, posts...)
	for i, got := range results {
		if i == 1 || i == 2 {
			requireCode(t, models.CodeUnavailable, got.err)
			continue
		}
		require.NoError(t, got.err)
		require.True(t, got.state.Liked)
	}
}

func TestBatch_failureAnswersEveryone(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	posts := f.sameShard(t, 3)
	for _, target := range posts {
		f.like(t, target, 7)
	}
	outbox := outboxKey(posts[0].Shard(shards))
	require.NoError(t, f.plain.Del(t.Context(), outbox).Err())
	require.NoError(t, f.plain.Set(t.Context(), outbox, "of a wrong type", 0).Err())
	for _, got := range f.together(t, posts...) {
		requireCode(t, models.CodeUnavailable, got.err)
		require.ErrorContains(t, got.err, "WRONGTYPE")
	}
}

func TestBatch_likesOfAUserKeepTheirOrder(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	target := f.post(t)
	f.like(t, target, 1000)
	gate := holdGate(t, f.redis)
	first := start(t.Context(), f.Likes, target, 1, true)
	await(t, gate.arrived)
	var calls []<-chan result
	for i := range 50 { // ends with a like
		calls = append(calls, start(t.Context(), f.Likes, target, 7, i%2 == 1))
		f.awaitWaiting(t, target, i+1)
	}
	gate.open()
	soon(t, first)
	for i, done := range calls {
		got := soon(t, done)
		require.NoError(t, got.err)
		require.Equal(t, models.LikeState{Liked: i%2 == 1, Count: 2 + int64(i%2)}, got.state, "%d", i)
	}
	require.Equal(t, []int64{1, 7, 1000}, usersOf(t, f.redis, target))
	require.True(t, fold(t, t.Context(), f.plain, target.Shard(shards))[target][7])
}

func TestBatch_memoryLimitRefusesLikesAndNotUnlikes(t *testing.T) {
	t.Parallel()
	server := privateRedis(t)
	r, plain := openRedis(t, server.URL())
	f := newForumOn(t, r)
	openShard(t, r, 1, 1)
	target := f.post(t)
	for user := int64(1); user <= 3; user++ {
		f.like(t, target, user)
	}
	require.NoError(t, plain.ConfigSet(t.Context(), "maxmemory", "1").Err())
	gate := holdGate(t, r)
	first := start(t.Context(), f.Likes, target, 1, false)
	await(t, gate.arrived)
	like := start(t.Context(), f.Likes, target, 8, true)
	f.awaitWaiting(t, target, 1)
	unlike := start(t.Context(), f.Likes, target, 2, false)
	f.awaitWaiting(t, target, 2)
	gate.open()
	require.NoError(t, soon(t, first).err)
	requireCode(t, models.CodeUnavailable, soon(t, like).err)
	got := soon(t, unlike)
	require.NoError(t, got.err)
	require.Equal(t, models.LikeState{Count: 1}, got.state)
	require.Equal(t, 1, f.counted(Unstored))

	outbox := hold(t, r, 1)
	runs, err := outbox.Read(t.Context(), models.Position{}, 100, time.Second)
	require.NoError(t, err)
	require.NoError(t, outbox.Trim(t.Context(), runs[len(runs)-1].Pos))
	require.Zero(t, plain.XLen(t.Context(), outboxKey(1)).Val())
}

// A call that its caller takes back while it waits is never sent.
func TestBatch_neverSendsWhatWasTakenBack(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	target := f.post(t)
	f.like(t, target, 1000)
	gate := holdGate(t, f.redis)
	first := start(t.Context(), f.Likes, target, 1, true)
	await(t, gate.arrived)
	ctx, leave := context.WithCancel(t.Context())
	second := start(ctx, f.Likes, target, 2, true)
	f.awaitWaiting(t, target, 1)
	leave()
	requireCode(t, models.CodeUnavailable, soon(t, second).err)
	gate.open()
	require.NoError(t, soon(t, first).err)
	f.like(t, target, 3)
	require.Equal(t, []int64{1, 3, 1000}, usersOf(t, f.redis, target))
}

// A caller that gives up while Redis has its call is answered when Redis has replied. Its call does not wait for the
// target then.
func TestBatch_callerThatLeavesDoesNotWaitForALoad(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	target := f.post(t)
	gate := holdGate(t, f.redis)
	c := &call{target: target, user: 7, liked: true, done: make(chan answer, 1)}
	lane := f.lanes[target.Shard(shards)]
	go lane.add(c) // sends it
	await(t, gate.arrived)
	require.False(t, c.leave(), "Redis may have it")
	gate.open()
	a := <-c.done
	require.Equal(t, Failed, a.outcome)
	require.ErrorIs(t, a.err, errLeft)
	require.Zero(t, f.queries.selects("FROM posts t WHERE"), "nobody waits for the target")
	f.like(t, target, 8)
	require.Equal(t, []int64{8}, usersOf(t, f.redis, target))
}

// Equal calls of one user that wait for a target share an answer, whichever of their callers give up.
func TestBatch_equalCallsShareAnAnswer(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	target := f.post(t)
	_, let := f.queries.holdAll(t, loads)
	var calls []<-chan result
	var leave []context.CancelFunc
	for i := range 4 {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		leave = append(leave, cancel)
		calls = append(calls, start(ctx, f.Likes, target, 7, true))
		f.awaitCount(t, Cold, i+1)
	}
	f.awaitParked(t, target, 1)
	for _, i := range []int{3, 1} { // the latest, and one of the others
		leave[i]()
		requireCode(t, models.CodeUnavailable, soon(t, calls[i]).err)
	}
	let()
	for _, i := range []int{0, 2} {
		got := soon(t, calls[i])
		require.NoError(t, got.err)
		require.Equal(t, models.LikeState{Liked: true, Count: 1}, got.state)
	}
}

// So do they if the target cannot be loaded, or a later call replaces them.
func TestBatch_everyCallIsAnswered(t *testing.T) {
	t.Parallel()
	like := func(user int64, state int32, also ...*call) *call {
		c := &call{target: post(1), user: user, liked: true, also: also, done: make(chan answer, 1)}
		c.state.Store(state)
		return c
	}
	outcome := func(c *call) Outcome {
		select {
		case a := <-c.done:
			return a.outcome
		default:
			return "none"
		}
	}
	failed := errors.New("MySQL is down")
	for name, answered := range map[string]func(l *lane, earlier, latest *call) Outcome{
		"load fails": func(l *lane, _, latest *call) Outcome {
			l.parked[post(1)] = parkingOf(latest)
			l.resume(post(1), failed)
			return Failed
		},
		"replaced while parked": func(l *lane, _, latest *call) Outcome {
			latest.ticket = 1
			unlike := &call{target: post(1), user: 7, ticket: 2, done: make(chan answer, 1)}
			unlike.state.Store(callTaken)
			l.parked[post(1)] = parkingOf(latest)
			l.park(unlike, false)
			return Superseded
		},
		"joins a later one": func(l *lane, _, latest *call) Outcome {
			later := like(7, callTaken)
			latest.state.CompareAndSwap(callLeft, callLeaving)
			require.True(t, l.join(latest, []*call{later}))
			require.Equal(t, Failed, outcome(latest), "its caller gave up")
			later.answer(answer{outcome: Changed})
			require.Equal(t, Changed, outcome(later))
			return Changed
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := &lane{sender: &sender{running: true}, parked: map[models.Target]*parking{}}
			earlier := like(7, callWaits)
			latest := like(7, callLeft, earlier) // its caller gave up
			require.Equal(t, answered(l, earlier, latest), outcome(earlier))
		})
	}
}

// network stands between a client and its server. It can hold what the client sends.
type network struct {
	net.Listener
	server string

	mu      sync.Mutex
	part    []byte        // what is held contains part; nil holds nothing
	cut     bool          // the client's connection breaks then
	let     chan struct{} // closed when what is held is to arrive
	caught  chan struct{}
	arrived atomic.Int64 // bytes that the server replied to what was held
}

func newNetwork(t testing.TB, server string) *network {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	n := &network{Listener: listener, server: server, caught: make(chan struct{}, 100)}
	t.Cleanup(func() { n.Close() })
	go func() {
		for {
			client, err := n.Accept()
			if err != nil {
				return
			}
			go n.serve(client)
		}
	}()
	return n
}

func (n *network) serve(client net.Conn) {
	server, err := net.Dial("tcp", n.server)
	if err != nil {
		client.Close()
		return
	}
	defer server.Close()
	defer client.Close()
	var held atomic.Bool
	replied := make(chan struct{})
	reply := sync.OnceFunc(func() { close(replied) })
	go func() {
		defer reply()
		buffer := make([]byte, 1<<16)
		for {
			size, err := server.Read(buffer)
			if held.Load() {
				n.arrived.Add(int64(size))
				reply()
			}
			if err != nil {
				client.Close()
				return
			}
			_, _ = client.Write(buffer[:size]) // it may be gone
		}
	}()
	buffer := make([]byte, 1<<16)
	for {
		size, err := client.Read(buffer)
		if size > 0 {
			n.mu.Lock()
			let := n.let
			catch := n.part != nil && bytes.Contains(buffer[:size], n.part)
			if catch && n.cut {
				n.part = nil // only the first
				client.Close()
			}
			n.mu.Unlock()
			if catch {
				n.caught <- struct{}{}
				<-let
				held.Store(true)
			}
			if _, err := server.Write(buffer[:size]); err != nil {
				return
			}
			if catch { // its reply is awaited, whatever became of the client
				<-replied
			}
		}
		if err != nil {
			return
		}
	}
}

// hold keeps what contains part from the server, until the returned function is called.
func (n *network) hold(t testing.TB, part string, cut bool) (let func()) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	open := make(chan struct{})
	n.part, n.cut, n.let = []byte(part), cut, open
	let = sync.OnceFunc(func() {
		n.mu.Lock()
		n.part = nil
		n.mu.Unlock()
		close(open)
	})
	t.Cleanup(let)
	return let
}

// What the network holds until its caller was answered changes nothing, whether the connection lasts or breaks.
func TestSetLike_heldCallDoesNotOutliveItsAnswer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cut  bool
		wait time.Duration // the caller's
	}{
		"until a timeout":           {false, time.Minute},
		"until the caller's end":    {false, 300 * time.Millisecond},
		"and the connection breaks": {true, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			f := newForum(t)
			target := f.post(t)
			f.like(t, target, 7)
			o := f.plain.Options()
			slow := newNetwork(t, o.Addr)
			r, _ := openRedis(t, fmt.Sprintf("redis://%s/%d", slow.Addr(), o.DB))
			far := NewLikes(r, f.store, LikesOptions{})
			_, err := far.SetLike(t.Context(), target, 8, true) // far knows the server's clock
			require.NoError(t, err)

			let := slow.hold(t, r.script["like"].Hash(), c.cut)
			ctx, cancel := context.WithTimeout(t.Context(), c.wait)
			defer cancel()
			call := start(ctx, far, target, 7, false)
			await(t, slow.caught)
			requireCode(t, models.CodeUnavailable, soon(t, call).err)
			f.like(t, target, 7) // acknowledged after that
			let()
			testkit.Eventually(t, 20*time.Second, func() (bool, string) {
				return slow.arrived.Load() > 0, "the held call did not arrive"
			})
			require.Equal(t, []int64{7, 8}, usersOf(t, f.redis, target))
		})
	}
}

// A connection breaks while the network holds a call. If it were sent again, the second could be acknowledged, and the
// first undo the caller's next call.
func TestSetLike_isSentOnce(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	target := f.post(t)
	f.like(t, target, 7)
	o := f.plain.Options()
	slow := newNetwork(t, o.Addr)
	r, _ := openRedis(t, fmt.Sprintf("redis://%s/%d", slow.Addr(), o.DB))
	far := NewLikes(r, f.store, LikesOptions{})
	_, err := far.SetLike(t.Context(), target, 8, true)
	require.NoError(t, err)
	let := slow.hold(t, r.script["like"].Hash(), true)
	call := start(t.Context(), far, target, 7, false)
	await(t, slow.caught)
	got := soon(t, call)
	if got.err != nil { // unknown, so the caller is sure of its next call only
		requireCode(t, models.CodeUnavailable, got.err)
	}
	_, err = far.SetLike(t.Context(), target, 7, true)
	require.NoError(t, err)
	let()
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		return slow.arrived.Load() > 0, "the held call did not arrive"
	})
	require.Equal(t, []int64{7, 8}, usersOf(t, f.redis, target))
}

// While one caller of a batch has little time left, the others are answered.
func TestBatch_callerInAHurryDoesNotRefuseTheOthers(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	target := f.post(t)
	f.like(t, target, 1000)
	gate := holdGate(t, f.redis)
	first := start(t.Context(), f.Likes, target, 1, true)
	await(t, gate.arrived)
	lane := f.lanes[target.Shard(shards)]
	hasty := &call{target: target, user: 2, liked: true, ends: time.Now(), done: make(chan answer, 1)}
	lane.add(hasty)
	patient := start(t.Context(), f.Likes, target, 3, true)
	f.awaitWaiting(t, target, 2)
	gate.open()
	require.NoError(t, soon(t, first).err)
	require.NoError(t, soon(t, patient).err)
	require.Equal(t, Late, (<-hasty.done).outcome)
	require.Equal(t, []int64{1, 3, 1000}, usersOf(t, f.redis, target))
}

// A client gives up on a like of a cold target, and then unlikes through another process. The server does not notice
// that the client is gone. The older like must not take effect after the newer call was acknowledged.
func TestSetLike_laterCallOfAnotherProcessWins(t *testing.T) {
	t.Parallel()
	for name, company := range map[string]bool{
		"the first call of the target":  false,
		"one that finds others waiting": true,
	} {
		t.Run(name, func(t *testing.T) {
			f := newForum(t)
			other := f.process(t)
			target := f.post(t)
			caught, let := f.queries.holdAll(t, loads)
			waiting := 1
			var stranger <-chan result
			if company {
				stranger = start(t.Context(), f.Likes, target, 1, true)
				await(t, caught)
				waiting++
			}
			older := start(t.Context(), f.Likes, target, 7, true)
			f.awaitParked(t, target, waiting)
			newer := start(t.Context(), other.Likes, target, 7, false)
			other.awaitCount(t, Cold, 1)
			// The target gets warm, but the older call is not sent before the newer one was acknowledged.
			gate := holdGate(t, f.redis)
			let()
			got := soon(t, newer)
			require.NoError(t, got.err)
			require.False(t, got.state.Liked)
			gate.open()
			requireCode(t, models.CodeSuperseded, soon(t, older).err)
			require.Equal(t, 1, f.counted(Superseded))
			require.NotContains(t, usersOf(t, f.redis, target), int64(7))
			if company {
				require.NoError(t, soon(t, stranger).err)
			}
		})
	}
}

func TestSetLike_laterCallOfTheSameProcessWins(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	target := f.post(t)
	_, let := f.queries.holdAll(t, loads)
	older := start(t.Context(), f.Likes, target, 7, true)
	f.awaitCount(t, Cold, 1)
	newer := start(t.Context(), f.Likes, target, 7, false)
	f.awaitCount(t, Cold, 2)
	requireCode(t, models.CodeSuperseded, soon(t, older).err)
	let()
	got := soon(t, newer)
	require.NoError(t, got.err)
	require.Equal(t, models.LikeState{}, got.state)
	require.Empty(t, usersOf(t, f.redis, target))
	require.Empty(t, fold(t, t.Context(), f.plain, target.Shard(shards)))
}

// A deleted target is restored while a like of it waits for MySQL.
func TestSetLike_laterCallWinsOnADeletedTarget(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	other := f.process(t)
	target := f.post(t)
	f.like(t, target, 8)
	require.NoError(t, content.New(f.store).DeletePost(t.Context(), f.author.ID, target.ID))
	require.NoError(t, f.CloseTargets(t.Context(), []models.Target{target}))
	caught, let := f.queries.holdAll(t, "SELECT t.id FROM posts t WHERE")
	older := start(t.Context(), f.Likes, target, 7, true)
	await(t, caught)
	_, err := content.New(other.store).RestorePost(t.Context(), f.author.ID, target.ID)
	require.NoError(t, err)
	state, err := other.SetLike(t.Context(), target, 7, false)
	require.NoError(t, err)
	require.Equal(t, models.LikeState{Count: 1}, state)
	let()
	requireCode(t, models.CodeSuperseded, soon(t, older).err)
	require.Equal(t, []int64{8}, usersOf(t, f.redis, target))
}

// Lanes leave nothing behind: no goroutine that runs, and no call that waits.
func TestBatch_idleLaneHoldsNothing(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	targets := []models.Target{f.post(t), f.post(t), post(9999)}
	atOnce(50, func(i int) {
		_, err := f.SetLike(t.Context(), targets[i%3], int64(i+1), true)
		assert.Equal(t, i%3 == 2, err != nil, "%v", err)
	})
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		for _, lane := range f.lanes {
			lane.mu.Lock()
			busy := lane.running || lane.queued || len(lane.ready) > 0 || len(lane.waiting) > 0 || len(lane.parked) > 0
			lane.mu.Unlock()
			if busy {
				return false, "lane " + strconv.Itoa(lane.shard) + " is busy"
			}
		}
		return true, ""
	})
}

func parkingOf(calls ...*call) *parking {
	p := &parking{of: map[int64]int{}, limit: parkingLimit}
	for _, c := range calls {
		p.add(c)
	}
	return p
}

// A target of millions of likers is loaded for half a minute. Thousands of its callers give up meanwhile.
func TestParking_dropsCallsWhoseCallersGaveUp(t *testing.T) {
	t.Parallel()
	p := parkingOf()
	waits := &call{user: 1}
	p.add(waits)
	follower := &call{user: 2, also: []*call{{user: 2}}}
	require.True(t, follower.leave())
	p.add(follower)
	for user := int64(3); user < 100*parkingLimit; user++ {
		c := &call{user: user}
		p.add(c)
		require.True(t, c.leave())
	}
	require.Less(t, len(p.calls), 2*parkingLimit)
	require.Len(t, p.of, len(p.calls))
	require.Equal(t, []*call{waits, follower}, p.all()[:2], "another caller waits for the answer of the second")
	again := &call{user: 1}
	require.Same(t, waits, p.add(again))
	require.False(t, slices.Contains(p.all(), waits))
	require.Same(t, again, p.calls[p.of[1]])
}

// Likes of all shards that arrive together are one call. What is wrong with a shard refuses its own likes alone.
func TestBatch_likesOfManyShardsShareACall(t *testing.T) {
	t.Parallel()
	f := newForum(t)
	byShard := map[int]models.Target{}
	for len(byShard) < shards {
		target := f.post(t)
		byShard[target.Shard(shards)] = target
	}
	var targets []models.Target
	for shard := range shards {
		f.like(t, byShard[shard], 7)
		targets = append(targets, byShard[shard])
	}
	const closed, broken, damaged, reopened = 3, 5, 6, 9
	closeShard(t, f.plain, closed)
	require.NoError(t, f.plain.Del(t.Context(), outboxKey(broken)).Err())
	require.NoError(t, f.plain.Set(t.Context(), outboxKey(broken), "of a wrong type", 0).Err())
	require.NoError(t, f.plain.Del(t.Context(), shardKey(damaged)).Err())
	require.NoError(t, f.plain.Set(t.Context(), shardKey(damaged), "of a wrong type", 0).Err())
	closeShard(t, f.plain, reopened)
	openShard(t, f.redis, reopened, 9) // the process knows the clock of an earlier epoch

	gate := holdGate(t, f.redis)
	first := start(t.Context(), f.Likes, targets[0], 4000, true)
	await(t, gate.arrived)
	var calls []<-chan result
	for _, target := range targets {
		calls = append(calls, start(t.Context(), f.Likes, target, 8, true))
	}
	for _, target := range targets {
		f.awaitWaiting(t, target, 1)
	}
	gate.open()
	require.NoError(t, soon(t, first).err)
	for shard, done := range calls {
		got := soon(t, done)
		if shard == closed || shard == broken || shard == damaged {
			requireCode(t, models.CodeUnavailable, got.err)
			continue
		}
		require.NoError(t, got.err, "shard %d", shard)
		require.Contains(t, usersOf(t, f.redis, targets[shard]), int64(8))
	}
	require.NotContains(t, usersOf(t, f.redis, targets[broken]), int64(8), "its outbox does not have it")
	require.Len(t, gate.arrived, 2, "one for all shards, and one again for the reopened one")
}
