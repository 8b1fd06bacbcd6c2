package handlers_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/stock"
)

// drop and claim are limited stock as a client decodes it.
type drop struct {
	ID            int64
	PostID        int64 `json:"post_id"`
	Author        struct{ ID int64 }
	Title         string
	Stock         int64
	Claimed       int64
	Remaining     int64
	BeginsAt      *time.Time `json:"begins_at"`
	EndsAt        *time.Time `json:"ends_at"`
	ConfirmWithin *int64     `json:"confirm_within"`
	ClosedAt      *time.Time `json:"closed_at"`
	State         string
	Claim         *claim
	Version       int64
}

type claim struct {
	ID          string
	DropID      int64               `json:"drop_id"`
	DropTitle   string              `json:"drop_title"` // in lists of one's own
	User        *struct{ ID int64 } // in lists of moderators
	State       string
	Reason      *string
	ExpiresAt   *time.Time `json:"expires_at"`
	ConfirmedAt *time.Time `json:"confirmed_at"`
	EndedAt     *time.Time `json:"ended_at"`
}

func (d drop) path() string { return fmt.Sprintf("/v1/drops/%d", d.ID) }

func (a *api) newDrop(t testing.TB, as account, settings obj) drop {
	t.Helper()
	body := obj{"title": "A ticket", "stock": 2}
	maps.Copy(body, settings)
	return read[drop](t, a.must(t, 201, as, "POST", pathOf(a.newPost(t, as))+"/drops", body))
}

func (a *api) drop(t testing.TB, as account, d drop) drop {
	t.Helper()
	return read[drop](t, a.must(t, 200, as, "GET", d.path(), nil))
}

func (a *api) claim(t testing.TB, status int, as account, d drop) claim {
	t.Helper()
	r := a.must(t, status, as, "POST", d.path()+"/claims", nil)
	c := read[claim](t, r)
	if got := r.Header.Get("Location"); got != "/v1/claims/"+c.ID {
		t.Errorf("the location of claim %s is %q", c.ID, got)
	}
	return c
}

func (a *api) claimByID(t testing.TB, as account, id string) claim {
	t.Helper()
	return read[claim](t, a.must(t, 200, as, "GET", "/v1/claims/"+id, nil))
}

// release runs the job of claims, and waits until MySQL has what it did.
func (a *api) release(t testing.TB) {
	t.Helper()
	if _, err := a.releaser.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.settle()
}

// isStored checks the rows of a drop against what the API shows: that many claims are in force.
func (a *api) isStored(t testing.TB, d drop, live int64) {
	t.Helper()
	a.settle()
	if n := a.number(t, "SELECT COUNT(*) FROM claims WHERE drop_id=? AND state IN (1,2)", d.ID); n != live {
		t.Errorf("%d claims are stored, want %d", n, live)
	}
	if n := a.number(t, "SELECT claimed FROM drops WHERE id=?", d.ID); n != live {
		t.Errorf("%d are counted, want %d", n, live)
	}
	if got := a.drop(t, account{}, d); got.Claimed != live || got.Remaining != got.Stock-live {
		t.Errorf("shown is %+v, want %d claimed", got, live)
	}
}

