package wrongways_test

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/counters"
	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/likes"
	"likewise/models/moderation"
	"likewise/models/stock"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// shop is a site with a gate, and with the tables of the tutorials.
type shop struct {
	store  *db.DB
	gate   *counters.Redis
	claims *counters.Claims
	ids    *counters.IDs
	redis  *redis.Client // of the same database, for the tutorials
	author models.Author
	shards int
}

func open(t *testing.T) *shop {
	t.Helper()
	store, err := db.Open(t.Context(), testkit.Database(t), db.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { store.Close() })
	o := testkit.Redis(t)
	gate, err := counters.Open(fmt.Sprintf("redis://%s/%d", o.Addr, o.DB), store.Shards())
	require.NoError(t, err)
	t.Cleanup(func() { gate.Close() })
	plain := redis.NewClient(o)
	t.Cleanup(func() { plain.Close() })
	author := &models.User{Username: "ada", Email: "ada@example.org"}
	require.NoError(t, accounts.New(store).CreateUser(t.Context(), author))
	s := &shop{
		store: store, gate: gate, redis: plain, author: models.Author{ID: author.ID}, shards: store.Shards(),
		claims: counters.NewClaims(gate, store, counters.ClaimsOptions{}), ids: counters.NewIDs(gate, store),
	}
	for _, table := range []string{
		"CREATE TABLE tb_goods_stock (goods_id BIGINT PRIMARY KEY, stock INT NOT NULL)",
		"CREATE TABLE tb_voucher_order (id BIGINT PRIMARY KEY AUTO_INCREMENT, user_id BIGINT, voucher_id BIGINT)",
	} {
		s.exec(t, table)
	}
	return s
}

func (s *shop) exec(t *testing.T, query string, args ...any) sql.Result {
	t.Helper()
	result, err := s.store.Pool().ExecContext(t.Context(), query, args...)
	require.NoError(t, err)
	return result
}

func (s *shop) number(t *testing.T, query string, args ...any) (n int64) {
	t.Helper()
	require.NoError(t, s.store.Pool().QueryRowContext(t.Context(), query, args...).Scan(&n))
	return n
}

// goods puts stock of goods 1 into the table of the tutorials.
func (s *shop) goods(t *testing.T, stock int) {
	t.Helper()
	s.exec(t, "REPLACE INTO tb_goods_stock (goods_id, stock) VALUES (1, ?)", stock)
}

func (s *shop) stock(t *testing.T) int64 {
	t.Helper()
	return s.number(t, "SELECT stock FROM tb_goods_stock WHERE goods_id=1")
}

// user creates an account and returns its id.
func (s *shop) user(t *testing.T, name string) int64 {
	t.Helper()
	u := &models.User{Username: name, Email: name + "@example.org"}
	require.NoError(t, accounts.New(s.store).CreateUser(t.Context(), u))
	return u.ID
}

// drop creates a drop of this product, in an open shard.
func (s *shop) drop(t *testing.T, stock int) int64 {
	t.Helper()
	post, err := content.New(s.store).CreatePost(t.Context(), s.author, models.PostText{Title: "Title",
		Content: "Content"})
	require.NoError(t, err)
	id, err := s.exec(t, `
		INSERT INTO drops (post_id, user_id, title, stock, created_at, updated_at)
		VALUES (?, ?, 'Voucher', ?, NOW(3), NOW(3))`, post.ID, s.author.ID, stock).LastInsertId()
	require.NoError(t, err)
	shard := s.shard(id)
	epoch, err := likes.New(s.store).NextEpoch(t.Context(), shard, 0)
	require.NoError(t, err)
	outbox := s.outbox(t, shard)
	_, err = outbox.Seal(t.Context(), epoch)
	require.NoError(t, err)
	require.NoError(t, outbox.Opened(t.Context(), epoch))
	require.NoError(t, outbox.Release(t.Context()))
	return id
}

func (s *shop) shard(dropID int64) int {
	return models.Target{Kind: models.KindDrop, ID: dropID}.Shard(s.shards)
}

func (s *shop) outbox(t *testing.T, shard int) *counters.Outbox {
	t.Helper()
	outbox, err := s.gate.HoldOutbox(t.Context(), shard, rand.Text(), time.Minute)
	require.NoError(t, err)
	return outbox
}

