package models_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
)

func newModerator(t testing.TB, store *models.Store, name string) models.Author {
	t.Helper()
	mod := newUser(t, store, name)
	require.NoError(t, store.SetRole(t.Context(), mod.ID, models.RoleModerator))
	return mod
}

func postTarget(p *models.Post) models.Target { return models.Target{Kind: models.KindPost, ID: p.ID} }
func commentTarget(c *models.Comment) models.Target {
	return models.Target{Kind: models.KindComment, ID: c.ID}
}

// exactCounts holds every count to what it counts.
func exactCounts(t testing.TB, store *models.Store) {
	t.Helper()
	for what, query := range map[string]string{
		"comments_count": `
			SELECT COUNT(*)
			FROM posts p
			WHERE p.comments_count<>(SELECT COUNT(*) FROM comments c WHERE c.post_id=p.id AND c.status=1)`,
		"replies_count": `
			SELECT COUNT(*)
			FROM comments p
			WHERE p.replies_count<>(SELECT COUNT(*) FROM comments c WHERE c.parent_id=p.id AND c.status=1)`,
		"posts_count": `
			SELECT COUNT(*)
			FROM tags g
			WHERE g.posts_count<>(
				SELECT COUNT(*)
				FROM post_tags k
				JOIN posts p ON p.id=k.post_id AND p.status=1
				WHERE k.tag_id=g.id)`,
		"tag status": "SELECT COUNT(*) FROM post_tags k JOIN posts p ON p.id=k.post_id WHERE p.status<>k.status",
		"terms": `
			SELECT COUNT(*)
			FROM posts p
			WHERE (p.status=1)<>EXISTS (SELECT 1 FROM post_terms m WHERE m.post_id=p.id)`,
	} {
		assert.Zero(t, count(t, store, query), "rows with a wrong %s", what)
	}
}

func TestModeration_deletionsAndRestorationsCountExactly(t *testing.T) {
	store := openStore(t)
	ctx := t.Context()
	ada, mod, mod2 := newUser(t, store, "ada"), newModerator(t, store, "mod"), newModerator(t, store, "mod2")
	p, err := store.CreatePost(
		ctx,
		ada,
		models.PostText{Title: "A post", Content: "with text", Tags: models.Tags{"go"}},
	)
	require.NoError(t, err)
	top := newComment(t, store, ada, p, nil)
	reply := newComment(t, store, ada, p, top)

	require.NoError(t, store.RemoveContent(ctx, mod.ID, commentTarget(top), "Spam."))
	exactCounts(t, store)
	require.NoError(t, store.RemoveContent(ctx, mod.ID, commentTarget(reply), "Spam."))
	require.NoError(t, store.RemoveContent(ctx, mod.ID, postTarget(p), "Spam."))
	exactCounts(t, store)
	require.NoError(
		t,
		store.ReinstateContent(ctx, mod.ID, commentTarget(reply), "It was a mistake."),
		"under a deleted post and parent",
	)
	exactCounts(t, store)
	_, err = store.RestorePost(ctx, ada.ID, p.ID)
	assert.Equal(t, models.CodeForbidden, models.ErrorCode(err), "an author does not undo a moderator's deletion")
	require.NoError(t, store.ReinstateContent(ctx, mod.ID, postTarget(p), "It was a mistake."))
	require.NoError(t, store.ReinstateContent(ctx, mod.ID, commentTarget(top), "It was a mistake."))
	exactCounts(t, store)
	assert.Equal(t, 2, count(t, store, "SELECT comments_count FROM posts"))
	assert.Zero(
		t,
		count(
			t,
			store,
			"SELECT COUNT(*) FROM posts WHERE deleted_at IS NOT NULL OR deleted_by IS NOT NULL OR delete_reason<>''",
		),
	)

	// What its author deleted is the moderator's from then on.
	require.NoError(t, store.DeletePost(ctx, ada.ID, p.ID))
	require.NoError(t, store.RemoveContent(ctx, mod.ID, postTarget(p), "Spam."))
	_, err = store.RestorePost(ctx, ada.ID, p.ID)
	assert.Equal(t, models.CodeForbidden, models.ErrorCode(err))
	acts := count(t, store, "SELECT COUNT(*) FROM moderation_log")
	require.NoError(t, store.RemoveContent(ctx, mod2.ID, postTarget(p), "Again."))
	assert.Equal(t, acts, count(t, store, "SELECT COUNT(*) FROM moderation_log"), "a request that changes nothing is not an act")
	exactCounts(t, store)
}

