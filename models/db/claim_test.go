package db_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/likes"
	"likewise/models/moderation"
	"likewise/models/privacy"
	"likewise/models/stock"
	"likewise/models/webhooks"
)

// claimSite is a claimLog with a clock that the test moves.
type claimSite struct {
	claimLog
	now *time.Time
	dsn string
}

func newClaimSite(t testing.TB, users int) claimSite {
	t.Helper()
	now := past.Add(time.Hour)
	dsn := testkit.Database(t)
	store, err := db.Open(t.Context(), dsn, db.Options{
		Describe: webhooks.Describe,
		Now:      func() time.Time { return now },
		Retried: func(cause db.RetryCause) {
			if cause == db.RetryDeadlock {
				t.Error("a deadlock")
			}
		},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, store.Close()) })
	author := newUser(t, store, "ada")
	l := claimLog{t: t, store: store, post: newPost(t, store, author), seq: new(int64), at: now}
	for i := range users {
		l.users = append(l.users, newUser(t, store, fmt.Sprintf("user%d", i)).ID)
	}
	for shard := range store.Shards() {
		_, err := likes.New(store).ApplyLikes(t.Context(), []models.LikeRecord{{Shard: shard,
			Pos:    models.Position{Epoch: 1},
			Events: []models.Event{{Type: models.ShardOpened}}}})
		require.NoError(t, err)
	}
	return claimSite{l, &now, dsn}
}

func (l claimSite) drop(settings models.DropSettings) *models.Drop {
	l.t.Helper()
	if settings.Title == "" {
		settings.Title = "Tickets"
	}
	d, err := stock.New(l.store).CreateDrop(context.Background(), l.post.Author.ID, l.post.ID, settings)
	require.NoError(l.t, err)
	return d
}

func (l claimSite) moderator(name string) int64 {
	l.t.Helper()
	user := newUser(l.t, l.store, name)
	l.exec("UPDATE users SET role=? WHERE id=?", models.RoleModerator, user.ID)
	return user.ID
}

func (l claimSite) toRelease() []models.EndedClaim {
	l.t.Helper()
	list, err := stock.New(l.store).ClaimsToRelease(context.Background(), models.EndedClaim{}, 100)
	require.NoError(l.t, err)
	return list
}

func refusedAs(t testing.TB, code models.Code, err error) {
	t.Helper()
	require.Error(t, err)
	assert.Equal(t, code, models.ErrorCode(err), err)
}

func TestDrop_isMadeByTheAuthorOrAModerator(t *testing.T) {
	t.Parallel()
	l := newClaimSite(t, 1)
	begins, ends := l.now.Add(time.Minute), l.now.Add(time.Hour)
	settings := models.DropSettings{Title: "Tickets", Stock: 5, BeginsAt: &begins, EndsAt: &ends, ConfirmWithin: 60}
	d := l.drop(settings)
	assert.Equal(t, settings, d.Settings())
	assert.EqualValues(t, 1, d.Version)
	assert.EqualValues(t, 5, d.Remaining())
	assert.Equal(t, "ada", d.Author.Username)
	read, err := stock.New(l.store).Drop(t.Context(), d.ID)
	require.NoError(t, err)
	assert.Equal(t, d, read)
	log := func() int { return count(t, l.store, "SELECT COUNT(*) FROM moderation_log WHERE target_type='drop'") }
	assert.Zero(t, log())

	stranger, moderator := l.users[0], l.moderator("mod")
	_, err = stock.New(l.store).CreateDrop(t.Context(), stranger, l.post.ID, settings)
	refusedAs(t, models.CodeForbidden, err)
	_, err = stock.New(l.store).UpdateDrop(t.Context(), stranger, d.ID, 1, settings)
	refusedAs(t, models.CodeForbidden, err)
	_, err = stock.New(l.store).CloseDrop(t.Context(), stranger, d.ID)
	refusedAs(t, models.CodeForbidden, err)
	second, err := stock.New(l.store).CreateDrop(t.Context(), moderator, l.post.ID, settings)
	require.NoError(t, err)
	assert.Equal(t, "mod", second.Author.Username)
	_, err = stock.New(l.store).CloseDrop(t.Context(), moderator, d.ID)
	require.NoError(t, err)
	assert.Equal(t, 2, log())

	l.exec("UPDATE posts SET locked=1")
	_, err = stock.New(l.store).CreateDrop(t.Context(), l.post.Author.ID, l.post.ID, settings)
	refusedAs(t, models.CodeLocked, err)
	_, err = stock.New(l.store).CreateDrop(t.Context(), moderator, l.post.ID, settings)
	require.NoError(t, err)

	_, err = stock.New(l.store).CreateDrop(t.Context(), moderator, 999, settings)
	refusedAs(t, models.CodeNotFound, err)
	_, err = stock.New(l.store).UpdateDrop(t.Context(), moderator, 999, 1, settings)
	refusedAs(t, models.CodeNotFound, err)
	for range models.MaxDrops - 3 {
		insertDrop(t, l.store, l.post, 1, 0)
	}
	_, err = stock.New(l.store).CreateDrop(t.Context(), moderator, l.post.ID, settings)
	refusedAs(t, models.CodeConflict, err)

	list, err := stock.New(l.store).DropsOfPost(t.Context(), l.post.ID, 0, 2)
	require.NoError(t, err)
	more, err := stock.New(l.store).DropsOfPost(t.Context(), l.post.ID, list[1].ID, 1000)
	require.NoError(t, err)
	assert.Len(t, append(list, more...), models.MaxDrops)
	assert.Equal(t, d.ID, more[len(more)-1].ID)
	_, err = stock.New(l.store).DropsOfPost(t.Context(), 999, 0, 2)
	refusedAs(t, models.CodeNotFound, err)
}

