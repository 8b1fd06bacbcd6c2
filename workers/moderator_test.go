package workers

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/counters"
	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/content"
	"likewise/models/moderation"
)

// mortal is a gate whose caller is killed before one of its calls.
type mortal struct {
	counters.TargetGate
	calls int // calls before the kill
}

var errDied = errors.New("the process died")

func (m *mortal) CloseTargets(ctx context.Context, targets []models.Target) error {
	if m.calls--; m.calls < 0 {
		return errDied
	}
	return m.TargetGate.CloseTargets(ctx, targets)
}

// TestModerator_continuesAfterAKill kills the moderator after each of its calls of the gate. In the end the gate
// refuses likes of deleted content. After the deletion is undone, it accepts likes of all of it again.
func TestModerator_continuesAfterAKill(t *testing.T) {
	t.Parallel()
	p := setup(t)
	defer p.start()()
	liker, mod := p.deletable("bob"), p.deletable("mod")
	require.NoError(t, accounts.New(p.store).SetRole(t.Context(), mod, models.RoleModerator))
	other, err := content.New(p.store).CreatePost(
		t.Context(),
		models.Author{ID: liker},
		models.PostText{Title: "A post", Content: "with text"},
	)
	require.NoError(t, err)
	var all []models.Target
	for range 25 { // two batches
		post := p.post()
		all = append(all, post, p.comment(post))
	}
	on := p.comment(models.Target{Kind: models.KindPost, ID: other.ID})
	under, err := content.New(p.store).CreateComment(
		t.Context(),
		models.Author{ID: liker},
		all[0].ID,
		nil,
		models.CommentText{Content: "a comment of somebody else"},
	)
	require.NoError(t, err)
	all = append(all, on, models.Target{Kind: models.KindComment, ID: under.ID})
	for _, target := range all {
		p.set(target, liker, true)
	}
	p.flush()
	o, err := moderation.New(p.store).RemoveAll(t.Context(), mod, p.author.ID, "All spam.")
	require.NoError(t, err)
	deaths := 0
	for calls := 0; ; calls++ {
		_, err := NewModerator(moderation.New(p.store), counters.NewTargets(p.store, &mortal{p.likes,
			calls})).Moderate(t.Context())
		if err == nil {
			break
		}
		require.ErrorIs(t, err, errDied)
		deaths++
	}
	assert.Greater(t, deaths, 2)
	now, err := moderation.New(p.store).OperationByID(t.Context(), o.ID)
	require.NoError(t, err)
	assert.Equal(t, models.OperationDeleted, now.State)
	assert.Equal(t, [2]int64{25, 26}, [2]int64{now.PostsDeleted, now.CommentsDeleted})
	for _, target := range all {
		_, err := p.likes.SetLike(t.Context(), target, mod, true)
		assert.Equal(t, models.CodeNotFound, models.ErrorCode(err), "%s takes likes", target)
	}

	_, err = moderation.New(p.store).UndoOperation(t.Context(), mod, o.ID, "No spam.")
	require.NoError(t, err)
	changed, err := NewModerator(moderation.New(p.store), counters.NewTargets(p.store, p.likes)).Moderate(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 51, changed)
	for _, target := range all {
		assert.Equal(t, int64(2), p.set(target, mod, true).Count, "%s", target)
	}
	p.flush()
	assert.Empty(t, p.verify(false))
}

// TestModerator_leavesTheRestToTheNextRun runs a Moderator whose time is nearly over.
func TestModerator_leavesTheRestToTheNextRun(t *testing.T) {
	t.Parallel()
	p := setup(t)
	mod := p.deletable("mod")
	require.NoError(t, accounts.New(p.store).SetRole(t.Context(), mod, models.RoleModerator))
	p.post()
	_, err := moderation.New(p.store).RemoveAll(t.Context(), mod, p.author.ID, "All spam.")
	require.NoError(t, err)
	short, cancel := context.WithTimeout(t.Context(), runMargin-time.Second)
	defer cancel()
	changed, err := NewModerator(moderation.New(p.store), counters.NewTargets(p.store, nil)).Moderate(short)
	require.NoError(t, err)
	assert.Zero(t, changed)
	changed, err = NewModerator(moderation.New(p.store), counters.NewTargets(p.store, nil)).Moderate(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, changed)
}