func TestClaim_oneEachUntilNothingIsLeft(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		users := a.accounts(t, 4)
		d := a.newDrop(t, users[0], nil)
		if d.Stock != 2 || d.Remaining != 2 || d.State != "open" || d.Claim != nil || d.Author.ID != users[0].ID {
			t.Errorf("created %+v", d)
		}
		first := a.claim(t, 201, users[1], d)
		if first.DropID != d.ID || first.ExpiresAt != nil || first.EndedAt != nil {
			t.Errorf("claimed %+v", first)
		}
		if again := a.claim(t, 200, users[1], d); again.ID != first.ID {
			t.Errorf("claimed again %+v, after %+v", again, first)
		}
		if got := a.drop(t, users[1], d); got.Claim == nil || got.Claim.ID != first.ID || got.Remaining != 1 {
			t.Errorf("the user sees %+v", got)
		}
		if got := a.drop(t, users[2], d); got.Claim != nil {
			t.Errorf("another user sees %+v", got)
		}
		second := a.claim(t, 201, users[2], d)
		a.refused(t, 409, "sold_out", users[3], "POST", d.path()+"/claims", nil)
		if again := a.claim(t, 200, users[2], d); again.ID != second.ID {
			t.Errorf("claimed again %+v, after %+v", again, second)
		}
		if got := a.drop(t, account{}, d); got.State != "sold_out" || got.Remaining != 0 || got.Claim != nil {
			t.Errorf("sold out is %+v", got)
		}
		a.isStored(t, d, 2)
		stored := a.claimByID(t, users[1], first.ID)
		if stored.State != "confirmed" || stored.ConfirmedAt == nil {
			t.Errorf("stored is %+v", stored)
		}
		mine := read[page[claim]](t, a.must(t, 200, users[1], "GET", "/v1/me/claims", nil)).Items
		if len(mine) != 1 || mine[0].ID != first.ID || mine[0].DropTitle != "A ticket" {
			t.Errorf("listed are %+v", mine)
		}
		a.refused(t, 404, "not_found", users[2], "GET", "/v1/claims/"+first.ID, nil)
		a.refused(t, 404, "not_found", users[2], "DELETE", "/v1/claims/"+first.ID, nil)

		for range 2 {
			a.must(t, 204, users[1], "DELETE", "/v1/claims/"+first.ID, nil)
		}
		if got := a.claimByID(t, users[1], first.ID); got.State != "returned" || got.EndedAt == nil {
			t.Errorf("returned is %+v", got)
		}
		a.claim(t, 201, users[3], d)
		a.refused(t, 409, "sold_out", users[1], "POST", d.path()+"/claims", nil)
		a.must(t, 204, users[2], "DELETE", "/v1/claims/"+second.ID, nil)
		third := a.claim(t, 201, users[1], d)
		if third.ID == first.ID {
			t.Error("a later claim has the id of the first")
		}
		a.isStored(t, d, 2)
		a.must(t, 204, users[1], "DELETE", "/v1/claims/"+third.ID, nil)
		a.isStored(t, d, 1)
	})
}

// TestClaim_neverOversells lets many users claim at once, several times each.
func TestClaim_neverOversells(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		const users, stock = 60, 10
		d := a.newDrop(t, a.account(t), obj{"stock": stock})
		all := a.accounts(t, users)
		var mu sync.Mutex
		holders := map[int64]string{}
		together(2*users, func(i int) {
			as := all[i%users]
			r, err := a.try(as, "POST", d.path()+"/claims", nil)
			switch {
			case err != nil:
				t.Error(err)
			case r.Status == 200 || r.Status == 201:
				id := read[claim](t, r).ID
				mu.Lock()
				defer mu.Unlock()
				if holders[as.ID] != "" && holders[as.ID] != id {
					t.Errorf("user %d holds the claims %s and %s", as.ID, holders[as.ID], id)
				}
				holders[as.ID] = id
			case r.Status != 409:
				t.Errorf("claim: %s", r)
			}
		})
		if len(holders) != stock {
			t.Errorf("%d users hold a claim to a stock of %d", len(holders), stock)
		}
		a.isStored(t, d, stock)
		for user, id := range holders {
			if n := a.number(t, "SELECT COUNT(*) FROM claims WHERE id=? AND user_id=?", id, user); n != 1 {
				t.Errorf("claim %s of user %d has %d rows", id, user, n)
			}
		}
	})
}