func TestDropSettings_areValidated(t *testing.T) {
	t.Parallel()
	early, late := past, past.Add(time.Hour)
	far := time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)
	good := models.DropSettings{Title: "Tickets", Stock: 1, BeginsAt: &early, EndsAt: &late}
	require.NoError(t, good.Validate())
	for field, change := range map[string]func(*models.DropSettings){
		"title":          func(d *models.DropSettings) { d.Title = " " },
		"title\n":        func(d *models.DropSettings) { d.Title = "a\nb" },
		"title long":     func(d *models.DropSettings) { d.Title = strings.Repeat("ä", 201) },
		"stock":          func(d *models.DropSettings) { d.Stock = 0 },
		"stock large":    func(d *models.DropSettings) { d.Stock = models.MaxStock + 1 },
		"confirm_within": func(d *models.DropSettings) { d.ConfirmWithin = -1 },
		"ends_at":        func(d *models.DropSettings) { d.EndsAt = &early },
		"ends_at far":    func(d *models.DropSettings) { d.EndsAt = &far },
		"begins_at far":  func(d *models.DropSettings) { d.BeginsAt, d.EndsAt = &far, nil },
	} {
		bad := good
		change(&bad)
		refusedAs(t, models.CodeInvalid, bad.Validate())
		assert.Contains(t, bad.Validate().Error(), strings.Fields(field)[0]+":", field)
	}
}

func TestUpdateDrop_keepsTheStockAboveTheClaims(t *testing.T) {
	t.Parallel()
	l := newClaimSite(t, 3)
	d := l.drop(models.DropSettings{Stock: 3})
	l.apply(l.take(d.ID, l.users[0], 100), l.take(d.ID, l.users[1], 101))
	settings := d.Settings()
	settings.Stock = 1
	_, err := stock.New(l.store).UpdateDrop(t.Context(), l.post.Author.ID, d.ID, 1, settings)
	refusedAs(t, models.CodeConflict, err)
	settings.Stock = 2
	changed, err := stock.New(l.store).UpdateDrop(t.Context(), l.post.Author.ID, d.ID, 1, settings)
	require.NoError(t, err)
	assert.EqualValues(t, 2, changed.Version)
	assert.Zero(t, changed.Remaining())
	_, err = stock.New(l.store).UpdateDrop(t.Context(), l.post.Author.ID, d.ID, 1, settings)
	refusedAs(t, models.CodePrecondition, err)
	same, err := stock.New(l.store).UpdateDrop(t.Context(), l.post.Author.ID, d.ID, 2, settings)
	require.NoError(t, err)
	assert.EqualValues(t, 2, same.Version, "nothing changed")

	send, err := stock.New(l.store).SettingsToSend(t.Context(), 0, 10)
	require.NoError(t, err)
	assert.Equal(t, []models.GateDrop{{ID: d.ID, Stock: 2, Version: 2, Claimed: 2}}, send)
	l.apply(models.DropEvent(d.ID, 2, *l.now), l.take(d.ID, l.users[2], 102))
	send, err = stock.New(l.store).SettingsToSend(t.Context(), 0, 10)
	require.NoError(t, err)
	assert.Empty(t, send)
	assert.Equal(t, "102 rejected stock_lowered release", l.row(d.ID, l.users[2]))

	closed, err := stock.New(l.store).CloseDrop(t.Context(), l.post.Author.ID, d.ID)
	require.NoError(t, err)
	assert.Equal(t, l.now.UTC(), *closed.ClosedAt)
	again, err := stock.New(l.store).CloseDrop(t.Context(), l.post.Author.ID, d.ID)
	require.NoError(t, err)
	assert.Equal(t, closed, again)
	settings.Stock = 9
	_, err = stock.New(l.store).UpdateDrop(t.Context(), l.post.Author.ID, d.ID, 3, settings)
	refusedAs(t, models.CodeConflict, err)
	send, err = stock.New(l.store).SettingsToSend(t.Context(), 0, 10)
	require.NoError(t, err)
	require.Len(t, send, 1)
	assert.Equal(t, time.UnixMilli(1).UTC(), *send[0].Ends, "on every clock")
}