// TestModeration_isExactAmongWriters deletes and restores everything of one post at once, while others comment on it.
func TestModeration_isExactAmongWriters(t *testing.T) {
	store := openStore(t)
	ada, mod := newUser(t, store, "ada"), newModerator(t, store, "mod")
	p := newPost(t, store, ada)
	var all []*models.Comment
	for i := range 6 {
		var parent *models.Comment
		if i%2 == 1 {
			parent = all[i-1]
		}
		all = append(all, newComment(t, store, ada, p, parent))
	}
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for n := range 10 {
				ctx, c := context.Background(), all[(i*7+n)%len(all)]
				var err error
				switch (i + n) % 4 {
				case 0:
					err = store.RemoveContent(ctx, mod.ID, commentTarget(c), "Spam.")
				case 1:
					err = store.ReinstateContent(ctx, mod.ID, commentTarget(c), "No spam.")
				case 2:
					err = store.DeleteComment(ctx, c)
				default:
					_, err = store.CreateComment(ctx, ada, p.ID, &c.ID, models.CommentText{Content: "a reply"})
				}
				if err != nil && models.ErrorCode(err) != models.CodeNotFound {
					t.Errorf("%v", err)
				}
			}
		})
	}
	group.Wait()
	exactCounts(t, store)
}

// spammer has posts and comments, on their own posts and on others'.
func spammer(t *testing.T, store *models.Store, posts, comments int) (models.Author, *models.Post) {
	t.Helper()
	eve, ada := newUser(t, store, "eve"), newUser(t, store, "ada")
	other := newPost(t, store, ada)
	var last *models.Post
	for i := range posts {
		var err error
		last, err = store.CreatePost(
			t.Context(),
			eve,
			models.PostText{Title: "Buy", Content: fmt.Sprint("now ", i), Tags: models.Tags{"spam"}},
		)
		require.NoError(t, err)
	}
	var parent *models.Comment
	for i := range comments {
		on := other
		if i%3 == 0 && last != nil {
			on, parent = last, nil
		}
		parent = newComment(t, store, eve, on, parent)
		if i%5 == 0 {
			newComment(t, store, ada, on, parent)
			parent = nil
		}
		if i%3 == 0 {
			parent = nil
		}
	}
	return eve, other
}

// contentOf describes the content of a user, with its deletions.
func contentOf(t *testing.T, store *models.Store) string {
	t.Helper()
	var text string
	err := store.Pool().QueryRowContext(t.Context(), `
			SELECT CONCAT(
				(
					SELECT GROUP_CONCAT(
						CONCAT_WS(' ',id,status,deleted_by,delete_reason,operation_id,comments_count)
						ORDER BY id SEPARATOR ';')
					FROM posts),
				'|',
				(
					SELECT GROUP_CONCAT(
						CONCAT_WS(' ',id,status,deleted_by,delete_reason,operation_id,replies_count)
						ORDER BY id SEPARATOR ';')
					FROM comments))`).
		Scan(&text)
	require.NoError(t, err)
	return text
}

func step(t *testing.T, store *models.Store, id int64) models.OperationStep {
	t.Helper()
	s, err := store.StepOperation(t.Context(), id)
	require.NoError(t, err)
	return s
}

// finish carries out an operation with concurrent callers and returns the number of changed targets.
func finish(t *testing.T, store *models.Store, id int64) int {
	t.Helper()
	var mu sync.Mutex
	var group sync.WaitGroup
	changed := 0
	for range 3 {
		group.Go(func() {
			for {
				s, err := store.StepOperation(context.Background(), id)
				if !assert.NoError(t, err) || s.Done {
					return
				}
				mu.Lock()
				changed += s.Changed
				mu.Unlock()
				assert.NoError(t, store.CloseStep(context.Background(), id, s))
			}
		})
	}
	group.Wait()
	return changed
}

