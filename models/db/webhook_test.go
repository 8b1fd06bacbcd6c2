package db_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/likes"
	"likewise/models/moderation"
	"likewise/models/privacy"
	"likewise/models/stock"
	"likewise/models/webhooks"
)

// newWebhook registers an endpoint for the events, or for all without any.
func newWebhook(t testing.TB, store *db.DB, admin models.Author, events ...models.WebhookEvent) *models.Webhook {
	t.Helper()
	if len(events) == 0 {
		events = models.WebhookEvents
	}
	w, err := webhooks.New(store).CreateWebhook(t.Context(), admin.ID,
		models.WebhookSettings{URL: "https://hooks.example.org/in", Events: events, Active: true}, false)
	require.NoError(t, err)
	return w
}

// webhookEvents returns "TYPE OBJECT:ID DATA" of the events of an endpoint after an id, in order, and the last id.
func webhookEvents(t testing.TB, store *db.DB, webhookID, after int64) (list []string, last int64) {
	t.Helper()
	rows, err := store.Pool().QueryContext(context.Background(), `
		SELECT id, CONCAT(type,' ',object_type,':',object_id,' ',data)
		FROM webhook_events
		WHERE webhook_id=? AND id>?
		ORDER BY id`, webhookID, after)
	require.NoError(t, err)
	defer rows.Close()
	last = after
	for rows.Next() {
		var text string
		require.NoError(t, rows.Scan(&last, &text))
		list = append(list, text)
	}
	require.NoError(t, rows.Err())
	return list, last
}

// told checks that the last events of an endpoint begin with these texts, and returns the events.
func told(t testing.TB, store *db.DB, w *models.Webhook, last *int64, want ...string) []string {
	t.Helper()
	var list []string
	list, *last = webhookEvents(t, store, w.ID, *last)
	require.Len(t, list, len(want), "%v", list)
	for i, text := range want {
		require.True(t, strings.HasPrefix(list[i]+" ", text+" "), "%s instead of %s", list[i], text)
	}
	return list
}

