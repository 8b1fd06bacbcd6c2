package counters

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/db"
)

// shop is a forum with drops.
type shop struct {
	*forum

	claims *Claims
	id     *atomic.Int64 // the last claim id
}

func newShop(t testing.TB) *shop {
	t.Helper()
	f := newForum(t)
	return &shop{f, NewClaims(f.redis, f.store, ClaimsOptions{Count: func(o Outcome) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.outcomes[o]++
	}}), &atomic.Int64{}}
}

func (s *shop) exec(t testing.TB, query string, args ...any) (lastID int64) {
	t.Helper()
	result, err := s.store.Pool().ExecContext(t.Context(), query, args...)
	require.NoError(t, err)
	lastID, err = result.LastInsertId()
	require.NoError(t, err)
	return lastID
}

// drop creates a drop, with claims of users in MySQL.
func (s *shop) drop(t testing.TB, stock int64, users ...int64) int64 {
	t.Helper()
	id := s.exec(t, `
		INSERT INTO drops (post_id, user_id, title, stock, claimed, created_at, updated_at)
		VALUES (?, ?, 'Voucher', ?, ?, NOW(3), NOW(3))`, s.post(t).ID, s.author.ID, stock, len(users))
	var rows []string
	for _, user := range users {
		rows = append(rows, fmt.Sprintf("(%d,%d,%d,2,NOW(3))", s.nextID(id), id, user))
	}
	if len(rows) > 0 {
		s.exec(t, "INSERT INTO claims (id, drop_id, user_id, state, created_at) VALUES "+strings.Join(rows, ","))
	}
	return id
}

// nextID returns a claim id with the shard of a drop.
func (s *shop) nextID(dropID int64) int64 { return shards*s.id.Add(1) + dropID%shards }

func (s *shop) claim(t testing.TB, dropID, user int64) (Claimed, error) {
	t.Helper()
	return s.claims.Claim(t.Context(), dropID, user, s.nextID(dropID))
}

// insist is a claim of a client that tries again while the gate is unavailable.
func (s *shop) insist(t testing.TB, c *Claims, dropID, user int64) (Claimed, error) {
	t.Helper()
	for {
		got, err := c.Claim(t.Context(), dropID, user, s.nextID(dropID))
		if models.ErrorCode(err) != models.CodeUnavailable || t.Context().Err() != nil {
			return got, err
		}
	}
}

func TestClaims_takeReturnAndFindOut(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	id := s.drop(t, 2, 1000)
	first, err := s.claim(t, id, 7)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), first.At, time.Minute)
	require.Equal(t, Claimed{ID: first.ID, Changed: true, Remaining: 0, At: first.At}, first)
	again, err := s.claim(t, id, 7)
	require.NoError(t, err)
	require.Equal(t, Claimed{ID: first.ID, At: again.At}, again, "one claim a user")
	_, err = s.claim(t, id, 8)
	requireCode(t, models.CodeSoldOut, err)
	loaded, err := s.claim(t, id, 1000)
	require.NoError(t, err)
	require.Equal(t, Claimed{ID: loaded.ID, At: loaded.At}, loaded, "the claim that was in MySQL")

	taken, ok, err := s.claims.Taken(t.Context(), first.ID)
	require.NoError(t, err)
	require.True(t, ok)
	require.WithinDuration(t, time.Now(), taken.At, time.Minute)
	require.Equal(t, TakenClaim{ID: first.ID, DropID: id, UserID: 7, At: taken.At}, taken)
	state := s.claims.States(t.Context(), 7, []int64{id, id + 16})
	require.Equal(t, map[int64]WarmDrop{id: {Stock: 2, Claimed: 2, Version: 1, ClaimID: first.ID}}, state)

	back, err := s.claims.Return(t.Context(), id, 7, first.ID)
	require.NoError(t, err)
	require.Equal(t, Claimed{ID: first.ID, Changed: true, Remaining: 1, At: back.At}, back)
	back, err = s.claims.Return(t.Context(), id, 7, first.ID)
	require.NoError(t, err)
	require.Equal(t, Claimed{Remaining: 1, At: back.At}, back)
	taken, _, err = s.claims.Taken(t.Context(), first.ID)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now(), taken.EndedAt, time.Minute)
	require.False(t, taken.Released)
	_, ok, err = s.claims.Taken(t.Context(), 1<<62)
	require.NoError(t, err)
	require.False(t, ok)
	require.Zero(t, s.claims.States(t.Context(), 0, []int64{id})[id].ClaimID, "the anonymous have none")
}