func TestOperation_deletesAllAndIsUndoneExactly(t *testing.T) {
	store := openStore(t)
	ctx := t.Context()
	eve, other := spammer(t, store, 45, 230)
	mod := newModerator(t, store, "mod")
	// Earlier deletions do not belong to the operation.
	found, err := store.ListPosts(ctx, models.PostQuery{Sort: models.PostsNew, AuthorID: eve.ID, Limit: 100})
	require.NoError(t, err)
	posts := found.Posts
	require.NoError(t, store.DeletePost(ctx, eve.ID, posts[0].ID))
	require.NoError(t, store.RemoveContent(ctx, mod.ID, postTarget(&posts[1]), "Spam."))
	before := contentOf(t, store)

	o, err := store.RemoveAll(ctx, mod.ID, eve.ID, "All spam.")
	require.NoError(t, err)
	assert.Equal(t, models.OperationDeleting, o.State)
	late := newPost(t, store, eve)
	assert.Equal(t, 273, finish(t, store, o.ID))
	exactCounts(t, store)
	assert.Equal(
		t,
		1,
		count(t, store, "SELECT COUNT(*) FROM posts WHERE user_id=? AND status=1", eve.ID),
		"what comes after the request is left alone",
	)
	assert.Zero(t, count(t, store, "SELECT COUNT(*) FROM comments WHERE user_id=? AND status=1", eve.ID))
	o, err = store.OperationByID(ctx, o.ID)
	require.NoError(t, err)
	assert.Equal(t, models.OperationDeleted, o.State)
	assert.Equal(t, [2]int64{43, 230}, [2]int64{o.PostsDeleted, o.CommentsDeleted})
	assert.NotNil(t, o.FinishedAt)
	assert.Empty(t, must(store.OpenOperations(ctx, 10)))
	require.Error(t, must1(store.PostByID(ctx, 0, posts[5].ID)))
	require.NoError(t, must1(store.PostByID(ctx, 0, other.ID)))

	_, err = store.Pool().ExecContext(ctx, "DELETE FROM posts WHERE id=?", late.ID)
	require.NoError(t, err)
	_, err = store.Pool().ExecContext(ctx, "DELETE FROM post_terms WHERE post_id=?", late.ID)
	require.NoError(t, err)
	// One is restored by hand, and another operation finds nothing else.
	require.NoError(t, store.ReinstateContent(ctx, mod.ID, postTarget(&posts[2]), "No spam."))
	for range 2 { // undoing again changes nothing
		o, err = store.UndoOperation(ctx, mod.ID, o.ID, "It was somebody else.")
		require.NoError(t, err)
		assert.Equal(t, models.OperationUndoing, o.State)
	}
	assert.Equal(t, 272, finish(t, store, o.ID))
	exactCounts(t, store)
	assert.Equal(t, before, contentOf(t, store))
	o, err = store.OperationByID(ctx, o.ID)
	require.NoError(t, err)
	assert.Equal(t, models.OperationUndone, o.State)
	assert.Equal(t, 1, count(t, store, "SELECT COUNT(*) FROM moderation_log WHERE action='user.delete_content'"))
	assert.Equal(t, 1, count(t, store, "SELECT COUNT(*) FROM moderation_log WHERE action='user.restore_content'"))
}

// TestOperation_isExactAtEveryStep stops between the steps, as a process does that is killed, and undoes it half way.
func TestOperation_isExactAtEveryStep(t *testing.T) {
	store := openStore(t)
	eve, _ := spammer(t, store, 25, 120)
	mod := newModerator(t, store, "mod")
	before := contentOf(t, store)
	o, err := store.RemoveAll(t.Context(), mod.ID, eve.ID, "All spam.")
	require.NoError(t, err)
	first := step(t, store, o.ID)
	exactCounts(t, store)
	assert.Equal(t, 100, first.Changed)
	// The step was not closed: the next one returns the same targets for the gate, and deletes nothing.
	again := step(t, store, o.ID)
	assert.Equal(t, first.Close, again.Close)
	assert.Zero(t, again.Changed)
	require.NoError(t, store.CloseStep(t.Context(), o.ID, again))
	for i := range 2 {
		s := step(t, store, o.ID)
		require.False(t, s.Done, "step %d", i)
		exactCounts(t, store)
		require.NoError(t, store.CloseStep(t.Context(), o.ID, s))
	}
	_, err = store.UndoOperation(t.Context(), mod.ID, o.ID, "It was somebody else.")
	require.NoError(t, err)
	assert.Equal(t, 140, finish(t, store, o.ID))
	exactCounts(t, store)
	assert.Equal(t, before, contentOf(t, store))
}