// The gate closes the drops of a deleted post, too.
func TestDeletePost_recordsTheClosingsOfItsDrops(t *testing.T) {
	t.Parallel()
	l := newClaimSite(t, 1)
	one, two := l.drop(models.DropSettings{Stock: 3}), l.drop(models.DropSettings{Stock: 3})
	l.exec("UPDATE drops SET version=2")
	require.NoError(t, content.New(l.store).DeletePost(t.Context(), l.post.Author.ID, l.post.ID))
	closings, err := likes.New(l.store).OpenClosings(t.Context(), 0, 10)
	require.NoError(t, err)
	var targets []models.Target
	for _, c := range closings {
		targets = append(targets, c.Target)
	}
	assert.Equal(t, []models.Target{{Kind: models.KindPost, ID: l.post.ID}, one.Target(), two.Target()}, targets)
	_, err = stock.New(l.store).Drop(t.Context(), one.ID)
	refusedAs(t, models.CodeNotFound, err)
	_, err = stock.New(l.store).CloseDrop(t.Context(), l.post.Author.ID, one.ID)
	refusedAs(t, models.CodeNotFound, err)
	_, err = stock.New(l.store).DropsOfPost(t.Context(), l.post.ID, 0, 10)
	refusedAs(t, models.CodeNotFound, err)
	send, err := stock.New(l.store).SettingsToSend(t.Context(), 0, 10)
	require.NoError(t, err)
	assert.Empty(t, send)

	_, err = content.New(l.store).RestorePost(t.Context(), l.post.Author.ID, l.post.ID)
	require.NoError(t, err)
	_, err = stock.New(l.store).Drop(t.Context(), one.ID)
	require.NoError(t, err)
	send, err = stock.New(l.store).SettingsToSend(t.Context(), 0, 10)
	require.NoError(t, err)
	assert.Len(t, send, 2)
}

func TestPurgeContent_emptiesTheTitlesOfDrops(t *testing.T) {
	t.Parallel()
	l := newClaimSite(t, 1)
	l.drop(models.DropSettings{Stock: 3})
	admin := l.moderator("root")
	l.exec("UPDATE users SET role=? WHERE id=?", models.RoleAdmin, admin)
	require.NoError(t, moderation.New(l.store).PurgeContent(t.Context(), admin,
		models.Target{Kind: models.KindPost, ID: l.post.ID}, "illegal"))
	assert.Equal(t, 1, count(t, l.store, "SELECT COUNT(*) FROM drops WHERE title=''"))
}

