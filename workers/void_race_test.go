package workers

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
)

// The Voider pauses after the gate has evicted a deleted post. Meanwhile the post is restored, liked and deleted again:
// the gate has it again, with a like that MySQL may not have.
func TestVoider_leavesATargetThatIsWarmAgain(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.start()
	bob, carol := p.deletable("bob"), p.deletable("carol")
	post := p.post()
	p.set(post, bob, true)
	p.flush()
	p.deletePost(post)
	p.deleteUser(bob, "bob")

	p.pass(afterAll)
	v := NewVoider(p.store, p.redis, p.likes)
	times := 0
	v.gate = forgetThen{v.gate, func() {
		if times++; times > 1 {
			return
		}
		p.exec("UPDATE posts SET status=1, updated_at=updated_at WHERE id=?", post.ID)
		assert.Equal(t, int64(2), p.set(post, carol, true).Count, "the like of bob is in MySQL")
		p.deletePost(post)
	}}
	_, done, err := v.Void(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, done, "the next round evicts it once more")
	p.exec("UPDATE posts SET status=1, updated_at=updated_at WHERE id=?", post.ID)
	assert.Equal(t, models.LikeState{Liked: true, Count: 1}, p.set(post, carol, true))
	p.flush()
	assert.Equal(t, []int64{carol}, p.likers(post))
	assert.Empty(t, p.verify(false))
}

// forgetThen calls a function after the gate has evicted targets.
type forgetThen struct {
	voidGate
	then func()
}

func (f forgetThen) forget(ctx context.Context, targets []models.Target) ([]models.Target, error) {
	cold, err := f.voidGate.forget(ctx, targets)
	f.then()
	return cold, err
}

// A process that began to load a target before its deletion must not put the like of a voided user back.
func TestVoider_takesTheTargetFromALoaderThatSlept(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.start()
	bob := p.deletable("bob")
	post := p.post()
	p.set(post, bob, true)
	p.flush()
	p.exec("UPDATE posts SET status=2, updated_at=updated_at WHERE id=?", post.ID) // and its process died
	forgotten, err := p.redis.Forget(t.Context(), p.store, post)
	require.NoError(t, err)
	require.True(t, forgotten)
	lock := fmt.Sprintf("{s%02d}:post:%d:warming", post.Shard(p.store.Shards()), post.ID)
	require.NoError(t, p.raw.Set(t.Context(), lock, "sleeper", time.Minute).Err())
	p.deleteUser(bob, "bob")
	p.pass(afterAll)
	_, done := p.void()
	assert.Equal(t, 1, done)
	assert.Zero(t, p.raw.Exists(t.Context(), lock).Val(), "the sleeper has lost its lock")
	assert.Empty(t, p.likers(post))
}

// A moderator voids the likes of a period. While the Voider works, the user withdraws a like of the period and likes
// again: that like is not of the period.
func TestVoider_leavesALikeGivenAfterThePeriod(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.start()
	bob := p.deletable("bob")
	old, other := p.post(), p.post()
	p.set(old, bob, true)
	p.set(other, bob, true)
	p.flush()
	p.exec("UPDATE post_likes SET created_at='2020-01-01'")
	p.exec(`INSERT INTO like_voids (user_id, requested_by, requested_at, liked_until, reason)
		VALUES (?, 1, '2024-01-01', '2023-01-01', 'spam')`, bob)

	v := NewVoider(p.store, p.redis, p.likes)
	ctx := t.Context()
	again := func() error {
		if _, err := p.likes.SetLike(ctx, old, bob, false); err != nil {
			return err
		}
		_, err := p.likes.SetLike(ctx, old, bob, true)
		return err
	}
	v.likes = beforeUnlike{p.likes, func(target models.Target) {
		if target == old {
			requireUnavailable(t, again())
		}
	}}
	_, done, err := v.Void(ctx)
	require.NoError(t, err)
	assert.Equal(t, 1, done)
	p.flush()
	assert.Empty(t, p.likers(old))
	assert.Empty(t, p.likers(other))
	assert.Equal(t, int64(1), p.set(old, p.author.ID, true).Count, "others like on")
	assert.Empty(t, p.verify(false))
}

