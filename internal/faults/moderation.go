package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"likewise/internal/faults/oracle"
)

// The acts of moderators that the report counts.
const (
	deletions = iota
	restorations
	bans
	unbans
	voids
	claimVoids
	accountDeletions
	moderations
)

var moderationNames = [moderations]string{
	"deletions", "restorations", "bans", "bans lifted", "voids of likes", "voids of claims", "accounts deleted",
}

const (
	moderators  = 2
	outcasts    = 40 // users whom moderators ban, whose likes they void, and whose accounts are deleted
	leavers     = 6  // of the outcasts: with a password, to delete their own accounts
	atOnce      = 12 // deleted targets, and banned users, of a moderator
	adminName   = "moderator"
	leaverName  = "leaver-%d"
	leaverWords = "a long password of somebody who leaves"
)

// moderator deletes and restores targets, bans users, voids their likes and deletes their accounts while likes run.
// Each act is repeated until it is acknowledged. One actor at a time works on a target or an account.
type moderator struct {
	route

	st      *storm
	rng     *rand.Rand
	account *oracle.Account
	deleted []*removal
	banned  []*removal
}

// removal is a deletion or a ban that the moderator can undo.
type removal struct {
	target   *oracle.Target
	user     *oracle.Account
	byAuthor bool
	open     []oracle.Op // requests without an answer, which may still take effect
}

// settled reports whether every request of the removal has ended.
func (m *moderator) settled(r *removal) bool {
	return !slices.ContainsFunc(r.open, func(o oracle.Op) bool { return m.st.site.last(o) >= m.st.site.since() })
}

// run acts until ctx ends.
func (m *moderator) run(ctx context.Context) {
	for wait(ctx, time.Duration(50+m.rng.IntN(300))*time.Millisecond) == nil {
		m.st.quiet.RLock()
		if ctx.Err() == nil {
			m.act(ctx)
		}
		m.st.quiet.RUnlock()
	}
}

func (m *moderator) act(ctx context.Context) {
	undo := m.rng.Float64() < 0.5
	switch p := m.rng.Float64(); {
	case p < 0.88 && (undo || len(m.deleted) >= atOnce):
		m.restore(ctx)
	case p < 0.88:
		m.remove(ctx)
	case p < 0.96 && (undo || len(m.banned) >= atOnce):
		m.unban(ctx)
	case p < 0.96:
		m.ban(ctx)
	case p < 0.975:
		m.void(ctx)
	case p < 0.99:
		m.voidClaims(ctx)
	default:
		m.deleteAccount(ctx)
	}
}

// insist repeats a request until it is acknowledged or ctx ends. Requests without an answer are added to open. again
// are the statuses that mean that an earlier request took effect.
func (m *moderator) insist(ctx context.Context, q request, open *[]oracle.Op, again ...int) bool {
	var effect []int
	for {
		o := oracle.Op{API: uint8(m.api), Start: m.st.site.since()}
		a := m.st.send(context.WithoutCancel(ctx), m.route, q)
		o.End, o.Outcome, o.Status, o.Broken = m.st.site.since(), a.outcome, uint16(a.status), a.broken
		switch {
		case a.outcome == oracle.OK:
			return true
		case a.status == oracle.NoStatus:
			m.route = m.other()
			*open = append(*open, o)
		case a.outcome == oracle.Failed:
			return slices.Contains(effect, a.status)
		}
		if a.outcome == oracle.Unknown {
			q.excused, effect = slices.Concat(q.excused, again), again
		}
		if wait(ctx, 100*time.Millisecond) != nil {
			return false
		}
	}
}

func (m *moderator) post(path string, body map[string]any) request {
	body["reason"] = "A reason."
	return request{as: m.account, method: http.MethodPost, path: "/v1/admin/" + path, body: body}
}

// content returns a request about a target.
func (m *moderator) content(t *oracle.Target, act string) request {
	return m.post(fmt.Sprintf("%s/%d/%s", t.Kind, t.ID, act), map[string]any{})
}