func TestClaims_lists(t *testing.T) {
	t.Parallel()
	l := newClaimSite(t, 3)
	a, b := l.drop(models.DropSettings{Stock: 2}), l.drop(models.DropSettings{Stock: 3, ConfirmWithin: 600})
	l.apply(l.take(a.ID, l.users[0], 100), l.take(b.ID, l.users[0], 103), l.take(a.ID, l.users[1], 101),
		l.take(b.ID, l.users[1], 102), l.back(b.ID, l.users[1], 102))
	ids := func(list []models.HeldClaim, err error) (ids []int64) {
		t.Helper()
		require.NoError(t, err)
		for _, c := range list {
			ids = append(ids, c.ID)
		}
		return ids
	}
	assert.Equal(t, []int64{103, 100}, ids(stock.New(l.store).Claims(t.Context(), l.users[0], 0, 10)))
	assert.Equal(t, []int64{103}, ids(stock.New(l.store).Claims(t.Context(), l.users[0], 0, 1)))
	assert.Equal(t, []int64{100}, ids(stock.New(l.store).Claims(t.Context(), l.users[0], 103, 10)))
	assert.Empty(t, ids(stock.New(l.store).Claims(t.Context(), l.users[2], 0, 10)))
	of, err := stock.New(l.store).ClaimsOfDrop(t.Context(), b.ID, 0, 10)
	require.NoError(t, err)
	require.Len(t, of, 2)
	assert.Equal(t, "user0 reserved, user1 returned", fmt.Sprintf("%s %s, %s %s", of[0].User.Username, of[0].State,
		of[1].User.Username, of[1].State))
	among, err := stock.New(l.store).ClaimsAmong(t.Context(), l.users[1], []int64{a.ID, b.ID, 999})
	require.NoError(t, err)
	assert.Len(t, among, 2)
	assert.Equal(t, models.StateReturned, among[b.ID].State)
	item, err := stock.New(l.store).ClaimByID(t.Context(), 103)
	require.NoError(t, err)
	assert.Equal(t, "Tickets", item.DropTitle)
	assert.Equal(t, l.post.ID, item.PostID)
	assert.Equal(t, l.now.Add(10*time.Minute).UTC(), *item.ExpiresAt)
	_, err = stock.New(l.store).ClaimByID(t.Context(), 999)
	refusedAs(t, models.CodeNotFound, err)
	require.NoError(t, content.New(l.store).DeletePost(t.Context(), 0, l.post.ID))
	item, err = stock.New(l.store).ClaimByID(t.Context(), 103)
	require.NoError(t, err)
	assert.Empty(t, item.DropTitle)

	items, err := privacy.New(l.store).ExportItems(t.Context(), l.users[0], "claims", models.ListKey{}, 10)
	require.NoError(t, err)
	require.Len(t, items, 2)
	text, err := json.Marshal(items[1].Value)
	require.NoError(t, err)
	assert.Contains(t, string(text), `"id":"103"`)
	items, err = privacy.New(l.store).ExportItems(t.Context(), l.post.Author.ID, "drops", models.ListKey{ID: a.ID}, 10)
	require.NoError(t, err)
	assert.Len(t, items, 1)
}

func TestConfirmClaim_inTimeAndOnce(t *testing.T) {
	t.Parallel()
	l := newClaimSite(t, 3)
	d := l.drop(models.DropSettings{Stock: 3, ConfirmWithin: 60})
	l.apply(l.take(d.ID, l.users[0], 100), l.take(d.ID, l.users[1], 101), l.take(d.ID, l.users[2], 102))
	_, err := stock.New(l.store).ConfirmClaim(t.Context(), l.users[1], 100)
	refusedAs(t, models.CodeNotFound, err)
	for range 2 {
		c, err := stock.New(l.store).ConfirmClaim(t.Context(), l.users[0], 100)
		require.NoError(t, err)
		assert.Equal(t, models.StateConfirmed, c.State)
	}
	assert.Equal(t, []string{"claim_confirmed 100"}, l.notified(l.users[0]))
	l.apply(l.back(d.ID, l.users[2], 102))
	_, err = stock.New(l.store).ConfirmClaim(t.Context(), l.users[2], 102)
	refusedAs(t, models.CodeConflict, err)

	*l.now = l.now.Add(time.Minute)
	_, err = stock.New(l.store).ConfirmClaim(t.Context(), l.users[1], 101)
	refusedAs(t, models.CodeTooLate, err)
	expired, _, err := stock.New(l.store).ExpireClaims(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, expired, "the confirmed one stays")
	_, err = stock.New(l.store).ConfirmClaim(t.Context(), l.users[1], 101)
	refusedAs(t, models.CodeTooLate, err)
	assert.Equal(t, "101 expired release", l.row(d.ID, l.users[1]))
	assert.Equal(t, 1, l.claimed(d.ID))
	l.check()
}

