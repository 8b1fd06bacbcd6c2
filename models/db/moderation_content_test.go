package db_test

import (
	"context"
	"fmt"
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
)

func newModerator(t testing.TB, store *db.DB, name string) models.Author {
	t.Helper()
	mod := newUser(t, store, name)
	require.NoError(t, accounts.New(store).SetRole(t.Context(), mod.ID, models.RoleModerator))
	return mod
}

func postTarget(p *models.Post) models.Target { return models.Target{Kind: models.KindPost, ID: p.ID} }
func commentTarget(c *models.Comment) models.Target {
	return models.Target{Kind: models.KindComment, ID: c.ID}
}

// exactCounts holds every count to what it counts.
func exactCounts(t testing.TB, store *db.DB) {
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
		"comment terms": `
			SELECT COUNT(*)
			FROM comments c
			WHERE (c.status=1)<>EXISTS (SELECT 1 FROM comment_terms m WHERE m.comment_id=c.id)
				OR (c.status=1)<>(c.terms_version>0)`,
	} {
		assert.Zero(t, count(t, store, query), "rows with a wrong %s", what)
	}
}

func TestModeration_deletionsAndRestorationsCountExactly(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	ctx := t.Context()
	ada, mod, mod2 := newUser(t, store, "ada"), newModerator(t, store, "mod"), newModerator(t, store, "mod2")
	p, err := content.New(store).CreatePost(
		ctx,
		ada,
		models.PostText{Title: "A post", Content: "with text", Tags: models.Tags{"go"}},
	)
	require.NoError(t, err)
	top := newComment(t, store, ada, p, nil)
	reply := newComment(t, store, ada, p, top)

	require.NoError(t, moderation.New(store).RemoveContent(ctx, mod.ID, commentTarget(top), "Spam."))
	exactCounts(t, store)
	require.NoError(t, moderation.New(store).RemoveContent(ctx, mod.ID, commentTarget(reply), "Spam."))
	require.NoError(t, moderation.New(store).RemoveContent(ctx, mod.ID, postTarget(p), "Spam."))
	exactCounts(t, store)
	require.NoError(
		t,
		moderation.New(store).ReinstateContent(ctx, mod.ID, commentTarget(reply), "It was a mistake."),
		"under a deleted post and parent",
	)
	exactCounts(t, store)
	_, err = content.New(store).RestorePost(ctx, ada.ID, p.ID)
	assert.Equal(t, models.CodeForbidden, models.ErrorCode(err), "an author does not undo a moderator's deletion")
	require.NoError(t, moderation.New(store).ReinstateContent(ctx, mod.ID, postTarget(p), "It was a mistake."))
	require.NoError(t, moderation.New(store).ReinstateContent(ctx, mod.ID, commentTarget(top), "It was a mistake."))
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
	require.NoError(t, content.New(store).DeletePost(ctx, ada.ID, p.ID))
	require.NoError(t, moderation.New(store).RemoveContent(ctx, mod.ID, postTarget(p), "Spam."))
	_, err = content.New(store).RestorePost(ctx, ada.ID, p.ID)
	assert.Equal(t, models.CodeForbidden, models.ErrorCode(err))
	acts := count(t, store, "SELECT COUNT(*) FROM moderation_log")
	require.NoError(t, moderation.New(store).RemoveContent(ctx, mod2.ID, postTarget(p), "Again."))
	assert.Equal(t, acts, count(t, store, "SELECT COUNT(*) FROM moderation_log"),
		"a request that changes nothing is not an act")
	exactCounts(t, store)
}