func (s *shop) claim(t *testing.T, dropID, userID int64) (counters.Claimed, error) {
	t.Helper()
	id, err := s.ids.Next(t.Context(), s.shard(dropID), s.shards)
	require.NoError(t, err)
	return s.claims.Claim(t.Context(), dropID, userID, int64(id))
}

// write applies what the gate accepted, as the like writer does.
func (s *shop) write(ctx context.Context, t *testing.T, dropID int64) error {
	t.Helper()
	shard := s.shard(dropID)
	outbox := s.outbox(t, shard)
	runs, err := outbox.Read(t.Context(), models.Position{}, 1000, -1)
	require.NoError(t, err)
	require.NoError(t, outbox.Release(t.Context()))
	var records []models.LikeRecord
	for _, run := range runs {
		events, err := run.Run.Events(shard, s.shards)
		require.NoError(t, err)
		records = append(records, models.LikeRecord{Shard: shard, Pos: run.Pos, Events: events})
	}
	_, err = likes.New(s.store).ApplyLikes(ctx, records)
	return err
}

// live returns the rows of live claims of a drop, and what the drop counts.
func (s *shop) live(t *testing.T, dropID int64) (rows, claimed int64) {
	t.Helper()
	rows = s.number(t, "SELECT COUNT(*) FROM claims WHERE drop_id=? AND state IN (?, ?)",
		dropID, models.StateReserved, models.StateConfirmed)
	return rows, s.number(t, "SELECT claimed FROM drops WHERE id=?", dropID)
}

// crowd lets users claim at once, and returns how many hold a claim.
func (s *shop) crowd(t *testing.T, dropID int64, users ...int64) (sold int) {
	t.Helper()
	var mu sync.Mutex
	var running sync.WaitGroup
	for _, user := range users {
		running.Go(func() {
			_, err := s.claim(t, dropID, user)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				sold++
			} else {
				assert.Equal(t, models.CodeSoldOut, models.ErrorCode(err))
			}
		})
	}
	running.Wait()
	return sold
}

// transaction is one of the tutorials: READ COMMITTED, as they assume.
type transaction struct {
	*sql.Tx
	t *testing.T
}

func (s *shop) begin(t *testing.T) transaction {
	t.Helper()
	tx, err := s.store.Pool().BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return transaction{tx, t}
}

func (tx transaction) number(query string, args ...any) (n int64) {
	tx.t.Helper()
	require.NoError(tx.t, tx.QueryRowContext(tx.t.Context(), query, args...).Scan(&n))
	return n
}

func (tx transaction) exec(query string, args ...any) (changed int64) {
	tx.t.Helper()
	result, err := tx.ExecContext(tx.t.Context(), query, args...)
	require.NoError(tx.t, err)
	changed, err = result.RowsAffected()
	require.NoError(tx.t, err)
	return changed
}

func (tx transaction) commit() {
	tx.t.Helper()
	require.NoError(tx.t, tx.Commit())
}

const readStock = "SELECT stock FROM tb_goods_stock WHERE goods_id=1"

// 超卖: the stock is 10. A buys 8 and B buys 6, and both read 10 before either of them writes.
func TestCheckThenAct_oversells(t *testing.T) {
	s := open(t)
	s.goods(t, 10)
	a, b := s.begin(t), s.begin(t)
	require.GreaterOrEqual(t, a.number(readStock), int64(8))
	require.GreaterOrEqual(t, b.number(readStock), int64(6))
	a.exec("UPDATE tb_goods_stock SET stock=stock-8 WHERE goods_id=1")
	a.commit()
	b.exec("UPDATE tb_goods_stock SET stock=stock-6 WHERE goods_id=1")
	b.commit()
	require.EqualValues(t, -4, s.stock(t), "the damage: 14 of 10 are sold")

	// And with the value that was read, nobody sees that two were sold.
	s.goods(t, 1)
	a, b = s.begin(t), s.begin(t)
	left, same := a.number(readStock)-1, b.number(readStock)-1
	a.exec("UPDATE tb_goods_stock SET stock=? WHERE goods_id=1", left)
	a.commit()
	b.exec("UPDATE tb_goods_stock SET stock=? WHERE goods_id=1", same)
	b.commit()
	require.EqualValues(t, 0, s.stock(t), "the damage: 2 of 1 are sold, and the stock looks right")
}