// A claim expires by the clock of Redis, which dated it, whatever the clocks of the processes show.
func TestClaims_expireByTheClockOfRedis(t *testing.T) {
	t.Parallel()
	l := newClaimSite(t, 2)
	d := l.drop(models.DropSettings{Stock: 2, ConfirmWithin: 60})
	l.apply(l.take(d.ID, l.users[0], 100), l.take(d.ID, l.users[1], 101))
	accepted := *l.now
	onRedis, failure := accepted.Add(59*time.Second), error(nil)
	clock := func(context.Context) (earliest, latest time.Time, err error) {
		return onRedis, onRedis.Add(time.Hour), failure
	}
	l.store.UseLikeClock(clock)
	cron, err := db.Open(t.Context(), l.dsn, db.Options{
		Describe: webhooks.Describe,
		Now:      func() time.Time { return accepted.Add(20 * time.Hour) }})
	require.NoError(t, err)
	defer cron.Close()
	cron.UseLikeClock(clock)
	expired, _, err := stock.New(cron).ExpireClaims(t.Context())
	require.NoError(t, err)
	assert.Zero(t, expired, "the clock of the cron is ahead")

	*l.now = accepted.Add(20 * time.Hour)
	_, err = stock.New(l.store).ConfirmClaim(t.Context(), l.users[0], 100)
	require.NoError(t, err, "the clock of the API is ahead")
	*l.now, onRedis = accepted.Add(-20*time.Hour), accepted.Add(time.Minute)
	_, err = stock.New(l.store).ConfirmClaim(t.Context(), l.users[1], 101)
	refusedAs(t, models.CodeTooLate, err)

	onRedis, failure = accepted, io.EOF
	*l.now = accepted.Add(time.Minute)
	_, err = stock.New(l.store).ConfirmClaim(t.Context(), l.users[1], 101)
	refusedAs(t, models.CodeTooLate, err)
	expired, _, err = stock.New(l.store).ExpireClaims(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, expired, "Redis does not answer")
	l.check()
}

// The job runs in several processes while users confirm in the last moment: each claim is confirmed or expires.
func TestExpireClaims_eachOnce(t *testing.T) {
	t.Parallel()
	const users = 48
	l := newClaimSite(t, users)
	var drops []int64 // each of them is a transaction of the job
	for range 8 {
		drops = append(drops, l.drop(models.DropSettings{Stock: users, ConfirmWithin: 60}).ID)
	}
	var events []models.Event
	for i, user := range l.users {
		events = append(events, l.take(drops[i%len(drops)], user, int64(100+i)))
	}
	l.apply(events...)
	// One process has reached the end of the time, the others have not.
	late, err := db.Open(t.Context(), l.dsn, db.Options{
		Describe: webhooks.Describe,
		Now:      func() time.Time { return past.Add(time.Hour + time.Minute) }})
	require.NoError(t, err)
	defer late.Close()
	var all sync.WaitGroup
	var mu sync.Mutex
	expired, confirmed := 0, 0
	batch := make(chan struct{})
	for range 3 {
		all.Go(func() {
			<-batch
			n, _, err := stock.New(late).ExpireClaims(context.Background())
			assert.NoError(t, err)
			mu.Lock()
			defer mu.Unlock()
			expired += n
		})
	}
	for i, user := range l.users {
		all.Go(func() {
			if i >= users/2 {
				<-batch
			}
			_, err := stock.New(l.store).ConfirmClaim(context.Background(), user, int64(100+i))
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				if confirmed++; confirmed == users/4 {
					close(batch)
				}
			} else if models.ErrorCode(err) != models.CodeTooLate {
				t.Error(err)
			}
		})
	}
	all.Wait()
	n, _, err := stock.New(late).ExpireClaims(t.Context())
	require.NoError(t, err)
	assert.Zero(t, n)
	t.Logf("%d confirmed, %d expired", confirmed, expired)
	assert.Equal(t, users, confirmed+expired)
	assert.Equal(t, confirmed, count(t, l.store, "SELECT SUM(claimed) FROM drops"))
	assert.Equal(t, confirmed, count(t, l.store, "SELECT COUNT(*) FROM notifications WHERE claim_id>0"))
	l.check()
	assert.Len(t, l.toRelease(), expired)
}

