package db_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/likes"
)

// modes opens a store whose first process has started in a mode.
func modes(t *testing.T, mode models.LikesMode) *db.DB {
	t.Helper()
	store := openStore(t)
	require.NoError(t, store.StartLikes(t.Context(), mode))
	return store
}

func modeOf(t *testing.T, store *db.DB) models.LikesMode {
	t.Helper()
	mode, err := store.LikesMode(t.Context())
	require.NoError(t, err)
	return mode
}

// toDirect makes a site direct whose gate accepted nothing that MySQL lacks.
func toDirect(t *testing.T, store *db.DB) {
	t.Helper()
	none := func(context.Context, []models.ShardState) error { return nil }
	require.NoError(t, likes.New(store).SwitchToDirect(t.Context(), none))
}

func TestSwitchLikes_needsAMode(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	asked := func(context.Context, []models.ShardState) error { return errors.New("the gate was asked") }
	for _, err := range []error{
		likes.New(store).SwitchToGated(t.Context()), likes.New(store).SwitchToDirect(t.Context(), asked),
	} {
		require.Equal(t, models.CodeConflict, models.ErrorCode(err), "%v", err)
		assert.ErrorContains(t, err, "No process of this site has started yet.")
	}
	assert.Empty(t, modeOf(t, store))
	require.NoError(t, store.StartLikes(t.Context(), models.LikesDirect))
	require.NoError(t, likes.New(store).SwitchToDirect(t.Context(), asked), "it is direct")
	assert.Equal(t, models.LikesDirect, modeOf(t, store))
}

// MySQL lacks likes that only Redis has, and only a gated site can send them again.
func TestSwitchToDirect_isRefusedWithoutEveryLike(t *testing.T) {
	t.Parallel()
	store := modes(t, models.LikesGated)
	before, err := likes.New(store).ShardStates(t.Context())
	require.NoError(t, err)
	for _, shard := range []int{3, 6, 6} {
		exec(t, store, `
			INSERT INTO like_gaps (shard, after_epoch, after_seq, before_epoch, before_seq, created_at)
			VALUES (?, 0, 0, 1, 5, NOW())`, shard)
	}
	exec(t, store, `
		INSERT INTO dead_letters (digest, shard, topic, topic_partition, topic_offset, payload, error, created_at)
		VALUES (UNHEX(SHA2('4', 256)), 4, 'likes', 4, 0, '', '', NOW())`)
	err = likes.New(store).SwitchToDirect(t.Context(), func(_ context.Context, states []models.ShardState) error {
		assert.Len(t, states, store.Shards())
		assert.Equal(t, [3]int{1, 2, 1}, [3]int{states[3].OpenGaps, states[6].OpenGaps, states[4].Letters})
		return models.Errorf(models.CodeConflict, "MySQL lacks a like.")
	})
	require.Equal(t, models.CodeConflict, models.ErrorCode(err), "%v", err)
	assert.Equal(t, models.LikesGated, modeOf(t, store))
	exec(t, store, "DELETE FROM like_gaps")
	exec(t, store, "DELETE FROM dead_letters")
	after, err := likes.New(store).ShardStates(t.Context())
	require.NoError(t, err)
	assert.Equal(t, before, after)
}

// While the gate is compared with MySQL, no relay may begin to open a shard, and no event may be applied.
func TestSwitchToDirect_holdsShardsAsTheyAre(t *testing.T) {
	t.Parallel()
	store := modes(t, models.LikesGated)
	var running sync.WaitGroup
	var issued, applied atomic.Bool
	meanwhile := func() {
		running.Go(func() {
			_, err := likes.New(store).NextEpoch(context.Background(), 3, 0)
			issued.Store(true)
			assert.ErrorIs(t, err, models.ErrNotGated)
		})
		awaitWaiting(t, store, "%FROM settings%LOCK IN SHARE MODE%", &issued)
		running.Go(func() {
			_, err := likes.New(store).ApplyLikes(context.Background(), []models.LikeRecord{{
				Shard: 4, Pos: models.Position{Epoch: 1}, Events: []models.Event{{Type: models.ShardOpened}},
			}})
			applied.Store(true)
			assert.NoError(t, err)
		})
		awaitWaiting(t, store, "%FROM like_shards%FOR UPDATE%", &applied)
	}
	require.NoError(t, likes.New(store).SwitchToDirect(t.Context(), func(context.Context, []models.ShardState) error {
		meanwhile()
		return nil
	}))
	running.Wait()
	state, err := likes.New(store).ShardState(t.Context(), 4)
	require.NoError(t, err)
	assert.Equal(t, models.Position{Epoch: state.Epoch, Seq: 1}, state.Applied, "the event was late")
}