func TestClaims_codes(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	_, err := s.claim(t, 4711, 7)
	requireCode(t, models.CodeNotFound, err)
	require.Empty(t, dump(t, s.plain).only("4711"), "an id that never existed leaves no key")

	future, past := s.drop(t, 1), s.drop(t, 1)
	s.exec(t, "UPDATE drops SET begins_at=? WHERE id=?", time.Now().UTC().Add(time.Hour), future)
	s.exec(t, "UPDATE drops SET ends_at=?, closed_at=? WHERE id=?",
		time.Now().UTC().Add(time.Hour), time.Now().UTC().Add(-time.Hour), past)
	_, err = s.claim(t, future, 7)
	requireCode(t, models.CodeNotStarted, err)
	_, err = s.claim(t, past, 7)
	requireCode(t, models.CodeEnded, err)
	_, err = s.claims.Return(t.Context(), past, 7, 1)
	require.NoError(t, err, "the user holds none")

	id := s.drop(t, 2)
	held, err := s.claim(t, id, 7)
	require.NoError(t, err)
	s.exec(t, "UPDATE posts SET status=2 WHERE id=(SELECT post_id FROM drops WHERE id=?)", id)
	require.NoError(t, s.claims.CloseTargets(t.Context(), []models.Target{drop(id)}))
	_, err = s.claim(t, id, 8)
	requireCode(t, models.CodeNotFound, err)
	_, err = s.claims.Return(t.Context(), id, 7, held.ID)
	requireCode(t, models.CodeNotFound, err)
	require.True(t, s.claims.States(t.Context(), 7, []int64{id})[id].Gone)
	s.exec(t, "UPDATE posts SET status=1 WHERE id=(SELECT post_id FROM drops WHERE id=?)", id)
	got, err := s.claim(t, id, 8)
	require.NoError(t, err, "the post was restored")
	require.Equal(t, int64(0), got.Remaining)
	closeShard(t, s.plain, int(id%shards))
	_, err = s.claim(t, id, 8)
	requireCode(t, models.CodeUnavailable, err)
}

// requireSold fails unless exactly stock users hold a claim, each of which was acknowledged to one user.
func (s *shop) requireSold(t testing.TB, dropID int64, stock int, acknowledged map[int64]int64) {
	t.Helper()
	held, err := s.redis.HeldClaims(t.Context(), dropID)
	require.NoError(t, err)
	require.Len(t, held, stock)
	require.Equal(t, held, acknowledged)
	ids := map[int64]bool{}
	for _, id := range held {
		require.False(t, ids[id], "claim %d of two users", id)
		ids[id] = true
	}
	require.EqualValues(t, 0, s.claims.States(t.Context(), 0, []int64{dropID})[dropID].Remaining())
}

// A crowd at two processes finds a cold drop. It is loaded once, and sold out exactly.
func TestClaims_crowdAtTwoProcessesSellsOutExactly(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	id := s.drop(t, 100)
	other := NewClaims(s.process(t).redis, s.store, ClaimsOptions{})
	s.queries.reset()
	var mu sync.Mutex
	acknowledged, refused := map[int64]int64{}, 0
	atOnce(1000, func(i int) {
		got, err := s.insist(t, []*Claims{s.claims, other}[i%2], id, int64(i/2+1)) // each user twice
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			if acknowledged[int64(i/2+1)] != 0 {
				require.Equal(t, acknowledged[int64(i/2+1)], got.ID, "two claims of one user")
			}
			acknowledged[int64(i/2+1)] = got.ID
		} else if models.ErrorCode(err) == models.CodeSoldOut {
			refused++
		}
	})
	s.requireSold(t, id, 100, acknowledged)
	require.Equal(t, 800, refused)
	require.LessOrEqual(t, s.queries.selects("FROM drops"), 6, "two for a load, and some while the other process loads")
	runs := s.plain.XLen(t.Context(), outboxKey(int(id%shards))).Val()
	require.Less(t, runs, int64(100), "claims that arrive together share an entry")
}

// The first claim of a user on a drop that is sold out costs no query.
func TestClaims_soldOutCostsNoQuery(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	id := s.drop(t, 1)
	_, err := s.claim(t, id, 1)
	require.NoError(t, err)
	s.queries.reset()
	for user := int64(2); user < 100; user++ {
		_, err := s.claim(t, id, user)
		requireCode(t, models.CodeSoldOut, err)
	}
	s.queries.mu.Lock()
	defer s.queries.mu.Unlock()
	require.Empty(t, s.queries.texts)
}

func TestClaims_loadsALargeDrop(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	users := make([]int64, loadUsers+2)
	for i := range users {
		users[i] = int64(1000 + i)
	}
	id := s.drop(t, int64(len(users)+1), users...)
	got, err := s.claim(t, id, 7)
	require.NoError(t, err)
	require.Equal(t, Claimed{ID: got.ID, Changed: true, At: got.At}, got)
	_, err = s.claim(t, id, 8)
	requireCode(t, models.CodeSoldOut, err)
	held, err := s.redis.HeldClaims(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, held, len(users)+1)
	again, err := s.claim(t, id, 1000)
	require.NoError(t, err)
	require.Equal(t, held[1000], again.ID)
}

