package workers

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/counters"
	"likewise/internal/servers"
	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/stock"
)

// shop is a pipeline with drops.
type shop struct {
	*pipeline

	claims *counters.Claims
	id     *atomic.Int64 // the last claim id
}

func newShop(t *testing.T, p *pipeline) *shop {
	t.Helper()
	return &shop{p, counters.NewClaims(p.redis, p.store, counters.ClaimsOptions{}), &atomic.Int64{}}
}

// customers creates accounts, and returns the id of the first. The others follow it.
func (s *shop) customers(n int) (first int64) {
	s.t.Helper()
	var rows []string
	for i := range n {
		rows = append(rows, fmt.Sprintf("('customer%d','customer%d@example.org','x')", i, i))
	}
	s.exec("INSERT INTO users (username, email, password_hash) VALUES " + strings.Join(rows, ","))
	require.NoError(s.t, s.store.Pool().QueryRowContext(context.Background(),
		"SELECT MIN(id) FROM users WHERE username LIKE 'customer%'").Scan(&first))
	return first
}

func (s *shop) drop(shares, confirmWithin int64) *models.Drop {
	s.t.Helper()
	d, err := stock.New(s.store).CreateDrop(context.Background(), s.author.ID, s.post().ID,
		models.DropSettings{Title: "Voucher", Stock: shares, ConfirmWithin: confirmWithin})
	require.NoError(s.t, err)
	return d
}

// dropIn creates a drop that belongs to the shard, and returns its id.
func (s *shop) dropIn(shard int) int64 {
	s.t.Helper()
	for {
		if d := s.drop(4, 0); d.Target().Shard(s.store.Shards()) == shard {
			return d.ID
		}
	}
}

// nextID returns a claim id with the shard of a drop.
func (s *shop) nextID(dropID int64) int64 {
	shards := int64(s.store.Shards())
	return shards*s.id.Add(1) + dropID%shards
}

func (s *shop) claim(dropID, user int64) counters.Claimed {
	s.t.Helper()
	got, err := s.claims.Claim(context.Background(), dropID, user, s.nextID(dropID))
	require.NoError(s.t, err)
	return got
}

// release runs the job claims once.
func (s *shop) release() Released {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	done, err := NewReleaser(s.store, s.redis, s.claims, s.metrics).Release(ctx)
	require.NoError(s.t, err)
	return done
}

// states returns the states of the claims to a drop, by user, after comparing its count with the rows.
func (s *shop) states(dropID int64) map[int64]models.ClaimState {
	s.t.Helper()
	tally, ok, err := stock.New(s.store).TallyDrop(context.Background(), dropID)
	require.NoError(s.t, err)
	require.True(s.t, ok)
	require.Empty(s.t, tally.Problem())
	rows, err := s.store.Pool().QueryContext(context.Background(),
		"SELECT user_id, state FROM claims WHERE drop_id=?", dropID)
	require.NoError(s.t, err)
	defer rows.Close()
	states := map[int64]models.ClaimState{}
	for rows.Next() {
		var user int64
		var state models.ClaimState
		require.NoError(s.t, rows.Scan(&user, &state))
		states[user] = state
	}
	require.NoError(s.t, rows.Err())
	return states
}

// settled waits until nothing has to be sent to the gate, and everything it accepted is in MySQL.
func (s *shop) settled() {
	s.t.Helper()
	testkit.Eventually(s.t, patience, func() (bool, string) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_, err := NewReleaser(s.store, s.redis, s.claims, s.metrics).Release(ctx)
		if err == nil {
			err = FlushOpen(ctx, s.redis, s.store)
		}
		left := s.count("SELECT COUNT(*) FROM claims WHERE to_release=1") +
			s.count("SELECT COUNT(*) FROM drops WHERE unsent=1")
		return err == nil && left == 0, fmt.Sprintf("%d to send, %v", left, err)
	})
}

// forget evicts a drop.
func (s *shop) forget(dropID int64) {
	s.t.Helper()
	forgotten, err := s.redis.Forget(context.Background(), s.store, models.Target{Kind: models.KindDrop, ID: dropID})
	require.NoError(s.t, err)
	require.True(s.t, forgotten)
}

func texts(found []models.Difference) []string {
	list := make([]string, len(found))
	for i, d := range found {
		list[i] = d.String()
	}
	return list
}

