package db_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"likewise/models"
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/likes"
	"likewise/models/people"
)

// claimLog applies events of the drops of one post as runs of their shards. The last event of a run is at position seq.
type claimLog struct {
	t     testing.TB
	store *db.DB
	post  *models.Post
	users []int64
	seq   *int64
	at    time.Time
}

func newClaimLog(t testing.TB, users int) claimLog {
	t.Helper()
	store := openStore(t)
	author := newUser(t, store, "ada")
	l := claimLog{t: t, store: store, post: newPost(t, store, author), seq: new(int64), at: past}
	for i := range users {
		l.users = append(l.users, newUser(t, store, fmt.Sprintf("user%d", i)).ID)
	}
	for shard := range store.Shards() {
		_, err := likes.New(store).ApplyLikes(t.Context(), []models.LikeRecord{{Shard: shard,
			Pos:    models.Position{Epoch: 1},
			Events: []models.Event{{Type: models.ShardOpened}}}})
		require.NoError(t, err)
	}
	return l
}

func (l claimLog) take(dropID, user, id int64) models.Event {
	return models.ClaimEvent(dropID, user, id, true, l.at)
}

func (l claimLog) back(dropID, user, id int64) models.Event {
	return models.ClaimEvent(dropID, user, id, false, l.at)
}

// records puts each event into a run of its own.
func (l claimLog) records(events ...models.Event) []models.LikeRecord {
	var records []models.LikeRecord
	for _, e := range events {
		*l.seq++
		records = append(records, models.LikeRecord{Shard: e.Target().Shard(l.store.Shards()),
			Pos: models.Position{Epoch: 1, Seq: *l.seq}, Part: true, Events: []models.Event{e},
			Payload: []byte(models.NewRun(e))})
	}
	return records
}

// apply applies the events as one batch, and then their duplicates as another, which must change nothing.
func (l claimLog) apply(events ...models.Event) models.LikesApplied {
	l.t.Helper()
	done, err := likes.New(l.store).ApplyLikes(context.Background(), l.records(events...))
	require.NoError(l.t, err)
	l.check()
	return done
}

// check compares claimed with the rows of every drop.
func (l claimLog) check() {
	l.t.Helper()
	require.Zero(l.t, count(l.t, l.store, `
		SELECT COUNT(*)
		FROM drops d
		WHERE claimed<>(SELECT COUNT(*) FROM claims c WHERE c.drop_id=d.id AND c.state IN (1,2)) OR claimed>stock`),
		"drops whose count is not that of their live claims")
}

// row returns "ID state reason to_release" of a user's claim.
func (l claimLog) row(dropID, user int64) string {
	l.t.Helper()
	var row string
	err := l.store.Pool().QueryRowContext(context.Background(), `
		SELECT CONCAT_WS(' ', id, ELT(state,'reserved','confirmed','returned','expired','rejected','voided'),
			NULLIF(reason,''), IF(to_release,'release',NULL))
		FROM claims
		WHERE drop_id=? AND user_id=?`, dropID, user).Scan(&row)
	if err != nil {
		return ""
	}
	return row
}

func (l claimLog) claimed(dropID int64) int {
	l.t.Helper()
	return count(l.t, l.store, "SELECT claimed FROM drops WHERE id=?", dropID)
}

func (l claimLog) notified(user int64) []string {
	l.t.Helper()
	list, _, err := people.New(l.store).Notifications(context.Background(), user, false, 0, 50)
	require.NoError(l.t, err)
	var got []string
	for _, n := range list {
		got = append(got, fmt.Sprintf("%s %d", n.Kind, n.ClaimID))
	}
	return got
}

func (l claimLog) exec(query string, args ...any) {
	l.t.Helper()
	_, err := l.store.Pool().ExecContext(context.Background(), query, args...)
	require.NoError(l.t, err)
}

