package main

import (
	"context"
	"fmt"

	"likewise/internal/faults/oracle"
)

// Kinds of notifications in MySQL.
const (
	noticeMilestone = 3
	noticeConfirmed = 5
	noticeRejected  = 6
)

// notices reads the notifications of a kind, and counts each.
func (st *storm) notices(ctx context.Context, kind int) (map[oracle.Notice]int, error) {
	rows, err := st.site.db.QueryContext(ctx, `
		SELECT user_id, claim_id, post_id, comment_id, milestone
		FROM `+database+`.notifications
		WHERE kind = ?`, kind)
	if err != nil {
		return nil, fmt.Errorf("read notifications: %w", err)
	}
	defer rows.Close()
	list := map[oracle.Notice]int{}
	for rows.Next() {
		var n oracle.Notice
		if err := rows.Scan(&n.User, &n.Claim, &n.Post, &n.Comment, &n.Milestone); err != nil {
			return nil, fmt.Errorf("read notifications: %w", err)
		}
		if kind != noticeMilestone {
			n = oracle.Notice{User: n.User, Claim: n.Claim}
		}
		list[n]++
	}
	return list, rows.Err()
}

// judgeNotices checks that each user of a rejected claim was notified of that once, and each author of a milestone.
func (st *storm) judgeNotices(
	ctx context.Context, j *oracle.Judge, registers []*oracle.Register, contents map[string][]oracle.Content,
	inMySQL map[oracle.RegisterKey]bool,
) error {
	var lists [noticeRejected + 1]map[oracle.Notice]int
	for _, kind := range []int{noticeRejected, noticeConfirmed, noticeMilestone} {
		var err error
		if lists[kind], err = st.notices(ctx, kind); err != nil {
			return err
		}
	}
	rows, err := st.claimRows(ctx)
	if err != nil {
		return err
	}
	j.Rejections(lists[noticeRejected], lists[noticeConfirmed], st.claims, st.drops.all(), rows)
	j.Reached(lists[noticeMilestone], registers)
	for kind, list := range contents {
		j.Missed(lists[noticeMilestone], kind, list, inMySQL)
	}
	return nil
}
