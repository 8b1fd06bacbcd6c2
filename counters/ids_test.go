package counters

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/db"
)

// idProcess is a process of its own, with its own clients.
type idProcess struct {
	*IDs
	last   models.ID
	issued []models.ID
}

// next takes n ids. They must ascend.
func (p *idProcess) next(t testing.TB, n int) {
	t.Helper()
	for i := range n {
		id, err := p.Next(t.Context(), i%shards, shards)
		if !assert.NoError(t, err) {
			return
		}
		if id <= p.last || int64(id)%shards != int64(i%shards) {
			t.Errorf("id %d of shard %d after %d", id, i%shards, p.last)
		}
		p.last = id
		p.issued = append(p.issued, id)
	}
}

func openStoreAt(t testing.TB, dsn string) *db.DB {
	t.Helper()
	store, err := db.Open(t.Context(), dsn, db.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { store.Close() })
	return store
}

func newProcesses(t testing.TB, n int, url, dsn string) []*idProcess {
	t.Helper()
	var all []*idProcess
	for range n {
		r, _ := openRedis(t, url)
		all = append(all, &idProcess{IDs: NewIDs(r, openStoreAt(t, dsn))})
	}
	return all
}

// skipSlots leaves out the slots up to one. They may be left out already: if several processes reserve the first slots
// at once, a later reservation can become available first, and it begins ten minutes ahead. Going back would issue
// slots twice.
func skipSlots(t testing.TB, plain *redis.Client, upTo int64) {
	t.Helper()
	const script = `
		if tonumber(redis.call('HGET', KEYS[1], 'last')) < tonumber(ARGV[1]) then
			redis.call('HSET', KEYS[1], 'last', ARGV[1])
		end`
	if err := plain.Eval(t.Context(), script, []string{slotsKey}, upTo).Err(); !errors.Is(err, redis.Nil) {
		require.NoError(t, err)
	}
}

// requireUnique checks the ids of all processes together.
func requireUnique(t testing.TB, all ...*idProcess) {
	t.Helper()
	seen := map[models.ID]bool{}
	for _, p := range all {
		for _, id := range p.issued {
			require.False(t, seen[id], "%d was issued twice", id)
			require.Positive(t, id)
			seen[id] = true
		}
	}
	require.NotEmpty(t, seen)
}

// together lets all processes take ids at once, and fn run beside them.
func together(t testing.TB, all []*idProcess, n int, fn func()) {
	t.Helper()
	var running sync.WaitGroup
	for _, p := range all {
		running.Go(func() { p.next(t, n) })
	}
	running.Go(fn)
	running.Wait()
}

func TestIDs_areUniqueAndAscendAcrossProcesses(t *testing.T) {
	t.Parallel()
	_, plain := newRedis(t)
	all := newProcesses(t, 4, urlOf(plain), testkit.Database(t))
	together(t, all, testkit.Volume(50_000, 5_000), func() {})
	requireUnique(t, all...)
}

// One process is used by many goroutines.
func TestIDs_areUniqueWithinAProcess(t *testing.T) {
	t.Parallel()
	_, plain := newRedis(t)
	p := newProcesses(t, 1, urlOf(plain), testkit.Database(t))[0]
	callers := make([]*idProcess, 8)
	for i := range callers {
		callers[i] = &idProcess{IDs: p.IDs}
	}
	together(t, callers, testkit.Volume(20_000, 2_000), func() {})
	requireUnique(t, callers...)
}

// The order of ids of two processes is that of time, if a moment of idAge lies between them.
func TestIDs_areOrderedByTimeAcrossProcesses(t *testing.T) {
	t.Parallel()
	_, plain := newRedis(t)
	all := newProcesses(t, 3, urlOf(plain), testkit.Database(t))
	together(t, all, 1, func() {})
	var last models.ID
	var returned time.Time
	for i := range 60 {
		p := all[i%len(all)]
		<-time.After(time.Until(returned.Add(idAge)))
		id, err := p.Next(t.Context(), 0, 1)
		returned = time.Now()
		require.NoError(t, err)
		require.Greater(t, id, last, "id %d", i)
		last = id
		for range i % 7 { // the process has a slot now, and another one ahead
			last, err = p.Next(t.Context(), 0, 1)
			returned = time.Now()
			require.NoError(t, err)
		}
	}
}