func (s *shop) held(dropID int64) map[int64]int64 {
	s.t.Helper()
	held, err := s.redis.HeldClaims(context.Background(), dropID)
	require.NoError(s.t, err)
	return held
}

// A claim that is not confirmed in time goes back into stock once, also if two crons run at once and one of them dies.
func TestReleaser_expiresOnce(t *testing.T) {
	t.Parallel()
	s := newShop(t, setup(t))
	s.start()
	user := s.customers(5)
	drop := s.drop(3, 3600)
	for i := range int64(3) {
		s.claim(drop.ID, user+i)
	}
	s.flush()
	_, err := stock.New(s.store).ConfirmClaim(t.Context(), user+2, s.held(drop.ID)[user+2])
	require.NoError(t, err)
	s.exec("UPDATE claims SET expires_at=NOW(3)-INTERVAL 1 SECOND, due_at=NOW(3)-INTERVAL 1 SECOND WHERE state=1")

	killed, kill := context.WithCancel(t.Context())
	var crons sync.WaitGroup
	var expired atomic.Int64
	for i := range 4 {
		ctx := t.Context()
		if i == 0 {
			ctx = killed
		}
		crons.Go(func() {
			done, _ := NewReleaser(s.store, s.redis, s.claims, NewMetrics()).Release(ctx)
			expired.Add(int64(done.Expired))
		})
	}
	kill()
	crons.Wait()
	s.settled()
	require.LessOrEqual(t, expired.Load(), int64(2))
	require.Equal(t, map[int64]models.ClaimState{user: models.StateExpired, user + 1: models.StateExpired,
		user + 2: models.StateConfirmed}, s.states(drop.ID))
	require.Len(t, s.held(drop.ID), 1)
	require.EqualValues(t, 1, s.claim(drop.ID, user+3).Remaining)
	require.EqualValues(t, 0, s.claim(drop.ID, user).Remaining, "the user may claim again")
	_, err = s.claims.Claim(t.Context(), drop.ID, user+1, s.nextID(drop.ID))
	require.Equal(t, models.CodeSoldOut, models.ErrorCode(err))
	s.settled()
	require.Empty(t, s.verify(false))
}

// Users confirm in the instant in which their claims expire: each claim ends in one of the two ways.
func TestReleaser_confirmationOrExpiry(t *testing.T) {
	t.Parallel()
	s := newShop(t, setup(t))
	s.start()
	const n = 40
	user := s.customers(n)
	drop := s.drop(n, 3600)
	for i := range int64(n) {
		s.claim(drop.ID, user+i)
	}
	s.flush()
	ids := s.held(drop.ID)
	s.exec("UPDATE claims SET expires_at=NOW(3)+INTERVAL 300000 MICROSECOND, due_at=NOW(3)+INTERVAL 300000 MICROSECOND")
	confirmed := make([]bool, n)
	var all sync.WaitGroup
	for i := range int64(n) {
		all.Go(func() {
			for rand.IntN(20) > 0 {
				_, err := stock.New(s.store).ConfirmClaim(context.Background(), user+i, ids[user+i])
				if confirmed[i] = err == nil; confirmed[i] || models.ErrorCode(err) == models.CodeTooLate {
					return
				}
			}
		})
		if i%10 == 0 {
			all.Go(func() { s.release() })
		}
	}
	all.Wait()
	testkit.Eventually(t, patience, func() (bool, string) {
		s.release()
		return s.count("SELECT COUNT(*) FROM claims WHERE state=1") == 0, "claims are still reserved"
	})
	s.settled()
	left := 0
	for u, state := range s.states(drop.ID) {
		want := models.StateExpired
		if confirmed[u-user] {
			want = models.StateConfirmed
			left++
		}
		require.Equal(t, want, state)
	}
	require.Len(t, s.held(drop.ID), left)
	require.Empty(t, s.verify(false))
}