// choose returns a target that nobody else deletes. The prober's targets are never deleted. Every fifth time it is the
// disputed one, which many users like.
func (m *moderator) choose() *oracle.Target {
	m.st.targets.mu.RLock()
	defer m.st.targets.mu.RUnlock()
	t := m.st.targets.disputed
	if cold := m.st.targets.cold[probed:]; m.rng.IntN(5) > 0 {
		t = cold[m.rng.IntN(len(cold))]
	}
	if t.Author == nil || !t.Gone.Take() {
		return nil
	}
	return t
}

func (m *moderator) remove(ctx context.Context) {
	t := m.choose()
	if t == nil {
		return
	}
	r := &removal{target: t}
	t.Gone.Begin(m.st.site.since(), m.st.site.trouble.Load())
	if m.rng.IntN(3) == 0 {
		begin := oracle.Op{API: uint8(m.api), Start: m.st.site.since()}
		a := m.st.send(context.WithoutCancel(ctx), m.route, request{
			as: t.Author, method: http.MethodDelete, path: t.Path(), excused: []int{http.StatusNotFound},
		})
		begin.End, begin.Outcome, begin.Status, begin.Broken = m.st.site.since(), a.outcome, uint16(a.status), a.broken
		r.byAuthor = a.outcome == oracle.OK
		if a.outcome == oracle.Unknown {
			r.open = append(r.open, begin)
		}
	}
	if !r.byAuthor && !m.insist(ctx, m.content(t, "delete"), &r.open) {
		return
	}
	t.Gone.Confirm(m.st.site.since())
	m.st.tally.moderated[deletions].Add(1)
	m.deleted = append(m.deleted, r)
}

// restore restores a target, mostly the last that was deleted.
func (m *moderator) restore(ctx context.Context) {
	i := len(m.deleted) - 1
	if i > 0 && m.rng.IntN(3) == 0 {
		i = m.rng.IntN(len(m.deleted))
	}
	if i < 0 || !m.settled(m.deleted[i]) {
		return
	}
	r := m.deleted[i]
	m.deleted = slices.Delete(m.deleted, i, i+1)
	r.target.Gone.BeginEnd(m.st.site.since())
	q := m.content(r.target, "restore")
	if r.byAuthor && r.target.Kind == "posts" && m.rng.IntN(2) == 0 {
		q = request{as: r.target.Author, method: http.MethodPost, path: r.target.Path() + "/restore"}
	}
	r.open = nil
	if !m.insist(ctx, q, &r.open) {
		return
	}
	r.target.Gone.End(m.st.site.since())
	m.st.tally.moderated[restorations].Add(1)
	if !m.settled(r) {
		return // the target is left alone: a restoration may still take effect
	}
	r.target.Gone.Release()
}

// outcast returns a user on whom nobody else works.
func (m *moderator) outcast() *oracle.Account {
	all := m.st.outcasts
	a := all[m.rng.IntN(len(all))]
	if !a.Banned.Take() {
		return nil
	}
	return a
}

func (m *moderator) ban(ctx context.Context) {
	a := m.outcast()
	if a == nil {
		return
	}
	if r := m.banNow(ctx, a); r != nil {
		m.banned = append(m.banned, r)
	}
}

func (m *moderator) banNow(ctx context.Context, a *oracle.Account) *removal {
	r := &removal{user: a}
	a.Pass.Load().Ended.Store(true)
	a.Banned.Begin(m.st.site.since(), m.st.site.trouble.Load())
	if !m.insist(ctx, m.post(fmt.Sprintf("users/%d/ban", a.ID), map[string]any{}), &r.open) {
		return nil
	}
	a.Banned.Confirm(m.st.site.since())
	m.st.tally.moderated[bans].Add(1)
	return r
}