func TestClaim_hasAWindow(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada, bob := a.account(t), a.account(t)
		now := time.Now()
		later := a.newDrop(t, ada, obj{"begins_at": now.Add(time.Hour)})
		if later.State != "upcoming" {
			t.Errorf("the state before the begin is %q", later.State)
		}
		a.refused(t, 403, "not_started", bob, "POST", later.path()+"/claims", nil)
		over := a.newDrop(t, ada, obj{"begins_at": now.Add(-2 * time.Hour), "ends_at": now.Add(-time.Hour)})
		if over.State != "ended" {
			t.Errorf("the state after the end is %q", over.State)
		}
		a.refused(t, 403, "ended", bob, "POST", over.path()+"/claims", nil)

		d := a.newDrop(t, ada, obj{"begins_at": now.Add(-time.Hour), "ends_at": now.Add(time.Hour)})
		c := a.claim(t, 201, bob, d)
		closed := read[drop](t, a.must(t, 200, ada, "POST", d.path()+"/close", nil))
		if closed.State != "ended" || closed.ClosedAt == nil || closed.Claimed != 1 {
			t.Errorf("closed is %+v", closed)
		}
		again := read[drop](t, a.must(t, 200, ada, "POST", d.path()+"/close", nil))
		if !again.ClosedAt.Equal(*closed.ClosedAt) || again.Version != closed.Version {
			t.Errorf("closed again is %+v", again)
		}
		a.refused(t, 403, "ended", ada, "POST", d.path()+"/claims", nil)
		a.refused(t, 403, "ended", bob, "DELETE", "/v1/claims/"+c.ID, nil)
		a.must(t, 200, ada, "POST", later.path()+"/close", nil)
		a.refused(t, 403, "ended", bob, "POST", later.path()+"/claims", nil)
		if got := a.claim(t, 200, bob, d); got.ID != c.ID {
			t.Errorf("after the end the user holds %+v", got)
		}
		a.isStored(t, d, 1)
	})
}

func TestDrop_isEdited(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada, bob, eve := a.account(t), a.account(t), a.account(t)
		d := a.newDrop(t, ada, obj{"stock": 1})
		a.claim(t, 201, bob, d)
		a.settle()
		a.refused(t, 428, "if_match_required", ada, "PATCH", d.path(), obj{"stock": 2})
		match := header{"If-Match", fmt.Sprintf(`"v%d"`, d.Version)}
		a.refused(t, 403, "forbidden", eve, "PATCH", d.path(), obj{"stock": 2}, match)
		for field, value := range map[string]any{
			"stock": 0, "title": "", "ends_at": "1960-01-01T00:00:00Z", "begins_at": "2999-01-01T00:00:00Z",
		} {
			a.refusedField(t, 422, "invalid", field, ada, "PATCH", d.path(), obj{field: value}, match)
		}
		a.refusedField(t, 422, "invalid", "confirm_within", ada, "PATCH", d.path(), obj{"confirm_within": 60}, match)
		got := read[drop](t, a.must(t, 200, ada, "PATCH", d.path(), obj{"stock": 2, "title": "Two"}, match))
		if got.Stock != 2 || got.Title != "Two" || got.Remaining != 1 || got.Version == d.Version {
			t.Errorf("edited is %+v", got)
		}
		a.refused(t, 412, "precondition_failed", ada, "PATCH", d.path(), obj{"stock": 3}, match)
		a.claim(t, 201, eve, d)
		a.settle()
		a.refused(t, 409, "conflict", ada, "PATCH", d.path(), obj{"stock": 1}, header{"If-Match", "*"})
		a.isStored(t, d, 2)
		a.must(t, 200, ada, "POST", d.path()+"/close", nil)
		a.refused(t, 409, "conflict", ada, "PATCH", d.path(), obj{"stock": 5}, header{"If-Match", "*"})
	})
}