// The stock is lowered while claims are on their way: MySQL rejects those beyond it, and the gate releases them once.
func TestReleaser_loweredStockRejectsClaimsOnTheirWay(t *testing.T) {
	t.Parallel()
	s := newShop(t, setup(t))
	stop := s.start()
	user := s.customers(12)
	drop := s.drop(10, 0)
	for i := range int64(3) {
		s.claim(drop.ID, user+i)
	}
	s.flush()
	stop()
	for i := range int64(7) {
		s.claim(drop.ID, user+3+i)
	}
	settings := drop.Settings()
	settings.Stock = 5
	_, err := stock.New(s.store).UpdateDrop(t.Context(), s.author.ID, drop.ID, drop.Version, settings)
	require.NoError(t, err)
	s.work()
	s.flush()
	states := s.states(drop.ID)
	rejected := 0
	for _, state := range states {
		if state == models.StateRejected {
			rejected++
		}
	}
	require.Equal(t, 5, rejected)
	require.Len(t, s.held(drop.ID), 10)
	var crons sync.WaitGroup
	for range 3 {
		crons.Go(func() { s.release() })
	}
	crons.Wait()
	s.settled()
	require.Equal(t, states, s.states(drop.ID))
	require.Len(t, s.held(drop.ID), 5)
	view := s.claims.States(t.Context(), 0, []int64{drop.ID})[drop.ID]
	require.Equal(t, []int64{5, 5}, []int64{view.Stock, view.Claimed})
	_, err = s.claims.Claim(t.Context(), drop.ID, user+11, s.nextID(drop.ID))
	require.Equal(t, models.CodeSoldOut, models.ErrorCode(err))
	require.Empty(t, s.verify(false))
}

// Nothing is sent about a drop that is cold. A load that has begun may bring back what was ended, so it is waited for.
func TestReleaser_clearsColdDrops(t *testing.T) {
	t.Parallel()
	s := newShop(t, setup(t))
	stop := s.start()
	user := s.customers(3)
	drop := s.drop(2, 3600)
	s.claim(drop.ID, user)
	s.claim(drop.ID, user+1)
	s.flush()
	forgotten, err := s.redis.Forget(t.Context(), s.store, drop.Target())
	require.NoError(t, err)
	require.True(t, forgotten)
	s.exec(`
		UPDATE claims
		SET expires_at=NOW(3)-INTERVAL 1 SECOND, due_at=NOW(3)-INTERVAL 1 SECOND
		WHERE user_id=?`, user)
	settings := drop.Settings()
	settings.Stock = 3
	_, err = stock.New(s.store).UpdateDrop(t.Context(), s.author.ID, drop.ID, drop.Version, settings)
	require.NoError(t, err)
	require.Equal(t, 1, s.count("SELECT COUNT(*) FROM drops WHERE unsent=1"))
	// A process that loads the drop has read MySQL before.
	warming := fmt.Sprintf("{s%02d}:%s:warming", drop.Target().Shard(s.store.Shards()), drop.Target())
	require.NoError(t, s.raw.Set(t.Context(), warming, "loader", time.Minute).Err())
	stop()
	require.Equal(t, Released{Expired: 1}, s.release(), "it does not wait for the pipeline")
	require.EqualValues(t, 1, s.raw.Exists(t.Context(), warming).Val(), "the load goes on: a large one takes long")
	s.work()
	require.Equal(t, 1, s.count("SELECT COUNT(*) FROM claims WHERE to_release=1"))
	require.Equal(t, 1, s.count("SELECT COUNT(*) FROM drops WHERE unsent=1"))
	require.NoError(t, s.raw.Del(t.Context(), warming).Err())
	require.Equal(t, Released{Cold: 1}, s.release())
	require.Zero(t, s.count("SELECT COUNT(*) FROM claims WHERE to_release=1"))
	require.Zero(t, s.count("SELECT COUNT(*) FROM drops WHERE unsent=1"))
	require.EqualValues(t, 1, s.claim(drop.ID, user+2).Remaining)
	s.settled()
	require.Empty(t, s.verify(false))
}

// A drop was evicted, and what was to be sent about it is cleared. Then Redis loses its last writes, so that it has the
// drop again. It must not keep a claim that nothing releases.
func TestReleaser_clearsAfterAnEventHasFollowedTheEviction(t *testing.T) {
	t.Parallel()
	s := newShop(t, setup(t))
	stop := s.start()
	user := s.customers(1)
	drop := s.drop(1, 0)
	for drop.Target().Shard(s.store.Shards()) != 6 {
		drop = s.drop(1, 0)
	}
	lost := s.claim(drop.ID, user)
	s.flush()
	stop()
	back := s.rewind()
	stop = s.work()
	s.forget(drop.ID)
	s.exec("UPDATE claims SET state=6, ended_at=NOW(3), to_release=1")
	s.exec("UPDATE drops SET claimed=0, stock=2, version=2 WHERE id=?", drop.ID)
	require.Equal(t, Released{Cold: 1}, s.release())
	require.Zero(t, s.count("SELECT COUNT(*) FROM claims WHERE to_release=1"))
	stop()
	back()
	require.Equal(t, map[int64]int64{user: lost.ID}, s.held(drop.ID))
	s.closeShard(6)
	s.work()
	s.awaitOpen()
	got := s.claim(drop.ID, user)
	require.True(t, got.Changed)
	require.EqualValues(t, 1, got.Remaining)
	s.settled()
	require.Empty(t, s.verify(false))
}