// unban lifts a ban. The user signs in again.
func (m *moderator) unban(ctx context.Context) {
	if len(m.banned) == 0 {
		return
	}
	i := m.rng.IntN(len(m.banned))
	r := m.banned[i]
	if !m.settled(r) {
		return
	}
	m.banned = slices.Delete(m.banned, i, i+1)
	r.user.Banned.BeginEnd(m.st.site.since())
	if !m.insist(ctx, m.post(fmt.Sprintf("users/%d/unban", r.user.ID), map[string]any{}), &r.open) {
		return
	}
	for {
		out, err := m.st.site.command(ctx, "user", "token", r.user.Name)
		if tokens, bad := readTokens(out); err == nil && bad == nil && len(tokens) == 1 {
			r.user.Pass.Store(tokens[0].Pass.Load())
			break
		}
		if wait(ctx, 500*time.Millisecond) != nil {
			return
		}
	}
	r.user.Banned.End(m.st.site.since())
	m.st.tally.moderated[unbans].Add(1)
	r.user.Banned.Release()
}

// void voids the likes of a period, which ended in the last seconds.
func (m *moderator) void(ctx context.Context) {
	a := m.outcast()
	if a == nil {
		return
	}
	defer a.Banned.Release()
	s := m.st.site
	now := time.Now()
	until := now.Add(-time.Duration(m.rng.IntN(20)) * time.Second).Truncate(time.Second)
	since := until.Add(-time.Duration(5+m.rng.IntN(120)) * time.Second)
	v := oracle.Void{Start: s.since(), Since: since.Sub(s.began), Until: until.Sub(s.began)}
	a.Voids = append(a.Voids, v)
	q := m.post(fmt.Sprintf("users/%d/likes/void", a.ID), map[string]any{
		"since": since.UTC().Format(time.RFC3339), "until": until.UTC().Format(time.RFC3339),
	})
	q.excused = []int{http.StatusUnprocessableEntity} // the API's clock may be behind: the period has not ended there
	if m.insist(ctx, q, new([]oracle.Op)) {
		a.Voids[len(a.Voids)-1].Certain = true
		m.st.tally.moderated[voids].Add(1)
	}
}

// voidClaims voids the claims of an outcast, to one drop or to all.
func (m *moderator) voidClaims(ctx context.Context) {
	a := m.outcast()
	if a == nil {
		return
	}
	defer a.Banned.Release()
	body, v := map[string]any{}, oracle.ClaimVoid{Start: m.st.site.since(), Until: oracle.Forever}
	if m.rng.IntN(2) == 0 {
		if v.Drop = m.st.drops.choose(m.rng); v.Drop != nil {
			body["drop_id"] = v.Drop.ID
		}
	}
	a.ClaimVoids = append(a.ClaimVoids, v)
	var open []oracle.Op
	if m.insist(ctx, m.post(fmt.Sprintf("users/%d/claims/void", a.ID), body), &open) {
		v.Certain, v.Until = true, m.st.site.since()
		for _, o := range open {
			v.Until = max(v.Until, m.st.site.last(o))
		}
		a.ClaimVoids[len(a.ClaimVoids)-1] = v
		m.st.tally.moderated[claimVoids].Add(1)
	}
}

// deleteAccount deletes the account of an outcast: they do it themselves, or an admin does it after a ban. Nobody takes
// the account again.
func (m *moderator) deleteAccount(ctx context.Context) {
	a := m.outcast()
	if a == nil {
		return
	}
	a.Voids = append(a.Voids, oracle.Void{Start: m.st.site.since(), All: true})
	v := oracle.ClaimVoid{Start: m.st.site.since(), Until: oracle.Forever, Account: true}
	a.ClaimVoids = append(a.ClaimVoids, v)
	var done bool
	if strings.HasPrefix(a.Name, "leaver") {
		a.Pass.Load().Ended.Store(true)
		a.Banned.Begin(m.st.site.since(), m.st.site.trouble.Load())
		done = m.insist(ctx, request{
			as: a, method: http.MethodDelete, path: "/v1/me", body: map[string]any{"password": leaverWords},
		}, new([]oracle.Op), http.StatusUnauthorized)
		if done {
			a.Banned.Confirm(m.st.site.since())
		}
	} else if m.banNow(ctx, a) != nil {
		done = m.insist(ctx, m.post(fmt.Sprintf("users/%d/delete", a.ID), map[string]any{}), new([]oracle.Op),
			http.StatusNotFound, http.StatusConflict)
	}
	if done {
		a.Voids[len(a.Voids)-1].Certain = true
		a.ClaimVoids[len(a.ClaimVoids)-1].Certain = true
		m.st.tally.moderated[accountDeletions].Add(1)
	}
}