// The epoch of direct mode is after all those of the gate, and before all later ones.
func TestSwitchToDirect_isAnEpoch(t *testing.T) {
	t.Parallel()
	store := modes(t, models.LikesGated)
	states := func() []models.ShardState {
		t.Helper()
		states, err := likes.New(store).ShardStates(t.Context())
		require.NoError(t, err)
		return states
	}
	begun, err := likes.New(store).NextEpoch(t.Context(), 3, 0)
	require.NoError(t, err)
	exec(t, store, "UPDATE like_shards SET applied_epoch=7, applied_seq=9 WHERE shard=4")
	before := time.Now().Add(-time.Second)
	toDirect(t, store)
	direct := states()
	for _, state := range direct {
		assert.Equal(t, models.Position{Epoch: state.Epoch, Seq: 1}, state.Applied)
		assert.True(t, state.AppliedAt.After(before))
	}
	assert.Equal(t, begun+1, direct[3].Epoch)
	assert.Equal(t, int64(8), direct[4].Epoch)
	_, err = likes.New(store).NextEpoch(t.Context(), 3, 0)
	require.ErrorIs(t, err, models.ErrNotGated)

	require.NoError(t, likes.New(store).SwitchToGated(t.Context()))
	assert.Equal(t, direct, states())
	opened, err := likes.New(store).NextEpoch(t.Context(), 4, 7)
	require.NoError(t, err)
	_, err = likes.New(store).ApplyLikes(t.Context(), []models.LikeRecord{{
		Shard: 4, Pos: models.Position{Epoch: opened},
		Events: []models.Event{{Type: models.ShardOpened, After: models.Position{Epoch: 7, Seq: 9}}},
	}})
	require.NoError(t, err)
	state := states()[4]
	assert.Equal(t, direct[4].Applied, state.Sealed, "what Redis has is older")
	assert.Zero(t, state.OpenGaps)
}

// A direct like that has begun is in MySQL before the site is gated.
func TestSwitchToGated_waitsForDirectLikes(t *testing.T) {
	t.Parallel()
	store := modes(t, models.LikesDirect)
	ada := newUser(t, store, "ada")
	post := postTarget(newPost(t, store, ada))
	other, err := store.Pool().BeginTx(t.Context(), nil)
	require.NoError(t, err)
	defer func() { _ = other.Rollback() }()
	_, err = other.ExecContext(t.Context(), "UPDATE posts SET version=version WHERE id=?", post.ID)
	require.NoError(t, err)
	var running sync.WaitGroup
	var liked, switched atomic.Bool
	running.Go(func() {
		_, err := likes.New(store).SetLike(context.Background(), post, ada.ID, true)
		liked.Store(true)
		assert.NoError(t, err)
	})
	awaitWaiting(t, store, "%id, likes_count%FOR UPDATE%", &liked)
	running.Go(func() {
		assert.NoError(t, likes.New(store).SwitchToGated(context.Background()))
		switched.Store(true)
	})
	awaitWaiting(t, store, "%FROM settings%FOR UPDATE%", &switched)
	require.NoError(t, other.Commit())
	running.Wait()
	_, err = likes.New(store).SetLike(t.Context(), post, ada.ID, false)
	require.Equal(t, models.CodeUnavailable, models.ErrorCode(err), "%v", err)
	likers, err := likes.New(store).LikerIDs(t.Context(), post, 0, 10)
	require.NoError(t, err)
	assert.Equal(t, []int64{ada.ID}, likers)
}

// A direct process that was not stopped must not finish what the gate has to know of.
func TestStartLikes_directProcessesFinishNothingOnAGatedSite(t *testing.T) {
	t.Parallel()
	store := modes(t, models.LikesDirect)
	mod, ada := newModerator(t, store, "mod"), newUser(t, store, "ada")
	post := newPost(t, store, ada)
	_, err := likes.New(store).SetLike(t.Context(), postTarget(post), ada.ID, true)
	require.NoError(t, err)
	require.NoError(t, content.New(store).DeletePost(t.Context(), ada.ID, post.ID))
	void := likes.LikeVoid{UserID: ada.ID, RequestedBy: mod.ID, Reason: "Bought likes."}
	require.NoError(t, likes.New(store).VoidLikes(t.Context(), &void))
	closings, err := likes.New(store).OpenClosings(t.Context(), 0, 10)
	require.NoError(t, err)
	require.Len(t, closings, 1)
	closings[0].Last = true
	finish := map[string]func() error{
		"withdraw": func() error {
			done, err := likes.New(store).WithdrawLike(t.Context(), postTarget(post), ada.ID,
				func() (bool, error) { return true, nil })
			if err == nil && !done {
				err = errors.New("not withdrawn")
			}
			return err
		},
		"close": func() error { return likes.New(store).EndClosing(t.Context(), closings[0]) },
		"void":  func() error { return likes.New(store).CloseLikeVoid(t.Context(), void.ID) },
	}
	left := func() [3]int {
		t.Helper()
		return [3]int{
			count(t, store, "SELECT COUNT(*) FROM post_likes"),
			count(t, store, "SELECT COUNT(*) FROM gate_closings"),
			count(t, store, "SELECT COUNT(*) FROM like_voids WHERE done_at IS NULL"),
		}
	}
	require.NoError(t, likes.New(store).SwitchToGated(t.Context()))
	for name, act := range finish {
		err := act()
		assert.Equal(t, models.CodeUnavailable, models.ErrorCode(err), "%s: %v", name, err)
	}
	assert.Equal(t, [3]int{1, 1, 1}, left())
	require.NoError(t, store.StartLikes(t.Context(), models.LikesGated))
	for name, act := range finish {
		require.NoError(t, act(), name)
	}
	assert.Zero(t, left())
}