// The shard is opened again while the job waits for its probe, which may have been lost together with the eviction.
func TestReleaser_clearsNothingAfterAnotherOpening(t *testing.T) {
	t.Parallel()
	s := newShop(t, setup(t))
	stop := s.start()
	user := s.customers(1)
	drop := s.drop(1, 0)
	s.claim(drop.ID, user)
	s.flush()
	s.forget(drop.ID)
	s.exec("UPDATE claims SET state=6, ended_at=NOW(3), to_release=1")
	s.exec("UPDATE drops SET claimed=0")
	stop()
	released := make(chan Released)
	go func() { released <- s.release() }()
	shard := drop.Target().Shard(s.store.Shards())
	testkit.Eventually(t, patience, func() (bool, string) {
		infos, err := s.redis.ShardInfos(context.Background())
		return err == nil && infos[shard].Runs == 1, "no probe"
	})
	s.closeShard(shard)
	s.work()
	require.Equal(t, Released{}, <-released)
	require.Equal(t, 1, s.count("SELECT COUNT(*) FROM claims WHERE to_release=1"))
	s.settled()
	require.Empty(t, s.verify(false))
}

// verify finds each of these differences and repairs them.
func TestVerify_findsDifferencesOfClaims(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		damage func(s *shop, drop, user int64)
		want   string
		rows   int // live, after the repair
	}{
		"a row too many": {func(s *shop, drop, user int64) {
			s.exec("INSERT INTO claims (drop_id, user_id, id, state, created_at) VALUES (?,?,?,2,NOW(3))",
				drop, user+5, s.nextID(drop))
			s.exec("UPDATE drops SET claimed=claimed+1 WHERE id=?", drop)
		}, "is in MySQL, and not in the gate", 2},
		"a row too few": {func(s *shop, drop, user int64) {
			s.exec("DELETE FROM claims WHERE user_id=?", user)
			s.exec("UPDATE drops SET claimed=claimed-1 WHERE id=?", drop)
		}, "is in the gate, and has no row", 2},
		"a count that is off": {func(s *shop, drop, _ int64) {
			s.exec("UPDATE drops SET claimed=claimed+1 WHERE id=?", drop)
		}, "claimed is 3 and there are 2 live claims", 2},
		"a claim in Redis without a row": {func(s *shop, drop, user int64) {
			key := fmt.Sprintf("{s%02d}:drop:%d:claims", drop%int64(s.store.Shards()), drop)
			load := s.raw.HGet(context.Background(), key, "load").Val()
			s.raw.HSet(context.Background(), key+":"+load+":0", user+5, s.nextID(drop))
			s.raw.HIncrBy(context.Background(), key, "count", 1)
		}, "is in the gate, and has no row", 3},
		"a count in Redis that is off": {func(s *shop, drop, _ int64) {
			key := fmt.Sprintf("{s%02d}:drop:%d:claims", drop%int64(s.store.Shards()), drop)
			s.raw.HIncrBy(context.Background(), key, "count", 1)
		}, "the count in Redis is 3 and 2 users have claims there", 2},
		"a stock in Redis that is off": {func(s *shop, drop, _ int64) {
			key := fmt.Sprintf("{s%02d}:drop:%d:claims", drop%int64(s.store.Shards()), drop)
			s.raw.HSet(context.Background(), key, "stock", 100)
		}, "Redis has a stock of 100 in version 1, and MySQL 4 in version 1", 2},
		"an ended claim that nobody releases": {func(s *shop, drop, user int64) {
			s.exec("UPDATE claims SET state=6, ended_at=NOW(3) WHERE user_id=?", user)
			s.exec("UPDATE drops SET claimed=claimed-1 WHERE id=?", drop)
		}, "1 claims are in Redis that MySQL has ended", 1},
		"an ended claim that nobody releases, beside one that is released": {func(s *shop, drop, user int64) {
			s.exec("UPDATE claims SET state=6, ended_at=NOW(3), to_release=user_id>? WHERE drop_id=?", user, drop)
			s.exec("UPDATE drops SET claimed=0 WHERE id=?", drop)
		}, "1 claims are in Redis that MySQL has ended", 0},
		"a claim that replaced another": {func(s *shop, drop, user int64) {
			s.exec("UPDATE claims SET id=? WHERE user_id=?", s.nextID(drop), user)
		}, "is in MySQL, and claim", 2},
		"a row too many that is not counted": {func(s *shop, drop, user int64) {
			s.forget(drop)
			s.exec("INSERT INTO claims (drop_id, user_id, id, state, created_at) VALUES (?,?,?,2,NOW(3))",
				drop, user+5, s.nextID(drop))
		}, "claimed is 2 and there are 3 live claims", 3},
		"a row too few, of a cold drop": {func(s *shop, drop, user int64) {
			s.forget(drop)
			s.exec("DELETE FROM claims WHERE user_id=?", user)
		}, "claimed is 2 and there are 1 live claims", 1},
		"settings that the gate lacks": {func(s *shop, drop, _ int64) {
			s.exec("UPDATE drops SET stock=3, version=2, sent_version=2 WHERE id=?", drop)
		}, "Redis has a stock of 4 in version 1, and MySQL 3 in version 2", 2},
		"a deleted post whose drop is open": {func(s *shop, drop, _ int64) {
			s.exec("UPDATE posts SET status=2 WHERE id=(SELECT post_id FROM drops WHERE id=?)", drop)
		}, "it takes claims in Redis but its post is deleted in MySQL", 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t, setup(t))
			s.start()
			user := s.customers(6)
			drop := s.drop(4, 0)
			s.claim(drop.ID, user)
			s.claim(drop.ID, user+1)
			s.flush()
			require.Empty(t, s.verify(false))
			c.damage(s, drop.ID, user)
			found := s.verify(false)
			require.Len(t, found, 1)
			require.Contains(t, found[0], c.want)
			require.Contains(t, found[0], drop.Target().String())
			desk, all := NewDesk(s.store, s.redis, s.likes), found
			item, err := desk.Compare(t.Context(), drop.Target(), false)
			require.NoError(t, err)
			require.Equal(t, all, texts(item), "the same for one target")
			shard := drop.Target().Shard(s.store.Shards())
			item, compared, next, err := desk.CompareShard(t.Context(), shard, models.KindDrop, 0, 10,
				time.Now().Add(patience), false)
			require.NoError(t, err)
			require.Equal(t, all, texts(item), "the same for a shard")
			require.Equal(t, 1, compared)
			require.Zero(t, next)
			found = s.verify(true)
			require.Len(t, found, 1)
			require.Contains(t, found[0], "(repaired)")
			s.settled()
			s.flush()
			require.Empty(t, s.verify(false))
			live := 0
			for _, state := range s.states(drop.ID) {
				if state.Live() {
					live++
				}
			}
			require.Equal(t, c.rows, live)
		})
	}
}

