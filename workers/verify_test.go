package workers

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/counters"
	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/content"
	"likewise/models/likes"
)

// A process of before there were depths writes every reply with the depth 1, while newer ones go on below it.
func TestVerify_repairsRowsOfAnOlderProcess(t *testing.T) {
	t.Parallel()
	p := setup(t)
	ada := &models.User{Username: "depths", Email: "depths@example.org"}
	require.NoError(t, accounts.New(p.store).CreateUser(t.Context(), ada))
	post, err := content.New(p.store).CreatePost(t.Context(), models.Author{ID: ada.ID}, models.PostText{Title: "T",
		Content: "C"})
	require.NoError(t, err)
	var chain []*models.Comment
	for range 8 {
		var parent *int64
		if len(chain) > 0 {
			parent = &chain[len(chain)-1].ID
		}
		c, err := content.New(p.store).CreateComment(
			t.Context(),
			models.Author{ID: ada.ID},
			post.ID,
			parent,
			models.CommentText{Content: "C"},
		)
		require.NoError(t, err)
		chain = append(chain, c)
	}
	require.Empty(t, p.verify(false))
	for i, depth := range []int{1, 2, 1, 2, 1, 1, 2, 3} {
		p.exec("UPDATE comments SET depth=?, updated_at='2020-01-01' WHERE id=?", depth, chain[i].ID)
	}
	p.exec("UPDATE posts SET hot_score=0, updated_at=updated_at WHERE id=?", post.ID)
	target := models.Target{Kind: models.KindComment, ID: chain[2].ID}
	found := p.verify(true)
	assert.True(
		t,
		containsText(found, target.String()+": depth is 1 and the parent's makes it 3 (repaired)"),
		"%q",
		found,
	)
	assert.Empty(t, p.verify(false), "one repair is enough")
	for i, c := range chain {
		assert.Equal(t, i+1, p.count("SELECT depth FROM comments WHERE id=?", c.ID))
	}
	assert.Equal(
		t,
		len(chain),
		p.count("SELECT COUNT(*) FROM comments WHERE post_id=? AND updated_at='2020-01-01'", post.ID),
		"a repair is not an edit",
	)
}

// A target cannot be evicted while its shard has a gap. That is reported, and the other differences are repaired.
func TestVerify_goesOnAfterARepairThatFails(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.start()
	stray, damaged := p.postIn(6), p.postIn(6)
	count := p.postIn(7)
	for _, target := range []models.Target{stray, damaged, count} {
		p.set(target, 1, true)
	}
	p.flush()
	p.exec("DELETE FROM post_likes WHERE post_id=?", stray.ID)
	p.exec("DELETE FROM posts WHERE id=?", stray.ID)
	require.NoError(t, p.raw.HIncrBy(t.Context(), p.likesKey(damaged), "count", 1).Err())
	p.exec("UPDATE posts SET likes_count=9, hot_score=0, updated_at=updated_at WHERE id=?", count.ID)
	p.addGap(6)
	found := p.verify(true)
	require.Len(t, found, 3)
	for _, target := range []models.Target{stray, damaged} {
		assert.True(t, slices.ContainsFunc(found, func(item string) bool {
			return strings.HasPrefix(item, target.String()+": ") && strings.Contains(item, "(not repaired: MySQL")
		}), "%s in %q", target, found)
	}
	p.exec("UPDATE like_gaps SET reconciled_at=NOW(3)")
	found = p.verify(true)
	assert.Len(t, found, 2, "the count is repaired: %q", found)
	assert.Empty(t, p.verify(false))
}

// Redis has restarted without its last like, and no worker has opened the shard. What is warm there is not the truth.
func TestVerify_reportsNothingOfAClosedShard(t *testing.T) {
	t.Parallel()
	p := setup(t)
	s := newShop(t, p)
	stop := p.start()
	target, stray := p.postIn(6), p.postIn(6)
	p.set(target, 1, true)
	p.set(stray, 1, true)
	drop := s.dropIn(6)
	user := s.customers(2)
	s.claim(drop, user)
	p.flush()
	back := p.rewind()
	p.set(target, 2, true)
	s.claim(drop, user+1)
	p.flush()
	stop()
	back()
	require.NoError(t, p.raw.Del(t.Context(), "{s06}:relay").Err(), "it would have expired")
	undecided := func(targets ...models.Target) (list []string) {
		for _, item := range targets {
			list = append(list, item.String()+": "+shardClosed)
		}
		slices.Sort(list)
		return list
	}
	claimed := models.Target{Kind: models.KindDrop, ID: drop}
	assert.Equal(t, undecided(target, claimed), p.verify(true), "set back without a restart")
	p.closeShard(6)
	outbox := p.hold()
	epoch, err := likes.New(p.store).NextEpoch(t.Context(), 6, 0)
	require.NoError(t, err)
	_, err = outbox.Seal(t.Context(), epoch) // its position is after the watermark
	require.NoError(t, err)
	require.NoError(t, outbox.Release(t.Context()))
	p.exec("DELETE FROM post_likes WHERE post_id=?", stray.ID)
	p.exec("DELETE FROM posts WHERE id=?", stray.ID)
	assert.Equal(t, undecided(target, stray, claimed), p.verify(true))
	watch := NewDriftWatch(p.store, p.redis, p.likes, prometheus.NewRegistry(), func(models.Difference) {})
	for range 2 {
		drift, err := watch.Watch(t.Context())
		require.NoError(t, err)
		assert.Zero(t, drift)
	}
	p.start()
	assert.Empty(t, p.verify(false), "what the shard had was forgotten")
	assert.Equal(t, []int64{1, 2}, p.likers(target))
}

