package db_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/likes"
	"likewise/models/moderation"
	"likewise/models/search"
)

// edit writes the next version of a post or comment.
func edit(t *testing.T, store *db.DB, target models.Target, editor, version int64, body string) {
	t.Helper()
	var err error
	if target.Kind == models.KindPost {
		_, err = content.New(store).UpdatePost(
			t.Context(),
			editor,
			target.ID,
			version,
			models.PostText{Title: "T", Content: body},
		)
	} else {
		_, err = content.New(store).UpdateComment(t.Context(), editor, target.ID, version,
			models.CommentText{Content: body})
	}
	require.NoError(t, err)
}

// versions returns the numbers of the versions of a target that are kept, latest first.
func versions(t *testing.T, store *db.DB, target models.Target) []int64 {
	t.Helper()
	var list []int64
	for before := int64(0); ; {
		page, err := content.New(store).ListRevisions(
			t.Context(),
			content.RevisionQuery{Target: target, Deleted: true, Before: before, Limit: 100},
		)
		require.NoError(t, err)
		for _, r := range page {
			list, before = append(list, r.Version), r.Version
		}
		if len(page) < 100 || before == 0 {
			return list
		}
	}
}

// eachTarget runs the test with a post, and with a comment, of ada. Their text is "A text.".
func eachTarget(t *testing.T, test func(t *testing.T, store *db.DB, ada models.Author, target models.Target)) {
	t.Helper()
	for _, kind := range []models.TargetKind{models.KindPost, models.KindComment} {
		t.Run(string(kind), func(t *testing.T) {
			store := openStore(t)
			ada := newUser(t, store, "ada")
			post, err := content.New(store).CreatePost(t.Context(), ada, models.PostText{Title: "T",
				Content: "A text."})
			require.NoError(t, err)
			target := models.Target{Kind: models.KindPost, ID: post.ID}
			if kind == models.KindComment {
				comment, err := content.New(store).CreateComment(
					t.Context(),
					ada,
					post.ID,
					nil,
					models.CommentText{Content: "A text."},
				)
				require.NoError(t, err)
				target = models.Target{Kind: models.KindComment, ID: comment.ID}
			}
			test(t, store, ada, target)
		})
	}
}

// TestRevisions_areBoundedInNumber edits more often than versions are kept. The first one and the one that was reported
// stay.
func TestRevisions_areBoundedInNumber(t *testing.T) {
	t.Parallel()
	eachTarget(t, func(t *testing.T, store *db.DB, ada models.Author, target models.Target) {
		reporter := newUser(t, store, "bob")
		const reported, edits = 3, models.MaxRevisions + 20
		for i := range int64(edits) {
			edit(t, store, target, ada.ID, i, fmt.Sprint("Edit ", i+1))
			if i+1 == reported {
				_, err := moderation.New(store).ReportContent(
					t.Context(),
					reporter.ID,
					models.NewReport{Target: target, Reason: "abuse"},
				)
				require.NoError(t, err)
			}
		}
		var want []int64
		for v := int64(edits); v > edits-models.MaxRevisions; v-- {
			want = append(want, v)
		}
		assert.Equal(t, append(want, reported, 0), versions(t, store, target))
		r, err := content.New(store).RevisionOf(t.Context(), content.RevisionQuery{Target: target}, reported)
		require.NoError(t, err)
		assert.Equal(t, "Edit 3", r.Content)
	})
}

func TestRevisions_areBoundedInBytes(t *testing.T) {
	t.Parallel()
	eachTarget(t, func(t *testing.T, store *db.DB, ada models.Author, target models.Target) {
		const edits, size = 50, models.MaxContent - 10
		for i := range int64(edits) {
			edit(t, store, target, ada.ID, i, fmt.Sprintf("%010d", i)+strings.Repeat("x", size))
		}
		// The present version and the first are kept besides.
		assert.Len(t, versions(t, store, target), 2+models.MaxRevisionBytes/models.MaxContent)
	})
}