// TestOperation_reachesDeletedAccounts deletes the content of a deleted account.
func TestOperation_reachesDeletedAccounts(t *testing.T) {
	store := openStore(t)
	ctx := t.Context()
	mod, mod2 := newModerator(t, store, "mod"), newModerator(t, store, "mod2")
	eve := &models.User{Username: "eve", Email: "eve@example.org", PasswordHash: "x"}
	require.NoError(t, store.CreateUser(ctx, eve))
	newPost(t, store, models.Author{ID: eve.ID})
	must(store.DeleteUser(ctx, eve.ID, "x"))
	o := must(store.RemoveAll(ctx, mod.ID, eve.ID, "Spam."))
	assert.Equal(t, 1, finish(t, store, o.ID))
	must(store.UndoOperation(ctx, mod2.ID, o.ID, "No spam."))
	assert.Equal(t, 1, finish(t, store, o.ID))
	for actor, code := range map[int64]models.Code{
		mod2.ID: models.CodeForbidden,
		mod.ID:  models.CodeForbidden,
		eve.ID:  models.CodeForbidden,
	} {
		_, err := store.RemoveAll(ctx, actor, mod.ID, "Spam.")
		assert.Equal(t, code, models.ErrorCode(err), "%d", actor)
	}
	_, err := store.RemoveAll(ctx, mod.ID, 999, "Spam.")
	assert.Equal(t, models.CodeNotFound, models.ErrorCode(err))
	_, err = store.UndoOperation(ctx, mod.ID, 999, "Spam.")
	assert.Equal(t, models.CodeNotFound, models.ErrorCode(err))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func must1[T any](_ T, err error) error { return err }

func TestReports_areOnePerUserAndTargetAndResolvedOnce(t *testing.T) {
	store := openStore(t)
	ctx := t.Context()
	ada, mod, mod2 := newUser(t, store, "ada"), newModerator(t, store, "mod"), newModerator(t, store, "mod2")
	p := newPost(t, store, ada)
	var reporters []models.Author
	for i := range 5 {
		reporters = append(reporters, newUser(t, store, fmt.Sprint("reporter", i)))
	}
	report := models.NewReport{Target: postTarget(p), Reason: "spam", Detail: strings.Repeat("é", models.MaxDetail)}
	ids := make([]int64, 20)
	var group sync.WaitGroup
	for i := range ids {
		group.Go(func() {
			r, err := store.ReportContent(context.Background(), reporters[i%5].ID, report)
			if assert.NoError(t, err) {
				ids[i] = r.ID
			}
		})
	}
	group.Wait()
	for i := range ids {
		assert.Equal(t, ids[i%5], ids[i], "reporting again has the same answer")
	}
	assert.Equal(t, 5, count(t, store, "SELECT COUNT(*) FROM reports"))
	assert.Equal(t, 5, count(t, store, "SELECT reporters_count FROM report_cases"))
	cases := must(store.ReportCases(ctx, models.CasesOpen, 0, 10))
	require.Len(t, cases, 1)
	assert.Equal(t, map[string]int64{"spam": 5}, cases[0].Reasons)
	assert.Equal(t, ada.ID, cases[0].Author.ID)

	// Of two moderators one wins, with claims and with verdicts.
	errs := make([]error, 10)
	for i := range errs {
		group.Go(
			func() { errs[i] = store.ClaimReport(context.Background(), []int64{mod.ID, mod2.ID}[i%2], cases[0].ID) },
		)
	}
	group.Wait()
	winner, loser := mod, mod2
	if errs[0] != nil {
		winner, loser = mod2, mod
	}
	for i := range errs {
		if (i%2 == 0) == (winner.ID == mod.ID) {
			assert.NoError(t, errs[i])
		} else {
			assert.Equal(t, models.CodeConflict, models.ErrorCode(errs[i]))
		}
	}
	_, err := store.ResolveReport(
		ctx,
		loser.ID,
		cases[0].ID,
		models.Verdict{Outcome: models.OutcomeRemoved, Note: "Spam."},
	)
	assert.Equal(t, models.CodeConflict, models.ErrorCode(err))
	assert.Empty(t, must(store.ReportCases(ctx, models.CasesOpen, 0, 10)))
	assert.Len(t, must(store.ReportCases(ctx, models.CasesClaimed, 0, 10)), 1)
	// A claim ends by itself.
	_, err = store.Pool().
		ExecContext(ctx, "UPDATE report_cases SET claimed_until=?", time.Now().UTC().Add(-time.Second))
	require.NoError(t, err)
	assert.Len(t, must(store.ReportCases(ctx, models.CasesOpen, 0, 10)), 1)
	for i := range errs {
		group.Go(func() {
			_, errs[i] = store.ResolveReport(
				context.Background(),
				[]int64{mod.ID, mod2.ID}[i%2],
				cases[0].ID,
				models.Verdict{Outcome: models.OutcomeRemoved, Note: "Spam."},
			)
		})
	}
	group.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		} else {
			assert.Equal(t, models.CodeConflict, models.ErrorCode(err))
		}
	}
	assert.Equal(t, 1, won)
	for action, target := range map[string]int64{"report.resolve": cases[0].ID, "post.delete": p.ID} {
		kind, _, _ := strings.Cut(action, ".")
		assert.Equal(t, 1, count(t, store, "SELECT COUNT(*) FROM moderation_log WHERE action=?", action), action)
		assert.Equal(
			t,
			1,
			count(t, store, "SELECT COUNT(*) FROM moderation_log WHERE action=? AND target_type=? AND target_id=?",
				action, kind, target),
			action,
		)
	}
	exactCounts(t, store)
	require.Error(t, must1(store.PostByID(ctx, 0, p.ID)), "it is removed")
	assert.Len(t, must(store.ReportCases(ctx, models.CasesResolved, 0, 10)), 1)
	for _, r := range reporters {
		told, _, err := store.Notifications(ctx, r.ID, false, 0, 10)
		require.NoError(t, err)
		require.Len(t, told, 1)
		assert.Equal(t, models.NotifyReport, told[0].Kind)
		assert.Equal(t, models.OutcomeRemoved, told[0].Outcome)
		assert.Equal(t, int64(1), must(store.UnreadCount(ctx, r.ID)))
		mine := must(store.ReportsBy(ctx, r.ID, 0, 10))
		require.Len(t, mine, 1)
		assert.Equal(t, told[0].ReportID, mine[0].ID)
	}
	_, err = store.ReportContent(ctx, reporters[0].ID, report)
	assert.Equal(t, models.CodeNotFound, models.ErrorCode(err), "it is gone")
	// Once it is back it can be reported again.
	require.NoError(t, store.ReinstateContent(ctx, mod.ID, postTarget(p), "No spam."))
	again, err := store.ReportContent(ctx, reporters[0].ID, report)
	require.NoError(t, err)
	assert.NotContains(t, ids, again.ID)
}