func TestApplyClaims_writesRowsAndCount(t *testing.T) {
	t.Parallel()
	l := newClaimLog(t, 3)
	d := insertDrop(t, l.store, l.post, 2, 0)
	done := l.apply(l.take(d, l.users[0], 100), l.take(d, l.users[1], 101))
	assert.Equal(t, 2, done.Claimed)
	assert.Equal(t, 2, done.Accepted)
	assert.Equal(t, "100 confirmed", l.row(d, l.users[0]))
	assert.Equal(t, 2, l.claimed(d))
	assert.Equal(t, []string{"claim_confirmed 100"}, l.notified(l.users[0]))
	assert.Equal(t, 1, count(t, l.store, `
		SELECT COUNT(*) FROM claims WHERE id=100 AND created_at=? AND confirmed_at=? AND ended_at IS NULL
			AND expires_at IS NULL AND due_at IS NULL`, past, past))

	done = l.apply(l.back(d, l.users[0], 100))
	assert.Equal(t, 1, done.Returned)
	assert.Equal(t, "100 returned", l.row(d, l.users[0]))
	assert.Equal(t, 1, l.claimed(d))
	l.apply(l.take(d, l.users[2], 102))
	assert.Equal(t, 2, l.claimed(d))
}

func TestApplyClaims_reservesUntilItIsConfirmed(t *testing.T) {
	t.Parallel()
	l := newClaimLog(t, 2)
	long, short := insertDrop(t, l.store, l.post, 2, 600), insertDrop(t, l.store, l.post, 2, 60)
	l.apply(l.take(long, l.users[0], 100), l.take(short, l.users[1], 101))
	assert.Equal(t, "100 reserved", l.row(long, l.users[0]))
	assert.Empty(t, l.notified(l.users[0]))
	assert.Equal(t, 1, count(t, l.store, "SELECT COUNT(*) FROM claims WHERE id=100 AND expires_at=? AND due_at=?",
		past.Add(600*time.Second), past.Add(450*time.Second)), "the user is warned before")
	assert.Equal(t, 1, count(t, l.store, "SELECT COUNT(*) FROM claims WHERE id=101 AND expires_at=? AND due_at=?",
		past.Add(60*time.Second), past.Add(60*time.Second)), "too short for a warning")
}

func TestApplyClaims_dropsDuplicates(t *testing.T) {
	t.Parallel()
	l := newClaimLog(t, 2)
	d := insertDrop(t, l.store, l.post, 2, 0)
	l.apply(l.take(d, l.users[0], 100))
	l.apply(l.take(d, l.users[0], 100), l.take(d, l.users[0], 100))
	assert.Equal(t, 1, l.claimed(d))
	l.apply(l.back(d, l.users[0], 100))
	l.apply(l.take(d, l.users[0], 100), l.back(d, l.users[0], 100), l.back(d, l.users[0], 100))
	assert.Equal(t, "100 returned", l.row(d, l.users[0]), "an id is claimed once")
	assert.Zero(t, l.claimed(d))
	l.apply(l.back(d, l.users[1], 300), l.back(d, l.users[0], 99))
	assert.Zero(t, l.claimed(d), "claims that never arrived return nothing")

	// The same run after the watermark has passed it.
	record := models.LikeRecord{Shard: int(d) % l.store.Shards(), Pos: models.Position{Epoch: 2, Seq: 1},
		Events: []models.Event{l.take(d, l.users[1], 101)}}
	for range 2 {
		_, err := likes.New(l.store).ApplyLikes(t.Context(), []models.LikeRecord{record})
		require.NoError(t, err)
	}
	record.Events = []models.Event{l.back(d, l.users[1], 101)}
	done, err := likes.New(l.store).ApplyLikes(t.Context(), []models.LikeRecord{record})
	require.NoError(t, err)
	assert.Equal(t, 1, done.Duplicates)
	assert.Equal(t, 1, l.claimed(d))
}

