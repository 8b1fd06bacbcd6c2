package db_test

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
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/moderation"
	"likewise/models/people"
)

func TestReports_areOnePerUserAndTargetAndResolvedOnce(t *testing.T) {
	t.Parallel()
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
			r, err := moderation.New(store).ReportContent(context.Background(), reporters[i%5].ID, report)
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
	cases := must(moderation.New(store).ReportCases(ctx, models.CasesOpen, 0, 10))
	require.Len(t, cases, 1)
	assert.Equal(t, map[string]int64{"spam": 5}, cases[0].Reasons)
	assert.Equal(t, ada.ID, cases[0].Author.ID)

	// Of two moderators one wins, with claims and with verdicts.
	errs := make([]error, 10)
	for i := range errs {
		group.Go(
			func() {
				errs[i] = moderation.New(store).ClaimReport(context.Background(), []int64{mod.ID, mod2.ID}[i%2],
					cases[0].ID)
			},
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
	verdict := models.Verdict{Outcome: models.OutcomeRemoved, Note: "Spam."}
	err := moderation.New(store).ResolveReport(ctx, loser.ID, cases[0].ID, verdict)
	assert.Equal(t, models.CodeConflict, models.ErrorCode(err))
	assert.Empty(t, must(moderation.New(store).ReportCases(ctx, models.CasesOpen, 0, 10)))
	assert.Len(t, must(moderation.New(store).ReportCases(ctx, models.CasesClaimed, 0, 10)), 1)
	// A claim ends by itself.
	_, err = store.Pool().
		ExecContext(ctx, "UPDATE report_cases SET claimed_until=?", time.Now().UTC().Add(-time.Second))
	require.NoError(t, err)
	assert.Len(t, must(moderation.New(store).ReportCases(ctx, models.CasesOpen, 0, 10)), 1)
	for i := range errs {
		group.Go(func() {
			errs[i] = moderation.New(store).ResolveReport(
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
	require.Error(t, must1(content.New(store).PostByID(ctx, 0, p.ID)), "it is removed")
	assert.Len(t, must(moderation.New(store).ReportCases(ctx, models.CasesResolved, 0, 10)), 1)
	for _, r := range reporters {
		told, _, err := people.New(store).Notifications(ctx, r.ID, false, 0, 10)
		require.NoError(t, err)
		require.Len(t, told, 1)
		assert.Equal(t, models.NotifyReport, told[0].Kind)
		assert.Equal(t, models.OutcomeRemoved, told[0].Outcome)
		assert.Equal(t, int64(1), must(people.New(store).UnreadCount(ctx, r.ID)))
		mine := must(moderation.New(store).ReportsBy(ctx, r.ID, 0, 10))
		require.Len(t, mine, 1)
		assert.Equal(t, told[0].ReportID, mine[0].ID)
	}
	_, err = moderation.New(store).ReportContent(ctx, reporters[0].ID, report)
	assert.Equal(t, models.CodeNotFound, models.ErrorCode(err), "it is gone")
	// Once it is back it can be reported again.
	require.NoError(t, moderation.New(store).ReinstateContent(ctx, mod.ID, postTarget(p), "No spam."))
	again, err := moderation.New(store).ReportContent(ctx, reporters[0].ID, report)
	require.NoError(t, err)
	assert.NotContains(t, ids, again.ID)
}

// reported returns the case of a target that ada reports.
func reported(t testing.TB, store *db.DB, reporter models.Author, target models.Target) int64 {
	t.Helper()
	must(moderation.New(store).ReportContent(t.Context(), reporter.ID, models.NewReport{Target: target,
		Reason: "spam"}))
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