func TestWebhookEvents_areWrittenWithWhatTheyTell(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	ctx := t.Context()
	ada, bob, mod := newUser(t, store, "ada"), newUser(t, store, "bob"), newAdmin(t, store, "mod")
	before := newPost(t, store, ada)
	assert.Zero(t, count(t, store, "SELECT COUNT(*) FROM webhook_events"), "nobody subscribes")
	w, last := newWebhook(t, store, mod), int64(0)
	deletions := newWebhook(t, store, mod, models.PostDeleted)

	post := must(content.New(store).CreatePost(ctx, ada,
		models.PostText{Title: "A post", Content: "with <text>", Tags: models.Tags{"go"}}))
	p, b := fmt.Sprintf("post:%d", post.ID), fmt.Sprintf("post:%d", before.ID)
	created := told(t, store, w, &last, "post.created "+p)[0]
	assert.Contains(t, created, fmt.Sprintf(`{"id":%d,"author":{"id":%d,"username":"ada","display_name":null},`+
		`"title":"A post","content":"with <text>","tags":["go"],"likes_count":0,`, post.ID, ada.ID))
	must(content.New(store).UpdatePost(ctx, ada.ID, post.ID, 0, models.PostText{Title: "Another", Content: "text"}))
	assert.Contains(t, told(t, store, w, &last, "post.edited "+p)[0], `"title":"Another"`)
	must(content.New(store).UpdatePost(ctx, ada.ID, post.ID, 1, models.PostText{Title: "Another", Content: "text"}))
	told(t, store, w, &last)

	comment := newComment(t, store, bob, post, nil)
	c := fmt.Sprintf("comment:%d", comment.ID)
	told(t, store, w, &last, "comment.created "+c)
	must(content.New(store).UpdateComment(ctx, bob.ID, comment.ID, 0, models.CommentText{Content: "another"}))
	assert.Contains(t, told(t, store, w, &last, "comment.edited "+c)[0], `"content":"another"`)
	require.NoError(t, content.New(store).DeleteComment(ctx, comment))
	told(t, store, w, &last, fmt.Sprintf(`comment.deleted %s {"id":%d,"post_id":%d}`, c, comment.ID, post.ID))
	require.NoError(t, content.New(store).DeletePost(ctx, ada.ID, post.ID))
	told(t, store, w, &last, fmt.Sprintf(`post.deleted %s {"id":%d}`, p, post.ID))
	require.NoError(t, moderation.New(store).ReinstateContent(ctx, mod.ID, commentTarget(comment), "Fine."))
	told(t, store, w, &last, fmt.Sprintf(`comment.restored %s {"id":%d,"post_id":%d}`, c, comment.ID, post.ID))
	must(content.New(store).RestorePost(ctx, ada.ID, post.ID))
	assert.Contains(t, told(t, store, w, &last, "post.restored "+p)[0], `"title":"Another"`)

	report := reported(t, store, bob, postTarget(before))
	r := fmt.Sprintf("report:%d", report)
	assert.Contains(t, told(t, store, w, &last, "report.opened "+r)[0], `"outcome":null`)
	must(moderation.New(store).ReportContent(ctx, mod.ID, models.NewReport{Target: postTarget(before), Reason: "spam"}))
	told(t, store, w, &last)
	require.NoError(t, moderation.New(store).ResolveReport(ctx, mod.ID, report,
		models.Verdict{Outcome: models.OutcomeRemoved, Note: "A private note."}))
	decided := told(t, store, w, &last, "post.deleted "+b, "report.decided "+r)[1]
	assert.Contains(t, decided, `"outcome":"removed"`)
	assert.NotContains(t, decided, "note")

	ban := &models.Ban{Until: models.ForGood, Reason: "A private reason."}
	must(moderation.New(store).BanUser(ctx, mod.ID, bob.ID, ban))
	told(t, store, w, &last, fmt.Sprintf(`user.banned user:%d {"id":%d,"username":"bob","display_name":null,`+
		`"permanent":true,"until":null}`, bob.ID, bob.ID))
	require.NoError(t, moderation.New(store).UnbanUser(ctx, mod.ID, bob.ID, "Enough."))
	assert.Contains(t, told(t, store, w, &last, fmt.Sprintf("user.unbanned user:%d", bob.ID))[0], `"permanent":false`)

	list, _ := webhookEvents(t, store, deletions.ID, 0)
	assert.Len(t, list, 2, "an endpoint receives what it subscribes to")
	_, err := content.New(store).CreateComment(ctx, bob, 999_999, nil, models.CommentText{Content: "nowhere"})
	refusedAs(t, models.CodeNotFound, err)
	_, err = webhooks.New(store).UpdateWebhook(ctx, mod.ID, w.ID, 0,
		models.WebhookSettings{URL: w.URL, Events: w.Events}, false)
	require.NoError(t, err)
	newPost(t, store, ada)
	told(t, store, w, &last)
}

// What a moderator does with all content of a user is many events in a transaction.
func TestWebhookEvents_ofOperations(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	ada, mod := newUser(t, store, "ada"), newAdmin(t, store, "mod")
	for range 3 {
		newComment(t, store, ada, newPost(t, store, ada), nil)
	}
	w, last := newWebhook(t, store, mod), int64(0)
	o := must(moderation.New(store).RemoveAll(t.Context(), mod.ID, ada.ID, "Spam."))
	finish := func() {
		for done := false; !done; {
			step := must(moderation.New(store).StepOperation(t.Context(), o.ID))
			require.NoError(t, moderation.New(store).CloseStep(t.Context(), o.ID, step))
			done = step.Done
		}
	}
	finish()
	c, p := "comment.deleted", "post.deleted"
	told(t, store, w, &last, c, c, c, p, p, p)
	must(moderation.New(store).UndoOperation(t.Context(), mod.ID, o.ID, "Sorry."))
	finish()
	c, p = "comment.restored", "post.restored"
	told(t, store, w, &last, c, c, c, p, p, p)
}