// The log has lost a return, and the next claim of the user arrives.
func TestApplyClaims_takesTheRowOfALostReturn(t *testing.T) {
	t.Parallel()
	l := newClaimLog(t, 2)
	d := insertDrop(t, l.store, l.post, 1, 0)
	l.apply(l.take(d, l.users[0], 100))
	done := l.apply(l.take(d, l.users[0], 200))
	assert.Equal(t, 1, done.Claimed)
	assert.Equal(t, "200 confirmed", l.row(d, l.users[0]))
	assert.Equal(t, 1, l.claimed(d))
	l.apply(l.back(d, l.users[0], 100))
	assert.Equal(t, "200 confirmed", l.row(d, l.users[0]), "the return of another claim")
	assert.Equal(t, []string{"claim_confirmed 200", "claim_confirmed 100"}, l.notified(l.users[0]))
}

func TestApplyClaims_interleavedInOneBatch(t *testing.T) {
	t.Parallel()
	l := newClaimLog(t, 3)
	a, b := insertDrop(t, l.store, l.post, 1, 0), insertDrop(t, l.store, l.post, 2, 300)
	done := l.apply(
		l.take(a, l.users[0], 100), l.take(b, l.users[0], 200),
		l.back(a, l.users[0], 100), l.take(a, l.users[1], 101),
		l.back(a, l.users[1], 101), l.take(a, l.users[0], 102),
		l.take(b, l.users[1], 201), l.back(b, l.users[0], 200), l.take(b, l.users[2], 202),
	)
	assert.Zero(t, done.Rejected, "each returned claim makes room for the next one")
	assert.Equal(t, "102 confirmed", l.row(a, l.users[0]))
	assert.Equal(t, "101 returned", l.row(a, l.users[1]))
	assert.Equal(t, "200 returned", l.row(b, l.users[0]))
	assert.Equal(t, "201 reserved", l.row(b, l.users[1]))
	assert.Equal(t, "202 reserved", l.row(b, l.users[2]))
	assert.Equal(t, 1, l.claimed(a))
	assert.Equal(t, 2, l.claimed(b))
	assert.Equal(t, []string{"claim_confirmed 102"}, l.notified(l.users[0]))
	assert.Empty(t, l.notified(l.users[1]), "a claim that was returned in the same batch")
}

func TestApplyClaims_rejectsWhatMySQLCannotAccept(t *testing.T) {
	t.Parallel()
	l := newClaimLog(t, 5)
	hidden := newPost(t, l.store, l.post.Author)
	d, other := insertDrop(t, l.store, l.post, 3, 0), insertDrop(t, l.store, hidden, 3, 0)
	require.NoError(t, content.New(l.store).DeletePost(t.Context(), 0, hidden.ID))
	l.exec("UPDATE users SET deleted_at=? WHERE id=?", past, l.users[4])
	l.exec("UPDATE drops SET stock=1 WHERE id=?", d)
	done := l.apply(
		l.take(d, l.users[0], 100), l.take(d, l.users[1], 101), l.take(d, l.users[4], 104),
		l.take(other, l.users[2], 102),
	)
	assert.Equal(t, 3, done.Rejected)
	assert.Equal(t, 1, done.Claimed)
	assert.Equal(t, "100 confirmed", l.row(d, l.users[0]))
	assert.Equal(t, "101 rejected stock_lowered release", l.row(d, l.users[1]))
	assert.Equal(t, "104 rejected account_deleted release", l.row(d, l.users[4]))
	assert.Equal(t, "102 rejected post_deleted release", l.row(other, l.users[2]))
	assert.Equal(t, []string{"claim_rejected 101"}, l.notified(l.users[1]))
	assert.Equal(t, []string{"claim_rejected 102"}, l.notified(l.users[2]), "the post is deleted")
	assert.Zero(t, count(t, l.store, "SELECT COUNT(*) FROM notifications WHERE user_id=?", l.users[4]))

	done = l.apply(l.take(d, l.users[1], 101))
	assert.Zero(t, done.Rejected, "a repetition")
	l.apply(l.back(d, l.users[1], 101), l.back(other, l.users[2], 102))
	assert.Equal(t, "101 rejected stock_lowered", l.row(d, l.users[1]), "the gate has released it")
	assert.Equal(t, "102 rejected post_deleted", l.row(other, l.users[2]))
	assert.Equal(t, 1, l.claimed(d))

	// In the same batch, too.
	l.apply(l.take(d, l.users[3], 103), l.back(d, l.users[3], 103))
	assert.Equal(t, "103 rejected stock_lowered", l.row(d, l.users[3]))
	l.apply(l.back(d, l.users[0], 100), l.take(d, l.users[1], 105))
	assert.Equal(t, "105 confirmed", l.row(d, l.users[1]), "a later claim of a user who was rejected")
}