func TestExpireClaims_warnsOnce(t *testing.T) {
	t.Parallel()
	l := newClaimSite(t, 2)
	d := l.drop(models.DropSettings{Stock: 3, ConfirmWithin: 600})
	l.apply(l.take(d.ID, l.users[0], 100), l.take(d.ID, l.users[1], 101))
	step := func(after time.Duration, expired, warned int) {
		t.Helper()
		*l.now = past.Add(time.Hour + after)
		e, w, err := stock.New(l.store).ExpireClaims(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []int{expired, warned}, []int{e, w}, "after %v", after)
	}
	step(7*time.Minute, 0, 0)
	step(450*time.Second, 0, 2)
	step(8*time.Minute, 0, 0)
	assert.Equal(t, []string{"claim_expiring 100"}, l.notified(l.users[0]))
	_, err := stock.New(l.store).ConfirmClaim(t.Context(), l.users[0], 100)
	require.NoError(t, err)
	step(10*time.Minute, 1, 0)
	step(20*time.Minute, 0, 0)
	assert.Equal(t, "101 expired release", l.row(d.ID, l.users[1]))
	l.check()

	// The user claims again before the gate has released the first claim, and its release arrives late.
	l.apply(l.back(d.ID, l.users[1], 101), l.take(d.ID, l.users[1], 103), l.back(d.ID, l.users[1], 101))
	assert.Equal(t, "103 reserved", l.row(d.ID, l.users[1]))
	assert.Empty(t, l.toRelease())
}