func TestWebhookEvents_ofMilestones(t *testing.T) {
	t.Parallel()
	l := newLog(t)
	w, last := newWebhook(t, l.store, newAdmin(t, l.store, "mod")), int64(0)
	first := l.likesOf(1, 1, 12, true)
	l.apply(first...)
	event := "like.milestone " + l.target.String()
	list := told(t, l.store, w, &last, event, event)
	assert.Contains(t, list[0], `"milestone":1,"likes_count":12`)
	assert.Contains(t, list[1], `"milestone":10,"likes_count":12`)
	l.apply(first...)
	l.apply(l.likesOf(13, 12, 12, false)...)
	told(t, l.store, w, &last)
}

func TestWebhookEvents_ofClaims(t *testing.T) {
	t.Parallel()
	l := newClaimLog(t, 3)
	w, last := newWebhook(t, l.store, newAdmin(t, l.store, "mod")), int64(0)
	d := insertDrop(t, l.store, l.post, 1, 0)
	l.apply(l.take(d, l.users[0], 101), l.take(d, l.users[1], 102))
	list := told(t, l.store, w, &last, "claim.confirmed claim:101", "claim.rejected claim:102")
	assert.Contains(t, list[0], fmt.Sprintf(`{"id":"101","drop_id":%d,"post_id":%d,"user_id":%d,"state":"confirmed"`,
		d, l.post.ID, l.users[0]))
	assert.Contains(t, list[1], `"state":"rejected","reason":"`+models.ReasonStockLowered+`"`)
}

func TestWebhookEvents_inDirectMode(t *testing.T) {
	t.Parallel()
	l := newDirectSite(t, 2)
	w, last := newWebhook(t, l.store, newAdmin(t, l.store, "mod")), int64(0)
	for range 2 {
		must(likes.New(l.store).SetLike(t.Context(), postTarget(l.post), l.users[0], true))
	}
	told(t, l.store, w, &last, fmt.Sprintf("like.milestone post:%d", l.post.ID))
	_, _, err := stock.New(l.store).ClaimDirect(t.Context(), l.drop(models.DropSettings{Stock: 1}).ID, l.users[0], 100)
	require.NoError(t, err)
	told(t, l.store, w, &last, "claim.confirmed claim:100")
	reserved := l.drop(models.DropSettings{Stock: 1, ConfirmWithin: 600})
	_, _, err = stock.New(l.store).ClaimDirect(t.Context(), reserved.ID, l.users[0], 101)
	require.NoError(t, err)
	told(t, l.store, w, &last)
	for range 2 {
		must(stock.New(l.store).ConfirmClaim(t.Context(), l.users[0], 101))
	}
	told(t, l.store, w, &last, "claim.confirmed claim:101")
}

// The rows of an object have the order of its changes, among concurrent writers, too.
func TestWebhookEvents_haveTheOrderOfTheChanges(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	ada := newUser(t, store, "ada")
	w := newWebhook(t, store, newAdmin(t, store, "mod"))
	post := newPost(t, store, ada)
	var writers sync.WaitGroup
	for writer := range 4 {
		writers.Go(func() {
			for n := range 10 {
				for version := int64(0); ; {
					text := models.PostText{Title: fmt.Sprintf("%d of %d", n, writer), Content: "text"}
					_, err := content.New(store).UpdatePost(context.Background(), ada.ID, post.ID, version, text)
					if err == nil {
						break
					}
					e, ok := errors.AsType[*models.Error](err)
					if !assert.True(t, ok && e.Version != nil, "%v", err) {
						return
					}
					version = *e.Version
				}
			}
		})
	}
	writers.Wait()
	list, _ := webhookEvents(t, store, w.ID, 0)
	require.Len(t, list, 41)
	for i, text := range list {
		assert.Contains(t, text, fmt.Sprintf(`"version":%d,`, i))
	}
}