// TestModeration_isExactAmongWriters deletes and restores everything of one post at once, while others comment on it.
func TestModeration_isExactAmongWriters(t *testing.T) {
	t.Parallel()
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
					err = moderation.New(store).RemoveContent(ctx, mod.ID, commentTarget(c), "Spam.")
				case 1:
					err = moderation.New(store).ReinstateContent(ctx, mod.ID, commentTarget(c), "No spam.")
				case 2:
					err = content.New(store).DeleteComment(ctx, c)
				default:
					_, err = content.New(store).CreateComment(ctx, ada, p.ID, &c.ID,
						models.CommentText{Content: "a reply"})
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

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func must1[T any](_ T, err error) error { return err }

func newAdmin(t testing.TB, store *db.DB, name string) models.Author {
	t.Helper()
	admin := newUser(t, store, name)
	require.NoError(t, accounts.New(store).SetRole(t.Context(), admin.ID, models.RoleAdmin))
	return admin
}

func forbidden(t testing.TB, err error, what string) {
	t.Helper()
	assert.Equal(t, models.CodeForbidden, models.ErrorCode(err), "%s: %v", what, err)
}

func TestModeration_rejectsActsOnOneself(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	ctx := t.Context()
	ada, admin := newUser(t, store, "ada"), newAdmin(t, store, "admin")
	for _, own := range []models.Author{newModerator(t, store, "mod"), newAdmin(t, store, "admin2")} {
		p := newPost(t, store, own)
		c := newComment(t, store, own, p, nil)
		report := reported(t, store, ada, commentTarget(c))
		forbidden(t, moderation.New(store).ClaimReport(ctx, own.ID, report), "claim")
		for _, outcome := range []string{models.OutcomeDismissed, models.OutcomeRemoved} {
			verdict := models.Verdict{Outcome: outcome, Note: "x"}
			forbidden(t, moderation.New(store).ResolveReport(ctx, own.ID, report, verdict), outcome)
		}
		forbidden(t, must1(moderation.New(store).ReportsOf(ctx, own.ID, report, 0, 10)), "reporters")
		assert.Len(t, must(moderation.New(store).ReportsOf(ctx, admin.ID, report, 0, 10)), 1)
		require.NoError(t, moderation.New(store).RemoveContent(ctx, admin.ID, postTarget(p), "Spam."))
		require.NoError(t, moderation.New(store).RemoveContent(ctx, admin.ID, commentTarget(c), "Spam."))
		forbidden(t, moderation.New(store).ReinstateContent(ctx, own.ID, postTarget(p), "x"), "restore")
		forbidden(t, moderation.New(store).ReinstateContent(ctx, own.ID, commentTarget(c), "x"), "restore")

		for what, ring := range map[string]*models.LikeRing{
			"author": {AuthorID: own.ID, Members: []models.RingMember{{UserID: ada.ID}}},
			"member": {AuthorID: ada.ID, Members: []models.RingMember{{UserID: own.ID}}},
		} {
			ring.FirstAt, ring.LastAt = past, past
			must(moderation.New(store).SaveRing(ctx, ring))
			forbidden(t, moderation.New(store).DismissRing(ctx, own.ID, ring.ID, "x"), what)
			forbidden(t, must1(moderation.New(store).VoidRing(ctx, own.ID, ring.ID, "x")), what)
		}
	}
	assert.Equal(t, 4, count(t, store, "SELECT COUNT(*) FROM moderation_log WHERE actor_id<>0"))
	assert.Zero(t, count(t, store, "SELECT COUNT(*) FROM report_cases WHERE is_open IS NULL OR claimed_by IS NOT NULL"))
}

// TestActs_endWithTheRole carries out each act as an actor who has lost the role, or is banned.
func TestActs_endWithTheRole(t *testing.T) {
	t.Parallel()
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
	must(moderation.New(store).SaveRing(ctx, ring))
	letter := must(
		store.Pool().ExecContext(ctx, `
				INSERT INTO dead_letters (digest, shard, epoch, seq, topic, topic_partition, topic_offset,
					payload, error, created_at)
				VALUES (UNHEX(SHA2('x',256)),1,1,1,'likes',1,1,'x','x',NOW(3))`),
	)
	letterID := must(letter.LastInsertId())
	gone := &models.User{Username: "gone", Email: "gone@example.org", PasswordHash: "x"}
	require.NoError(t, accounts.New(store).CreateUser(ctx, gone))
	must(privacy.New(store).DeleteUser(ctx, gone.ID, "x"))
	root := newAdmin(t, store, "root")
	demoted, banned := newModerator(t, store, "demoted"), newAdmin(t, store, "banned")
	must(accounts.New(store).ChangeRole(ctx, root.ID, demoted.ID, models.RoleUser, "x"))
	must(moderation.New(store).BanUser(ctx, root.ID, banned.ID, &models.Ban{Until: models.ForGood, Reason: "x"}))
	acts := count(t, store, "SELECT COUNT(*) FROM moderation_log WHERE actor_id<>0")
	for _, actor := range []int64{demoted.ID, banned.ID, gone.ID, 999} {
		for what, do := range map[string]func() error{
			"delete":  func() error { return moderation.New(store).RemoveContent(ctx, actor, postTarget(p), "x") },
			"restore": func() error { return moderation.New(store).ReinstateContent(ctx, actor, postTarget(p), "x") },
			"pin": func() error {
				return moderation.New(store).SetPostFlag(ctx, actor, p.ID, models.PostPinned,
					true, "x")
			},
			"claim": func() error { return moderation.New(store).ClaimReport(ctx, actor, report) },
			"dismiss": func() error {
				verdict := models.Verdict{Outcome: models.OutcomeDismissed, Note: "x"}
				return moderation.New(store).ResolveReport(ctx, actor, report, verdict)
			},
			"ring": func() error { return moderation.New(store).DismissRing(ctx, actor, ring.ID, "x") },
			"void": func() error { return must1(moderation.New(store).VoidRing(ctx, actor, ring.ID, "x")) },
			"letter": func() error {
				return must1(likes.New(store).ResolveDeadLetter(ctx, actor, letterID, models.Discarded, "x"))
			},
			"retry": func() error { return likes.New(store).BeginRetry(ctx, actor, letterID, "x", 1) },
			"reconcile": func() error {
				r := models.Reconciliation{ActorID: actor, TargetType: "post", TargetID: p.ID, Reason: "x"}
				return likes.New(store).LogReconcile(ctx, r, nil)
			},
			"all":       func() error { return must1(moderation.New(store).RemoveAll(ctx, actor, eve.ID, "x")) },
			"all, gone": func() error { return must1(moderation.New(store).RemoveAll(ctx, actor, gone.ID, "x")) },
			"ban": func() error {
				return must1(moderation.New(store).BanUser(ctx, actor, eve.ID, &models.Ban{Until: models.ForGood,
					Reason: "x"}))
			},
			"unban": func() error { return moderation.New(store).UnbanUser(ctx, actor, eve.ID, "x") },
		} {
			forbidden(t, do(), fmt.Sprint(what, " by ", actor))
		}
	}
	// A moderator is rejected where an act requires an admin.
	mod := newModerator(t, store, "mod")
	forbidden(t, must1(likes.New(store).ResolveDeadLetter(ctx, mod.ID, letterID, models.Discarded, "x")), "letter")
	forbidden(
		t,
		likes.New(store).LogReconcile(
			ctx,
			models.Reconciliation{ActorID: mod.ID, TargetType: "post", TargetID: p.ID, Reason: "x"},
			nil,
		),
		"reconcile",
	)
	assert.Equal(t, acts, count(t, store, "SELECT COUNT(*) FROM moderation_log WHERE actor_id<>0"))
	require.NoError(t, must1(likes.New(store).ResolveDeadLetter(ctx, root.ID, letterID, models.Discarded, "x")))
}

// TestModeration_doesNotOverruleHigherRoles takes back what an admin decided.
func TestModeration_doesNotOverruleHigherRoles(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	ctx := t.Context()
	eve, mod, admin := newUser(t, store, "eve"), newModerator(t, store, "mod"), newAdmin(t, store, "admin")
	swept, p := newPost(t, store, eve), newPost(t, store, eve)
	o := must(moderation.New(store).RemoveAll(ctx, admin.ID, eve.ID, "Spam."))
	finish(t, store, o.ID)
	later := newPost(t, store, eve)
	require.NoError(t, moderation.New(store).RemoveContent(ctx, admin.ID, postTarget(later), "Spam."))
	must(moderation.New(store).BanUser(ctx, mod.ID, eve.ID, &models.Ban{Until: models.ForGood, Reason: "x"}))
	must(moderation.New(store).BanUser(ctx, admin.ID, eve.ID, &models.Ban{Until: models.ForGood, Reason: "x"}))

	forbidden(t, must1(moderation.New(store).UndoOperation(ctx, mod.ID, o.ID, "x")), "undo")
	forbidden(t, moderation.New(store).ReinstateContent(ctx, mod.ID, postTarget(swept), "x"),
		"restore of the operation's")
	forbidden(t, moderation.New(store).ReinstateContent(ctx, mod.ID, postTarget(later), "x"), "restore")
	forbidden(t, moderation.New(store).UnbanUser(ctx, mod.ID, eve.ID, "x"), "unban")
	forbidden(
		t,
		must1(moderation.New(store).BanUser(ctx, mod.ID, eve.ID, &models.Ban{Until: time.Now().Add(time.Minute),
			Reason: "x"})),
		"a shorter ban",
	)
	require.NoError(t, moderation.New(store).RemoveContent(ctx, mod.ID, postTarget(p), "Illegal."))
	forbidden(t, moderation.New(store).ReinstateContent(ctx, mod.ID, postTarget(p), "x"),
		"restore of what the operation had deleted")

	// What counts is what everybody is now.
	require.NoError(t, accounts.New(store).SetRole(ctx, admin.ID, models.RoleModerator))
	require.NoError(t, moderation.New(store).UnbanUser(ctx, mod.ID, eve.ID, "x"))
	require.NoError(t, moderation.New(store).ReinstateContent(ctx, mod.ID, postTarget(later), "x"))
	must(moderation.New(store).UndoOperation(ctx, mod.ID, o.ID, "x"))
	assert.Equal(t, 1, finish(t, store, o.ID))
}

func TestActs_withoutAChangeAreNotLogged(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	ctx := t.Context()
	eve, admin := newUser(t, store, "eve"), newAdmin(t, store, "admin")
	require.NoError(t, moderation.New(store).UnbanUser(ctx, admin.ID, eve.ID, "x"))
	ended, err := accounts.New(store).ChangeRole(ctx, admin.ID, eve.ID, models.RoleUser, "x")
	require.NoError(t, err)
	assert.Empty(t, ended)
	assert.Zero(t, count(t, store, "SELECT COUNT(*) FROM moderation_log WHERE actor_id<>0"))
}

// TestDeleteUser_doesNotCountBannedAdmins leaves a forum to an admin who cannot sign in.
func TestDeleteUser_doesNotCountBannedAdmins(t *testing.T) {
	t.Parallel()
	store := openStore(t)
	ctx := t.Context()
	last := &models.User{Username: "last", Email: "last@example.org", PasswordHash: "x", Role: models.RoleAdmin}
	require.NoError(t, accounts.New(store).CreateUser(ctx, last))
	banned := newAdmin(t, store, "banned")
	must(moderation.New(store).BanUser(ctx, last.ID, banned.ID, &models.Ban{Until: models.ForGood, Reason: "x"}))
	_, err := privacy.New(store).DeleteUser(ctx, last.ID, "x")
	assert.Equal(t, models.CodeConflict, models.ErrorCode(err))
	require.NoError(t, moderation.New(store).UnbanUser(ctx, last.ID, banned.ID, "x"))
	must(privacy.New(store).DeleteUser(ctx, last.ID, "x"))
}

// However many moderators pin posts at once, no more than MaxPinned are pinned.
func TestSetPostFlag_boundsPinnedPosts(t *testing.T) {
	t.Parallel()
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
		return moderation.New(store).SetPostFlag(ctx, mod, id, models.PostPinned, pinned, "why")
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