func newAdmin(t testing.TB, store *models.Store, name string) models.Author {
	t.Helper()
	admin := newUser(t, store, name)
	require.NoError(t, store.SetRole(t.Context(), admin.ID, models.RoleAdmin))
	return admin
}

// reported returns the case of a target that ada reports.
func reported(t testing.TB, store *models.Store, reporter models.Author, target models.Target) int64 {
	t.Helper()
	must(store.ReportContent(t.Context(), reporter.ID, models.NewReport{Target: target, Reason: "spam"}))
	return int64(
		count(
			t,
			store,
			"SELECT id FROM report_cases WHERE is_open=1 AND target_type=? AND target_id=?",
			target.Kind,
			target.ID,
		),
	)
}

func forbidden(t testing.TB, err error, what string) {
	t.Helper()
	assert.Equal(t, models.CodeForbidden, models.ErrorCode(err), "%s: %v", what, err)
}

// TestOperation_leavesDeletionsOfModerators deletes, out of what an operation has hidden, some by itself.
func TestOperation_leavesDeletionsOfModerators(t *testing.T) {
	store := openStore(t)
	ctx := t.Context()
	eve, ada, mod, mod2 := newUser(
		t,
		store,
		"eve",
	), newUser(
		t,
		store,
		"ada",
	), newModerator(
		t,
		store,
		"mod",
	), newModerator(
		t,
		store,
		"mod2",
	)
	kept, judged, plain := newPost(t, store, eve), newPost(t, store, eve), newPost(t, store, eve)
	comment := newComment(t, store, eve, newPost(t, store, ada), nil)
	report := reported(t, store, ada, postTarget(judged))
	o := must(store.RemoveAll(ctx, mod.ID, eve.ID, "All spam."))
	finish(t, store, o.ID)
	require.NoError(t, store.RemoveContent(ctx, mod2.ID, postTarget(kept), "Illegal."))
	require.NoError(t, store.RemoveContent(ctx, mod.ID, commentTarget(comment), "Illegal."))
	must(store.ResolveReport(ctx, mod2.ID, report, models.Verdict{Outcome: models.OutcomeRemoved, Note: "Illegal."}))
	assert.Equal(
		t,
		3,
		count(t, store, "SELECT COUNT(*) FROM moderation_log WHERE action IN ('post.delete','comment.delete')"),
	)
	must(store.UndoOperation(ctx, mod.ID, o.ID, "No spam."))
	assert.Equal(t, 1, finish(t, store, o.ID))
	assert.Equal(
		t,
		2,
		count(t, store, `
				SELECT COUNT(*)
				FROM posts
				WHERE status=2 AND operation_id IS NULL AND delete_reason='Illegal.' AND deleted_by=? AND id IN (?,?)`,
			mod2.ID, kept.ID, judged.ID))
	assert.Equal(t, 1, count(t, store, "SELECT COUNT(*) FROM comments WHERE status=2 AND id=?", comment.ID))
	require.NoError(t, must1(store.PostByID(ctx, 0, plain.ID)))
	exactCounts(t, store)
}