// A claim whose user has no row is reported, and a repair returns its share to the stock in both stores.
func TestVerify_findsClaimsOfUsersWithoutARow(t *testing.T) {
	t.Parallel()
	s := newShop(t, setup(t))
	s.start()
	user := s.customers(2)
	drop := s.drop(4, 0)
	gone := s.claim(drop.ID, user)
	s.claim(drop.ID, user+1)
	s.flush()
	s.exec("DELETE FROM users WHERE id=?", user)
	want := fmt.Sprintf("%s: user %d has claim %d and does not exist", drop.Target(), user, gone.ID)
	require.Equal(t, []string{want}, s.verify(false))
	require.Equal(t, []string{want + " (repaired)"}, s.verify(true))
	s.settled()
	s.flush()
	require.Equal(t, map[int64]models.ClaimState{user: models.StateVoided, user + 1: models.StateConfirmed},
		s.states(drop.ID))
	require.NotContains(t, s.held(drop.ID), user)
	require.Empty(t, s.verify(false))
}

// Kafka loses acknowledged events of claims. The reconciler sends the claims again.
func TestReconciler_repairsClaimsThatTheLogLost(t *testing.T) {
	t.Parallel()
	s := newShop(t, setup(t))
	stop := s.start()
	user := s.customers(4)
	drop := s.drop(3, 0)
	first := s.claim(drop.ID, user)
	s.claim(drop.ID, user+1)
	s.flush()
	stop()
	_, err := s.claims.Return(t.Context(), drop.ID, user, first.ID)
	require.NoError(t, err)
	s.claim(drop.ID, user+2)
	again := s.claim(drop.ID, user)
	// The relay trims them, and Kafka loses them.
	outbox := fmt.Sprintf("{s%02d}:outbox", drop.Target().Shard(s.store.Shards()))
	require.NoError(t, s.raw.XTrimMaxLen(t.Context(), outbox, 0).Err())
	s.work()
	reconciler := NewReconciler(s.redis, s.store, s.likes)
	testkit.Eventually(t, patience, func() (bool, string) {
		_, err := reconciler.Probe(context.Background(), 0)
		return err == nil && s.count("SELECT COUNT(*) FROM like_gaps") > 0, fmt.Sprint(err)
	})
	testkit.Eventually(t, patience, func() (bool, string) {
		resent, err := reconciler.Reconcile(context.Background())
		return err == nil && resent > 0, fmt.Sprintf("nothing to repair; %v", err)
	})
	s.flush()
	require.Equal(t, map[int64]models.ClaimState{user: models.StateConfirmed, user + 1: models.StateConfirmed,
		user + 2: models.StateConfirmed}, s.states(drop.ID))
	require.Equal(t, int(again.ID), s.count("SELECT id FROM claims WHERE user_id=?", user))
	require.Empty(t, s.verify(false))
}