func TestVoidClaims_ofAUser(t *testing.T) {
	t.Parallel()
	l := newClaimSite(t, 2)
	a, b := l.drop(models.DropSettings{Stock: 3}), l.drop(models.DropSettings{Stock: 3, ConfirmWithin: 60})
	events := []models.Event{}
	for i, user := range l.users {
		events = append(events, l.take(a.ID, user, int64(100+i)), l.take(b.ID, user, int64(110+i)))
	}
	l.apply(events...)
	moderator := l.moderator("mod")
	void := models.ClaimVoid{ActorID: moderator, UserID: l.users[0], DropID: a.ID, Reason: "bots"}
	_, err := stock.New(l.store).VoidClaims(t.Context(), models.ClaimVoid{ActorID: l.users[1], UserID: l.users[0],
		Reason: "x"})
	refusedAs(t, models.CodeForbidden, err)
	_, err = stock.New(l.store).VoidClaims(t.Context(), models.ClaimVoid{ActorID: moderator, UserID: l.users[0]})
	refusedAs(t, models.CodeInvalid, err)
	_, err = stock.New(l.store).VoidClaims(t.Context(), models.ClaimVoid{ActorID: moderator, UserID: 999, Reason: "x"})
	refusedAs(t, models.CodeNotFound, err)
	n, err := stock.New(l.store).VoidClaims(t.Context(), void)
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	void.DropID = 0
	n, err = stock.New(l.store).VoidClaims(t.Context(), void)
	require.NoError(t, err)
	assert.Equal(t, 1, n)
	assert.Equal(t, "100 voided moderator release", l.row(a.ID, l.users[0]))
	assert.Equal(t, "110 voided moderator release", l.row(b.ID, l.users[0]))
	assert.Equal(t, "101 confirmed", l.row(a.ID, l.users[1]))
	assert.Equal(t, 1, l.claimed(a.ID))
	l.check()
	assert.Equal(t, 2, count(t, l.store, "SELECT COUNT(*) FROM moderation_log WHERE action='user.void_claims'"))
	assert.Equal(t, []models.EndedClaim{{DropID: a.ID, UserID: l.users[0], ID: 100}, {DropID: b.ID, UserID: l.users[0],
		ID: 110}}, l.toRelease())
	rest, err := stock.New(l.store).ClaimsToRelease(t.Context(), l.toRelease()[0], 10)
	require.NoError(t, err)
	assert.Equal(t, l.toRelease()[1:], rest)

	// The gate releases one, the other drop is cold.
	l.apply(l.back(a.ID, l.users[0], 100))
	assert.Equal(t, "100 voided moderator", l.row(a.ID, l.users[0]))
	l.exec("UPDATE drops SET version=7")
	cold := models.ColdDrop{ID: b.ID, Version: 7, Claims: l.toRelease()}
	done, err := stock.New(l.store).ClearCold(t.Context(), cold, func() (bool, error) { return false, nil })
	require.NoError(t, err)
	assert.False(t, done)
	assert.Len(t, l.toRelease(), 1, "it is warm")
	_, err = stock.New(l.store).ClearCold(t.Context(), cold, func() (bool, error) { return true, assert.AnError })
	require.ErrorIs(t, err, assert.AnError)
	assert.Len(t, l.toRelease(), 1)
	done, err = stock.New(l.store).ClearCold(t.Context(), cold, func() (bool, error) {
		conn, err := l.store.Pool().Conn(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		_, err = conn.ExecContext(t.Context(), "SET innodb_lock_wait_timeout=1")
		require.NoError(t, err)
		_, err = conn.ExecContext(t.Context(), "UPDATE drops SET claimed=claimed+1 WHERE id=?", b.ID)
		require.ErrorContains(t, err, "Lock wait timeout", "the drop is locked while the gate is asked")
		return true, nil
	})
	require.NoError(t, err)
	assert.True(t, done)
	assert.Empty(t, l.toRelease())
	send, err := stock.New(l.store).SettingsToSend(t.Context(), 0, 10)
	require.NoError(t, err)
	require.Len(t, send, 1)
	assert.Equal(t, a.ID, send[0].ID)
}

// What changed after a drop was found cold is not cleared: Redis may have had the drop again in the meantime.
func TestClearCold_leavesWhatCameLater(t *testing.T) {
	t.Parallel()
	l := newClaimSite(t, 3)
	d := l.drop(models.DropSettings{Stock: 3})
	l.apply(l.take(d.ID, l.users[0], 100), l.take(d.ID, l.users[1], 101), l.take(d.ID, l.users[2], 102))
	void := models.ClaimVoid{ActorID: l.moderator("mod"), DropID: d.ID, Reason: "Bought."}
	for _, void.UserID = range l.users[:2] {
		_, err := stock.New(l.store).VoidClaims(t.Context(), void)
		require.NoError(t, err)
	}
	l.exec("UPDATE drops SET version=2")
	found := models.ColdDrop{ID: d.ID, Version: 2, Claims: l.toRelease()}
	// One of the claims was released and its user has another, which is voided, too. The settings change again.
	l.apply(l.back(d.ID, l.users[0], 100), l.take(d.ID, l.users[0], 103))
	for _, void.UserID = range []int64{l.users[0], l.users[2]} {
		_, err := stock.New(l.store).VoidClaims(t.Context(), void)
		require.NoError(t, err)
	}
	l.exec("UPDATE drops SET version=3")
	done, err := stock.New(l.store).ClearCold(t.Context(), found, func() (bool, error) { return true, nil })
	require.NoError(t, err)
	assert.True(t, done)
	assert.Equal(t, []models.EndedClaim{{DropID: d.ID, UserID: l.users[0], ID: 103}, {DropID: d.ID, UserID: l.users[2],
		ID: 102}}, l.toRelease())
	send, err := stock.New(l.store).SettingsToSend(t.Context(), 0, 10)
	require.NoError(t, err)
	assert.Len(t, send, 1)
	assert.Equal(t, 2, count(t, l.store, "SELECT sent_version FROM drops"))
}

func TestPurgeUser_endsTheClaims(t *testing.T) {
	t.Parallel()
	l := newClaimSite(t, 2)
	a, b := l.drop(models.DropSettings{Stock: 3}), l.drop(models.DropSettings{Stock: 3, ConfirmWithin: 60})
	l.apply(l.take(a.ID, l.users[0], 100), l.take(b.ID, l.users[0], 101), l.take(a.ID, l.users[1], 102))
	_, err := privacy.New(l.store).DeleteUser(t.Context(), l.users[0], "")
	require.NoError(t, err)
	deleted, err := privacy.New(l.store).PurgeUser(t.Context(), l.users[0])
	require.NoError(t, err)
	assert.True(t, deleted)
	assert.Equal(t, "100 voided account_deleted release", l.row(a.ID, l.users[0]))
	assert.Equal(t, "101 voided account_deleted release", l.row(b.ID, l.users[0]))
	assert.Equal(t, "102 confirmed", l.row(a.ID, l.users[1]))
	l.check()
}