func TestModeration_rejectsActsOnOneself(t *testing.T) {
	store := openStore(t)
	ctx := t.Context()
	ada, admin := newUser(t, store, "ada"), newAdmin(t, store, "admin")
	for _, own := range []models.Author{newModerator(t, store, "mod"), newAdmin(t, store, "admin2")} {
		p := newPost(t, store, own)
		c := newComment(t, store, own, p, nil)
		report := reported(t, store, ada, commentTarget(c))
		forbidden(t, store.ClaimReport(ctx, own.ID, report), "claim")
		for _, outcome := range []string{models.OutcomeDismissed, models.OutcomeRemoved} {
			forbidden(
				t,
				must1(store.ResolveReport(ctx, own.ID, report, models.Verdict{Outcome: outcome, Note: "x"})),
				outcome,
			)
		}
		forbidden(t, must1(store.ReportsOf(ctx, own.ID, report, 0, 10)), "reporters")
		assert.Len(t, must(store.ReportsOf(ctx, admin.ID, report, 0, 10)), 1)
		require.NoError(t, store.RemoveContent(ctx, admin.ID, postTarget(p), "Spam."))
		require.NoError(t, store.RemoveContent(ctx, admin.ID, commentTarget(c), "Spam."))
		forbidden(t, store.ReinstateContent(ctx, own.ID, postTarget(p), "x"), "restore")
		forbidden(t, store.ReinstateContent(ctx, own.ID, commentTarget(c), "x"), "restore")

		for what, ring := range map[string]*models.LikeRing{
			"author": {AuthorID: own.ID, Members: []models.RingMember{{UserID: ada.ID}}},
			"member": {AuthorID: ada.ID, Members: []models.RingMember{{UserID: own.ID}}},
		} {
			ring.FirstAt, ring.LastAt = past, past
			must(store.SaveRing(ctx, ring))
			forbidden(t, store.DismissRing(ctx, own.ID, ring.ID, "x"), what)
			forbidden(t, must1(store.VoidRing(ctx, own.ID, ring.ID, "x")), what)
		}
	}
	assert.Equal(t, 4, count(t, store, "SELECT COUNT(*) FROM moderation_log WHERE actor_id<>0"))
	assert.Zero(t, count(t, store, "SELECT COUNT(*) FROM report_cases WHERE is_open IS NULL OR claimed_by IS NOT NULL"))
}