func TestReports_keepTheFirstReportedVersions(t *testing.T) {
	t.Parallel()
	eachTarget(t, func(t *testing.T, store *db.DB, ada models.Author, target models.Target) {
		for i := range int64(models.MaxReportedVersions + 3) {
			for _, name := range []string{"a", "b"} {
				reporter := newUser(t, store, fmt.Sprint(name, i))
				_, err := moderation.New(store).ReportContent(
					t.Context(),
					reporter.ID,
					models.NewReport{Target: target, Reason: "abuse"},
				)
				require.NoError(t, err)
			}
			edit(t, store, target, ada.ID, i, fmt.Sprint("Edit ", i+1))
		}
		cases, err := moderation.New(store).ReportCases(t.Context(), models.CasesOpen, 0, 10)
		require.NoError(t, err)
		require.Len(t, cases, 1)
		assert.EqualValues(t, 2*(models.MaxReportedVersions+3), cases[0].ReportersCount)
		require.Len(t, cases[0].Reported, models.MaxReportedVersions)
		for i, v := range cases[0].Reported {
			assert.EqualValues(t, i, v.Version)
			assert.EqualValues(t, 2, v.Reports, "each version is one entry, however many reported it")
			want := "A text."
			if i > 0 {
				want = fmt.Sprint("Edit ", i)
			}
			assert.Equal(t, want, v.Excerpt)
			assert.False(t, v.Missing)
		}
	})
}

// textLeft returns the columns of text that hold the word, those of the search index included.
func textLeft(t *testing.T, store *db.DB, word string) []string {
	t.Helper()
	rows, err := store.Pool().QueryContext(t.Context(), `
		SELECT table_name, column_name
		FROM information_schema.columns
		WHERE table_schema=DATABASE() AND (data_type LIKE '%char' OR data_type LIKE '%text' OR data_type LIKE '%blob')`)
	require.NoError(t, err)
	defer rows.Close()
	var columns [][2]string
	for rows.Next() {
		var table, column string
		require.NoError(t, rows.Scan(&table, &column))
		columns = append(columns, [2]string{table, column})
	}
	require.NoError(t, rows.Err())
	var found []string
	for _, c := range columns {
		if n := count(
			t,
			store,
			fmt.Sprintf("SELECT COUNT(*) FROM `%s` WHERE CONVERT(`%s` USING utf8mb4) LIKE '%%%s%%'", c[0], c[1], word),
		); n > 0 {
			found = append(found, c[0]+"."+c[1])
		}
	}
	return found
}

// TestRedactVersion_overwritesTheTextEverywhere searches every column of every table for the text.
func TestRedactVersion_overwritesTheTextEverywhere(t *testing.T) {
	t.Parallel()
	for _, present := range []bool{true, false} {
		eachTarget(t, func(t *testing.T, store *db.DB, ada models.Author, target models.Target) {
			mod, reporter := newUser(t, store, "mod"), newUser(t, store, "bob")
			exec(t, store, "UPDATE users SET role=? WHERE id=?", models.RoleModerator, mod.ID)
			const secret = "xylophone"
			if target.Kind == models.KindPost {
				_, err := content.New(store).UpdatePost(
					t.Context(),
					ada.ID,
					target.ID,
					0,
					models.PostText{Title: "A " + secret, Content: "My " + secret, Tags: models.Tags{"other"}},
				)
				require.NoError(t, err)
			} else {
				edit(t, store, target, ada.ID, 0, "My "+secret)
			}
			_, err := moderation.New(store).ReportContent(t.Context(), reporter.ID, models.NewReport{Target: target,
				Reason: "abuse"})
			require.NoError(t, err)
			last := int64(1)
			if !present {
				edit(t, store, target, ada.ID, 1, "Have a nice day!")
				last = 2
			}
			require.NotEmpty(t, textLeft(t, store, secret))
			require.NoError(t, moderation.New(store).RedactVersion(t.Context(), mod.ID, target, 1,
				"It has an address."))
			assert.Empty(t, textLeft(t, store, secret))
			assert.Equal(t, 1, count(t, store, "SELECT COUNT(*) FROM moderation_log"))
			require.NoError(
				t,
				moderation.New(store).RedactVersion(t.Context(), mod.ID, target, 1, "Again."),
				"it is redacted: nothing changes",
			)
			assert.Equal(t, 1, count(t, store, "SELECT COUNT(*) FROM moderation_log"))

			r, err := content.New(store).RevisionOf(t.Context(), content.RevisionQuery{Target: target}, 1)
			require.NoError(t, err)
			assert.NotNil(t, r.RedactedAt)
			assert.Empty(t, r.Title+r.Content)
			assert.Equal(t, ada.Username, r.Editor.Username, "who wrote it stays")
			cases, err := moderation.New(store).ReportCases(t.Context(), models.CasesOpen, 0, 10)
			require.NoError(t, err)
			assert.Equal(t, []models.ReportedVersion{{Version: 1, Reports: 1, Missing: true}}, cases[0].Reported)
			if !present {
				assert.Equal(t, []int64{2, 1, 0}, versions(t, store, target))
				return
			}
			assert.Equal(t, []int64{2, 1, 0}, versions(t, store, target))
			now, err := content.New(store).RevisionOf(t.Context(), content.RevisionQuery{Target: target}, last+1)
			require.NoError(t, err)
			assert.Equal(t, models.RedactedText, now.Content)
			assert.Zero(t, now.Editor, "moderators are not named")
			edit(t, store, target, ada.ID, last+1, "Better now.")
			if target.Kind == models.KindPost {
				assert.Equal(t, 0, count(t, store, "SELECT SUM(posts_count) FROM tags"))
				found, err := content.New(store).ListPosts(
					t.Context(),
					content.PostQuery{Sort: models.PostsRelevance, Terms: search.QueryTerms("better"), Limit: 10},
				)
				require.NoError(t, err)
				assert.Len(t, found.Posts, 1)
			}
		})
	}
}

