package handlers_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"likewise/counters"
	"likewise/handlers"
	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/likes"
	"likewise/workers"
)

// desk is an API in gated mode with its pipeline and with the accounts of a moderator and an admin.
type desk struct {
	*api
	redis     *counters.Redis
	likes     *counters.Likes
	admin     account
	moderator account
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	store := openStore(t, testkit.Database(t))
	r, likes, settle := pipeline(t, store)
	a := serve(t, store, func(c *handlers.Config) {
		behindGate(likes, likes)(c)
		c.Desk = workers.NewDesk(store, r, likes)
	})
	a.settle = settle
	d := &desk{api: a, redis: r, likes: likes}
	d.admin, d.moderator = d.raise(t, models.RoleAdmin), d.raise(t, models.RoleModerator)
	return d
}

// raise creates an account with a role.
func (a *api) raise(t *testing.T, role models.Role) account {
	t.Helper()
	as := a.account(t)
	a.exec(t, "UPDATE users SET role=? WHERE id=?", role, as.ID)
	return as
}

func (a *api) exec(t *testing.T, query string, args ...any) {
	t.Helper()
	if _, err := a.store.Pool().ExecContext(t.Context(), query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// deskOfMovingShard is a desk that cannot read shard 2.
type deskOfMovingShard struct{ handlers.Desk }

func (d deskOfMovingShard) ShardInfos(ctx context.Context) ([]counters.ShardInfo, error) {
	infos, err := d.Desk.ShardInfos(ctx)
	if err != nil {
		return nil, err
	}
	infos[2] = counters.ShardInfo{Shard: 2, Err: counters.ErrMoving}
	return infos, nil
}

// clean fails if verify finds a difference.
func (d *desk) clean(t *testing.T) {
	t.Helper()
	d.settle()
	sum, err := workers.NewVerifier(d.store, d.redis, d.likes, false,
		func(item models.Difference) { t.Errorf("verify: %s", item) }).Verify(t.Context())
	if err != nil || sum.Differences != 0 || sum.Undecided != 0 {
		t.Errorf("verify: %+v, %v", sum, err)
	}
}

func (d *desk) likers(t *testing.T, target models.Target, users ...account) (in []bool) {
	t.Helper()
	ids := make([]int64, len(users))
	for i, u := range users {
		ids[i] = u.ID
	}
	liked, err := d.redis.Likers(t.Context(), target, ids)
	require.NoError(t, err)
	for _, id := range ids {
		in = append(in, liked[id])
	}
	return in
}

// acts counts the entries of the moderation log for an action.
func (a *api) acts(t *testing.T, action string) int64 {
	t.Helper()
	return a.number(t, "SELECT COUNT(*) FROM moderation_log WHERE action=?", action)
}

type voided struct {
	ID         int64
	UserID     int64 `json:"user_id"`
	Since      *time.Time
	Until      *time.Time
	LikesLeft  *int       `json:"likes_left"`
	DoneAt     *time.Time `json:"done_at"`
	RequestedB int64      `json:"requested_by"`
}

func TestVoidLikes_leavesNoneInRowsCountsAndRedis(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	ada, bob, carol := d.account(t), d.account(t), d.account(t)
	var paths []string
	var targets []models.Target
	for range 4 {
		p := d.newPost(t, ada)
		c := d.newComment(t, ada, p.ID)
		paths = append(paths, fmt.Sprintf("/v1/posts/%d", p.ID), fmt.Sprintf("/v1/comments/%d", c.ID))
		targets = append(targets, models.Target{Kind: models.KindPost, ID: p.ID},
			models.Target{Kind: models.KindComment, ID: c.ID})
	}
	for i, path := range paths {
		d.must(t, 200, bob, "PUT", path+"/like", nil)
		d.must(t, 200, carol, "PUT", path+"/like", nil)
		if i == 1 { // likes of different shards are written in any order
			d.settle()
		}
	}
	d.settle()

	users := fmt.Sprintf("/v1/admin/users/%d/likes", bob.ID)
	for kind, want := range map[string]models.TargetKind{"": models.KindPost, "?type=comment": models.KindComment} {
		rows := read[page[struct {
			Type   models.TargetKind `json:"target_type"`
			ID     int64             `json:"target_id"`
			Status string            `json:"target_status"`
			Author *struct{ Username string }
		}]](t, d.must(t, 200, d.moderator, "GET", users+kind, nil)).Items
		if len(rows) != 4 || rows[0].Type != want || rows[0].ID < rows[3].ID || rows[0].Status != "normal" ||
			rows[0].Author.Username != ada.Name {
			t.Errorf("likes of bob: %+v", rows)
		}
	}
	first := read[page[obj]](t, d.must(t, 200, d.moderator, "GET", users+"?limit=3", nil))
	rest := read[page[obj]](t, d.must(t, 200, d.moderator, "GET", users+"?limit=3&cursor="+*first.NextCursor, nil))
	if len(first.Items) != 3 || len(rest.Items) != 1 || rest.NextCursor != nil {
		t.Errorf("pages of %d and %d likes", len(first.Items), len(rest.Items))
	}

	d.refusedField(t, 422, "invalid", "reason", d.moderator, "POST", users+"/void", obj{"reason": " "})
	d.refusedField(t, 422, "invalid", "until", d.moderator, "POST", users+"/void",
		obj{"reason": "Bought.", "until": "2036-01-01T00:00:00Z"})
	d.refusedField(t, 422, "invalid", "since", d.moderator, "POST", users+"/void",
		obj{"reason": "Bought.", "since": "soon"})
	d.refusedField(t, 422, "invalid", "since", d.moderator, "POST", users+"/void",
		obj{"reason": "Bought.", "since": "2026-02-01T00:00:00Z", "until": "2026-01-01T00:00:00Z"})
	d.refused(t, 403, "forbidden", d.moderator, "POST", fmt.Sprintf("/v1/admin/users/%d/likes/void", d.admin.ID),
		obj{"reason": "Bought."})
	d.refused(t, 404, "not_found", d.moderator, "POST", "/v1/admin/users/999999/likes/void", obj{"reason": "Bought."})
	if n := d.number(t, "SELECT COUNT(*) FROM like_voids"); n != 0 {
		t.Fatalf("%d requests were refused and made", n)
	}

	given := func() int {
		t.Helper()
		path := fmt.Sprintf("/v1/admin/users/%d", bob.ID)
		return read[struct {
			N int `json:"given_likes_count"`
		}](t, d.must(t, 200, d.moderator, "GET", path, nil)).N
	}
	if n := given(); n != 8 {
		t.Errorf("bob has given %d likes", n)
	}
	r := d.must(t, 202, d.moderator, "POST", users+"/void", obj{"reason": "Bought."})
	asked := read[voided](t, r)
	if *asked.LikesLeft != 8 || asked.DoneAt != nil || asked.Until == nil || asked.UserID != bob.ID ||
		asked.RequestedB != d.moderator.ID {
		t.Errorf("the request: %s", r)
	}
	progress := r.Header.Get("Location")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	void := func() {
		t.Helper()
		if _, _, err := workers.NewVoider(d.store, d.redis, d.likes).Void(ctx); err != nil {
			t.Fatal(err)
		}
		d.settle()
	}
	d.exec(t, "UPDATE like_voids SET liked_until=liked_until + INTERVAL 1 HOUR")
	void()
	if now := read[voided](t, d.must(t, 200, d.moderator, "GET", progress, nil)); *now.LikesLeft != 0 ||
		now.DoneAt != nil {
		t.Errorf("after a run: %+v", now)
	}
	d.exec(t, "UPDATE like_voids SET liked_until=liked_until - INTERVAL 2 HOUR")
	void()
	if now := read[voided](t, d.must(t, 200, d.moderator, "GET", progress, nil)); *now.LikesLeft != 0 ||
		now.DoneAt == nil {
		t.Errorf("at the end: %+v", now)
	}
	if n := given(); n != 0 {
		t.Errorf("%d likes of bob are left", n)
	}
	for i, path := range paths {
		if got := read[like](t, d.must(t, 200, bob, "GET", path, nil)); got.LikesCount != 1 || got.Liked {
			t.Errorf("%s: %+v", path, got)
		}
		if in := d.likers(t, targets[i], bob, carol); !slices.Equal(in, []bool{false, true}) {
			t.Errorf("%s: Redis has bob and carol: %v", path, in)
		}
	}
	if n := d.number(t, `
		SELECT (SELECT COUNT(*) FROM post_likes WHERE user_id=?)
			+ (SELECT COUNT(*) FROM comment_likes WHERE user_id=?)`, bob.ID, bob.ID); n != 0 {
		t.Errorf("%d rows are left", n)
	}
	if n := d.acts(t, "user.void_likes"); n != 1 {
		t.Errorf("%d entries in the log", n)
	}
	d.clean(t)

	// Users who are not banned are not affected.
	d.exec(t, "UPDATE like_voids SET done_at=NULL, liked_until=liked_until - INTERVAL 10 SECOND")
	// While a Voider works on a request, and for some seconds after, likes of the user are refused.
	testkit.Eventually(t, time.Minute, func() (bool, string) {
		r := d.send(t, bob, "PUT", paths[0]+"/like", nil)
		return r.Status == 200, r.String()
	})
	d.settle()
	d.exec(t, "UPDATE post_likes SET created_at=NOW() WHERE user_id=?", bob.ID)
	void()
	if got := read[like](t, d.must(t, 200, bob, "GET", paths[0], nil)); got.LikesCount != 2 || !got.Liked {
		t.Errorf("liked again: %+v", got)
	}
	d.clean(t)
}

type letter struct {
	ID         int64
	Position   *string
	Payload    string
	Encoding   string
	Size       int `json:"payload_size"`
	Error      string
	Status     string
	ResolvedBy *int64 `json:"resolved_by"`
}

// letter writes a dead letter, as the like writer does.
func (d *desk) letter(t *testing.T, shard int, seq int64, payload string) int64 {
	t.Helper()
	d.exec(t, "INSERT INTO dead_letters"+
		" (digest, shard, epoch, seq, topic, topic_partition, topic_offset, payload, error, created_at)"+
		" VALUES (UNHEX(SHA2(UUID(),256)),?,?,?,'likes',?,1,?,'makes no sense',NOW(3))", shard, min(seq, 1), seq, shard,
		[]byte(payload))
	return d.number(t, "SELECT MAX(id) FROM dead_letters")
}

func TestDeadLetters_areRetriedAsTheGateHasItNow(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	ada, bob, carol := d.account(t), d.account(t), d.account(t)
	p := d.newPost(t, ada)
	target := models.Target{Kind: models.KindPost, ID: p.ID}
	shard := target.Shard(d.store.Shards())
	path := fmt.Sprintf("/v1/posts/%d/like", p.ID)
	d.must(t, 200, bob, "PUT", path, nil)
	d.must(t, 200, carol, "PUT", path, nil)
	d.must(t, 200, carol, "DELETE", path, nil)
	d.settle()
	// The writer could not apply Bob's like at the time; Carol has removed hers since.
	d.exec(t, "DELETE FROM post_likes WHERE user_id=?", bob.ID)
	d.exec(t, "UPDATE posts SET likes_count=0, updated_at=updated_at WHERE id=?", p.ID)
	event := func(user account) string {
		return fmt.Sprintf("likes %d p%d %d", time.Now().UnixMilli(), p.ID, user.ID)
	}
	bobs, carols := d.letter(t, shard, 1, event(bob)), d.letter(t, shard, 2, event(carol))
	record := d.letter(t, shard, 0,
		fmt.Sprintf(`{"v":1,"shard":%d,"runs":[{"pos":"1-7","run":%q},{"pos":"1-8","run":%q}]}`, shard,
			event(bob), event(carol)))
	noise := d.letter(t, shard, 0, "\x00\xff")
	future := d.letter(t, shard, 3, fmt.Sprintf("loves %d", p.ID))
	colds := d.newPost(t, ada)
	cold := models.Target{Kind: models.KindPost, ID: colds.ID}
	// A new post stays cold until its first like.
	if states, err := d.redis.TargetStates(t.Context(), []models.Target{cold}); err != nil || states[0].Warm {
		t.Fatalf("a post without likes: %+v, %v", states, err)
	}
	ofCold := d.letter(t, cold.Shard(d.store.Shards()), 4,
		fmt.Sprintf("likes 1 p%d %d", colds.ID, bob.ID))

	list := read[page[letter]](t, d.must(t, 200, d.admin, "GET", "/v1/admin/dead-letters", nil)).Items
	if len(list) != 6 || list[0].ID != ofCold || list[0].Encoding != "text" ||
		!strings.HasPrefix(list[0].Payload, "likes 1 ") || list[5].Position == nil || *list[5].Position != "1-1" {
		t.Errorf("letters: %+v", list)
	}
	if at := list[2]; at.ID != noise || at.Position != nil || at.Encoding != "base64" ||
		at.Payload != base64.StdEncoding.EncodeToString([]byte{0, 0xff}) || at.Size != 2 {
		t.Errorf("noise: %+v", at)
	}

	act := func(status int, id int64, what string) reply {
		t.Helper()
		return d.must(t, status, d.admin, "POST", fmt.Sprintf("/v1/admin/dead-letters/%d/%s", id, what),
			obj{"reason": "The writer was mended."})
	}
	d.refused(t, 403, "forbidden", d.moderator, "POST", fmt.Sprintf("/v1/admin/dead-letters/%d/retry", bobs),
		obj{"reason": "Why not."})
	d.refusedField(t, 422, "invalid", "reason", d.admin, "POST", fmt.Sprintf("/v1/admin/dead-letters/%d/retry", bobs),
		obj{})
	d.refused(t, 404, "not_found", d.admin, "POST", "/v1/admin/dead-letters/999999/retry", obj{"reason": "Why not."})
	for _, id := range []int64{noise, future, ofCold} {
		act(409, id, "retry")
	}
	if got := read[letter](t, act(200, carols, "retry")); got.Status != "retried" || *got.ResolvedBy != d.admin.ID {
		t.Errorf("carol's: %+v", got)
	}
	d.settle()
	if n := d.number(t, "SELECT COUNT(*) FROM post_likes WHERE post_id=?", p.ID); n != 0 {
		t.Errorf("%d rows: a letter overwrote a later like", n)
	}
	act(200, bobs, "retry")
	act(409, bobs, "retry")
	act(409, bobs, "discard")
	d.settle()
	if ids, err := likes.New(d.store).LikerIDs(t.Context(), target, 0, 10); err != nil || !slices.Equal(ids,
		[]int64{bob.ID}) {
		t.Errorf("likers: %v, %v; want bob", ids, err)
	}
	act(200, record, "retry")
	for _, id := range []int64{noise, future, ofCold} {
		if got := read[letter](t, act(200, id, "discard")); got.Status != "discarded" {
			t.Errorf("discarded: %+v", got)
		}
	}
	d.settle()
	for query, want := range map[string]int{"": 0, "?status=resolved": 6} {
		if list := read[page[letter]](t,
			d.must(t, 200, d.admin, "GET", "/v1/admin/dead-letters"+query, nil)).Items; len(list) != want {
			t.Errorf("%q: %d letters, want %d", query, len(list), want)
		}
	}
	if n, err := likes.New(d.store).DeadLetters(t.Context()); err != nil || n != 0 {
		t.Errorf("%d letters wait, %v", n, err)
	}
	// One retry of a cold target failed; that of an unreadable letter was not begun.
	if retried, failed, discarded := d.acts(t, "dead_letter.retry"), d.acts(t, "dead_letter.retry_failed"),
		d.acts(t, "dead_letter.discard"); retried != 4 || failed != 1 || discarded != 3 {
		t.Errorf("%d retries, %d that failed and %d discards in the log", retried, failed, discarded)
	}
	d.clean(t)
}

// A letter of a whole record names many targets. That some are cold does not keep the likes of the others.
func TestDeadLetters_areRetriedAsFarAsTheGateHasThem(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	ada, bob := d.account(t), d.account(t)
	warm, shards := d.newPost(t, ada), int64(d.store.Shards())
	shard := models.Target{Kind: models.KindPost, ID: warm.ID}.Shard(d.store.Shards())
	d.must(t, 200, bob, "PUT", fmt.Sprintf("/v1/posts/%d/like", warm.ID), nil)
	d.settle()
	d.exec(t, "DELETE FROM post_likes WHERE user_id=?", bob.ID)
	d.exec(t, "UPDATE posts SET likes_count=0, hot_score=0, updated_at=updated_at WHERE id=?", warm.ID)
	id := d.letter(t, shard, 1, fmt.Sprintf("likes 1 p%d %d p%d %d -%d p%d %d", warm.ID+shards, bob.ID,
		warm.ID+2*shards, bob.ID, ada.ID, warm.ID, bob.ID))
	r := d.must(t, 409, d.admin, "POST", fmt.Sprintf("/v1/admin/dead-letters/%d/retry", id),
		obj{"reason": "The writer was mended."})
	cold := []string{fmt.Sprintf("post:%d", warm.ID+shards), fmt.Sprintf("post:%d", warm.ID+2*shards)}
	for _, want := range []string{strings.Join(cold, ", ") + ",", "(1) were sent"} {
		if !strings.Contains(r.String(), want) {
			t.Errorf("%s does not say %q", r, want)
		}
	}
	d.settle()
	if n := d.number(t, "SELECT COUNT(*) FROM post_likes WHERE user_id=?", bob.ID); n != 1 {
		t.Errorf("%d rows of the warm target", n)
	}
}

type reconciled struct {
	DryRun      bool `json:"dry_run"`
	Compared    int
	Differences []struct {
		ID       int64 `json:"target_id"`
		Problem  string
		Repaired bool
	}
	NextCursor *string `json:"next_cursor"`
}

func TestReconcile_reportsAndRepairs(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	ada, bob := d.account(t), d.account(t)
	p := d.newPost(t, ada)
	for range d.store.Shards() { // one more of the same shard, among others
		d.newComment(t, ada, p.ID)
	}
	shard := models.Target{Kind: models.KindPost, ID: p.ID}.Shard(d.store.Shards())
	d.must(t, 200, bob, "PUT", fmt.Sprintf("/v1/posts/%d/like", p.ID), nil)
	d.settle()
	spoil := func() {
		d.exec(t, "DELETE FROM post_likes")
		d.exec(t, "UPDATE posts SET likes_count=7, hot_score=hot_score+1, updated_at=updated_at WHERE id=?", p.ID)
	}
	ask := func(body obj) reconciled {
		t.Helper()
		return read[reconciled](t, d.must(t, 200, d.admin, "POST", "/v1/admin/reconcile", body))
	}
	target := obj{"target_type": "post", "target_id": p.ID}
	if got := ask(target); got.Compared != 1 || len(got.Differences) != 0 || !got.DryRun {
		t.Errorf("a consistent target: %+v", got)
	}
	spoil()
	if got := ask(target); len(got.Differences) != 2 || got.Differences[0].Repaired || got.Differences[1].Repaired {
		t.Errorf("a dry run: %+v", got)
	}
	if n := d.number(t, "SELECT likes_count FROM posts WHERE id=?", p.ID); n != 7 ||
		d.acts(t, "pipeline.reconcile") != 0 {
		t.Errorf("a dry run leaves %d likes and %d acts", n, d.acts(t, "pipeline.reconcile"))
	}
	d.refusedField(t, 422, "invalid", "reason", d.admin, "POST", "/v1/admin/reconcile",
		obj{"target_type": "post", "target_id": p.ID, "dry_run": false})
	target["dry_run"], target["reason"] = false, "Its count looked wrong."
	if got := ask(target); len(got.Differences) != 2 || !got.Differences[0].Repaired || !got.Differences[1].Repaired {
		t.Errorf("repaired: %+v", got)
	}
	d.clean(t)
	if n := d.number(t, `
		SELECT COUNT(*)
		FROM moderation_log
		WHERE action='pipeline.reconcile' AND before_state LIKE '%likes_count is 7%'
			AND target_type='post' AND target_id=?`, p.ID); n != 1 {
		t.Errorf("%d entries in the log", n)
	}

	if n := d.number(t, `
		SELECT COUNT(*)
		FROM moderation_log
		WHERE action='pipeline.reconciled'
			AND after_state='{"failed":0,"found":2,"repaired":2,"undecided":0}'
			AND target_id=?`, p.ID); n != 1 {
		t.Errorf("%d log entries of the outcome", n)
	}

	// The same by its shard, in parts.
	spoil()
	whole := func(body obj) (compared int, found, repaired int) {
		t.Helper()
		for range 10 {
			got := ask(body)
			compared, found = compared+got.Compared, found+len(got.Differences)
			for _, item := range got.Differences {
				if item.Repaired {
					repaired++
				}
			}
			if got.NextCursor == nil {
				return compared, found, repaired
			}
			body["cursor"] = *got.NextCursor
		}
		t.Fatal("it does not end")
		return 0, 0, 0
	}
	want := int(d.number(t, `
		SELECT (SELECT COUNT(*) FROM posts WHERE MOD(id,?)=?)
			+ (SELECT COUNT(*) FROM comments WHERE MOD(id,?)=?)`,
		d.store.Shards(), shard, d.store.Shards(), shard))
	if compared, found, repaired := whole(obj{"shard": shard}); compared != want || found != 2 || repaired != 0 {
		t.Errorf("a dry run of the shard: %d compared, want %d; %d found, %d repaired", compared, want, found, repaired)
	}
	if compared, found, repaired := whole(obj{"shard": shard, "dry_run": false,
		"reason": "After the outage."}); compared != want || found != 2 || repaired != 2 {
		t.Errorf("the shard: %d compared, want %d; %d found, %d repaired", compared, want, found, repaired)
	}
	d.clean(t)

	limited := d.newDrop(t, d.admin, nil)
	miscount := func() { d.exec(t, "UPDATE drops SET claimed=1 WHERE id=?", limited.ID) }
	miscount()
	drops := obj{"target_type": "drop", "target_id": limited.ID, "dry_run": false, "reason": "Looks wrong."}
	if got := ask(drops); got.Compared != 1 || len(got.Differences) != 1 || !got.Differences[0].Repaired {
		t.Errorf("a drop that is off by one: %+v", got)
	}
	miscount()
	_, found, repaired := whole(obj{"shard": limited.ID % int64(d.store.Shards()), "dry_run": false,
		"reason": "Looks wrong."})
	if found != 1 || repaired != 1 {
		t.Errorf("the shard of the drop: %d found, %d repaired", found, repaired)
	}
	d.clean(t)
	for field, body := range map[string]obj{
		"target_type": {"target_type": "user", "target_id": 1}, "target_id": {"target_type": "post"},
		"shard": {"shard": 99},
	} {
		d.refusedField(t, 422, "invalid", field, d.admin, "POST", "/v1/admin/reconcile", body)
	}
	d.refusedField(t, 400, "malformed", "cursor", d.admin, "POST", "/v1/admin/reconcile",
		obj{"shard": 1, "cursor": "x"})
}

type pipelineState struct {
	Mode   string
	Redis  *string
	Totals struct {
		OutboxEvents *int64 `json:"outbox_events"`
		LagEvents    *int64 `json:"lag_events"`
		ClosedShards *int   `json:"closed_shards"`
		DeadLetters  int64  `json:"dead_letters"`
	}
	Shards []struct {
		Open     *bool
		Relay    *string
		Epoch    int64
		Accepted *string
		Applied  string
		Failures []struct{ Stage, Worker, Error string }
	}
}

func TestPipeline_showsItsState(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	p := d.newPost(t, d.account(t))
	d.must(t, 200, d.account(t), "PUT", fmt.Sprintf("/v1/posts/%d/like", p.ID), nil)
	d.settle()
	d.letter(t, 3, 1, "noise")
	if err := likes.New(d.store).NoteFailure(t.Context(), []int{2, 5}, models.StageRelay, "worker-1:1",
		errors.New("kafka is away")); err != nil {
		t.Fatal(err)
	}
	shard := models.Target{Kind: models.KindPost, ID: p.ID}.Shard(d.store.Shards())
	got := read[pipelineState](t, d.must(t, 200, d.admin, "GET", "/v1/admin/pipeline", nil))
	if got.Mode != "gated" || *got.Redis != "ok" || *got.Totals.OutboxEvents != 0 || *got.Totals.LagEvents != 0 ||
		*got.Totals.ClosedShards != 0 ||
		got.Totals.DeadLetters != 1 || len(got.Shards) != d.store.Shards() {
		t.Errorf("the pipeline: %+v", got)
	}
	if s := got.Shards[shard]; !*s.Open || s.Relay == nil || s.Epoch < 1 || s.Accepted == nil ||
		*s.Accepted != s.Applied || s.Applied == "0-0" {
		t.Errorf("the shard of the like: %+v", s)
	}
	if f := got.Shards[2].Failures; len(f) != 1 || f[0].Stage != "relay" || f[0].Worker != "worker-1:1" ||
		f[0].Error != "kafka is away" {
		t.Errorf("failures: %+v", f)
	}
	d.refused(t, 403, "forbidden", d.moderator, "GET", "/v1/admin/pipeline", nil)

	// Without Redis, the state in MySQL is shown and nothing can be repaired.
	away, err := counters.Open("redis://127.0.0.1:1/0", d.store.Shards())
	require.NoError(t, err)
	t.Cleanup(func() { away.Close() })
	dark := serve(t, d.store, func(c *handlers.Config) {
		c.Desk = workers.NewDesk(d.store, away, counters.NewLikes(away, d.store, counters.LikesOptions{}))
	})
	r := dark.must(t, 200, d.admin, "GET", "/v1/admin/pipeline", nil)
	got = read[pipelineState](t, r)
	if *got.Redis != "unreachable" || got.Totals.OutboxEvents != nil || len(got.Shards) != d.store.Shards() ||
		got.Shards[shard].Open != nil || got.Shards[shard].Applied == "0-0" {
		t.Errorf("without redis: %+v", got)
	}
	if strings.Contains(string(r.Body), "127.0.0.1") {
		t.Errorf("it shows internals: %s", r)
	}
	dark.refused(t, 503, "unavailable", d.admin, "POST", "/v1/admin/reconcile",
		obj{"target_type": "post", "target_id": p.ID})

	// If one shard cannot be read, the others are shown as they are.
	moving := serve(t, d.store, func(c *handlers.Config) {
		c.Desk = deskOfMovingShard{workers.NewDesk(d.store, d.redis, d.likes)}
	})
	got = read[pipelineState](t, moving.must(t, 200, d.admin, "GET", "/v1/admin/pipeline", nil))
	if *got.Redis != "ok" || got.Totals.OutboxEvents == nil || got.Shards[2].Open != nil ||
		got.Shards[2].Accepted != nil ||
		got.Shards[3].Open == nil {
		t.Errorf("while a shard moves: %+v", got)
	}

	direct := newAPI(t, modes[0])
	got = read[pipelineState](t,
		direct.must(t, 200, direct.raise(t, models.RoleAdmin), "GET", "/v1/admin/pipeline", nil))
	if got.Mode != "direct" || got.Redis != nil || len(got.Shards) != 0 {
		t.Errorf("in direct mode: %+v", got)
	}
}