// Neither a redacted text nor the name of a deleted account stays in what is kept for webhooks.
func TestWebhookEvents_loseWhatIsRedacted(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	ctx := t.Context()
	ada, mod := newUser(t, store, "xylophonist"), newAdmin(t, store, "mod")
	w := newWebhook(t, store, mod)
	post := must(content.New(store).CreatePost(ctx, ada, models.PostText{Title: "A post", Content: "marimba"}))
	comment := must(content.New(store).CreateComment(ctx, ada, post.ID, nil, models.CommentText{Content: "vibraphone"}))
	must(content.New(store).CreatePost(ctx, ada, models.PostText{Title: "Kept", Content: "celesta"}))
	deliveries := must(webhooks.New(store).Deliveries(ctx, w.ID, 0, 0, 10))
	require.Len(t, deliveries, 3)
	for i, text := range []string{"celesta", "vibraphone", "marimba"} { // latest first
		echo := models.Attempt{Status: 200, Answer: text}
		require.NoError(t, webhooks.New(store).RecordAttempt(ctx, w.ID, &deliveries[i], echo, 0))
	}
	require.NotEmpty(t, textLeft(t, store, "marimba"))
	require.NoError(t, moderation.New(store).RedactVersion(ctx, mod.ID, postTarget(post), 0, "An address."))
	require.NoError(t, moderation.New(store).PurgeContent(ctx, mod.ID, commentTarget(comment), "An address."))
	assert.Empty(t, textLeft(t, store, "marimba"))
	assert.Empty(t, textLeft(t, store, "vibraphone"))
	assert.Contains(t, textLeft(t, store, "celesta"), "webhook_events.data")
	list, _ := webhookEvents(t, store, w.ID, 0)
	c := comment.ID
	assert.Contains(t, list, fmt.Sprintf(`comment.created comment:%d {"id":%d,"redacted":true}`, c, c))

	must(moderation.New(store).BanUser(ctx, mod.ID, ada.ID, &models.Ban{Until: models.ForGood, Reason: "Spam."}))
	must(privacy.New(store).DeleteBannedUser(ctx, mod.ID, ada.ID, "Spam."))
	must(privacy.New(store).PurgeUser(ctx, ada.ID))
	assert.Zero(t, count(t, store, "SELECT COUNT(*) FROM webhook_events WHERE data LIKE '%xylophonist%'"))
}

func TestWebhooks_areBoundedAndLogged(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	mod, ada := newAdmin(t, store, "mod"), newUser(t, store, "ada")
	settings := models.WebhookSettings{URL: "https://hooks.example.org/token?key=secret",
		Events: models.WebhookTypes{"post.created"}, Active: true}
	_, err := webhooks.New(store).CreateWebhook(t.Context(), ada.ID, settings, false)
	refusedAs(t, models.CodeForbidden, err)
	var creators sync.WaitGroup
	var mu sync.Mutex
	made, refused := 0, 0
	for range 4 {
		creators.Go(func() {
			for range models.MaxWebhooks/4 + 2 {
				_, err := webhooks.New(store).CreateWebhook(context.Background(), mod.ID, settings, false)
				mu.Lock()
				if made++; err != nil {
					made--
					refused++
				}
				mu.Unlock()
			}
		})
	}
	creators.Wait()
	assert.Equal(t, models.MaxWebhooks, made)
	assert.Positive(t, refused)
	acts := must(accounts.New(store).ModerationLog(t.Context(), models.ActQuery{TargetType: "webhook", Limit: 100}))
	require.Len(t, acts, models.MaxWebhooks)
	assert.Equal(t, "webhook.create", acts[0].Action)
	assert.JSONEq(t, `{"host":"hooks.example.org","events":["post.created"],"active":true}`, *acts[0].AfterState)
}