func TestRedactVersion_refuses(t *testing.T) {
	t.Parallel()
	eachTarget(t, func(t *testing.T, store *db.DB, ada models.Author, target models.Target) {
		mod, bob := newUser(t, store, "mod"), newUser(t, store, "bob")
		exec(t, store, "UPDATE users SET role=? WHERE id IN (?,?)", models.RoleModerator, mod.ID, ada.ID)
		redact := func(as models.Author, version int64, reason string) models.Code {
			if err := moderation.New(store).RedactVersion(t.Context(), as.ID, target, version, reason); err != nil {
				return models.ErrorCode(err)
			}
			return ""
		}
		assert.Equal(t, models.CodeForbidden, redact(ada, 0, "Mine."), "a decision about oneself")
		assert.Equal(t, models.CodeForbidden, redact(bob, 0, "Hm."))
		assert.Equal(t, models.CodeInvalid, redact(mod, 0, " "))
		assert.Equal(t, models.CodeNotFound, redact(mod, 1, "Hm."))
		request := func(as models.Author, version int64) (*models.Redaction, models.Code) {
			r, err := moderation.New(store).RequestRedaction(t.Context(), as.ID, target, version, "It has my address.")
			if err != nil {
				return nil, models.ErrorCode(err)
			}
			return r, ""
		}
		_, code := request(bob, 0)
		assert.Equal(t, models.CodeNotFound, code)
		_, code = request(ada, 1)
		assert.Equal(t, models.CodeNotFound, code)
		first, code := request(ada, 0)
		require.Empty(t, code)
		again, code := request(ada, 0)
		require.Empty(t, code)
		assert.Equal(t, first, again)
		resolve := func(as models.Author, outcome string) models.Code {
			if err := moderation.New(store).ResolveRedaction(t.Context(), as.ID, first.ID, outcome,
				"Decided."); err != nil {
				return models.ErrorCode(err)
			}
			return ""
		}
		assert.Equal(t, models.CodeForbidden, resolve(ada, models.OutcomeRedacted))
		assert.Equal(t, models.CodeForbidden, resolve(bob, models.OutcomeRedacted))
		assert.Equal(t, models.CodeInvalid, resolve(mod, "maybe"))
		assert.Empty(t, resolve(mod, models.OutcomeDeclined))
		assert.Equal(t, models.CodeConflict, resolve(mod, models.OutcomeRedacted))
		assert.Equal(t, "A text.", text(t, store, target))
		second, code := request(ada, 0)
		require.Empty(t, code, "a declined request can be made again")
		require.NoError(
			t,
			moderation.New(store).ResolveRedaction(t.Context(), mod.ID, second.ID, models.OutcomeRedacted,
				"It has an address."),
		)
		assert.Equal(t, models.RedactedText, text(t, store, target))
		_, code = request(ada, 0)
		assert.Equal(t, models.CodeConflict, code)
		mine, err := moderation.New(store).RedactionsBy(t.Context(), ada.ID, 0, 10)
		require.NoError(t, err)
		require.Len(t, mine, 2)
		assert.Equal(t, "redacted It has an address.", *mine[0].Outcome+" "+mine[0].Note)
		assert.Equal(t, "declined Decided.", *mine[1].Outcome+" "+mine[1].Note)
	})
}