func TestIDs_withAClockThatIsSetBack(t *testing.T) {
	t.Parallel()
	_, plain := newRedis(t)
	dsn := testkit.Database(t)
	all := newProcesses(t, 2, urlOf(plain), dsn)
	together(t, all, 100, func() {})
	// As if the clock had been set back by an hour: Redis has issued slots of the coming hour.
	ahead := time.Since(slotEpoch).Milliseconds() + time.Hour.Milliseconds()
	require.NoError(t, plain.HSet(t.Context(), slotsKey, "last", ahead).Err())
	for _, p := range all {
		testkit.Eventually(t, 10*time.Second, func() (bool, string) {
			p.next(t, 100)
			return p.last > models.ID(ahead)<<models.IDBits, "it still uses a slot of before"
		})
	}
	together(t, all, 2_000, func() {})
	last := max(all[0].last, all[1].last)
	// Redis loses its memory, and only MySQL knows of the coming hour.
	require.NoError(t, plain.FlushDB(t.Context()).Err())
	later := newProcesses(t, 1, urlOf(plain), dsn)[0]
	later.next(t, 100)
	require.Greater(t, later.issued[0], last)
	requireUnique(t, append(all, later)...)
}

// Whatever is under way when Redis loses its memory, no id is issued twice, and those of a process ascend.
func TestIDs_withARedisThatLosesItsMemory(t *testing.T) {
	t.Parallel()
	_, plain := newRedis(t)
	dsn := testkit.Database(t)
	all := newProcesses(t, 4, urlOf(plain), dsn)
	fill := testkit.Volume(100_000, 10_000)
	together(t, all, 1, func() {})
	// The time of Redis does not help: the slots are a minute ahead of it.
	ahead := time.Since(slotEpoch).Milliseconds() + time.Minute.Milliseconds()
	skipSlots(t, plain, ahead)
	stopped := make(chan struct{})
	var flushing sync.WaitGroup
	flushing.Go(func() {
		for {
			select {
			case <-stopped:
				return
			case <-time.After(20 * time.Millisecond): // a process must come to use what it has reserved
				assert.NoError(t, plain.FlushDB(t.Context()).Err())
			}
		}
	})
	together(t, all, fill, func() {})
	close(stopped)
	flushing.Wait()
	restarted := newProcesses(t, 2, urlOf(plain), dsn)
	together(t, restarted, 1000, func() {})
	for _, p := range restarted {
		for _, before := range all {
			require.Greater(t, p.issued[0], before.last, "after a restart, too")
		}
	}
	requireUnique(t, append(all, restarted...)...)
}

// The replica lacks the last slots that its primary issued, and its clock may be anything: here it is behind, because
// the slots of the primary are ahead.
func TestIDs_withAReplicaThatLacksTheLastWrites(t *testing.T) {
	t.Parallel()
	server, second := privateRedis(t, "--appendonly", "no"), privateRedis(t, "--appendonly", "no")
	_, primary := openRedis(t, server.URL())
	_, replica := openRedis(t, second.URL())
	dsn := testkit.Database(t)
	before := newProcesses(t, 2, server.URL(), dsn)
	together(t, before, 100, func() {})
	ahead := time.Since(slotEpoch).Milliseconds() + 300_000
	skipSlots(t, primary, ahead)
	together(t, before, 100, func() {})
	host, port, err := net.SplitHostPort(server.Addr())
	require.NoError(t, err)
	require.NoError(t, replica.ReplicaOf(t.Context(), host, port).Err())
	lastOf := func(plain *redis.Client) int64 {
		last, err := plain.HGet(t.Context(), slotsKey, "last").Int64()
		if !errors.Is(err, redis.Nil) {
			require.NoError(t, err)
		}
		return last
	}
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		return lastOf(replica) == lastOf(primary), "replication"
	})
	// From here on, the replica receives nothing: it is promoted, and knows the slots until now.
	require.NoError(t, replica.ReplicaOf(t.Context(), "NO", "ONE").Err())
	known := lastOf(replica)
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		together(t, before, 100, func() {})
		return lastOf(primary) > known+3, "the primary issues slots that the replica does not know"
	})

	after := newProcesses(t, 2, second.URL(), dsn)
	together(t, after, 2000, func() {})
	requireUnique(t, append(before, after...)...)
	for _, p := range after {
		require.Greater(t, p.issued[0], max(before[0].last, before[1].last))
	}
}