// The check is part of the UPDATE, which locks the row: the second one sees what the first one left.
func TestCheckThenAct_ours(t *testing.T) {
	s := open(t)
	const take = "UPDATE tb_goods_stock SET stock=stock-? WHERE goods_id=1 AND stock>=?"
	s.goods(t, 10)
	a, b := s.begin(t), s.begin(t)
	a.number(readStock)
	b.number(readStock)
	require.EqualValues(t, 1, a.exec(take, 8, 8))
	a.commit()
	require.EqualValues(t, 0, b.exec(take, 6, 6), "refused")
	b.commit()
	require.EqualValues(t, 2, s.stock(t))

	id := s.drop(t, 2)
	ann, bob, cat := s.user(t, "ann"), s.user(t, "bob"), s.user(t, "cat")
	require.Equal(t, 2, s.crowd(t, id, ann, bob, cat), "at the gate")
	require.NoError(t, s.write(t.Context(), t, id))
	rows, claimed := s.live(t, id)
	require.EqualValues(t, 2, rows)
	require.EqualValues(t, 2, claimed)
	_, err := s.store.Pool().ExecContext(t.Context(), "UPDATE drops SET claimed=claimed+1 WHERE id=?", id)
	require.Error(t, err, "even a write past all of this is refused: drops_not_oversold")

	direct := s.drop(t, 1)
	require.NoError(t, s.store.StartLikes(t.Context(), models.LikesDirect))
	_, taken, err := stock.New(s.store).ClaimDirect(t.Context(), direct, ann, 1)
	require.NoError(t, err)
	require.True(t, taken)
	_, _, err = stock.New(s.store).ClaimDirect(t.Context(), direct, bob, 2)
	require.Equal(t, models.CodeSoldOut, models.ErrorCode(err), "in direct mode")
}

// 锁加在事务内: the lock is released before the COMMIT. B holds it then, and reads what A has not committed.
func TestLockInsideTheTransaction_oversells(t *testing.T) {
	s := open(t)
	s.goods(t, 1)
	var lock sync.Mutex // of the process, or a perfect distributed one: it does not matter
	a, b := s.begin(t), s.begin(t)

	lock.Lock()
	require.GreaterOrEqual(t, a.number(readStock), int64(1))
	a.exec("UPDATE tb_goods_stock SET stock=stock-1 WHERE goods_id=1")
	lock.Unlock()

	lock.Lock() // by B
	require.GreaterOrEqual(t, b.number(readStock), int64(1), "A has not committed")
	a.commit()
	b.exec("UPDATE tb_goods_stock SET stock=stock-1 WHERE goods_id=1")
	lock.Unlock()
	b.commit()
	require.EqualValues(t, -1, s.stock(t), "the damage: 2 of 1 are sold, though nobody worked without the lock")
}

func TestLockInsideTheTransaction_ours(t *testing.T) {
	s := open(t)
	lock := s.gate.JobLock("sell", "a")
	require.ErrorIs(t, lock.Acquire(db.WithTransaction(t.Context()), time.Minute, 0), counters.ErrInTransaction)

	// The lock is outside: B begins after the COMMIT of A.
	s.goods(t, 1)
	sell := func(token string) (sold bool) {
		lock := s.gate.JobLock("sell", token)
		require.NoError(t, lock.Acquire(t.Context(), time.Minute, 10*time.Second))
		require.NoError(t, lock.While(t.Context(), func(context.Context) error {
			tx := s.begin(t)
			if sold = tx.number(readStock) >= 1; sold {
				tx.exec("UPDATE tb_goods_stock SET stock=stock-1 WHERE goods_id=1")
			}
			return tx.Commit()
		}))
		return sold
	}
	require.True(t, sell("a"))
	require.False(t, sell("b"))
	require.EqualValues(t, 0, s.stock(t))
}