// text returns the content that a target has now.
func text(t *testing.T, store *db.DB, target models.Target) string {
	t.Helper()
	list, err := content.New(store).ListRevisions(t.Context(), content.RevisionQuery{Target: target, Deleted: true,
		Limit: 1})
	require.NoError(t, err)
	r, err := content.New(store).RevisionOf(t.Context(), content.RevisionQuery{Target: target, Deleted: true},
		list[0].Version)
	require.NoError(t, err)
	return r.Content
}

// TestPurgeContent_leavesNothingToRead purges content, normal or deleted in one of several ways, and
// searches every column of every table for the text. It cannot be restored.
func TestPurgeContent_leavesNothingToRead(t *testing.T) {
	t.Parallel()
	const secret = "xylophone"
	type setUp func(t *testing.T, store *db.DB, ada, mod models.Author, target models.Target)
	for name, before := range map[string]setUp{
		"there": func(*testing.T, *db.DB, models.Author, models.Author, models.Target) {},
		"deleted by its author": func(t *testing.T, store *db.DB, ada, _ models.Author, target models.Target) {
			if target.Kind == models.KindPost {
				require.NoError(t, content.New(store).DeletePost(t.Context(), ada.ID, target.ID))
			} else {
				require.NoError(t, content.New(store).DeleteComment(t.Context(), &models.Comment{ID: target.ID,
					Author: ada}))
			}
		},
		"deleted by a moderator": func(t *testing.T, store *db.DB, _, mod models.Author, target models.Target) {
			require.NoError(t, moderation.New(store).RemoveContent(t.Context(), mod.ID, target, "Spam."))
		},
		"deleted by an operation": func(t *testing.T, store *db.DB, ada, mod models.Author, _ models.Target) {
			removeAll(t, store, mod.ID, ada.ID)
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachTarget(t, func(t *testing.T, store *db.DB, ada models.Author, target models.Target) {
				mod, admin, reporter := newUser(t, store, "mod"), newUser(t, store, "admin"), newUser(t, store, "bob")
				exec(t, store, "UPDATE users SET role=? WHERE id=?", models.RoleModerator, mod.ID)
				exec(t, store, "UPDATE users SET role=? WHERE id=?", models.RoleAdmin, admin.ID)
				edit(t, store, target, ada.ID, 0, "A "+secret)
				if target.Kind == models.KindPost {
					_, err := content.New(store).UpdatePost(
						t.Context(),
						ada.ID,
						target.ID,
						1,
						models.PostText{Title: secret, Content: "My " + secret, Tags: models.Tags{"a"}},
					)
					require.NoError(t, err)
				} else {
					edit(t, store, target, ada.ID, 1, "My "+secret)
				}
				_, err := likes.New(store).SetLike(t.Context(), target, reporter.ID, true)
				require.NoError(t, err)
				_, err = moderation.New(store).ReportContent(
					t.Context(),
					reporter.ID,
					models.NewReport{Target: target, Reason: "illegal", Detail: "It says " + secret},
				)
				require.NoError(t, err)
				_, err = moderation.New(store).RequestRedaction(t.Context(), ada.ID, target, 0, "It says "+secret)
				require.NoError(t, err)
				before(t, store, ada, mod, target)
				require.NotEmpty(t, textLeft(t, store, secret))
				assert.Equal(
					t,
					models.CodeForbidden,
					models.ErrorCode(moderation.New(store).PurgeContent(t.Context(), mod.ID, target, "Illegal.")),
				)
				require.NoError(t, moderation.New(store).PurgeContent(t.Context(), admin.ID, target, "Illegal."))
				acts := count(t, store, "SELECT COUNT(*) FROM moderation_log")
				require.NoError(t, moderation.New(store).PurgeContent(t.Context(), admin.ID, target, "Again."))
				assert.Equal(t, acts, count(t, store, "SELECT COUNT(*) FROM moderation_log"))

				assert.Empty(t, textLeft(t, store, secret))
				assert.Empty(t, text(t, store, target))
				assert.Len(t, versions(t, store, target), 1)
				assert.Equal(
					t,
					models.CodeConflict,
					models.ErrorCode(moderation.New(store).ReinstateContent(t.Context(), admin.ID, target, "Back.")),
				)
				if target.Kind == models.KindPost {
					_, err = content.New(store).RestorePost(t.Context(), ada.ID, target.ID)
					assert.Equal(t, models.CodeForbidden, models.ErrorCode(err))
				}
				undoAll(t, store, mod.ID)
				assert.Equal(
					t,
					1,
					count(
						t,
						store,
						fmt.Sprintf(
							"SELECT COUNT(*) FROM %ss WHERE id=%d AND status=2 AND purged=1",
							target.Kind,
							target.ID,
						),
					),
				)
				tally, ok, err := likes.New(store).TallyOf(t.Context(), target)
				require.NoError(t, err)
				require.True(t, ok)
				assert.EqualValues(t, 1, tally.Likes)
				assert.EqualValues(t, 1, tally.LikeRows)
				assert.Zero(t, count(t, store, "SELECT COALESCE(SUM(posts_count),0) FROM tags"))
				if target.Kind == models.KindComment {
					assert.Zero(t, count(t, store, "SELECT comments_count FROM posts"))
				}
				assert.Zero(t, count(t, store, "SELECT COUNT(*) FROM redactions WHERE is_open=1"))
			})
		})
	}
}