// A target that is evicted while it is compared does not differ, and the others are compared.
func TestVerify_leavesATargetThatIsEvictedMeanwhile(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.start()
	target := p.postIn(6)
	p.set(target, 1, true)
	p.flush()
	v := &gatedVerifier{NewVerifier(p.store, p.redis, p.likes, true, func(models.Difference) {}), p.redis, p.likes}
	var sum Verification
	compared := 0
	err := v.settle(t.Context(), target, &sum, func(state counters.TargetState) (*difference, error) {
		compared++
		require.NoError(t, p.raw.Del(t.Context(), p.likesKey(target)).Err())
		return v.compareLikes(t.Context(), target, state)
	})
	require.NoError(t, err)
	assert.Equal(t, 1, compared)
	assert.Equal(t, Verification{}, sum)
}

func TestVerify_reportsARepairOnceItWasApplied(t *testing.T) {
	t.Parallel()
	p := setup(t)
	s := newShop(t, p)
	stop := p.start()
	target, drop := p.postIn(6), models.Target{Kind: models.KindDrop, ID: s.dropIn(6)}
	user := s.customers(2)
	for item := range int64(2) {
		p.set(target, user+item, true)
		s.claim(drop.ID, user+item)
	}
	p.flush()
	stop()
	damage := func() {
		p.exec("UPDATE post_likes SET user_id=? WHERE post_id=? AND user_id=?", user+5, target.ID, user)
	}
	damage()
	p.exec("DELETE FROM claims WHERE drop_id=? AND user_id=?", drop.ID, user)
	p.exec("UPDATE drops SET claimed=1 WHERE id=?", drop.ID)
	desk := NewDesk(p.store, p.redis, p.likes)
	for _, item := range []models.Target{target, drop} {
		found, err := desk.Compare(t.Context(), item, true)
		require.NoError(t, err)
		require.Len(t, found, 1)
		assert.False(t, found[0].Repaired)
		assert.Contains(t, found[0].String(), errNotApplied.Error())
	}
	p.work()
	p.flush()
	damage()
	found, err := desk.Compare(t.Context(), target, true)
	require.NoError(t, err)
	require.Len(t, found, 1)
	assert.True(t, found[0].Repaired, "%v", found)
	assert.Equal(t, []int64{user, user + 1}, p.likers(target), "at once")
}