// A deletion during a load, small or large, is not undone by the load.
func TestClaims_deletionDuringALoadIsNotFound(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, loadUsers + 1} {
		s := newShop(t)
		users := make([]int64, n)
		for i := range users {
			users[i] = int64(1000 + i)
		}
		id := s.drop(t, int64(n+1), users...)
		caught, let := s.queries.holdAll(t, "FROM claims")
		if n == 0 {
			caught, let = s.queries.holdAll(t, "LEFT JOIN claims")
		}
		done := make(chan error, 1)
		go func() {
			_, err := s.claim(t, id, 7)
			done <- err
		}()
		await(t, caught)
		plain, err := db.Open(t.Context(), s.dsn, db.Options{})
		require.NoError(t, err)
		_, err = plain.Pool().ExecContext(t.Context(),
			"UPDATE posts SET status=2 WHERE id=(SELECT post_id FROM drops WHERE id=?)", id)
		require.NoError(t, err)
		require.NoError(t, plain.Close())
		require.NoError(t, s.claims.CloseTargets(t.Context(), []models.Target{drop(id)}))
		let()
		requireCode(t, models.CodeNotFound, <-done)
		require.NotContains(t, dump(t, s.plain), s.redis.keys(drop(id)).likes)
	}
}

func TestClaims_damagedDropIsLoadedAgainOnceMySQLHasAllOfIt(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	id := s.drop(t, 2, 1000)
	_, err := s.claim(t, id, 1000)
	require.NoError(t, err)
	require.NoError(t, s.plain.HSet(t.Context(), s.redis.keys(drop(id)).likes, "count", 0).Err())
	_, err = s.claim(t, id, 7)
	requireCode(t, models.CodeUnavailable, err)
	require.ErrorIs(t, err, errForgotten)
	got, err := s.claim(t, id, 7)
	require.NoError(t, err)
	require.True(t, got.Changed)
	require.NoError(t, s.plain.HSet(t.Context(), s.redis.keys(drop(id)).likes, "count", 0).Err())
	for range 2 {
		_, err = s.claim(t, id, 8)
		requireCode(t, models.CodeUnavailable, err)
		require.NotErrorIs(t, err, errForgotten, "MySQL lacks a claim")
	}
}

// What the network holds until its caller was answered changes nothing.
func TestClaims_heldCallDoesNotOutliveItsAnswer(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	id := s.drop(t, 1)
	_, err := s.claim(t, id, 7)
	require.NoError(t, err)
	o := s.plain.Options()
	slow := newNetwork(t, o.Addr)
	r, _ := openRedis(t, fmt.Sprintf("redis://%s/%d", slow.Addr(), o.DB))
	far := NewClaims(r, s.store, ClaimsOptions{})
	_, err = far.Claim(t.Context(), id, 8, s.nextID(id)) // far knows the server's clock
	requireCode(t, models.CodeSoldOut, err)

	let := slow.hold(t, r.script["claim"].Hash(), false)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	done := make(chan error, 1)
	held := s.nextID(id)
	go func() {
		_, err := far.Claim(ctx, id, 9, held)
		done <- err
	}()
	await(t, slow.caught)
	requireCode(t, models.CodeUnavailable, <-done)
	mine := s.claims.States(t.Context(), 7, []int64{id})[id].ClaimID
	_, err = s.claims.Return(t.Context(), id, 7, mine)
	require.NoError(t, err)
	let()
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		return slow.arrived.Load() > 0, "the held call did not arrive"
	})
	claims, err := s.redis.HeldClaims(t.Context(), id)
	require.NoError(t, err)
	require.Empty(t, claims)
}