// removeAll carries an operation out that deletes all that a user wrote.
func removeAll(t *testing.T, store *db.DB, actor, userID int64) {
	t.Helper()
	o, err := moderation.New(store).RemoveAll(t.Context(), actor, userID, "Spam.")
	require.NoError(t, err)
	workOff(t, store, o.ID)
}

// undoAll undoes every operation.
func undoAll(t *testing.T, store *db.DB, actor int64) {
	t.Helper()
	for id := range int64(count(t, store, "SELECT COUNT(*) FROM content_operations")) {
		_, err := moderation.New(store).UndoOperation(t.Context(), actor, id+1, "A mistake.")
		require.NoError(t, err)
		workOff(t, store, id+1)
	}
}

func workOff(t *testing.T, store *db.DB, id int64) {
	t.Helper()
	for {
		step, err := moderation.New(store).StepOperation(t.Context(), id)
		require.NoError(t, err)
		require.NoError(t, moderation.New(store).CloseStep(t.Context(), id, step))
		if step.Done {
			return
		}
	}
}

// TestRevisions_ofAComment has the same versions and the same times as the edits.
func TestRevisions_ofAComment(t *testing.T) {
	t.Parallel()
	now := past
	store := openWith(t, db.Options{Now: func() time.Time { return now }})
	ada := newUser(t, store, "ada")
	comment := newComment(t, store, ada, newPost(t, store, ada), nil)
	target := models.Target{Kind: models.KindComment, ID: comment.ID}
	for i := range int64(3) {
		now = now.Add(time.Hour)
		edit(t, store, target, ada.ID, i, fmt.Sprint("Edit ", i+1))
		now = now.Add(time.Minute)
		edit(t, store, target, ada.ID, i+1, fmt.Sprint("Edit ", i+1)) // changes nothing
		_, err := likes.New(store).SetLike(t.Context(), target, ada.ID, i%2 == 0)
		require.NoError(t, err)
	}
	var got []string
	for _, v := range versions(t, store, target) {
		r, err := content.New(store).RevisionOf(t.Context(), content.RevisionQuery{Target: target}, v)
		require.NoError(t, err)
		got = append(
			got,
			fmt.Sprintf(
				"%d %s %s %v %s",
				r.Version,
				r.Editor.Username,
				r.Content,
				r.Changed.Names(),
				r.CreatedAt.Sub(past),
			),
		)
	}
	assert.Equal(t, []string{
		"3 ada Edit 3 [content] 3h2m0s",
		"2 ada Edit 2 [content] 2h1m0s",
		"1 ada Edit 1 [content] 1h0m0s",
		"0 ada a comment [] 0s",
	}, got)
	exec(t, store, "UPDATE posts SET status=2")
	_, err := content.New(store).RevisionOf(t.Context(), content.RevisionQuery{Target: target}, 0)
	assert.Equal(t, models.CodeNotFound, models.ErrorCode(err))
}