func TestApplyClaims_ofSettings(t *testing.T) {
	t.Parallel()
	l := newClaimLog(t, 1)
	a, b := insertDrop(t, l.store, l.post, 1, 0), insertDrop(t, l.store, l.post, 1, 0)
	l.exec("UPDATE drops SET version=5")
	l.apply(models.DropEvent(a, 3, past), models.DropEvent(a, 2, past), l.take(b, l.users[0], 100))
	sent := func(id int64) int { return count(t, l.store, "SELECT sent_version FROM drops WHERE id=?", id) }
	assert.Equal(t, 3, sent(a))
	assert.Equal(t, 1, sent(b))
	l.apply(models.DropEvent(a, 2, past), models.DropEvent(b, 5, past))
	assert.Equal(t, 3, sent(a))
	assert.Equal(t, 5, sent(b))
	assert.Equal(t, 1, count(t, l.store, "SELECT SUM(unsent) FROM drops"))

	// The log may be ahead of a MySQL that was restored from a backup. The next version must be sent all the same.
	l.apply(models.DropEvent(b, 9, past))
	assert.Equal(t, 5, sent(b))
	l.exec("UPDATE drops SET version=6 WHERE id=?", b)
	assert.Equal(t, 2, count(t, l.store, "SELECT SUM(unsent) FROM drops"))
}

func TestApplyClaims_passesOverADropWithoutARow(t *testing.T) {
	t.Parallel()
	l := newClaimLog(t, 1)
	d := insertDrop(t, l.store, l.post, 1, 0)
	done := l.apply(l.take(999, l.users[0], 100), l.take(d, l.users[0], 101))
	assert.Equal(t, 1, done.Vanished)
	assert.Equal(t, 1, done.Claimed)
	assert.Equal(t, 1, count(t, l.store, "SELECT COUNT(*) FROM claims"))
}

// Events that contradict the rows are bad data, so that the writer makes them dead letters.
func TestApplyClaims_reportsBadData(t *testing.T) {
	t.Parallel()
	l := newClaimLog(t, 3)
	d, other := insertDrop(t, l.store, l.post, 2, 0), insertDrop(t, l.store, l.post, 2, 0)
	l.apply(l.take(d, l.users[0], 100))
	refused := func(events ...models.Event) {
		t.Helper()
		_, err := likes.New(l.store).ApplyLikes(t.Context(), l.records(events...))
		require.Error(t, err)
		assert.True(t, db.IsBadData(err), err)
		assert.Equal(t, "100 confirmed", l.row(d, l.users[0]))
		assert.Equal(t, 1, count(t, l.store, "SELECT COUNT(*) FROM claims"), "all or nothing")
	}
	refused(l.take(d, l.users[1], 101), l.take(d, l.users[1], 100))
	refused(l.take(other, l.users[0], 100))
	refused(l.take(other, l.users[0], 102), l.take(other, l.users[1], 102))

	// Another writer has broken the lock: the last line of defence.
	l.exec("ALTER TABLE drops DROP CONSTRAINT drops_not_oversold")
	l.exec(`
		CREATE TRIGGER meddle AFTER INSERT ON claims FOR EACH ROW
		UPDATE drops SET stock=claimed WHERE id=NEW.drop_id`)
	refused(l.take(d, l.users[1], 101))
	l.exec("DROP TRIGGER meddle")
	assert.Equal(t, 1, l.claimed(d))

	l.exec("UPDATE drops SET claimed=0 WHERE id=?", d)
	_, err := likes.New(l.store).ApplyLikes(t.Context(), l.records(l.back(d, l.users[0], 100)))
	require.Error(t, err)
	assert.True(t, db.IsBadData(err), "the count never becomes negative")
}