func TestClaims_releaseAndSettingsLoadNothing(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	warm, cold := s.drop(t, 2), s.drop(t, 2)
	got, err := s.claim(t, warm, 7)
	require.NoError(t, err)
	ended := []models.EndedClaim{{DropID: cold, UserID: 7, ID: 16 + cold}, {DropID: warm, UserID: 7, ID: got.ID},
		{DropID: warm, UserID: 8, ID: 16 + warm}}
	for range 2 {
		left, err := s.claims.Release(t.Context(), ended)
		require.NoError(t, err)
		require.Equal(t, ended[:1], left)
	}
	taken, _, err := s.claims.Taken(t.Context(), got.ID)
	require.NoError(t, err)
	require.True(t, taken.Released)
	require.WithinDuration(t, time.Now(), taken.EndedAt, time.Minute)
	ends := time.Now().Add(-time.Minute)
	drops := []models.GateDrop{{ID: warm, Stock: 9, Version: 2, Ends: &ends}, {ID: cold, Stock: 9, Version: 2}}
	for range 2 {
		left, err := s.claims.Settings(t.Context(), drops)
		require.NoError(t, err)
		require.Equal(t, drops[1:], left)
	}
	states := s.claims.States(t.Context(), 7, []int64{warm, cold})
	require.Len(t, states, 1)
	require.EqualValues(t, 9, states[warm].Stock)
	require.Zero(t, states[warm].Claimed)
	require.Equal(t, ends.UnixMilli(), states[warm].Ends.UnixMilli())
	closeShard(t, s.plain, int(warm%shards))
	_, err = s.claims.Release(t.Context(), ended)
	require.ErrorIs(t, err, ErrShardClosed)
	require.Empty(t, s.claims.States(t.Context(), 7, []int64{warm}))
}

// Callers that leave while their drop is loaded take nothing.
func TestClaims_callerThatLeavesTakesNothing(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	id := s.drop(t, 2)
	caught, let := s.queries.holdAll(t, "FROM drops")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	claim := s.nextID(id)
	go func() {
		_, err := s.claims.Claim(ctx, id, 7, claim)
		done <- err
	}()
	await(t, caught)
	cancel()
	requireCode(t, models.CodeUnavailable, <-done)
	go func() { // a return and a claim of the same user do not replace each other
		_, err := s.claims.Return(t.Context(), id, 8, 1)
		done <- err
	}()
	go func() {
		_, err := s.claims.Claim(t.Context(), id, 8, s.nextID(id))
		done <- err
	}()
	testkit.Eventually(t, 20*time.Second, func() (bool, string) {
		lane := s.claims.lanes[id%shards]
		lane.mu.Lock()
		defer lane.mu.Unlock()
		p := lane.parked[drop(id)]
		return p != nil && len(p.all()) == 3, "the calls are not parked"
	})
	let()
	require.NoError(t, <-done)
	require.NoError(t, <-done)
	held, err := s.redis.HeldClaims(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, held, 1)
	require.Contains(t, held, int64(8))
}

// While a slot moves, Redis refuses keys that are there already, and those that do not exist yet. No claim may stay
// without an event.
func TestClaims_movingSlotLeavesNoClaimWithoutAnEvent(t *testing.T) {
	t.Parallel()
	url, masters, _ := startCluster(t)
	r, err := Open(url, shards)
	require.NoError(t, err)
	t.Cleanup(func() { r.Close() })
	ctx := t.Context()
	openShard(t, r, 1, 1)
	warmDrop(t, r, drop(1), 3)
	say(t, r, "7 71")
	from, to := masters[0], masters[1]
	slot := int(from.ClusterKeySlot(ctx, shardKey(1)).Val())
	if slot > 8191 {
		from, to = to, from
	}
	require.NoError(t, to.Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", from.ClusterMyID(ctx).Val()).Err())
	require.NoError(t, from.Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", to.ClusterMyID(ctx).Val()).Err())
	require.Equal(t, []ruling{{isChanged, "81", 1}, {isChanged, "71", 2}, {asAsked, "81", 2}},
		say(t, r, "8 81", "-7 71", "8 82"), "the key of a new claim cannot be stored, and need not be")
	require.NotContains(t, dump(t, from), "{s01}:claim:81")
	before := dump(t, from)
	require.Equal(t, []ruling{{isUnstored, "", 2}}, say(t, r, "!5 55"), "whether it was sent is not known")
	require.Equal(t, before, dump(t, from))

	// The hash of the users is on the other node. What is refused leaves every key as it was.
	claims := setKey(r.keys(drop(1)).likes, "load", 0)
	text, err := from.Dump(ctx, claims).Result()
	require.NoError(t, err)
	require.NoError(t, from.Del(ctx, claims).Err())
	before = dump(t, from)
	for _, word := range []string{"9 91", "-8 81", "!8 81", "=9 9 0 0"} {
		require.Equal(t, []ruling{{isUnstored, "", 0}}, say(t, r, word))
	}
	require.Equal(t, before, dump(t, from))
	require.NoError(t, from.Do(ctx, "CLUSTER", "SETSLOT", slot, "STABLE").Err())
	require.NoError(t, from.RestoreReplace(ctx, claims, 0, text).Err())
	require.Equal(t, []ruling{{isChanged, "91", 1}}, say(t, r, "9 91"))
	require.Equal(t, []string{"1-0" + opened, "1-1 d1 +7:71", "1-2 d1 +8:81 -7:71", "1-3 d1 +9:91"},
		entries(t, from, "{s01}:outbox"))
}
