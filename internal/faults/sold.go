package main

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"likewise/internal/faults/oracle"
)

// watchStock compares the counts of drops with their rows in MySQL, and with the stock. It ignores errors of the
// server.
func (st *storm) watchStock(ctx context.Context, when string) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	suspects := st.ids(ctx, fmt.Sprintf(`
		SELECT d.id
		FROM %[1]s.drops d
		LEFT JOIN %[1]s.claims c ON c.drop_id = d.id AND c.state IN (1, 2)
		GROUP BY d.id, d.stock, d.claimed
		HAVING COUNT(c.id) <> d.claimed OR COUNT(c.id) > d.stock`, database))
	for _, id := range suspects {
		var stock, claimed, n int64
		err := st.locked(ctx, "drops", id, fmt.Sprintf(`
			SELECT d.stock, d.claimed,
				(SELECT COUNT(*) FROM %[1]s.claims c WHERE c.drop_id = d.id AND c.state IN (1, 2))
			FROM %[1]s.drops d
			WHERE d.id = ?`, database), &stock, &claimed, &n)
		if err == nil && (n != claimed || n > stock) {
			st.violations.Addf("claimed is not its rows, or above the stock", st.site.since(),
				"%s: drop %d: stock %d, claimed %d, live rows %d", when, id, stock, claimed, n)
		}
	}
}

// claimRows reads all rows of claims, by drop and user.
func (st *storm) claimRows(ctx context.Context) (oracle.ClaimRows, error) {
	rows, err := st.site.db.QueryContext(ctx, fmt.Sprintf(`
		SELECT drop_id, user_id, id, state, reason, COALESCE(expires_at < UTC_TIMESTAMP(3) - INTERVAL 5 SECOND, 0)
		FROM %s.claims`, database))
	if err != nil {
		return nil, fmt.Errorf("read claims: %w", err)
	}
	defer rows.Close()
	states := []string{"", oracle.StateReserved, oracle.StateConfirmed, oracle.StateReturned, oracle.StateExpired,
		oracle.StateRejected, oracle.StateVoided}
	list := oracle.ClaimRows{}
	for rows.Next() {
		var of, user int64
		var state int
		var r oracle.ClaimRow
		if err := rows.Scan(&of, &user, &r.ID, &state, &r.Reason, &r.Overdue); err != nil {
			return nil, fmt.Errorf("read claims: %w", err)
		}
		r.State = states[state]
		if !list.Add(of, user, r) {
			st.violations.Addf(oracle.TwoClaims, st.site.since(), "drop %d, user %d", of, user)
		}
	}
	return list, rows.Err()
}

// judgeClaims compares the answers about claims with each other, with MySQL and with the API.
func (st *storm) judgeClaims(ctx context.Context, j *oracle.Judge, viewers []*oracle.Account) error {
	rows, err := st.claimRows(ctx)
	if err != nil {
		return err
	}
	st.watchStock(ctx, "at the end")
	for _, d := range st.drops.all() {
		j.Claims(d, rows[d.ID])
		if err := st.judgeDrop(ctx, d, rows[d.ID]); err != nil {
			return err
		}
	}
	for i, u := range viewers[:min(len(viewers), 32)] {
		if err := st.judgeHeld(ctx, route{i % 2, patientLimit}, u, rows); err != nil {
			return err
		}
	}
	return nil
}