func TestDrop_refusesBadSettings(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada, bob := a.account(t), a.account(t)
	path := pathOf(a.newPost(t, ada)) + "/drops"
	for field, values := range map[string][]any{
		"title":          {"", " ", "two\nlines"},
		"stock":          {0, -1, models.MaxStock + 1},
		"confirm_within": {0, -5, models.MaxConfirmWithin + 1},
		"begins_at":      {"tomorrow", "2999-01-01T00:00:00Z"},
		"ends_at":        {"2026-13-01T00:00:00Z", "2999-01-01T00:00:00Z"},
	} {
		for _, value := range values {
			body := obj{"title": "A ticket", "stock": 1}
			body[field] = value
			a.refusedField(t, 422, "invalid", field, ada, "POST", path, body)
		}
	}
	a.refusedField(t, 422, "invalid", "ends_at", ada, "POST", path, obj{"title": "A ticket", "stock": 1,
		"begins_at": "2030-01-02T00:00:00Z", "ends_at": "2030-01-01T00:00:00Z"})
	a.refused(t, 403, "forbidden", bob, "POST", path, obj{"title": "A ticket", "stock": 1})
	a.refused(t, 404, "not_found", ada, "POST", "/v1/posts/4242/drops", obj{"title": "A ticket", "stock": 1})
	for _, id := range []string{"4242", "0", "x", "99999999999999999999"} {
		a.refused(t, 404, "not_found", ada, "POST", "/v1/drops/"+id+"/claims", nil)
		a.refused(t, 404, "not_found", ada, "GET", "/v1/claims/"+id, nil)
		a.refused(t, 404, "not_found", ada, "POST", "/v1/claims/"+id+"/confirm", nil)
	}
	if n := a.number(t, "SELECT COUNT(*) FROM drops"); n != 0 {
		t.Errorf("%d drops exist", n)
	}
}

func TestDrops_ofAPostAreListed(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada, bob := a.account(t), a.account(t)
		path := pathOf(a.newPost(t, ada)) + "/drops"
		var made []drop
		for i := range 3 {
			made = append(made, read[drop](t, a.must(t, 201, ada, "POST", path,
				obj{"title": "Ticket " + strconv.Itoa(i), "stock": 1})))
		}
		c := a.claim(t, 201, bob, made[1])
		var got []drop
		for next := path + "?limit=2"; next != ""; {
			p := read[page[drop]](t, a.must(t, 200, bob, "GET", next, nil))
			got = append(got, p.Items...)
			if next = ""; p.NextCursor != nil {
				next = path + "?limit=2&cursor=" + *p.NextCursor
			}
		}
		if len(got) != 3 || got[0].ID != made[2].ID || got[1].Claim == nil || got[1].Claim.ID != c.ID ||
			got[1].State != "sold_out" || got[2].Claim != nil {
			t.Errorf("listed are %+v", got)
		}
		a.refused(t, 404, "not_found", bob, "GET", "/v1/posts/4242/drops", nil)
	})
}

func TestDrop_endsWithItsPost(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada, bob, eve := a.account(t), a.account(t), a.account(t)
		d := a.newDrop(t, ada, nil)
		c := a.claim(t, 201, bob, d)
		a.settle()
		post := fmt.Sprintf("/v1/posts/%d", d.PostID)
		a.must(t, 204, ada, "DELETE", post, nil)
		a.refused(t, 404, "not_found", eve, "POST", d.path()+"/claims", nil)
		a.refused(t, 404, "not_found", bob, "GET", d.path(), nil)
		if got := a.claimByID(t, bob, c.ID); got.State != "confirmed" {
			t.Errorf("the claim is %+v", got)
		}
		mine := read[page[claim]](t, a.must(t, 200, bob, "GET", "/v1/me/claims", nil)).Items
		if len(mine) != 1 || mine[0].DropTitle != "" {
			t.Errorf("listed are %+v", mine)
		}
		a.must(t, 200, ada, "POST", post+"/restore", nil)
		a.claim(t, 200, bob, d)
		a.claim(t, 201, eve, d)
		a.isStored(t, d, 2)
	})
}