func TestWebhookSettings_refusePrivateAddresses(t *testing.T) {
	t.Parallel()
	valid := func(url string, private bool) error {
		return models.WebhookSettings{URL: url, Events: models.WebhookTypes{"post.created"}}.Validate(private)
	}
	for _, url := range []string{"https://example.org", "https://example.org:8443/in?key=value",
		"https://93.184.215.14/", "https://[2606:2800:21f:cb07:6820:80da:af6b:8b2c]/"} {
		assert.NoError(t, valid(url, false), "%s", url)
	}
	for _, url := range []string{"", "example.org", "http://example.org", "https://", "https://a:b@example.org",
		"https://example.org/#part", "https://example.org/ü", "https://exa mple.org", "ftp://example.org",
		"https://127.0.0.1/", "https://[::1]/", "https://10.1.2.3/", "https://169.254.169.254/latest",
		"https://[::ffff:10.0.0.1]/",
		"https://[fd00::1]/", "https://[fe80::1%25eth0]/", "https://example.org/" + strings.Repeat("a", 2000)} {
		refusedAs(t, models.CodeInvalid, valid(url, false))
	}
	assert.NoError(t, valid("http://127.0.0.1:8080/in", true))
	refusedAs(t, models.CodeInvalid, valid("ftp://127.0.0.1/", true))
	refusedAs(t, models.CodeInvalid, models.WebhookSettings{URL: "https://example.org"}.Validate(false))
	refusedAs(t, models.CodeInvalid,
		models.WebhookSettings{URL: "https://example.org", Events: models.WebhookTypes{"ping"}}.Validate(false))

	for _, text := range []string{"0.0.0.0", "10.0.0.1", "100.64.0.1", "127.0.0.1", "127.9.9.9", "169.254.169.254",
		"172.16.0.1", "192.168.1.1", "192.0.0.192", "198.18.0.1", "203.0.113.9", "224.0.0.1", "240.0.0.1",
		"255.255.255.255", "::", "::1", "::ffff:127.0.0.1", "::7f00:1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
		"2002:7f00:1::", "2001::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1",
		"::ffff:0:127.0.0.1", "::ffff:0:a00:1", "::1.2.3.4", "168.63.129.16", "100.100.100.200", "192.88.99.1",
		"2606:4700::5efe:7f00:1", "2606:4700::200:5efe:7f00:1", "64:ff9b:1::1", "4000::1", "100::1"} {
		assert.False(t, models.PublicAddress(netip.MustParseAddr(text)), text)
	}
	for _, text := range []string{"8.8.8.8", "93.184.215.14", "172.32.0.1", "2606:4700::1111", "2a00:1450::1"} {
		assert.True(t, models.PublicAddress(netip.MustParseAddr(text)), text)
	}
}