// Kafka loses the event by which the gate has released a claim. The gate does not send it again by itself for an hour,
// and the reconciler does at once.
func TestReconciler_sendsLostReleasesAgain(t *testing.T) {
	t.Parallel()
	s := newShop(t, setup(t))
	stop := s.start()
	user := s.customers(2)
	drop := s.drop(2, 0)
	s.claim(drop.ID, user)
	s.claim(drop.ID, user+1)
	s.flush()
	s.exec("UPDATE claims SET state=6, ended_at=NOW(3), to_release=1 WHERE user_id=?", user)
	s.exec("UPDATE drops SET claimed=1")
	stop()
	s.release()
	require.Len(t, s.held(drop.ID), 1)
	s.loseOutbox(drop.Target().Shard(s.store.Shards()))
	s.work()
	s.claim(drop.ID, user)
	s.flush()
	require.NotZero(t, s.openGaps())
	require.Equal(t, 0, s.count("SELECT COUNT(*) FROM claims WHERE to_release=1"), "the row has the later claim")

	s.exec("UPDATE claims SET state=6, ended_at=NOW(3), to_release=1 WHERE user_id=?", user+1)
	s.exec("UPDATE drops SET claimed=1")
	id := s.held(drop.ID)[user+1]
	cold, err := s.claims.Release(t.Context(), []models.EndedClaim{{DropID: drop.ID, UserID: user + 1, ID: id}})
	require.NoError(t, err)
	require.Empty(t, cold)
	s.flush()
	s.exec("UPDATE claims SET to_release=1 WHERE user_id=?", user+1) // as if it had been lost
	s.release()
	s.flush()
	require.Equal(t, 1, s.count("SELECT COUNT(*) FROM claims WHERE to_release=1"), "the gate has sent the event before")
	resent, err := NewReconciler(s.redis, s.store, s.likes).Reconcile(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, resent)
	s.flush()
	require.Zero(t, s.count("SELECT COUNT(*) FROM claims WHERE to_release=1"))
	require.Zero(t, s.openGaps())
	require.Empty(t, s.verify(false))
}