func TestDrop_refusesBlockedUsersAndLockedPosts(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada, bob := a.account(t), a.account(t)
		d := a.newDrop(t, ada, nil)
		a.must(t, 200, ada, "PUT", fmt.Sprintf("/v1/users/%d/block", bob.ID), nil)
		testkit.Eventually(t, 10*time.Second, func() (bool, string) { // a session learns of it within seconds
			r := a.send(t, bob, "POST", d.path()+"/claims", nil)
			return r.Status == 403, r.String()
		})
		moderator := a.raise(t, models.RoleModerator)
		a.must(t, 200, moderator, "POST", fmt.Sprintf("/v1/admin/posts/%d/lock", d.PostID), obj{"reason": "Heated."})
		a.refused(t, 403, "locked", ada, "POST", fmt.Sprintf("/v1/posts/%d/drops", d.PostID),
			obj{"title": "A ticket", "stock": 1})
		a.must(t, 201, moderator, "POST", fmt.Sprintf("/v1/posts/%d/drops", d.PostID),
			obj{"title": "A ticket", "stock": 1})
	})
}

func TestClaim_expiresUnlessItIsConfirmed(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada, bob, eve := a.account(t), a.account(t), a.account(t)
		d := a.newDrop(t, ada, obj{"confirm_within": 600})
		if d.ConfirmWithin == nil || *d.ConfirmWithin != 600 {
			t.Errorf("created %+v", d)
		}
		kept, lost := a.claim(t, 201, bob, d), a.claim(t, 201, eve, d)
		if kept.State != "reserved" || kept.ExpiresAt == nil {
			t.Errorf("claimed %+v", kept)
		}
		a.refused(t, 404, "not_found", eve, "POST", "/v1/claims/"+kept.ID+"/confirm", nil)
		for range 2 { // the first at once, before the row is there
			got := read[claim](t, a.must(t, 200, bob, "POST", "/v1/claims/"+kept.ID+"/confirm", nil))
			if got.State != "confirmed" || got.ConfirmedAt == nil {
				t.Errorf("confirmed is %+v", got)
			}
		}
		a.settle()
		a.refused(t, 409, "sold_out", ada, "POST", d.path()+"/claims", nil)
		if _, err := a.store.Pool().ExecContext(t.Context(), `
			UPDATE claims SET created_at=created_at-INTERVAL 1 HOUR, expires_at=expires_at-INTERVAL 1 HOUR,
				due_at=due_at-INTERVAL 1 HOUR WHERE drop_id=?`, d.ID); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			a.release(t)
			a.isStored(t, d, 1)
		}
		if got := a.claimByID(t, eve, lost.ID); got.State != "expired" || got.EndedAt == nil {
			t.Errorf("expired is %+v", got)
		}
		a.refused(t, 409, "too_late", eve, "POST", "/v1/claims/"+lost.ID+"/confirm", nil)
		a.must(t, 204, eve, "DELETE", "/v1/claims/"+lost.ID, nil)
		if got := a.claimByID(t, bob, kept.ID); got.State != "confirmed" {
			t.Errorf("kept is %+v", got)
		}
		c := a.claim(t, 201, ada, d)
		a.isStored(t, d, 2)
		a.must(t, 204, ada, "DELETE", "/v1/claims/"+c.ID, nil)
		a.refused(t, 409, "conflict", ada, "POST", "/v1/claims/"+c.ID+"/confirm", nil)
	})
}

// expire lets the only claim of a drop expire in MySQL. The gate does not learn of it.
func (a *api) expire(t testing.TB, d drop) {
	t.Helper()
	_, err := a.store.Pool().ExecContext(t.Context(), `
		UPDATE claims SET expires_at=expires_at-INTERVAL 1 HOUR, due_at=due_at-INTERVAL 1 HOUR
		WHERE drop_id=?`, d.ID)
	assert.NoError(t, err)
	n, _, err := stock.New(a.store).ExpireClaims(t.Context())
	assert.NoError(t, err)
	assert.Equal(t, 1, n)
}