func TestDeliveries_areRecordedUntilTheyEnd(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	store := openWith(t, db.Options{Now: func() time.Time { return now }})
	ctx := t.Context()
	mod := newAdmin(t, store, "mod")
	w := newWebhook(t, store, mod)
	ping := must(webhooks.New(store).PingWebhook(ctx, w.ID))
	fetch := func() *models.Delivery { return must(webhooks.New(store).DeliveryByID(ctx, w.ID, ping.ID)) }
	failing := func() *time.Time { return must(webhooks.New(store).WebhookByID(ctx, w.ID)).FailingSince }
	assert.Equal(t, now, *must(webhooks.New(store).WebhookByID(ctx, w.ID)).PendingSince)

	record := func(a models.Attempt) {
		t.Helper()
		require.NoError(t, webhooks.New(store).RecordAttempt(ctx, w.ID, fetch(), a, time.Minute))
	}
	record(models.Attempt{Status: 500, Answer: "Oops \u0000."})
	d := fetch()
	assert.Equal(t, models.DeliveryPending, d.State)
	assert.Equal(t, now.Add(time.Minute), d.DueAt)
	assert.Equal(t, "Oops \u0000.", d.AttemptLog[0].Answer)
	assert.Equal(t, now, *failing())
	now = now.Add(time.Hour)
	for range 12 {
		record(models.Attempt{Error: "connection refused"})
	}
	assert.Equal(t, now.Add(-time.Hour), *failing(), "the first failure counts")
	d = fetch()
	assert.Equal(t, 13, d.Attempts)
	assert.Len(t, d.AttemptLog, 10, "the latest are kept")
	now = now.Add(models.WebhookRetry)
	record(models.Attempt{Status: 404})
	d = fetch()
	assert.Equal(t, models.DeliveryFailed, d.State)
	assert.Equal(t, now, *d.EndedAt)
	assert.Nil(t, must(webhooks.New(store).PendingDelivery(ctx, d.ID)))

	d = must(webhooks.New(store).ReplayDelivery(ctx, w.ID, ping.ID))
	assert.Equal(t, models.DeliveryPending, d.State)
	record(models.Attempt{Status: 500})
	assert.Equal(t, models.DeliveryPending, fetch().State, "a replay is attempted for as long")
	record(models.Attempt{Status: 204})
	assert.Equal(t, models.DeliveryDelivered, fetch().State)
	assert.Nil(t, failing())
	record(models.Attempt{Status: 500}) // by a process that has lost its lease
	assert.Equal(t, models.DeliveryDelivered, fetch().State)

	// An endpoint is disabled after five days without a success, and not before.
	since := now
	for _, passed := range []time.Duration{0, models.WebhookPatience - time.Second, models.WebhookPatience} {
		now = since.Add(passed)
		assert.Equal(t, passed == models.WebhookPatience, must(webhooks.New(store).DisableWebhook(ctx, w.ID,
			models.WebhookFailing)))
	}
	assert.False(t, must(webhooks.New(store).DisableWebhook(ctx, w.ID, models.WebhookFailing)))
	disabled := must(webhooks.New(store).WebhookByID(ctx, w.ID))
	assert.False(t, disabled.Active)
	assert.Equal(t, models.WebhookFailing, disabled.DisabledReason)
	acts := must(accounts.New(store).ModerationLog(ctx, models.ActQuery{Action: "webhook.disable", Limit: 10}))
	require.Len(t, acts, 1)
	assert.Zero(t, acts[0].Actor.ID)
	refusedAs(t, models.CodeConflict, must1(webhooks.New(store).PingWebhook(ctx, w.ID)))
	refusedAs(t, models.CodeConflict, must1(webhooks.New(store).ReplayDelivery(ctx, w.ID, ping.ID)))
	refusedAs(t, models.CodePrecondition, must1(webhooks.New(store).UpdateWebhook(ctx, mod.ID, w.ID, 7, w.Settings(),
		false)))
	again := must(webhooks.New(store).UpdateWebhook(ctx, mod.ID, w.ID, 0, w.Settings(), false))
	assert.True(t, again.Active)
	assert.Empty(t, again.DisabledReason)
	assert.Nil(t, again.FailingSince)

	// Purge: old events, and those of a deleted endpoint.
	now = now.Add(models.WebhookLife - time.Hour)
	must(webhooks.New(store).PingWebhook(ctx, w.ID))
	other := newWebhook(t, store, mod)
	must(webhooks.New(store).PingWebhook(ctx, other.ID))
	assert.EqualValues(t, 1, must(webhooks.New(store).PurgeWebhookEvents(ctx, 10)))
	require.NoError(t, webhooks.New(store).DeleteWebhook(ctx, mod.ID, other.ID))
	assert.EqualValues(t, 1, must(webhooks.New(store).PurgeWebhookEvents(ctx, 10)))
	assert.Equal(t, 1, count(t, store, "SELECT COUNT(*) FROM webhook_events"))
}

func TestLeaseWebhook_isHeldByOneProcess(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	w := newWebhook(t, store, newAdmin(t, store, "mod"))
	lease := func(name string) *models.Webhook {
		return must(webhooks.New(store).LeaseWebhook(t.Context(), w.ID, name, 60))
	}
	require.NotNil(t, lease("a"))
	assert.Equal(t, w.Secret, lease("a").Secret, "it extends its own")
	assert.Nil(t, lease("b"))
	require.NoError(t, webhooks.New(store).ReleaseWebhook(t.Context(), w.ID, "b"))
	assert.Nil(t, lease("b"), "another process cannot release it")
	exec(t, store, "UPDATE webhooks SET leased_until=leased_until-INTERVAL 61 SECOND")
	assert.NotNil(t, lease("b"))
	assert.Nil(t, lease("a"))
	require.NoError(t, webhooks.New(store).ReleaseWebhook(t.Context(), w.ID, "b"))
	assert.NotNil(t, lease("a"))
}