// Moderators compare the drops of a shard in parts, and a drop without a row. They send the claim of a dead letter
// again.
func TestDesk_ofDrops(t *testing.T) {
	t.Parallel()
	s := newShop(t, setup(t))
	s.start()
	user := s.customers(3)
	shards := int64(s.store.Shards())
	first := s.drop(5, 0)
	for range shards {
		s.drop(5, 0)
	}
	shard := first.Target().Shard(int(shards))
	for _, id := range []int64{first.ID, first.ID + shards} {
		s.claim(id, user)
		s.claim(id, user+1)
	}
	s.flush()
	desk := NewDesk(s.store, s.redis, s.likes)
	var after int64
	for _, want := range []int64{first.ID, first.ID + shards} {
		found, compared, next, err := desk.CompareShard(t.Context(), shard, models.KindDrop, after, 1, time.Time{},
			false)
		require.NoError(t, err)
		require.Empty(t, found)
		require.Equal(t, []int64{1, want}, []int64{int64(compared), next})
		after = next
	}
	_, compared, next, err := desk.CompareShard(t.Context(), shard, models.KindDrop, after, 1, time.Time{}, false)
	require.NoError(t, err)
	require.Equal(t, []int64{0, 0}, []int64{int64(compared), next})

	// MySQL lacks a claim, and has one that was returned. The gate knows better.
	about := func(user int64) models.Event { return models.ClaimEvent(first.ID, user, 1, true, time.Now()) }
	latest := models.Position{Epoch: 1, Seq: 1000}
	s.exec("DELETE FROM claims WHERE drop_id=? AND user_id=?", first.ID, user)
	s.exec("INSERT INTO claims (drop_id, user_id, id, state, created_at) VALUES (?,?,?,2,NOW(3))",
		first.ID, user+2, s.nextID(first.ID))
	for u := range int64(3) {
		require.NoError(t, desk.Reassert(t.Context(), about(user+u), latest))
	}
	s.flush()
	require.Equal(t, map[int64]models.ClaimState{user: models.StateConfirmed, user + 1: models.StateConfirmed,
		user + 2: models.StateReturned}, s.states(first.ID))
	require.Empty(t, s.verify(false))
	s.forget(first.ID)
	require.ErrorIs(t, desk.Reassert(t.Context(), about(user), latest), counters.ErrNotWarm)
	s.claim(first.ID, user+2)
	require.ErrorIs(t, desk.Reassert(t.Context(), about(user), models.Position{Epoch: 1, Seq: 1}), counters.ErrNotWarm,
		"it was loaded since")

	lost := models.Target{Kind: models.KindDrop, ID: first.ID + shards}
	s.exec("DELETE FROM drops WHERE id=?", lost.ID)
	for _, repaired := range []bool{false, true} {
		found, err := desk.Compare(t.Context(), lost, repaired)
		require.NoError(t, err)
		require.Len(t, found, 1)
		require.Equal(t, "it is in Redis and does not exist in MySQL", found[0].Problem)
		require.Equal(t, repaired, found[0].Repaired)
	}
	found, err := desk.Compare(t.Context(), lost, true)
	require.NoError(t, err)
	require.Empty(t, found)
}

// A void also ends the claims on their way to MySQL. Without a worker it fails, and has ended none.
func TestDesk_voidsClaimsOnTheirWay(t *testing.T) {
	t.Parallel()
	s := newShop(t, setup(t))
	stop := s.start()
	user := s.customers(2)
	first, second := s.drop(2, 0), s.drop(2, 0)
	s.claim(first.ID, user)
	s.flush()
	stop()
	s.claim(second.ID, user)
	s.claim(second.ID, user+1)
	s.exec("UPDATE users SET role=? WHERE id=?", models.RoleModerator, s.author.ID)
	void := models.ClaimVoid{ActorID: s.author.ID, UserID: user, Reason: "Bought with stolen accounts."}
	desk := NewDesk(s.store, s.redis, s.likes)
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := desk.VoidClaims(short, void)
	require.Equal(t, models.CodeUnavailable, models.ErrorCode(err))
	require.Equal(t, map[int64]models.ClaimState{user: models.StateConfirmed}, s.states(first.ID))
	s.work()
	voided, err := desk.VoidClaims(t.Context(), void)
	require.NoError(t, err)
	require.Equal(t, 2, voided)
	s.settled()
	require.Equal(t, map[int64]models.ClaimState{user: models.StateVoided}, s.states(first.ID))
	require.Equal(t, map[int64]models.ClaimState{user: models.StateVoided, user + 1: models.StateConfirmed},
		s.states(second.ID))
	require.True(t, s.claim(first.ID, user).Changed, "the share is free, and so is the user")
	require.Empty(t, s.verify(false))
}