// Targets are compared together. Only those that are certainly equal are not looked at again, each on its own.
func TestVerify_comparesTargetsTogether(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.start()
	names := []string{
		"equal", "lacks a row", "has another row", "has other users", "deleted", "changed", "ahead", "damaged",
	}
	targets, name := make([]models.Target, len(names)), map[models.Target]string{}
	for i, item := range names {
		targets[i] = p.postIn(i)
		name[targets[i]] = item
		for user := int64(1); user <= 3; user++ {
			p.set(targets[i], user, true)
		}
	}
	p.flush()
	p.exec("DELETE FROM post_likes WHERE post_id=? AND user_id=2", targets[1].ID)
	p.exec("INSERT INTO post_likes (post_id, user_id) VALUES (?,9)", targets[2].ID)
	p.exec("UPDATE post_likes SET user_id=9 WHERE post_id=? AND user_id=2", targets[3].ID)
	p.exec("UPDATE posts SET status=2, updated_at=updated_at WHERE id=?", targets[4].ID)
	require.NoError(t, p.raw.HIncrBy(t.Context(), p.likesKey(targets[7]), "count", 1).Err())

	v := &gatedVerifier{NewVerifier(p.store, p.redis, p.likes, false, func(models.Difference) {}), p.redis, p.likes}
	last := p.raw.HGet(t.Context(), p.likesKey(targets[6]), "last").Val()
	require.NoError(t, p.raw.HSet(t.Context(), p.likesKey(targets[6]), "last", last+"000").Err())
	states, err := p.redis.TargetStates(t.Context(), targets)
	require.NoError(t, err)
	p.set(targets[5], 4, true)
	var warm []warmTarget
	for i, state := range states {
		require.True(t, state.Warm)
		warm = append(warm, warmTarget{targets[i], state})
	}
	p.flush()
	equal, err := v.equal(t.Context(), warm)
	require.NoError(t, err)
	var found []string
	for target, is := range equal {
		if is {
			found = append(found, name[target])
		}
	}
	assert.Equal(t, []string{"equal"}, found)
	require.NoError(t, p.raw.HSet(t.Context(), p.likesKey(targets[6]), "last", last).Err())

	p.exec(`
		UPDATE posts
		SET likes_count=(SELECT COUNT(*) FROM post_likes WHERE post_id=posts.id), updated_at=updated_at`)
	p.exec("UPDATE posts SET hot_score=0, updated_at=updated_at")
	want := []string{
		targets[1].String() + ": Redis has 3 users and MySQL 2; they differ in 1, such as user 2",
		targets[2].String() + ": Redis has 3 users and MySQL 4; they differ in 1, such as user 9",
		targets[3].String() + ": Redis has 3 users and MySQL 3; they differ in 2, such as user 2",
		targets[4].String() + ": it takes likes in Redis but is deleted in MySQL",
		targets[7].String() + ": the counter in Redis is 4 and its set has 3 users",
	}
	slices.Sort(want)
	likes := slices.DeleteFunc(p.verify(false), func(item string) bool { return strings.Contains(item, "hot_score") })
	assert.Equal(t, want, likes)
}

// On MariaDB, a statement can see the second of two transactions without the first, although the second waited for it.
// Such a difference is none.
func TestVerify_confirmsADifference(t *testing.T) {
	t.Parallel()
	p := setup(t)
	var reported []models.Difference
	v := NewVerifier(p.store, p.redis, p.likes, true, func(d models.Difference) { reported = append(reported, d) })
	ada := &models.User{Username: "confirms", Email: "confirms@example.org"}
	require.NoError(t, accounts.New(p.store).CreateUser(t.Context(), ada))
	post, err := content.New(p.store).CreatePost(t.Context(), models.Author{ID: ada.ID}, models.PostText{Title: "T",
		Content: "C"})
	require.NoError(t, err)
	target := models.Target{Kind: models.KindPost, ID: post.ID}
	seen, ok, err := likes.New(p.store).TallyOf(t.Context(), target)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, seen.ChildRows, seen.Children)
	seen.ChildRows++
	var sum Verification
	require.NoError(t, v.verifyCounts(t.Context(), target, seen, &sum))
	gone := models.Target{Kind: models.KindPost, ID: post.ID + 1000}
	require.NoError(t, v.verifyCounts(t.Context(), gone, seen, &sum))
	drop := newShop(t, p).drop(2, 0).ID
	stale := models.DropTally{ID: drop, Open: true, Stock: 2, Claimed: 1}
	require.NoError(t, v.verifyDropPage(t.Context(), []models.DropTally{stale}, &sum))
	assert.Zero(t, sum.Differences)
	assert.Empty(t, reported)

	p.exec("UPDATE posts SET comments_count=7, updated_at=updated_at WHERE id=?", post.ID)
	p.exec("UPDATE drops SET claimed=1 WHERE id=?", drop)
	require.NoError(t, v.verifyCounts(t.Context(), target, seen, &sum))
	require.NoError(t, v.verifyDropPage(t.Context(), []models.DropTally{stale}, &sum))
	assert.Equal(t, []models.Difference{
		{Target: target, Problem: "comments_count is 7 and there are 0 rows", Repaired: true},
		{
			Target:  models.Target{Kind: models.KindDrop, ID: drop},
			Problem: "claimed is 1 and there are 0 live claims", Repaired: true,
		},
	}, reported)
}

// A like whose user has no row is reported, and a repair takes it away in both stores.
func TestVerify_findsLikesOfUsersWithoutARow(t *testing.T) {
	t.Parallel()
	p := setup(t)
	p.start()
	target := p.post()
	p.set(target, 1, true)
	p.set(target, 2, true)
	p.flush()
	p.exec("DELETE FROM users WHERE id=2")
	want := fmt.Sprintf("%s: user 2 likes it and does not exist", target)
	assert.Equal(t, []string{want}, p.verify(false))
	assert.Equal(t, []string{want + " (repaired)"}, p.verify(true))
	p.flush()
	assert.Equal(t, []int64{1}, p.likers(target))
	assert.Empty(t, p.verify(false))
}