func TestRotateSecret_keepsTheFormerOneForADay(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	store := openWith(t, db.Options{Now: func() time.Time { return now }})
	ctx := t.Context()
	mod, user := newAdmin(t, store, "mod"), newUser(t, store, "user")
	w := newWebhook(t, store, mod)
	fetch := func() *models.Webhook { return must(webhooks.New(store).WebhookByID(ctx, w.ID)) }
	assert.Nil(t, fetch().PreviousUntil)
	rotated := must(webhooks.New(store).RotateSecret(ctx, mod.ID, w.ID))
	assert.NotEqual(t, w.Secret, rotated.Secret)
	assert.Len(t, rotated.Secret, 32)
	assert.Equal(t, w.Secret, rotated.PreviousSecret)
	assert.Equal(t, now.Add(24*time.Hour), *rotated.PreviousUntil)
	assert.EqualValues(t, 1, rotated.Version)
	assert.Equal(t, rotated.Secret, must(webhooks.New(store).LeaseWebhook(ctx, w.ID, "a", 60)).Secret)
	refusedAs(t, models.CodeConflict, must1(webhooks.New(store).RotateSecret(ctx, mod.ID, w.ID)))

	now = now.Add(24*time.Hour - time.Second)
	assert.Equal(t, w.Secret, fetch().PreviousSecret)
	now = now.Add(time.Second)
	assert.Nil(t, fetch().PreviousUntil)
	assert.Nil(t, fetch().PreviousSecret)
	assert.Nil(t, must(webhooks.New(store).Webhooks(ctx, 0, 10))[0].PreviousUntil)
	assert.EqualValues(t, 1, must(webhooks.New(store).PurgeWebhookSecrets(ctx)))
	assert.Zero(t, count(t, store, "SELECT COUNT(*) FROM webhooks WHERE previous_secret IS NOT NULL"))
	again := must(webhooks.New(store).RotateSecret(ctx, mod.ID, w.ID))
	assert.Equal(t, rotated.Secret, again.PreviousSecret)
	assert.Zero(t, must(webhooks.New(store).PurgeWebhookSecrets(ctx)))
	require.NotNil(t, must(webhooks.New(store).Webhooks(ctx, 0, 10))[0].PreviousUntil)

	for range 2 { // repeating it changes nothing
		require.NoError(t, webhooks.New(store).EndSecretOverlap(ctx, mod.ID, w.ID))
		assert.Nil(t, fetch().PreviousUntil)
		assert.Equal(t, again.Secret, fetch().Secret)
		assert.EqualValues(t, 3, fetch().Version)
	}
	assert.Zero(t, count(t, store, "SELECT COUNT(*) FROM webhooks WHERE previous_secret IS NOT NULL"))
	must(webhooks.New(store).RotateSecret(ctx, mod.ID, w.ID))
	acts := must(accounts.New(store).ModerationLog(ctx, models.ActQuery{Action: "webhook.rotate_secret", Limit: 10}))
	assert.Len(t, acts, 3)
	assert.Len(t, must(accounts.New(store).ModerationLog(ctx, models.ActQuery{Action: "webhook.end_previous_secret",
		Limit: 10})), 1)
	for _, act := range acts {
		assert.NotContains(t, fmt.Sprint(act), hex.EncodeToString(w.Secret))
	}
	refusedAs(t, models.CodeNotFound, must1(webhooks.New(store).RotateSecret(ctx, mod.ID, w.ID+1)))
	refusedAs(t, models.CodeNotFound, webhooks.New(store).EndSecretOverlap(ctx, mod.ID, w.ID+1))
	refusedAs(t, models.CodeForbidden, must1(webhooks.New(store).RotateSecret(ctx, user.ID, w.ID)))
	refusedAs(t, models.CodeForbidden, webhooks.New(store).EndSecretOverlap(ctx, user.ID, w.ID))
}