// The promise: stock 100 and 2,000 users at once through two processes, while the writer is stopped and started, Redis
// is killed, and two crons release and expire.
func TestClaims_crowdWhileEverythingFails(t *testing.T) {
	t.Parallel()
	server, err := servers.StartRedis(t.Context(), t.TempDir(), "--appendfsync", "always")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, server.Stop(context.Background())) })
	brokers, topic := testkit.Topic(t)
	s := newShop(t, newPipeline(t, testkit.Database(t), server.URL(), brokers, topic))
	stop := s.start()
	const users, stock = 2000, 100
	user := s.customers(users)
	drop := s.drop(stock, 0)
	r, _ := s.gate()
	gates := []*counters.Claims{s.claims, counters.NewClaims(r, s.store, counters.ClaimsOptions{})}

	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	var mu sync.Mutex
	acknowledged := map[int64]int64{} // claims by user, of the last answer
	var crowd, crons sync.WaitGroup
	serving, closing := context.WithCancel(ctx)
	for range 2 {
		crons.Go(func() {
			for pause(serving, 20*time.Millisecond) {
				// It fails while Redis is away, and the next run continues.
				_, _ = NewReleaser(s.store, s.redis, s.claims, NewMetrics()).Release(serving)
			}
		})
	}
	answers := atomic.Int64{}
	for i := range int64(users) {
		crowd.Go(func() {
			gate := gates[i%2]
			for ctx.Err() == nil {
				got, err := gate.Claim(ctx, drop.ID, user+i, s.nextID(drop.ID))
				switch code := models.ErrorCode(err); {
				case err == nil && rand.IntN(4) == 0 && got.Changed:
					// A fourth returns what it has, and somebody else may have it.
					for ctx.Err() == nil {
						if _, err := gate.Return(ctx, drop.ID, user+i, got.ID); err == nil {
							break
						}
						pause(ctx, 20*time.Millisecond)
					}
					answers.Add(1)
					return
				case err == nil:
					mu.Lock()
					acknowledged[user+i] = got.ID
					mu.Unlock()
					answers.Add(1)
					return
				case code == models.CodeSoldOut:
					answers.Add(1)
					if rand.IntN(4) > 0 {
						return
					}
				}
				pause(ctx, time.Duration(20+rand.IntN(200))*time.Millisecond)
			}
		})
	}
	restart := func() {
		testkit.Eventually(t, patience, func() (bool, string) { return answers.Load() > 0, "nobody was answered" })
		stop()
		require.NoError(t, server.Kill())
		require.NoError(t, server.Start(context.Background()))
		stop = s.work()
	}
	restart()
	restart()
	crowd.Wait()
	require.NoError(t, ctx.Err(), "the crowd was not answered")
	// What is left goes to the next ones.
	s.awaitOpen()
	for i := range int64(users) {
		got, err := gates[i%2].Claim(ctx, drop.ID, user+i, s.nextID(drop.ID))
		if models.ErrorCode(err) == models.CodeSoldOut {
			continue
		}
		require.NoError(t, err)
		acknowledged[user+i] = got.ID
	}
	closing()
	crons.Wait()
	s.settled()
	held := s.held(drop.ID)
	assert.Len(t, held, stock)
	live := map[int64]bool{}
	for u, state := range s.states(drop.ID) {
		live[u] = state.Live()
		if state.Live() {
			assert.Contains(t, held, u)
		}
	}
	for u, id := range acknowledged {
		assert.Equal(t, id, held[u], "user %d was acknowledged claim %d", u, id)
		assert.True(t, live[u], "user %d has no live row", u)
	}
	assert.Len(t, acknowledged, stock)
	assert.Equal(t, stock, s.count("SELECT claimed FROM drops WHERE id=?", drop.ID))
	assert.Equal(t, stock, s.count("SELECT COUNT(*) FROM claims WHERE drop_id=? AND state IN (1,2)", drop.ID))
	assert.Zero(t, s.count("SELECT COUNT(*) FROM claims WHERE state=5"), "nothing was rejected")
	assert.Zero(t, s.count("SELECT COUNT(*) FROM like_gaps")+s.count("SELECT COUNT(*) FROM dead_letters"))
	assert.Empty(t, s.verify(false))

	// Redis is emptied after a flush. MySQL has everything.
	require.NoError(t, s.raw.FlushAll(context.Background()).Err())
	s.awaitOpen()
	_, err = s.claims.Claim(t.Context(), drop.ID, user+users, s.nextID(drop.ID))
	assert.Equal(t, models.CodeSoldOut, models.ErrorCode(err))
	assert.Equal(t, held, s.held(drop.ID))
}