// A restarted server may lack what it did not sync. It asks MySQL before it issues a slot.
func TestIDs_withARestartedServer(t *testing.T) {
	t.Parallel()
	server := privateRedis(t, "--appendfsync", "always")
	_, plain := openRedis(t, server.URL())
	dsn := testkit.Database(t)
	before := newProcesses(t, 1, server.URL(), dsn)[0]
	before.next(t, 100)
	end, err := plain.HGet(t.Context(), slotsKey, "end").Int64()
	require.NoError(t, err)
	require.NoError(t, server.Kill())
	require.NoError(t, server.Start(t.Context()))
	after := newProcesses(t, 1, server.URL(), dsn)[0]
	after.next(t, 100)
	requireUnique(t, before, after)
	require.GreaterOrEqual(t, int64(after.issued[0])>>models.IDBits, end)
}

// A call that the network holds back makes nothing available again.
func TestIDs_ignoreLateReservations(t *testing.T) {
	t.Parallel()
	r, plain := newRedis(t)
	now, err := plain.Time(t.Context()).Result()
	require.NoError(t, err)
	slot := now.Sub(slotEpoch).Milliseconds()
	available := func(first, end int64, deadline time.Time) int {
		t.Helper()
		n, err := r.run(t.Context(), "slots", []string{slotsKey}, first, end, deadline.UnixMilli()).Int()
		require.NoError(t, err)
		return n
	}
	soon := now.Add(time.Hour)
	require.Zero(t, available(slot, slot+100_000, now.Add(-time.Millisecond)), "late")
	require.Empty(t, dump(t, plain))
	require.Equal(t, 1, available(slot, slot+100_000, soon))
	require.Zero(t, available(slot, slot+100_000, soon), "a replay")
	require.Zero(t, available(slot-50_000, slot+200_000, soon), "an older one")
	require.Zero(t, available(slot+100_001, slot+200_000, soon), "with a hole before it")
	require.Equal(t, 1, available(slot+100_000, slot+200_000, soon), "the next one")
	require.NoError(t, plain.HSet(t.Context(), slotsKey, "last", slot+199_999).Err())
	reply, err := r.run(t.Context(), "slot", []string{slotsKey}, 0, 0).Int64Slice()
	require.NoError(t, err)
	require.Equal(t, []int64{0, slot + 200_000}, reply[:2], "all are issued")
	require.Equal(t, 1, available(slot+300_000, slot+400_000, soon), "a hole does not matter any longer")
	reply, err = r.run(t.Context(), "slot", []string{slotsKey}, 0, 0).Int64Slice()
	require.NoError(t, err)
	require.Equal(t, []int64{1, slot + 300_000}, reply[:2])
	reply, err = r.run(t.Context(), "slot", []string{slotsKey}, slot+350_000, 0).Int64Slice()
	require.NoError(t, err)
	require.Equal(t, []int64{1, slot + 350_001}, reply[:2], "above the last one that the caller knows")
}

// While ids are issued, slots are reserved ahead of need, and MySQL is asked in the background.
func TestIDs_reserveAhead(t *testing.T) {
	t.Parallel()
	r, plain := newRedis(t)
	seen, queries := watch(t, testkit.Database(t))
	p := &idProcess{IDs: NewIDs(r, openStoreAt(t, seen))}
	p.next(t, 1)
	first, err := plain.HGet(t.Context(), slotsKey, "end").Int64()
	require.NoError(t, err)
	queries.reset()
	p.next(t, 1000)
	require.Empty(t, queries.texts, "no query: the reserved slots suffice")

	require.NoError(t, plain.HSet(t.Context(), slotsKey, "last", first-1000).Err())
	testkit.Eventually(t, 10*time.Second, func() (bool, string) {
		p.next(t, 1)
		end, err := plain.HGet(t.Context(), slotsKey, "end").Int64()
		require.NoError(t, err)
		return end == first+slotsAhead, fmt.Sprint("reserved until ", end)
	})
	require.Less(t, int64(p.last)>>models.IDBits, first)
}

