package main

import (
	"context"
	"fmt"
	"slices"
)

// notice identifies what a notification is about: a claim, or a milestone of a target.
type notice struct {
	user      int64
	claim     int64
	post      int64
	comment   int64 // 0: the post
	milestone int64
}

// Kinds of notifications in MySQL.
const (
	noticeMilestone = 3
	noticeConfirmed = 5
	noticeRejected  = 6
)

// notices reads the notifications of a kind, and counts each.
func (st *storm) notices(ctx context.Context, kind int) (map[notice]int, error) {
	rows, err := st.site.db.QueryContext(ctx, `
		SELECT user_id, claim_id, post_id, comment_id, milestone
		FROM `+database+`.notifications
		WHERE kind = ?`, kind)
	if err != nil {
		return nil, fmt.Errorf("read notifications: %w", err)
	}
	defer rows.Close()
	list := map[notice]int{}
	for rows.Next() {
		var n notice
		if err := rows.Scan(&n.user, &n.claim, &n.post, &n.comment, &n.milestone); err != nil {
			return nil, fmt.Errorf("read notifications: %w", err)
		}
		if kind != noticeMilestone {
			n = notice{user: n.user, claim: n.claim}
		}
		list[n]++
	}
	return list, rows.Err()
}

// judgeNotices checks that each user of a rejected claim was notified of that once, and each author of a milestone.
// inMySQL are the likes there.
func (st *storm) judgeNotices(ctx context.Context, registers []*register, inMySQL map[registerKey]bool) error {
	rejected, err := st.notices(ctx, noticeRejected)
	if err != nil {
		return err
	}
	confirmed, err := st.notices(ctx, noticeConfirmed)
	if err != nil {
		return err
	}
	if err := st.judgeRejections(ctx, rejected, confirmed); err != nil {
		return err
	}
	return st.judgeMilestones(ctx, registers, inMySQL)
}

// judgeRejections compares notifications of rejected claims with the claims. A claim that is answered with 2xx is
// stored, or its user is notified that it was rejected. A later claim of the user takes the row, and the notification
// stays.
func (st *storm) judgeRejections(ctx context.Context, rejected, confirmed map[notice]int) error {
	rows, err := st.claimRows(ctx)
	if err != nil {
		return err
	}
	at := st.site.since()
	for n, times := range rejected {
		st.mu.Lock()
		of, known := st.claims[n.claim]
		st.mu.Unlock()
		switch {
		case times > 1:
			st.violations.addf("notified twice", at, "user %d, claim %d is rejected: %d times", n.user, n.claim, times)
		case known && of.user.id != n.user:
			st.violations.addf(
				"notified of the claim of another",
				at,
				"user %d, claim %d: %s",
				n.user,
				n.claim,
				of.story(),
			)
		case confirmed[n] > 0:
			st.violations.addf(
				"notified otherwise than it is",
				at,
				"user %d: claim %d is confirmed and rejected",
				n.user,
				n.claim,
			)
		}
	}
	for _, d := range st.drops.all() {
		for _, s := range d.all() {
			if s.user.outcast {
				continue // accounts that are deleted are not notified
			}
			h := &claimHistory{share: s, st: st, judged: true}
			h.walk()
			row := rows[d.id][s.user.id]
			told := func(id int64) bool { return rejected[notice{user: s.user.id, claim: id}] > 0 }
			if row.state == stateRejected != told(row.id) && row.id != 0 {
				st.violations.addf("a rejection without its notification", at, "in MySQL: %s; notified: %v: %s", row,
					told(row.id), s.story())
			}
			for _, c := range h.claims {
				ends := h.mayReturn(c, forever) || h.mayExpire(c, forever) || h.mayBeVoided(c, forever)
				if c.id != row.id && !ends && !told(c.id) {
					st.violations.addf("an acknowledged claim is lost", at,
						"claim %d is not stored, and its user was not notified; in MySQL: %s: %s", c.id, row, s.story())
				}
			}
		}
	}
	return nil
}

// milestones returns the numbers of likes of others, up to most, of which authors are notified.
func milestones(most int64) (list []int64) {
	for m := int64(1); m <= most; m *= 10 {
		list = append(list, m)
	}
	return list
}

// judgeMilestones compares notifications of milestones with the likes.
func (st *storm) judgeMilestones(ctx context.Context, registers []*register, inMySQL map[registerKey]bool) error {
	told, err := st.notices(ctx, noticeMilestone)
	if err != nil {
		return err
	}
	st.judgeReached(told, registers)
	for _, kind := range []string{"posts", "comments"} {
		contents, err := st.contents(ctx, kind)
		if err != nil {
			return err
		}
		st.judgeMissed(told, kind, contents, inMySQL)
	}
	return nil
}

// judgeReached checks that authors were notified at most once of each milestone, and of none that the likes of others
// cannot have reached.
func (st *storm) judgeReached(told map[notice]int, registers []*register) {
	at, own := st.site.since(), map[*target]int64{}
	for _, r := range registers {
		if r.ever && r.target.author != nil && r.target.author.id == r.user.id {
			own[r.target] = 1
		}
	}
	for n, times := range told {
		t := st.known("posts", n.post)
		if n.comment != 0 {
			t = st.known("comments", n.comment)
		}
		if times > 1 {
			st.violations.addf("notified twice", at, "user %d of %d likes, post %d, comment %d: %d times", n.user,
				n.milestone, n.post, n.comment, times)
			continue
		}
		if t == nil {
			continue
		}
		others := t.likers.Load() - own[t]
		if t.author != nil && t.author.id != n.user || !slices.Contains(milestones(others), n.milestone) {
			st.violations.addf("notified otherwise than it is", at, "user %d of %d likes: %s, at most %d others ever "+
				"liked it", n.user, n.milestone, t.name(), others)
		}
	}
}

// judgeMissed checks that authors were notified of each milestone that the likes of others have reached. Of a target
// that was ever deleted, nothing is certain: nobody is notified meanwhile.
func (st *storm) judgeMissed(told map[notice]int, kind string, contents []content, inMySQL map[registerKey]bool) {
	at := st.site.since()
	for _, c := range contents {
		t := st.known(kind, c.id)
		if t == nil || t.author == nil || t.author.outcast || t.mayBeGone(0) {
			continue
		}
		n := notice{user: t.author.id, post: c.id}
		if kind == "comments" {
			n.post, n.comment = c.parent, c.id
		}
		others := c.likes
		if inMySQL[registerKey{t, n.user}] {
			others--
		}
		for _, n.milestone = range milestones(others) {
			if told[n] == 0 {
				st.violations.addf("a milestone without its notification", at, "%s has %d likes of others, and user "+
					"%d was not notified of %d", t.name(), others, n.user, n.milestone)
			}
		}
	}
}