// awaitExpiry waits until the claims have expired that do so in the next seconds, so that nothing changes while the
// oracle judges.
func (st *storm) awaitExpiry(ctx context.Context) error {
	const soon = `
		SELECT COUNT(*)
		FROM ` + database + `.claims
		WHERE state = 1 AND expires_at < UTC_TIMESTAMP(3) + INTERVAL 60 SECOND`
	for begin := time.Now(); ; {
		var n int
		if err := st.site.db.QueryRowContext(ctx, soon).Scan(&n); err != nil {
			return fmt.Errorf("count reserved claims: %w", err)
		}
		if n == 0 {
			return nil
		}
		if time.Since(begin) > patience {
			st.violations.Addf("claims do not expire", st.site.since(), "%d are reserved for %v", n, patience)
			return nil
		}
		if err := wait(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
}

// judgeDrop compares a drop as both APIs show it with MySQL.
func (st *storm) judgeDrop(ctx context.Context, d *oracle.Drop, rows map[int64]oracle.ClaimRow) error {
	if d.Post.MayBeGone(st.site.since()) {
		return nil
	}
	viewers := d.All()
	for api := range st.site.apis {
		q := request{method: http.MethodGet, path: d.Path()}
		want := ""
		// The first API is asked by a user who holds a claim, and the second by one who does not.
		for _, s := range viewers {
			row, has := rows[s.User.ID]
			if has = has && oracle.Live(row.State); has == (api == 0) && !s.User.Outcast {
				if q.as = s.User; has {
					want = strconv.FormatInt(row.ID, 10)
				}
				break
			}
		}
		a := st.eventually(ctx, route{api, patientLimit}, q)
		if a.outcome != oracle.OK {
			return fmt.Errorf("%s answers %d %s", q, a.status, a.body)
		}
		seen, is := st.holdDrop(d, a.body, q.String())
		claim := ""
		if seen.Claim != nil {
			claim = seen.Claim.ID
		}
		if n := oracle.InForce(rows); is && (seen.Claimed != n || seen.Remaining != seen.Stock-n || claim != want) {
			st.violations.Addf("the API sees claims otherwise than MySQL", st.site.since(),
				"api%d: %s answers %s; MySQL has %d live claims, and that of the viewer is %q",
				api+1, q, a.body, n, want)
		}
	}
	return nil
}

// judgeHeld compares the list of a user's claims with MySQL, and reads each claim.
func (st *storm) judgeHeld(ctx context.Context, by route, u *oracle.Account, rows oracle.ClaimRows) error {
	want := map[string]string{}
	for _, d := range st.drops.all() {
		if row, has := rows[d.ID][u.ID]; has {
			want[strconv.FormatInt(row.ID, 10)] = row.State
		}
	}
	bad := func(id, state, where string) {
		if state != want[id] {
			st.violations.Addf("the API sees claims otherwise than MySQL", st.site.since(),
				"user %d: %s says that claim %s is %q, in MySQL it is %q", u.ID, where, id, state, want[id])
		}
	}
	met := map[string]bool{}
	for cursor := ""; ; {
		var page struct {
			Items      []claimSeen
			NextCursor *string `json:"next_cursor"`
		}
		if err := st.mustRead(ctx, by, u, "/v1/me/claims?limit=100"+cursor, &page); err != nil {
			return err
		}
		for _, c := range page.Items {
			met[c.ID] = true
			bad(c.ID, c.State, "the list")
		}
		if page.NextCursor == nil {
			break
		}
		cursor = "&cursor=" + *page.NextCursor
	}
	for id := range want {
		if !met[id] {
			bad(id, "", "the list")
		}
	}
	for id := range want {
		var c claimSeen
		if err := st.mustRead(ctx, by.other(), u, "/v1/claims/"+id, &c); err != nil {
			return err
		}
		bad(id, c.State, "GET /v1/claims/"+id)
	}
	return nil
}

// restSold is the number of drops whose rest is sold at the end.
const restSold = 20

// sellRest sells what is left of open drops, after everything has come to rest. As many users as are left over get a
// claim, and not one more: what was returned, voided or expired is available again, once.
func (st *storm) sellRest(ctx context.Context, users []*oracle.Account) error {
	rows, err := st.claimRows(ctx)
	if err != nil {
		return err
	}
	now := st.site.since()
	sold := map[*oracle.Drop][]*oracle.Share{}
	for _, d := range st.drops.all() {
		if d.Ends != 0 || d.Begins > now || d.MayBeClosed(now) || d.Post.MayBeGone(now) || len(sold) == restSold {
			continue
		}
		var seen dropSeen
		if err := st.mustRead(ctx, route{0, patientLimit}, users[0], d.Path(), &seen); err != nil {
			return err
		}
		sold[d] = nil
		left := seen.Stock - oracle.InForce(rows[d.ID])
		for i, u := range users {
			if oracle.Live(rows[d.ID][u.ID].State) {
				continue
			}
			s := d.Share(u)
			var o oracle.ClaimOp
			for range 5 {
				o = st.claim(ctx, route{i % 2, patientLimit}, s, oracle.Claims, 0)
				if o.Outcome != oracle.Unknown && o.Status != oracle.NoStatus {
					break
				}
				if err := wait(ctx, time.Second); err != nil {
					return err
				}
			}
			if o.Outcome != oracle.OK {
				break
			}
			sold[d] = append(sold[d], s)
		}
		if n := int64(len(sold[d])); n != left {
			st.violations.Addf("the rest is not what was left", st.site.since(),
				"%s: stock %d, %d live claims in MySQL, and %d more were sold",
				d.Name(), seen.Stock, seen.Stock-left, n)
		}
	}
	if out, err := st.site.command(ctx, "cron", "run", "flush", "--timeout=60s"); err != nil {
		st.violations.Addf("flush fails", st.site.since(), "after the rest was sold: %v: %s", err, out)
	}
	if rows, err = st.claimRows(ctx); err != nil {
		return err
	}
	st.watchStock(ctx, "after the rest was sold")
	for d, shares := range sold {
		for _, s := range shares {
			last := s.Ops[len(s.Ops)-1]
			if row := rows[d.ID][s.User.ID]; row.ID != last.Claim || !oracle.Live(row.State) {
				st.violations.Addf(oracle.LostClaim, st.site.since(),
					"after the rest was sold, in MySQL: %s: %s", row, s.Story())
			}
		}
		if err := st.judgeDrop(ctx, d, rows[d.ID]); err != nil {
			return err
		}
	}
	return nil
}