// Several writers of one shard apply overlapping parts of the log, in pieces and more than once.
func TestApplyClaims_writersThatBothOwnAShardTakeTurns(t *testing.T) {
	t.Parallel()
	l := newClaimLog(t, 10)
	d := insertDrop(t, l.store, l.post, 6, 0)
	var events []models.Event
	held, id := map[int]int64{}, int64(100)
	for i := range 200 {
		u := i * 7 % len(l.users)
		if has := held[u]; has != 0 {
			events = append(events, l.back(d, l.users[u], has))
			delete(held, u)
		} else if len(held) < 6 {
			id++
			events, held[u] = append(events, l.take(d, l.users[u], id)), id
		}
	}
	records := l.records(events...)
	for i := range records {
		records[i].Part, records[i].Pos = false, models.Position{Epoch: 1, Seq: int64(i) + 1}
	}
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for start := 0; start < len(records); start += 3 + w {
				end := min(start+9, len(records))
				if _, err := likes.New(l.store).ApplyLikes(context.Background(), records[start:end]); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
	l.check()
	for u, user := range l.users {
		if id := held[u]; id != 0 {
			assert.Equal(t, fmt.Sprintf("%d confirmed", id), l.row(d, user))
		}
	}
	assert.Equal(t, len(held), l.claimed(d))
}

// A batch that MySQL refuses, or that takes too long, is written in parts, of one run in the end. A writer that is late
// applies a part once more after the later ones. It must not bring back a claim that its user has replaced meanwhile.
func TestApplyClaims_ofALatePartOfARun(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]func(l claimLog, d, user int64) []models.Event{
		"returned and taken again": func(l claimLog, d, user int64) []models.Event {
			return []models.Event{l.take(d, user, 101), l.back(d, user, 101), l.take(d, user, 102)}
		},
		"returned before": func(l claimLog, d, user int64) []models.Event {
			return []models.Event{
				l.back(d, user, 100), l.take(d, user, 101), l.back(d, user, 101), l.take(d, user, 102),
			}
		},
		"a lost return": func(l claimLog, d, user int64) []models.Event {
			return []models.Event{l.take(d, user, 101), l.take(d, user, 102)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newClaimLog(t, 2)
			d := insertDrop(t, l.store, l.post, 2, 0)
			l.apply(l.take(d, l.users[0], 100), l.take(d, l.users[1], 200))
			run := models.LastEvents(of(l, d, l.users[0]))
			part := func(events ...models.Event) {
				t.Helper()
				shard := run[0].Target().Shard(l.store.Shards())
				_, err := likes.New(l.store).ApplyLikes(t.Context(), []models.LikeRecord{{Shard: shard,
					Pos: models.Position{Epoch: 1, Seq: 1}, Part: true, Events: events}})
				require.NoError(t, err)
				l.check()
			}
			for _, e := range run {
				part(e)
			}
			for cut := range run {
				for from := range cut + 1 {
					part(run[from : cut+1]...)
					assert.Equal(t, "102 confirmed", l.row(d, l.users[0]), "%v once more", run[from:cut+1])
					assert.Equal(t, 2, l.claimed(d))
				}
			}
		})
	}
}

// claimModel is the state of drops in memory, one event at a time.
type claimModel struct {
	stock, claimed map[int64]int64
	rows           map[[2]int64]string // "ID state reason release" by drop and user
	ids            map[[2]int64]int64
	live           map[[2]int64]bool
}