// A drop shows the claim of its reader as the claim itself is read, whether its row is in MySQL yet or not.
func TestDrop_showsTheClaimOfItsReader(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada, bob, carol := a.account(t), a.account(t), a.account(t)
		d := a.newDrop(t, ada, obj{"confirm_within": 600})
		list := fmt.Sprintf("/v1/posts/%d/drops", d.PostID)
		free := read[drop](t, a.must(t, 201, ada, "POST", list, obj{"title": "Free", "stock": 2}))
		made := a.claim(t, 201, bob, d)
		a.claim(t, 201, bob, free)
		shows := func(state string) {
			t.Helper()
			want := claim{ID: made.ID, State: state, ExpiresAt: made.ExpiresAt}
			if c := a.claimByID(t, bob, made.ID); c.State != state {
				t.Errorf("the claim is %s, want %s", c.State, state)
			}
			if got := a.drop(t, bob, d).Claim; assert.NotNil(t, got) {
				assert.Equal(t, want, *got)
			}
			all := read[page[drop]](t, a.must(t, 200, bob, "GET", list, nil)).Items
			assert.Equal(t, want, *all[1].Claim)
			assert.Nil(t, a.drop(t, carol, d).Claim)
		}
		shows("reserved")
		a.settle()
		shows("reserved")
		if got := a.drop(t, bob, free).Claim; got.State != "confirmed" || got.ExpiresAt != nil {
			t.Errorf("without confirmation it is %+v", got)
		}

		// The claims of a page take one query, and none if there are none.
		for as, want := range map[account]int{bob: 1, carol: map[string]int{"direct": 1}[a.mode]} {
			a.must(t, 200, as, "GET", list, nil)
			a.sent.take()
			a.must(t, 200, as, "GET", list, nil)
			n := 0
			for _, statement := range a.sent.take() {
				n += strings.Count(statement, "FROM claims")
			}
			assert.Equal(t, want, n)
		}
		a.must(t, 200, bob, "POST", "/v1/claims/"+made.ID+"/confirm", nil)
		made.ExpiresAt = a.claimByID(t, bob, made.ID).ExpiresAt
		shows("confirmed")

		// A claim that MySQL has ended is not in force, although the gate does not know it yet.
		other := a.newDrop(t, ada, obj{"confirm_within": 600})
		a.claim(t, 201, carol, other)
		a.settle()
		a.expire(t, other)
		assert.Nil(t, a.drop(t, carol, other).Claim)

		if a.mode == "direct" {
			return
		}
		late := a.newDrop(t, ada, obj{"confirm_within": 600})
		want := a.claim(t, 201, bob, late)
		a.settle()
		_, err := a.store.Pool().Exec("DELETE FROM claims WHERE drop_id IN (?,?)", late.ID, free.ID)
		require.NoError(t, err)
		if got := a.drop(t, bob, late).Claim; assert.NotNil(t, got) {
			assert.Equal(t, claim{ID: want.ID, State: "reserved", ExpiresAt: want.ExpiresAt}, *got)
		}
		if got := a.drop(t, bob, free).Claim; assert.NotNil(t, got) {
			assert.Equal(t, "reserved", got.State)
			assert.Nil(t, got.ExpiresAt)
		}
	})
}

// A claim that expires while it is read is shown as it was before or after, not as returned.
func TestClaim_expiresWhileItIsRead(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada, bob := a.account(t), a.account(t)
		d := a.newDrop(t, ada, obj{"confirm_within": 600, "stock": 1})
		c := a.claim(t, 201, bob, d)
		a.settle()
		ran := false
		a.sent.onceAfter("FROM claims", func() {
			ran = true
			a.expire(t, d)
			_, err := a.releaser.Release(t.Context())
			assert.NoError(t, err)
		})
		got := a.claimByID(t, bob, c.ID)
		assert.True(t, ran)
		assert.Contains(t, []string{"reserved", "expired"}, got.State)
		assert.Equal(t, "expired", a.claimByID(t, bob, c.ID).State)
	})
}