// TestActs_endWithTheRole carries out each act as an actor who has lost the role, or is banned.
func TestActs_endWithTheRole(t *testing.T) {
	store := openStore(t)
	ctx := t.Context()
	ada, eve := newUser(t, store, "ada"), newUser(t, store, "eve")
	p := newPost(t, store, eve)
	report := reported(t, store, ada, postTarget(p))
	ring := &models.LikeRing{
		AuthorID: eve.ID,
		FirstAt:  past,
		LastAt:   past,
		Members:  []models.RingMember{{UserID: ada.ID}},
	}
	must(store.SaveRing(ctx, ring))
	letter := must(
		store.Pool().ExecContext(ctx, `
				INSERT INTO dead_letters (digest, shard, epoch, seq, topic, topic_partition, topic_offset,
					payload, error, created_at)
				VALUES (UNHEX(SHA2('x',256)),1,1,1,'likes',1,1,'x','x',NOW(3))`),
	)
	letterID := must(letter.LastInsertId())
	gone := &models.User{Username: "gone", Email: "gone@example.org", PasswordHash: "x"}
	require.NoError(t, store.CreateUser(ctx, gone))
	must(store.DeleteUser(ctx, gone.ID, "x"))
	root := newAdmin(t, store, "root")
	demoted, banned := newModerator(t, store, "demoted"), newAdmin(t, store, "banned")
	must(store.ChangeRole(ctx, root.ID, demoted.ID, models.RoleUser, "x"))
	must(store.BanUser(ctx, root.ID, banned.ID, &models.Ban{Until: models.ForGood, Reason: "x"}))
	acts := count(t, store, "SELECT COUNT(*) FROM moderation_log WHERE actor_id<>0")
	for _, actor := range []int64{demoted.ID, banned.ID, gone.ID, 999} {
		for what, do := range map[string]func() error{
			"delete":  func() error { return store.RemoveContent(ctx, actor, postTarget(p), "x") },
			"restore": func() error { return store.ReinstateContent(ctx, actor, postTarget(p), "x") },
			"pin":     func() error { return store.SetPostFlag(ctx, actor, p.ID, models.PostPinned, true, "x") },
			"claim":   func() error { return store.ClaimReport(ctx, actor, report) },
			"dismiss": func() error {
				verdict := models.Verdict{Outcome: models.OutcomeDismissed, Note: "x"}
				return must1(store.ResolveReport(ctx, actor, report, verdict))
			},
			"ring": func() error { return store.DismissRing(ctx, actor, ring.ID, "x") },
			"void": func() error { return must1(store.VoidRing(ctx, actor, ring.ID, "x")) },
			"letter": func() error {
				return must1(store.ResolveDeadLetter(ctx, actor, letterID, models.Discarded, "x"))
			},
			"retry": func() error { return store.BeginRetry(ctx, actor, letterID, "x", 1) },
			"reconcile": func() error {
				r := models.Reconciliation{ActorID: actor, TargetType: "post", TargetID: p.ID, Reason: "x"}
				return store.LogReconcile(ctx, r, nil)
			},
			"all":       func() error { return must1(store.RemoveAll(ctx, actor, eve.ID, "x")) },
			"all, gone": func() error { return must1(store.RemoveAll(ctx, actor, gone.ID, "x")) },
			"ban": func() error {
				return must1(store.BanUser(ctx, actor, eve.ID, &models.Ban{Until: models.ForGood, Reason: "x"}))
			},
			"unban": func() error { return store.UnbanUser(ctx, actor, eve.ID, "x") },
		} {
			forbidden(t, do(), fmt.Sprint(what, " by ", actor))
		}
	}
	// A moderator is rejected where an act requires an admin.
	mod := newModerator(t, store, "mod")
	forbidden(t, must1(store.ResolveDeadLetter(ctx, mod.ID, letterID, models.Discarded, "x")), "letter")
	forbidden(
		t,
		store.LogReconcile(
			ctx,
			models.Reconciliation{ActorID: mod.ID, TargetType: "post", TargetID: p.ID, Reason: "x"},
			nil,
		),
		"reconcile",
	)
	assert.Equal(t, acts, count(t, store, "SELECT COUNT(*) FROM moderation_log WHERE actor_id<>0"))
	require.NoError(t, must1(store.ResolveDeadLetter(ctx, root.ID, letterID, models.Discarded, "x")))
}

// TestModeration_doesNotOverruleHigherRoles takes back what an admin decided.
func TestModeration_doesNotOverruleHigherRoles(t *testing.T) {
	store := openStore(t)
	ctx := t.Context()
	eve, mod, admin := newUser(t, store, "eve"), newModerator(t, store, "mod"), newAdmin(t, store, "admin")
	swept, p := newPost(t, store, eve), newPost(t, store, eve)
	o := must(store.RemoveAll(ctx, admin.ID, eve.ID, "Spam."))
	finish(t, store, o.ID)
	later := newPost(t, store, eve)
	require.NoError(t, store.RemoveContent(ctx, admin.ID, postTarget(later), "Spam."))
	must(store.BanUser(ctx, mod.ID, eve.ID, &models.Ban{Until: models.ForGood, Reason: "x"}))
	must(store.BanUser(ctx, admin.ID, eve.ID, &models.Ban{Until: models.ForGood, Reason: "x"}))

	forbidden(t, must1(store.UndoOperation(ctx, mod.ID, o.ID, "x")), "undo")
	forbidden(t, store.ReinstateContent(ctx, mod.ID, postTarget(swept), "x"), "restore of the operation's")
	forbidden(t, store.ReinstateContent(ctx, mod.ID, postTarget(later), "x"), "restore")
	forbidden(t, store.UnbanUser(ctx, mod.ID, eve.ID, "x"), "unban")
	forbidden(
		t,
		must1(store.BanUser(ctx, mod.ID, eve.ID, &models.Ban{Until: time.Now().Add(time.Minute), Reason: "x"})),
		"a shorter ban",
	)
	require.NoError(t, store.RemoveContent(ctx, mod.ID, postTarget(p), "Illegal."))
	forbidden(t, store.ReinstateContent(ctx, mod.ID, postTarget(p), "x"), "restore of what the operation had deleted")

	// What counts is what everybody is now.
	require.NoError(t, store.SetRole(ctx, admin.ID, models.RoleModerator))
	require.NoError(t, store.UnbanUser(ctx, mod.ID, eve.ID, "x"))
	require.NoError(t, store.ReinstateContent(ctx, mod.ID, postTarget(later), "x"))
	must(store.UndoOperation(ctx, mod.ID, o.ID, "x"))
	assert.Equal(t, 1, finish(t, store, o.ID))
}