// 误删: A is slow, and its lock expires. B takes the lock. A deletes it, and C takes it beside B.
func TestExpiredLockReleasedByAnother_oversells(t *testing.T) {
	s := open(t)
	s.goods(t, 1)
	tryLock := func(ttl time.Duration) bool {
		return s.redis.SetNX(t.Context(), "lock:order", 1, ttl).Val()
	}
	unlock := func() { require.NoError(t, s.redis.Del(t.Context(), "lock:order").Err()) }

	require.True(t, tryLock(10*time.Millisecond), "A")
	testkit.Eventually(t, 10*time.Second, func() (bool, string) { return tryLock(time.Minute), "B waits for the lock" })
	b := s.begin(t)
	require.GreaterOrEqual(t, b.number(readStock), int64(1))
	unlock() // A, in its finally block
	require.True(t, tryLock(time.Minute), "the damage: C has the lock, too")
	c := s.begin(t)
	require.GreaterOrEqual(t, c.number(readStock), int64(1))
	b.exec("UPDATE tb_goods_stock SET stock=stock-1 WHERE goods_id=1")
	b.commit()
	c.exec("UPDATE tb_goods_stock SET stock=stock-1 WHERE goods_id=1")
	c.commit()
	require.EqualValues(t, -1, s.stock(t), "the damage: 2 of 1 are sold")
}

func TestExpiredLockReleasedByAnother_ours(t *testing.T) {
	s := open(t)
	a, b, c := s.gate.JobLock("order", "a"), s.gate.JobLock("order", "b"), s.gate.JobLock("order", "c")
	require.NoError(t, a.Acquire(t.Context(), 10*time.Millisecond, 0))
	require.NoError(t, b.Acquire(t.Context(), time.Minute, 10*time.Second))
	require.NoError(t, a.Release(t.Context()))
	require.ErrorIs(t, c.Acquire(t.Context(), time.Minute, 0), counters.ErrLockLost, "B still has it")

	// And A, which believes that it has the lock, writes nothing.
	first, err := s.store.NextFence(t.Context(), "order")
	require.NoError(t, err)
	_, err = s.store.NextFence(t.Context(), "order") // B
	require.NoError(t, err)
	err = moderation.New(s.store).SetRingCheckpoint(db.WithFence(t.Context(), "order", first), models.KindPost, 1)
	require.ErrorIs(t, err, db.ErrFenced)
}

// 短暂负库存: GET, DECRBY and, if that was too much, INCRBY. The stock is 5; A and B take 3 each, C takes 2.
func TestDecrementBelowZero_refusesAndLosesStock(t *testing.T) {
	s := open(t)
	stock := func() int64 {
		n, err := s.redis.Get(t.Context(), "stock:1").Int64()
		require.NoError(t, err)
		return n
	}
	decrease := func(n int64) int64 { return s.redis.DecrBy(t.Context(), "stock:1", n).Val() }
	require.NoError(t, s.redis.Set(t.Context(), "stock:1", 5, 0).Err())
	require.GreaterOrEqual(t, stock(), int64(3), "A")
	require.GreaterOrEqual(t, stock(), int64(3), "B")
	require.EqualValues(t, 2, decrease(3), "A has 3")
	require.EqualValues(t, -1, decrease(3), "the damage: the stock is negative")
	require.Less(t, stock(), int64(2), "the damage: C is refused, though 2 are left")
	// B ends before its INCRBY, or the network loses it.
	require.EqualValues(t, -1, stock(), "the damage: 2 are lost for ever")
}

func TestDecrementBelowZero_ours(t *testing.T) {
	s := open(t)
	id := s.drop(t, 1)
	ann, bob := s.user(t, "ann"), s.user(t, "bob")
	require.Equal(t, 1, s.crowd(t, id, ann, bob))
	before := s.keys(t)
	_, err := s.claim(t, id, s.user(t, "cat"))
	require.Equal(t, models.CodeSoldOut, models.ErrorCode(err))
	require.Equal(t, before, s.keys(t), "a refused claim leaves no trace, so there is nothing to compensate")
	state := s.claims.States(t.Context(), 0, []int64{id})[id]
	require.EqualValues(t, 1, state.Claimed)
	require.Zero(t, state.Remaining())
}

// keys returns what Redis holds about drops.
func (s *shop) keys(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	keys, err := s.redis.Keys(t.Context(), "{s*").Result()
	require.NoError(t, err)
	for _, key := range keys {
		value, err := s.redis.Dump(t.Context(), key).Result()
		if !errors.Is(err, redis.Nil) {
			require.NoError(t, err)
		}
		all[key] = value
	}
	return all
}