// admit creates the admin and the outcasts who can sign in, and returns the admin.
func (st *storm) admit(ctx context.Context) (*oracle.Account, error) {
	create := func(name, role string) (*oracle.Account, error) {
		cmd := exec.CommandContext(ctx, st.site.binary, "user", "create", name, name+"@example.com",
			"--role", role, "--password-stdin")
		cmd.Env, cmd.Stdin = st.site.env, strings.NewReader(leaverWords+"\n")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("create user %s: %w: %s", name, err, out)
		}
		out, err := st.site.command(ctx, "user", "token", name)
		if err != nil {
			return nil, fmt.Errorf("make a token: %w: %s", err, out)
		}
		list, err := readTokens(out)
		if err != nil {
			return nil, err
		}
		list[0].Name = name
		return list[0], nil
	}
	for i := range leavers {
		a, err := create(fmt.Sprintf(leaverName, i), "user")
		if err != nil {
			return nil, err
		}
		st.outcasts = append(st.outcasts, a)
	}
	for _, a := range st.outcasts {
		a.Outcast = true
	}
	return create(adminName, "admin")
}

// judgeModeration checks what moderators did last: targets that stay deleted and accounts that stay banned take no
// likes. Then it restores half of the targets, whose counts must be those of MySQL.
func (st *storm) judgeModeration(ctx context.Context, list []*moderator, viewer *oracle.Account) error {
	refused := func(sort oracle.Kind, as *oracle.Account, t *oracle.Target, excused ...int) error {
		for i := range st.site.apis {
			a := st.eventually(ctx, route{i, patientLimit}, request{
				as: as, method: http.MethodPut, path: t.Path() + "/like", excused: excused,
			})
			if a.outcome == oracle.Unknown {
				return fmt.Errorf("PUT %s/like answers %d %s", t.Path(), a.status, a.body)
			}
			if a.outcome == oracle.OK {
				st.violations.Addf(sort, st.site.since(), "at the end: %s, user %d: %s", t.Name(), as.ID, a.body)
			}
		}
		return nil
	}
	for _, m := range list {
		for i, r := range m.deleted {
			if !r.target.Gone.Holds() || !m.settled(r) {
				continue
			}
			if err := refused("a deleted target takes likes", viewer, r.target, http.StatusNotFound); err != nil {
				return err
			}
			if i%2 == 0 && !m.insist(ctx, m.content(r.target, "restore"), &r.open) {
				return fmt.Errorf("%s is not restored", r.target.Name())
			}
		}
		for _, r := range m.banned {
			if !r.user.Banned.Holds() {
				continue
			}
			if err := refused("a banned account is served", r.user, st.targets.hot[0]); err != nil {
				return err
			}
		}
	}
	return nil
}

// eventually repeats a request to a site that has recovered, until it has an answer.
func (st *storm) eventually(ctx context.Context, by route, q request) answer {
	var a answer
	for range 5 {
		a = st.send(ctx, by, q)
		if a.outcome == oracle.OK || a.outcome == oracle.Failed && a.status != oracle.NoStatus {
			return a
		}
		if wait(ctx, time.Second) != nil {
			return a
		}
	}
	return a
}