// A user whose claim has just expired can claim again at once, and not only when the gate has learned of it.
func TestClaim_followsAnExpiredOneAtOnce(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada, bob := a.account(t), a.account(t)
		d := a.newDrop(t, ada, obj{"confirm_within": 600, "stock": 1})
		lost := a.claim(t, 201, bob, d)
		a.settle()
		a.expire(t, d)
		if c := a.claim(t, 201, bob, d); c.ID == lost.ID || c.State != "reserved" {
			t.Errorf("claimed %+v after %+v", c, lost)
		}
		a.refused(t, 409, "sold_out", ada, "POST", d.path()+"/claims", nil)
		a.isStored(t, d, 1)
		a.settle()
		a.refused(t, 404, "not_found", bob, "GET", "/v1/claims/"+lost.ID, nil) // a later claim has taken the row
	})
}

// A claim that ends while its user claims again, and claims once more, is followed by the latest.
func TestClaim_followsOneThatEndsMeanwhile(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		if a.mode == "direct" {
			return // there, a claim is one transaction
		}
		d := a.newDrop(t, a.account(t), obj{"confirm_within": 600, "stock": 1})
		bob := a.account(t)
		lost := a.claim(t, 201, bob, d)
		a.settle()
		var latest claim
		a.sent.onceAfter("FROM claims", func() {
			a.expire(t, d)
			_, err := a.releaser.Release(t.Context())
			assert.NoError(t, err)
			latest = a.claim(t, 201, bob, d)
			a.settle()
		})
		got := a.claim(t, 200, bob, d)
		assert.Equal(t, latest.ID, got.ID)
		assert.NotEqual(t, lost.ID, got.ID)
		a.isStored(t, d, 1)
	})
}

func TestVoidClaims_returnsThemToTheStock(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada, bob, eve := a.account(t), a.account(t), a.account(t)
		moderator := a.raise(t, models.RoleModerator)
		d, other := a.newDrop(t, ada, obj{"stock": 1}), a.newDrop(t, ada, nil)
		c, kept := a.claim(t, 201, bob, d), a.claim(t, 201, bob, other)
		path := fmt.Sprintf("/v1/admin/users/%d/claims/void", bob.ID)
		a.refusedField(t, 422, "invalid", "reason", moderator, "POST", path, obj{"drop_id": d.ID})
		a.refusedField(t, 422, "invalid", "drop_id", moderator, "POST", path, obj{"drop_id": 0, "reason": "Cheats."})
		voided := func(body obj) int {
			return read[struct{ Voided int }](t, a.must(t, 200, moderator, "POST", path, body)).Voided
		}
		if n := voided(obj{"drop_id": d.ID, "reason": "Cheats."}); n != 1 {
			t.Errorf("%d claims are voided", n)
		}
		a.release(t)
		a.isStored(t, d, 0)
		a.isStored(t, other, 1)
		if got := a.claimByID(t, bob, c.ID); got.State != "voided" || got.Reason == nil || *got.Reason != "moderator" {
			t.Errorf("voided is %+v", got)
		}
		a.claim(t, 201, eve, d)
		a.refused(t, 409, "sold_out", bob, "POST", d.path()+"/claims", nil)
		if n := voided(obj{"reason": "Cheats."}); n != 1 {
			t.Errorf("%d claims are voided", n)
		}
		a.release(t)
		a.isStored(t, other, 0)
		if got := a.claimByID(t, bob, kept.ID); got.State != "voided" {
			t.Errorf("voided is %+v", got)
		}
		list := read[page[claim]](t, a.must(t, 200, moderator, "GET",
			fmt.Sprintf("/v1/admin/drops/%d/claims", d.ID), nil)).Items
		if len(list) != 2 || list[0].User.ID != eve.ID || list[1].User.ID != bob.ID || list[1].State != "voided" {
			t.Errorf("listed are %+v", list)
		}
		// So does the author of the post, who has to give what was claimed. Nobody else does.
		for _, as := range []account{ada, moderator} {
			r := a.must(t, 200, as, "GET", d.path()+"/claims?limit=1", nil)
			first := read[page[claim]](t, r)
			if len(first.Items) != 1 || first.NextCursor == nil {
				t.Fatalf("the author lists %s", r)
			}
			next := read[page[claim]](t, a.must(t, 200, as, "GET",
				d.path()+"/claims?limit=1&cursor="+*first.NextCursor, nil))
			if got := slices.Concat(first.Items, next.Items); len(got) != 2 || next.NextCursor != nil ||
				got[0].User.ID != eve.ID || got[1].User.ID != bob.ID || got[1].State != "voided" {
				t.Errorf("the author lists %+v", got)
			}
		}
		a.refused(t, 403, "forbidden", bob, "GET", d.path()+"/claims", nil)
		a.refused(t, 401, "unauthorized", account{}, "GET", d.path()+"/claims", nil)
		if n := a.number(t, "SELECT COUNT(*) FROM moderation_log WHERE action='user.void_claims' AND target_id=?",
			bob.ID); n != 2 {
			t.Errorf("the log has %d entries", n)
		}
	})
}