// 一人一单: both requests of a user count the orders before either of them inserts one.
func TestTwoOrdersByOneUser_sellTwice(t *testing.T) {
	s := open(t)
	s.goods(t, 10)
	const (
		orders = "SELECT COUNT(*) FROM tb_voucher_order WHERE user_id=7 AND voucher_id=1"
		take   = "UPDATE tb_goods_stock SET stock=stock-1 WHERE goods_id=1 AND stock>0"
		insert = "INSERT INTO tb_voucher_order (user_id, voucher_id) VALUES (7, 1)"
	)
	a, b := s.begin(t), s.begin(t)
	require.Zero(t, a.number(orders))
	require.Zero(t, b.number(orders))
	for _, tx := range []transaction{a, b} {
		require.EqualValues(t, 1, tx.exec(take), "the stock is safe, but not the rule")
		tx.exec(insert)
		tx.commit()
	}
	require.EqualValues(t, 2, s.number(t, orders), "the damage: two orders of one user")
}

func TestTwoOrdersByOneUser_ours(t *testing.T) {
	s := open(t)
	id := s.drop(t, 10)
	ann := s.user(t, "ann")
	require.Equal(t, 8, s.crowd(t, id, ann, ann, ann, ann, ann, ann, ann, ann), "each call is answered with a claim")
	first, err := s.claim(t, id, ann)
	require.NoError(t, err)
	require.False(t, first.Changed)
	require.EqualValues(t, 1, s.claims.States(t.Context(), 0, []int64{id})[id].Claimed, "which is the same one")
	require.NoError(t, s.write(t.Context(), t, id))
	rows, claimed := s.live(t, id)
	require.EqualValues(t, 1, rows)
	require.EqualValues(t, 1, claimed)
	_, err = s.store.Pool().ExecContext(t.Context(), `
		INSERT INTO claims (id, drop_id, user_id, state, created_at)
		VALUES (1, ?, ?, ?, NOW(3))`, id, ann, models.StateConfirmed)
	require.ErrorContains(t, err, "Duplicate entry", "even a write past all of this is refused")
}

// Redis 操作不会回滚: Redis is changed inside the transaction. The transaction is rolled back, and Redis is not.
func TestCacheBeforeCommit_losesStock(t *testing.T) {
	s := open(t)
	s.goods(t, 1)
	require.NoError(t, s.redis.Set(t.Context(), "stock:1", 1, 0).Err())
	tx := s.begin(t)
	require.EqualValues(t, 0, s.redis.Decr(t.Context(), "stock:1").Val())
	tx.exec("UPDATE tb_goods_stock SET stock=stock-1 WHERE goods_id=1")
	require.NoError(t, tx.Rollback(), "the process died, or a later statement failed")
	require.EqualValues(t, 1, s.stock(t))
	require.EqualValues(t, 0, s.redis.Get(t.Context(), "stock:1").Val()[0]-'0',
		"the damage: one is left in MySQL, and nobody can buy it")
}

// The gate deducts the stock and appends the event in one script, before any transaction. The transaction of the writer
// may fail as often as it will: the event stays until it is applied.
func TestCacheBeforeCommit_ours(t *testing.T) {
	s := open(t)
	id := s.drop(t, 1)
	ann := s.user(t, "ann")
	held, err := s.claim(t, id, ann)
	require.NoError(t, err)
	rows, claimed := s.live(t, id)
	require.Zero(t, rows)
	require.Zero(t, claimed)

	// The row of the drop is locked for longer than the writer waits, and it gives up.
	blocker := s.begin(t)
	blocker.number("SELECT id FROM drops WHERE id=? FOR UPDATE", id)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	require.Error(t, s.write(ctx, t, id), "rolled back")
	require.NoError(t, blocker.Rollback())
	rows, _ = s.live(t, id)
	require.Zero(t, rows)

	require.NoError(t, s.write(t.Context(), t, id))
	require.NoError(t, s.write(t.Context(), t, id), "and once more, which changes nothing")
	rows, claimed = s.live(t, id)
	require.EqualValues(t, 1, rows)
	require.EqualValues(t, 1, claimed)
	require.Equal(t, held.ID, s.number(t, "SELECT id FROM claims WHERE drop_id=?", id))
}
