package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"likewise/internal/faults/oracle"
)

// patience is how long the site may take to recover after a fault is healed. The README promises seconds, which the
// report shows. patience is longer because some recoveries wait for the job flush, which runs once a minute.
const patience = 90 * time.Second

// recovery has the times from the end of a fault until a function worked again.
type recovery struct {
	likes time.Duration // each API acknowledged a like of a hot post
	rows  time.Duration // the workers had written new likes of many shards to MySQL
	flush time.Duration // `likewise cron run flush` succeeded
}

// prober measures recoveries. It has its own users: one for each API, and one for the rows.
type prober struct {
	st     *storm
	hot    []*oracle.Register // one for each API
	spread []*oracle.Register // of one user, on many posts
	want   bool
}

func newProber(st *storm, users []*oracle.Account, hot *oracle.Target, spread []*oracle.Target) *prober {
	p := &prober{st: st}
	for i := range st.site.apis {
		p.hot = append(p.hot, &oracle.Register{Target: hot, User: users[i]})
	}
	for _, t := range spread {
		p.spread = append(p.spread, &oracle.Register{Target: t, User: users[len(st.site.apis)]})
	}
	return p
}

// measure waits until the site has recovered. A recovery that takes longer than patience is a violation. If it takes
// twice as long, measure returns an error, which ends the run.
func (p *prober) measure(ctx context.Context, after string) (recovery, error) {
	var r recovery
	begin := time.Now()
	p.want = !p.want
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	var both sync.WaitGroup
	for i, reg := range p.hot {
		both.Go(func() { p.until(ctx, i, reg) })
	}
	both.Wait()
	r.likes = time.Since(begin)
	for i, reg := range p.spread {
		both.Go(func() { p.until(ctx, i%len(p.hot), reg) })
	}
	both.Wait()
	var missing string
	for ctx.Err() == nil {
		if missing = p.missing(ctx); missing == "" {
			break
		}
		_ = wait(ctx, 20*time.Millisecond)
	}
	r.rows = time.Since(begin)
	if ctx.Err() != nil {
		return r, fmt.Errorf("after %q the site is not well within %v: %s", after, 2*patience, missing)
	}
	out, err := p.st.site.command(ctx, "cron", "run", "flush", "--timeout=60s")
	r.flush = time.Since(begin)
	if err != nil {
		p.st.violations.Addf("flush fails", p.st.site.since(), "after %q: %v: %s", after, err, out)
	}
	if r.flush > patience {
		p.st.violations.Addf("slow recovery", p.st.site.since(),
			"after %q: likes after %v, rows after %v, flush after %v", after, r.likes, r.rows, r.flush)
	}
	return r, nil
}

// until repeats an operation until it is acknowledged.
func (p *prober) until(ctx context.Context, api int, r *oracle.Register) {
	for ctx.Err() == nil {
		if p.st.set(context.WithoutCancel(ctx), route{api, patientLimit}, r, p.want) == oracle.OK {
			return
		}
		_ = wait(ctx, 20*time.Millisecond)
	}
}

// missing describes the likes of the prober that are not in MySQL yet.
func (p *prober) missing(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	rows, err := p.st.site.db.QueryContext(ctx, "SELECT post_id FROM "+database+".post_likes WHERE user_id = ?",
		p.spread[0].User.ID)
	if err != nil {
		return err.Error()
	}
	defer rows.Close()
	there := map[int64]bool{}
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return err.Error()
		}
		there[id] = true
	}
	if err := rows.Err(); err != nil {
		return err.Error()
	}
	var late []string
	for _, r := range p.spread {
		if there[r.Target.ID] != p.want {
			late = append(late, r.Target.Name())
		}
	}
	if len(late) == 0 {
		return ""
	}
	return fmt.Sprintf("rows of user %d are not as acknowledged (liked: %v) for %s", p.spread[0].User.ID, p.want,
		strings.Join(late, ", "))
}