// TestOperation_keepsEarlierDeletions restores as an author, while the deletion of all stands and after.
func TestOperation_keepsEarlierDeletions(t *testing.T) {
	store := openStore(t)
	ctx := t.Context()
	eve, mod := newUser(t, store, "eve"), newModerator(t, store, "mod")
	p := newPost(t, store, eve)
	require.NoError(t, store.DeletePost(ctx, eve.ID, p.ID))
	o := must(store.RemoveAll(ctx, mod.ID, eve.ID, "All spam."))
	forbidden(t, must1(store.RestorePost(ctx, eve.ID, p.ID)), "while it is at work")
	finish(t, store, o.ID)
	forbidden(t, must1(store.RestorePost(ctx, eve.ID, p.ID)), "when it is done")
	later := newPost(t, store, eve)
	require.NoError(t, store.DeletePost(ctx, eve.ID, later.ID))
	require.NoError(t, must1(store.RestorePost(ctx, eve.ID, later.ID)), "it is not about what came later")
	must(store.UndoOperation(ctx, mod.ID, o.ID, "No spam."))
	finish(t, store, o.ID)
	require.NoError(t, must1(store.RestorePost(ctx, eve.ID, p.ID)))
	exactCounts(t, store)
}

func TestActs_withoutAChangeAreNotLogged(t *testing.T) {
	store := openStore(t)
	ctx := t.Context()
	eve, admin := newUser(t, store, "eve"), newAdmin(t, store, "admin")
	require.NoError(t, store.UnbanUser(ctx, admin.ID, eve.ID, "x"))
	ended, err := store.ChangeRole(ctx, admin.ID, eve.ID, models.RoleUser, "x")
	require.NoError(t, err)
	assert.Empty(t, ended)
	assert.Zero(t, count(t, store, "SELECT COUNT(*) FROM moderation_log WHERE actor_id<>0"))
}

// TestDeleteUser_doesNotCountBannedAdmins leaves a forum to an admin who cannot sign in.
func TestDeleteUser_doesNotCountBannedAdmins(t *testing.T) {
	store := openStore(t)
	ctx := t.Context()
	last := &models.User{Username: "last", Email: "last@example.org", PasswordHash: "x", Role: models.RoleAdmin}
	require.NoError(t, store.CreateUser(ctx, last))
	banned := newAdmin(t, store, "banned")
	must(store.BanUser(ctx, last.ID, banned.ID, &models.Ban{Until: models.ForGood, Reason: "x"}))
	_, err := store.DeleteUser(ctx, last.ID, "x")
	assert.Equal(t, models.CodeConflict, models.ErrorCode(err))
	require.NoError(t, store.UnbanUser(ctx, last.ID, banned.ID, "x"))
	must(store.DeleteUser(ctx, last.ID, "x"))
}

// However many moderators pin posts at once, no more than MaxPinned are pinned.
func TestSetPostFlag_boundsPinnedPosts(t *testing.T) {
	store, ctx := openStore(t), t.Context()
	ada := newUser(t, store, "ada")
	var mods, free []int64
	for i := range 8 {
		mods, free = append(mods, newUser(t, store, fmt.Sprint("mod", i)).ID), append(free, newPost(t, store, ada).ID)
	}
	exec(t, store, "UPDATE users SET role=? WHERE id>=?", models.RoleModerator, mods[0])
	for range models.MaxPinned - 3 {
		newPost(t, store, ada)
	}
	exec(t, store, "UPDATE posts SET pinned=1 WHERE id>?", free[len(free)-1])
	pin := func(mod, id int64, pinned bool) error {
		return store.SetPostFlag(ctx, mod, id, models.PostPinned, pinned, "why")
	}
	results := make(chan error)
	for i, id := range free {
		go func() { results <- pin(mods[i], id, true) }()
	}
	refused := 0
	for range free {
		if err := <-results; err != nil {
			assert.Equal(t, models.CodeConflict, models.ErrorCode(err), err)
			assert.ErrorContains(t, err, "100 posts are pinned")
			refused++
		}
	}
	assert.Equal(t, len(free)-3, refused)
	assert.Equal(t, models.MaxPinned, count(t, store, "SELECT COUNT(*) FROM posts WHERE pinned=1"))
	require.NoError(t, pin(mods[0], free[len(free)-1]+1, true), "it is pinned already")
	require.NoError(t, pin(mods[0], free[len(free)-1]+1, false))
	require.NoError(t, pin(mods[0], free[len(free)-1]+1, true))
}