func TestIDs_takeOneRoundTripForMany(t *testing.T) {
	t.Parallel()
	r, _ := newRedis(t)
	p := &idProcess{IDs: NewIDs(r, openStoreAt(t, testkit.Database(t)))}
	p.next(t, 1)
	trips := countTrips(t, r)
	begin := time.Now()
	p.next(t, 20_000)
	// One in half of idAge, and more only if a slot is used up.
	require.LessOrEqual(t, trips.Load(), int64(time.Since(begin)/(idAge/2))+20_000/1_800)
}

// Neither the difference of two ids nor their low digits show how many were issued between them.
func TestIDs_doNotShowHowManyThereAre(t *testing.T) {
	t.Parallel()
	_, plain := newRedis(t)
	p := newProcesses(t, 1, urlOf(plain), testkit.Database(t))[0]
	p.next(t, 5_000)
	steps := map[models.ID]int{}
	for i, id := range p.issued[1:] {
		steps[id-p.issued[i]]++
	}
	for step, n := range steps {
		require.Less(t, n, len(p.issued)/4, "step %d", step)
	}
	starts := map[int64]bool{}
	for range 30 {
		starts[newBlock(1, time.Now()).next-1<<models.IDBits] = true
	}
	require.Greater(t, len(starts), 25, "slots begin anywhere")
	sizes := map[int64]bool{}
	for range 200 {
		sizes[newBlock(1, time.Now()).step] = true
	}
	require.Len(t, sizes, idSteps)
}

func TestIDs_withoutRedis(t *testing.T) {
	t.Parallel()
	dsn := testkit.Database(t)
	all := []*idProcess{{IDs: NewIDs(nil, openStoreAt(t, dsn))}, {IDs: NewIDs(nil, openStoreAt(t, dsn))}}
	together(t, all, testkit.Volume(20_000, 2_000), func() {})
	requireUnique(t, all...)
	// The site goes through the gate from now on.
	_, plain := newRedis(t)
	gated := newProcesses(t, 1, urlOf(plain), dsn)[0]
	gated.next(t, 100)
	require.Greater(t, gated.issued[0], max(all[0].last, all[1].last))
}

func TestIDs_withoutAServer(t *testing.T) {
	t.Parallel()
	server := privateRedis(t)
	p := newProcesses(t, 1, server.URL(), testkit.Database(t))[0]
	p.next(t, 1)
	require.NoError(t, server.Stop(t.Context()))
	testkit.Eventually(t, 10*time.Second, func() (bool, string) {
		_, err := p.Next(t.Context(), 0, 1)
		return models.ErrorCode(err) == models.CodeUnavailable, fmt.Sprint(err)
	})
	require.NoError(t, server.Start(t.Context()))
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		_, err := p.Next(t.Context(), 0, 1)
		return err == nil, fmt.Sprint(err)
	})

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	waiting := &idProcess{IDs: NewIDs(p.redis, p.store)}
	_, err := waiting.Next(ctx, 0, 1)
	if err != nil { // the slot may have arrived first
		require.ErrorIs(t, err, context.Canceled)
	}
}

// No slot is so late that it cannot be used.
func TestIDs_withASlowRedis(t *testing.T) {
	t.Parallel()
	r, _ := newRedis(t)
	r.client.AddHook(slowly{2 * idAge})
	p := &idProcess{IDs: NewIDs(r, openStoreAt(t, testkit.Database(t)))}
	p.next(t, 10)
}

type slowly struct{ by time.Duration }

func (s slowly) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s slowly) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		<-time.After(s.by)
		return next(ctx, cmd)
	}
}

func (s slowly) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// BenchmarkIDs compares ids with one INCR each.
func BenchmarkIDs(b *testing.B) {
	r, plain := newRedis(b)
	ids := NewIDs(r, openStoreAt(b, testkit.Database(b)))
	bench := func(name string, callers int, next func() error) {
		b.Run(fmt.Sprintf("%s/callers=%d", name, callers), func(b *testing.B) {
			var running sync.WaitGroup
			for i := range callers {
				running.Go(func() {
					for range b.N/callers + min(1, max(0, b.N%callers-i)) {
						if err := next(); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			running.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ids/s")
		})
	}
	for _, callers := range []int{1, 16} {
		bench("slots", callers, func() error {
			_, err := ids.Next(b.Context(), 3, shards)
			return err
		})
		bench("incr", callers, func() error { return plain.Incr(b.Context(), "incr").Err() })
	}
}
