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
	account *account
	deleted []*removal
	banned  []*removal
}

// removal is a deletion or a ban that the moderator can undo.
type removal struct {
	target   *target
	user     *account
	byAuthor bool
	open     []op // requests without an answer, which may still take effect
}

// settled reports whether every request of the removal has ended.
func (m *moderator) settled(r *removal) bool {
	return !slices.ContainsFunc(r.open, func(o op) bool { return m.st.site.last(o) >= m.st.site.since() })
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
func (m *moderator) insist(ctx context.Context, q request, open *[]op, again ...int) bool {
	var effect []int
	for {
		o := op{api: uint8(m.api), start: m.st.site.since()}
		a := m.st.send(context.WithoutCancel(ctx), m.route, q)
		o.end, o.outcome, o.status, o.broken = m.st.site.since(), a.outcome, uint16(a.status), a.broken
		switch {
		case a.outcome == ok:
			return true
		case a.status == noStatus:
			m.route = m.other()
			*open = append(*open, o)
		case a.outcome == failed:
			return slices.Contains(effect, a.status)
		}
		if a.outcome == unknown {
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
func (m *moderator) content(t *target, act string) request {
	return m.post(fmt.Sprintf("%s/%d/%s", t.kind, t.id, act), map[string]any{})
}

// choose returns a target that nobody else deletes. The prober's targets are never deleted. Every fifth time it is the
// disputed one, which many users like.
func (m *moderator) choose() *target {
	m.st.targets.mu.RLock()
	defer m.st.targets.mu.RUnlock()
	t := m.st.targets.disputed
	if cold := m.st.targets.cold[probed:]; m.rng.IntN(5) > 0 {
		t = cold[m.rng.IntN(len(cold))]
	}
	if t.author == nil || !t.gone.take() {
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
	t.gone.begin(m.st.site.since(), m.st.site.trouble.Load())
	if m.rng.IntN(3) == 0 {
		begin := op{api: uint8(m.api), start: m.st.site.since()}
		a := m.st.send(context.WithoutCancel(ctx), m.route, request{
			as: t.author, method: http.MethodDelete, path: t.path(), excused: []int{http.StatusNotFound},
		})
		begin.end, begin.outcome, begin.status, begin.broken = m.st.site.since(), a.outcome, uint16(a.status), a.broken
		r.byAuthor = a.outcome == ok
		if a.outcome == unknown {
			r.open = append(r.open, begin)
		}
	}
	if !r.byAuthor && !m.insist(ctx, m.content(t, "delete"), &r.open) {
		return
	}
	t.gone.confirm(m.st.site.since())
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
	r.target.gone.beginEnd(m.st.site.since())
	q := m.content(r.target, "restore")
	if r.byAuthor && r.target.kind == "posts" && m.rng.IntN(2) == 0 {
		q = request{as: r.target.author, method: http.MethodPost, path: r.target.path() + "/restore"}
	}
	r.open = nil
	if !m.insist(ctx, q, &r.open) {
		return
	}
	r.target.gone.end(m.st.site.since())
	m.st.tally.moderated[restorations].Add(1)
	if !m.settled(r) {
		return // the target is left alone: a restoration may still take effect
	}
	r.target.gone.release()
}

// outcast returns a user on whom nobody else works.
func (m *moderator) outcast() *account {
	all := m.st.outcasts
	a := all[m.rng.IntN(len(all))]
	if !a.banned.take() {
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

func (m *moderator) banNow(ctx context.Context, a *account) *removal {
	r := &removal{user: a}
	a.pass.Load().ended.Store(true)
	a.banned.begin(m.st.site.since(), m.st.site.trouble.Load())
	if !m.insist(ctx, m.post(fmt.Sprintf("users/%d/ban", a.id), map[string]any{}), &r.open) {
		return nil
	}
	a.banned.confirm(m.st.site.since())
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
	r.user.banned.beginEnd(m.st.site.since())
	if !m.insist(ctx, m.post(fmt.Sprintf("users/%d/unban", r.user.id), map[string]any{}), &r.open) {
		return
	}
	for {
		out, err := m.st.site.command(ctx, "user", "token", r.user.name)
		if tokens, bad := readTokens(out); err == nil && bad == nil && len(tokens) == 1 {
			r.user.pass.Store(tokens[0].pass.Load())
			break
		}
		if wait(ctx, 500*time.Millisecond) != nil {
			return
		}
	}
	r.user.banned.end(m.st.site.since())
	m.st.tally.moderated[unbans].Add(1)
	r.user.banned.release()
}

// void voids the likes of a period, which ended in the last seconds.
func (m *moderator) void(ctx context.Context) {
	a := m.outcast()
	if a == nil {
		return
	}
	defer a.banned.release()
	s := m.st.site
	now := time.Now()
	until := now.Add(-time.Duration(m.rng.IntN(20)) * time.Second).Truncate(time.Second)
	since := until.Add(-time.Duration(5+m.rng.IntN(120)) * time.Second)
	v := void{start: s.since(), since: since.Sub(s.began), until: until.Sub(s.began)}
	a.voids = append(a.voids, v)
	q := m.post(fmt.Sprintf("users/%d/likes/void", a.id), map[string]any{
		"since": since.UTC().Format(time.RFC3339), "until": until.UTC().Format(time.RFC3339),
	})
	q.excused = []int{http.StatusUnprocessableEntity} // the API's clock may be behind: the period has not ended there
	if m.insist(ctx, q, new([]op)) {
		a.voids[len(a.voids)-1].certain = true
		m.st.tally.moderated[voids].Add(1)
	}
}

// voidClaims voids the claims of an outcast, to one drop or to all.
func (m *moderator) voidClaims(ctx context.Context) {
	a := m.outcast()
	if a == nil {
		return
	}
	defer a.banned.release()
	body, v := map[string]any{}, claimVoid{start: m.st.site.since(), until: forever}
	if m.rng.IntN(2) == 0 {
		if v.drop = m.st.drops.choose(m.rng); v.drop != nil {
			body["drop_id"] = v.drop.id
		}
	}
	a.claimVoids = append(a.claimVoids, v)
	var open []op
	if m.insist(ctx, m.post(fmt.Sprintf("users/%d/claims/void", a.id), body), &open) {
		v.certain, v.until = true, m.st.site.since()
		for _, o := range open {
			v.until = max(v.until, m.st.site.last(o))
		}
		a.claimVoids[len(a.claimVoids)-1] = v
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
	a.voids = append(a.voids, void{start: m.st.site.since(), all: true})
	a.claimVoids = append(a.claimVoids, claimVoid{start: m.st.site.since(), until: forever, account: true})
	var done bool
	if strings.HasPrefix(a.name, "leaver") {
		a.pass.Load().ended.Store(true)
		a.banned.begin(m.st.site.since(), m.st.site.trouble.Load())
		done = m.insist(ctx, request{
			as: a, method: http.MethodDelete, path: "/v1/me", body: map[string]any{"password": leaverWords},
		}, new([]op), http.StatusUnauthorized)
		if done {
			a.banned.confirm(m.st.site.since())
		}
	} else if m.banNow(ctx, a) != nil {
		done = m.insist(ctx, m.post(fmt.Sprintf("users/%d/delete", a.id), map[string]any{}), new([]op),
			http.StatusNotFound, http.StatusConflict)
	}
	if done {
		a.voids[len(a.voids)-1].certain = true
		a.claimVoids[len(a.claimVoids)-1].certain = true
		m.st.tally.moderated[accountDeletions].Add(1)
	}
}

// admit creates the admin and the outcasts who can sign in, and returns the admin.
func (st *storm) admit(ctx context.Context) (*account, error) {
	create := func(name, role string) (*account, error) {
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
		list[0].name = name
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
		a.outcast = true
	}
	return create(adminName, "admin")
}

// judgeModeration checks what moderators did last: targets that stay deleted and accounts that stay banned take no
// likes. Then it restores half of the targets, whose counts must be those of MySQL.
func (st *storm) judgeModeration(ctx context.Context, list []*moderator, viewer *account) error {
	refused := func(sort string, as *account, t *target, excused ...int) error {
		for i := range st.site.apis {
			a := st.eventually(ctx, route{i, patientLimit}, request{
				as: as, method: http.MethodPut, path: t.path() + "/like", excused: excused,
			})
			if a.outcome == unknown {
				return fmt.Errorf("PUT %s/like answers %d %s", t.path(), a.status, a.body)
			}
			if a.outcome == ok {
				st.violations.addf(sort, st.site.since(), "at the end: %s, user %d: %s", t.name(), as.id, a.body)
			}
		}
		return nil
	}
	for _, m := range list {
		for i, r := range m.deleted {
			if !r.target.gone.holds() || !m.settled(r) {
				continue
			}
			if err := refused("a deleted target takes likes", viewer, r.target, http.StatusNotFound); err != nil {
				return err
			}
			if i%2 == 0 && !m.insist(ctx, m.content(r.target, "restore"), &r.open) {
				return fmt.Errorf("%s is not restored", r.target.name())
			}
		}
		for _, r := range m.banned {
			if !r.user.banned.holds() {
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
		if a = st.send(ctx, by, q); a.outcome == ok || a.outcome == failed && a.status != noStatus {
			return a
		}
		if wait(ctx, time.Second) != nil {
			return a
		}
	}
	return a
}