// requestVoid requests that likes of a user up to some time ago are voided.
func (p *pipeline) requestVoid(user int64, ago time.Duration) {
	p.t.Helper()
	p.exec(`INSERT INTO like_voids (user_id, requested_by, requested_at, liked_until, reason)
		VALUES (?, 1, NOW(3), ?, 'spam')`, user, time.Now().UTC().Add(-ago))
}

// A request stays open until its period has passed by the clock of likes. A user without a like of the period can like
// meanwhile, and so can any user while the pipeline is down.
func TestVoider_refusesLikesOnlyWhileItWithdraws(t *testing.T) {
	t.Parallel()
	p := setup(t)
	stop := p.start()
	bob := p.deletable("bob")
	old, first, second := p.post(), p.post(), p.post()
	for _, target := range []models.Target{first, second} {
		p.set(target, p.author.ID, true)
	}
	p.flush()
	p.requestVoid(bob, 10*time.Second)
	p.pass(-time.Hour)
	likes, done := p.void()
	assert.Zero(t, likes)
	assert.Zero(t, done, "its last like may be on its way")
	p.set(first, bob, true)

	p.set(old, bob, true)
	p.flush()
	p.exec("UPDATE post_likes SET created_at='2020-01-01' WHERE post_id=?", old.ID)
	stop()
	p.set(first, p.author.ID, false)
	v := NewVoider(p.store, p.redis, p.likes)
	v.turn = time.Second
	likes, _, err := v.Void(t.Context())
	require.NoError(t, err)
	assert.Zero(t, likes)
	p.set(second, bob, true)

	p.work()
	likes, _ = p.void()
	assert.Equal(t, 1, likes)
	_, err = p.likes.SetLike(t.Context(), old, bob, true)
	requireUnavailable(t, err)
	p.flush()
	assert.Empty(t, p.likers(old))
	assert.Equal(t, []int64{bob}, p.likers(first))
	assert.Empty(t, p.verify(false))
}

// Redis was restarted, and has lost a like that Kafka has. While the shard is closed, nothing shows that it will come.
func TestVoider_waitsForClosedShards(t *testing.T) {
	t.Parallel()
	p := setup(t)
	stop := p.start()
	bob := p.deletable("bob")
	post := p.postIn(6)
	p.set(post, p.author.ID, true)
	p.flush()
	stop()
	p.deleteUser(bob, "bob")
	run := p.runOf(post, bob)
	p.produce(6, fmt.Sprintf(`{"v":1,"shard":6,"runs":[{"pos":%q,"run":%q}]}`, run.Pos, run.Payload))
	p.closeShard(6)
	p.pass(afterAll)
	v := NewVoider(p.store, p.redis, p.likes)
	v.turn = time.Second
	_, done, err := v.Void(t.Context())
	require.NoError(t, err)
	assert.Zero(t, done)

	p.start()
	_, done = p.void()
	assert.Equal(t, 1, done)
	assert.Equal(t, []int64{p.author.ID}, p.likers(post))
	assert.Empty(t, p.verify(false))
}

// A closed shard takes no event, and so nothing would show that it has lost an eviction.
func TestForget_returnsNoTargetOfAClosedShard(t *testing.T) {
	t.Parallel()
	p := setup(t)
	stop := p.start()
	closed, open := p.postIn(6), p.postIn(7)
	p.set(closed, 1, true)
	p.set(open, 1, true)
	p.flush()
	stop()
	p.closeShard(6)
	gate := &gatedVoids{p.redis, p.store}
	_, err := p.redis.HoldOutbox(t.Context(), 6, "another relay", time.Minute)
	require.NoError(t, err)
	p.work()
	cold, err := gate.forget(t.Context(), []models.Target{closed, open})
	require.NoError(t, err)
	assert.Equal(t, []models.Target{open}, cold)
}

func requireUnavailable(t *testing.T, err error) {
	t.Helper()
	assert.Equal(t, models.CodeUnavailable, models.ErrorCode(err), "%v", err)
}

// beforeUnlike calls a function before each unlike.
type beforeUnlike struct {
	likeSetter
	before func(models.Target)
}

func (b beforeUnlike) SetLike(
	ctx context.Context, target models.Target, userID int64, liked bool,
) (models.LikeState, error) {
	b.before(target)
	return b.likeSetter.SetLike(ctx, target, userID, liked)
}