func TestClaim_notifiesItsUser(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada, bob := a.account(t), a.account(t)
		d := a.newDrop(t, ada, nil)
		c := a.claim(t, 201, bob, d)
		a.settle()
		type news struct {
			Kind  string
			Claim *struct {
				ID        string
				DropID    *int64     `json:"drop_id"`
				DropTitle string     `json:"drop_title"`
				ExpiresAt *time.Time `json:"expires_at"`
			}
		}
		got := read[page[news]](t, a.must(t, 200, bob, "GET", "/v1/notifications", nil)).Items
		if len(got) != 1 || got[0].Kind != "claim_confirmed" || got[0].Claim.ID != c.ID ||
			*got[0].Claim.DropID != d.ID || got[0].Claim.DropTitle != "A ticket" || got[0].Claim.ExpiresAt != nil {
			t.Errorf("notified of %+v", got)
		}
		slow := a.newDrop(t, ada, obj{"confirm_within": 600})
		a.claim(t, 201, bob, slow)
		a.settle()
		if _, err := a.store.Pool().ExecContext(t.Context(),
			"UPDATE claims SET due_at=created_at WHERE drop_id=?", slow.ID); err != nil {
			t.Fatal(err)
		}
		a.release(t)
		got = read[page[news]](t, a.must(t, 200, bob, "GET", "/v1/notifications", nil)).Items
		if len(got) != 2 || got[0].Kind != "claim_expiring" || got[0].Claim.ExpiresAt == nil {
			t.Errorf("notified of %+v", got)
		}
	})
}

func TestStream_sendsWhatIsLeftOfADrop(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		a.brisk()
		ada, bob := a.account(t), a.account(t)
		d := a.newDrop(t, ada, obj{"stock": 1})
		f := a.watch(t, fmt.Sprintf("drops=%d,4242", d.ID))
		is := func(remaining int64, state string) counted {
			return counted{Type: "drop", ID: d.ID, Stock: 1, Claimed: 1 - remaining, Remaining: remaining, State: state}
		}
		f.await(t, "counts", is(1, "open"))
		f.await(t, "gone", counted{Type: "drop", ID: 4242})
		c := a.claim(t, 201, bob, d)
		f.await(t, "counts", is(0, "sold_out"))
		a.must(t, 204, bob, "DELETE", "/v1/claims/"+c.ID, nil)
		f.await(t, "counts", is(1, "open"))
		a.must(t, 200, ada, "POST", d.path()+"/close", nil)
		f.await(t, "counts", is(1, "ended"))
		a.must(t, 204, ada, "DELETE", fmt.Sprintf("/v1/posts/%d", d.PostID), nil)
		f.await(t, "gone", counted{Type: "drop", ID: d.ID})
	})
}