func (m *claimModel) apply(e models.Event) {
	key := [2]int64{e.ID, e.UserID}
	switch {
	case e.Type == models.ClaimTaken && m.ids[key] != e.ClaimID:
		was := m.live[key]
		m.ids[key] = e.ClaimID
		if !was && m.claimed[e.ID] >= m.stock[e.ID] {
			m.rows[key] = fmt.Sprintf("%d rejected stock_lowered release", e.ClaimID)
			return
		}
		if !was {
			m.claimed[e.ID]++
		}
		m.live[key], m.rows[key] = true, fmt.Sprintf("%d confirmed", e.ClaimID)
	case e.Type == models.ClaimReturned && m.ids[key] == e.ClaimID:
		if m.live[key] {
			m.claimed[e.ID]--
			m.live[key], m.rows[key] = false, fmt.Sprintf("%d returned", e.ClaimID)
		} else if m.rows[key] != fmt.Sprintf("%d returned", e.ClaimID) {
			m.rows[key] = fmt.Sprintf("%d rejected stock_lowered", e.ClaimID)
		}
	}
}

// Any events in any batches have the same outcome as in the model, which applies one at a time.
func TestApplyClaims_agreesWithAModel(t *testing.T) {
	t.Parallel()
	l := newClaimLog(t, 4)
	id := int64(1000)
	rapid.Check(t, func(r *rapid.T) {
		l := l
		l.t = t
		m := claimModel{map[int64]int64{}, map[int64]int64{}, map[[2]int64]string{}, map[[2]int64]int64{},
			map[[2]int64]bool{}}
		var drops []int64
		for range 2 {
			stock := rapid.Int64Range(1, 3).Draw(r, "stock")
			d := insertDrop(t, l.store, l.post, stock, 0)
			drops, m.stock[d] = append(drops, d), stock
		}
		first := id + 1
		for range rapid.IntRange(1, 4).Draw(r, "batches") {
			var events []models.Event
			for range rapid.IntRange(1, 12).Draw(r, "events") {
				d, user := rapid.SampledFrom(drops).Draw(r, "drop"), rapid.SampledFrom(l.users).Draw(r, "user")
				taken, of := rapid.Bool().Draw(r, "taken"), m.ids[[2]int64{d, user}]
				if of == 0 || taken && rapid.IntRange(0, 3).Draw(r, "new") > 0 {
					id++
					of = id
				}
				e := models.ClaimEvent(d, user, of, taken, past)
				events = append(events, e)
				m.apply(e)
			}
			_, err := likes.New(l.store).ApplyLikes(context.Background(), l.records(events...))
			require.NoError(r, err)
			for _, d := range drops {
				require.EqualValues(r, m.claimed[d], l.claimed(d), "drop %d from claim %d", d, first)
			}
			for _, key := range slices.Collect(maps.Keys(m.rows)) {
				require.Equal(r, m.rows[key], l.row(key[0], key[1]))
			}
		}
		l.check()
	})
}

// The claim of an account that a backup lacks is dropped: its user does not exist, and nobody can be notified.
func TestApplyClaims_dropsClaimsOfUsersWithoutARow(t *testing.T) {
	t.Parallel()
	l := newClaimLog(t, 1)
	d := insertDrop(t, l.store, l.post, 2, 0)
	const gone = 70_000
	done := l.apply(l.take(d, l.users[0], 100), l.take(d, gone, 101), l.back(d, gone, 101))
	assert.Equal(t, 1, done.Strangers)
	assert.Equal(t, 1, done.Claimed)
	assert.Zero(t, done.Rejected)
	assert.Equal(t, 1, count(t, l.store, "SELECT COUNT(*) FROM claims"))
	assert.Equal(t, 1, count(t, l.store, "SELECT claimed FROM drops WHERE id=?", d))
}
