package main

import (
	"cmp"
	"net/http"
	"slices"
	"time"
)

// clocksAgree is by how much the times of two processes may differ while nobody changes their clocks.
const clocksAgree = time.Second

// named is a claim that an answer named.
type named struct {
	id      int64
	first   time.Duration // when the first request that may have made it was sent
	sure    time.Duration // when an answer named it
	expires time.Duration // 0: never
}

// claimHistory judges the operations of one user on one drop.
type claimHistory struct {
	*share

	st     *storm
	claims []named // in the order in which answers named them
	judged bool    // violations were recorded before
}

func (h *claimHistory) mayReturn(c named, by time.Duration) bool {
	return slices.ContainsFunc(h.ops, func(o claimOp) bool {
		return o.act == returns && o.claim == c.id && o.may() && o.start <= by
	})
}

// mustReturn reports whether a return of the claim was acknowledged by a time.
func (h *claimHistory) mustReturn(c named, by time.Duration) bool {
	return slices.ContainsFunc(h.ops, func(o claimOp) bool {
		return o.act == returns && o.claim == c.id && o.outcome == ok && o.end <= by
	})
}

func (h *claimHistory) mayConfirm(c named, by time.Duration) bool {
	return slices.ContainsFunc(h.ops, func(o claimOp) bool {
		return o.act == confirms && o.claim == c.id && o.may() && o.start <= by
	})
}

func (h *claimHistory) mustConfirm(c named) bool {
	return slices.ContainsFunc(h.ops, func(o claimOp) bool {
		return o.act == confirms && o.claim == c.id && o.outcome == ok
	})
}

// mayExpire reports whether the claim may have expired by a time. A claim whose confirmation was acknowledged never
// expires.
func (h *claimHistory) mayExpire(c named, by time.Duration) bool {
	return h.drop.within > 0 && !h.mustConfirm(c) &&
		(by >= c.expires-clocksAgree || h.st.site.steppedIn(c.first, by))
}

// wasLate reports whether a confirmation that was refused as too late was so. The claim may be confirmed later all the
// same, if a clock is set back before anything has ended it.
func (h *claimHistory) wasLate(c named, refused claimOp) bool {
	return h.drop.within > 0 && refused.end >= c.expires-clocksAgree &&
		!slices.ContainsFunc(h.ops, func(o claimOp) bool {
			return o.act == confirms && o.claim == c.id && o.outcome == ok &&
				(o.start <= refused.end || !h.st.site.steppedIn(refused.start, o.end))
		})
}

func (h *claimHistory) mayBeVoided(c named, by time.Duration) bool {
	return slices.ContainsFunc(h.user.claimVoids, func(v claimVoid) bool {
		return v.start <= by && v.until >= c.first && (v.drop == nil || v.drop == h.drop)
	})
}

// mustBeVoided reports whether an acknowledged void covers the claim.
func (h *claimHistory) mustBeVoided(c named) bool {
	return slices.ContainsFunc(h.user.claimVoids, func(v claimVoid) bool {
		return v.certain && c.sure < v.start && (v.drop == nil || v.drop == h.drop)
	})
}

// mayBeRejected reports whether MySQL may have refused the claim.
func (h *claimHistory) mayBeRejected(c named, by time.Duration) bool {
	return h.drop.mayBeLowered(by) || h.drop.post.mayBeGone(c.first) ||
		slices.ContainsFunc(h.user.claimVoids, func(v claimVoid) bool { return v.account && v.start <= by })
}

func (h *claimHistory) mayEnd(c named, by time.Duration) bool {
	return h.mayReturn(c, by) || h.mayExpire(c, by) || h.mayBeVoided(c, by) || h.mayBeRejected(c, by)
}

// mayBeAnother reports whether an operation without an answer may have made a claim after one, by a time.
func (h *claimHistory) mayBeAnother(c named, by time.Duration) bool {
	return h.mayEnd(c, by) && slices.ContainsFunc(h.ops, func(o claimOp) bool {
		return o.act == claims && o.start <= by &&
			(o.made() && o.claim != c.id && o.end >= c.sure ||
				(o.outcome == unknown || o.outcome == pending) && h.st.site.last(o.op) >= c.first)
	})
}

// bad records a violation by an operation.
func (h *claimHistory) bad(sort string, o claimOp, what string) {
	if h.judged {
		return
	}
	h.st.violations.addf(sort, o.end, "%s: %s of claim %d: %s", what, o.act, o.claim, h.story())
}

// none checks an answer that says that the user has no claim.
func (h *claimHistory) none(o claimOp) {
	for _, c := range h.claims {
		if !h.mayEnd(c, o.end) {
			h.bad("a claim is forgotten", o, "the answer ignores the claim of the user")
		}
	}
}

// walk checks the answers in their order.
func (h *claimHistory) walk() {
	for _, o := range h.ops {
		i := slices.IndexFunc(h.claims, func(c named) bool { return c.id == o.claim })
		switch {
		case o.act == claims && o.outcome == ok:
			h.claimed(o, i)
		case o.act == claims && o.none():
			h.none(o)
			h.refused(o)
		case o.outcome == ok && i >= 0:
			h.answered(o, h.claims[i])
		case o.outcome == failed && i >= 0:
			h.denied(o, h.claims[i])
		}
	}
}

// claimed checks a positive answer to a claiming. i is the index of its claim, or negative.
func (h *claimHistory) claimed(o claimOp, i int) {
	if i >= 0 && o.made() {
		h.bad("one claim is made twice", o, "the claim existed")
	}
	if i >= 0 && i != len(h.claims)-1 {
		h.bad("an ended claim is back", o, "the user has made another since")
	}
	// Until the gate learns that MySQL has ended a claim, the answer is that claim as it is.
	if i >= 0 && live(o.state) && h.mustReturn(h.claims[i], o.start) {
		h.bad("an ended claim is back", o, "its return was acknowledged")
	}
	for j, c := range h.claims {
		if j != i && !h.mayEnd(c, o.end) {
			h.bad("two claims of one user", o, "the user has a claim")
		}
	}
	if i >= 0 {
		return
	}
	c := named{id: o.claim, first: o.start, sure: o.end, expires: o.expires}
	if !o.made() {
		tried := slices.IndexFunc(h.ops, func(p claimOp) bool {
			return p.act == claims && p.outcome == unknown && p.start < o.start
		})
		if tried < 0 {
			h.bad("a claim that nobody made", o, "no request can have made it")
		} else {
			c.first = h.ops[tried].start
		}
	}
	h.claims = append(h.claims, c)
	if !o.made() {
		return
	}
	d, skewed := h.drop, h.st.site.skewedSince(o.start)
	if d.mustBeClosed(o.start) {
		h.bad("a closed drop takes claims", o, "the closing was acknowledged")
	}
	if !skewed && (o.end < d.begins || d.ends != 0 && o.start > d.ends+clocksAgree) {
		h.bad("a claim out of time", o, "the drop has not begun, or has ended")
	}
}

// refused checks a negative answer to a claiming or to a return. Whether the stock was used up is checked with all
// shares.
func (h *claimHistory) refused(o claimOp) {
	d, skewed := h.drop, h.st.site.steppedIn(o.start, o.end)
	switch o.code {
	case "not_started":
		if !skewed && o.start > d.begins+clocksAgree {
			h.bad("blamed the client", o, "the drop has begun")
		}
	case "ended":
		if !skewed && !d.mayBeClosed(o.end) && (d.ends == 0 || o.end < d.ends-clocksAgree) {
			h.bad("blamed the client", o, "the drop has not ended")
		}
	}
}

// answered checks a positive answer about a claim.
func (h *claimHistory) answered(o claimOp, c named) {
	if o.act == returns {
		return
	}
	permitted := false
	switch o.state {
	case stateReserved:
		// A moment after the gate has a claim, MySQL confirms it.
		permitted = !slices.ContainsFunc(h.ops, func(p claimOp) bool {
			return p.claim == c.id && p.state == stateConfirmed && p.end < o.start
		})
	case stateConfirmed:
		permitted = h.drop.within == 0 || h.mayConfirm(c, o.end)
	case stateReturned:
		permitted = h.mayReturn(c, o.end)
	case stateExpired:
		permitted = h.mayExpire(c, o.end) || h.wasLate(c, o)
	case stateVoided:
		permitted = h.mayBeVoided(c, o.end)
	case stateRejected:
		permitted = h.mayBeRejected(c, o.end)
	}
	if !permitted {
		h.bad("a claim in a wrong state", o, "nothing can have caused this state")
	}
	// While a fault is active, MySQL may answer for a gate that is out of reach.
	for _, p := range h.ops {
		ended := p.claim == c.id && p.end < o.start && (p.act == returns && p.outcome == ok ||
			p.state != "" && !live(p.state))
		if ended && live(o.state) && p.trouble == o.trouble && o.trouble%2 == 0 {
			h.bad("an ended claim is back", o, "it had ended")
			return
		}
	}
}

// denied checks a negative answer about a claim.
func (h *claimHistory) denied(o claimOp, c named) {
	permitted := true
	switch {
	case o.status == http.StatusNotFound:
		permitted = h.mayBeAnother(c, o.end) || o.act == returns && h.drop.post.mayBeGone(o.start)
	case o.act == returns:
		h.refused(o)
	case o.act == confirms && o.code == "too_late":
		permitted = h.mayExpire(c, o.end) || h.wasLate(c, o)
	case o.act == confirms && o.code == "conflict":
		permitted = h.mayReturn(c, o.end) || h.mayBeVoided(c, o.end) || h.mayBeRejected(c, o.end)
	}
	if !permitted {
		h.bad("blamed the client", o, "the request was valid")
	}
}

// end checks the row of the user in MySQL, after everything has ended. row is nil if there is none.
func (h *claimHistory) end(row *claimRow) {
	at := h.st.site.since()
	bad := func(sort, what string) {
		was := "no row"
		if row != nil {
			was = row.String()
		}
		h.st.violations.addf(sort, at, "at the end, in MySQL: %s: %s: %s", was, what, h.story())
	}
	if row == nil {
		if len(h.claims) > 0 {
			bad("an acknowledged claim is lost", "it has no row")
		}
		return
	}
	i := slices.IndexFunc(h.claims, func(c named) bool { return c.id == row.id })
	c := named{id: row.id}
	switch {
	case i >= 0:
		c = h.claims[i]
		if i != len(h.claims)-1 {
			bad("an acknowledged claim is lost", "a later claim of the user has no row")
		}
	case len(h.claims) > 0:
		if last := h.claims[len(h.claims)-1]; !h.mayBeAnother(last, forever) {
			bad("an acknowledged claim is lost", "the row has another")
		}
	default:
		if !slices.ContainsFunc(h.ops, func(o claimOp) bool { return o.act == claims && o.may() }) {
			bad("a claim that nobody made", "the user has not asked for it")
		}
	}
	permitted := false
	switch row.state {
	case stateReserved:
		permitted = h.drop.within > 0 && !row.overdue && !h.mustConfirm(c)
	case stateConfirmed:
		permitted = h.drop.within == 0 || h.mayConfirm(c, forever)
	case stateReturned:
		permitted = h.mayReturn(c, forever)
	case stateExpired:
		// The client of a claim without an answer does not know when it expires.
		permitted = h.mayExpire(c, forever) || i < 0 && h.drop.within > 0
	case stateRejected:
		permitted = h.mayBeRejected(c, forever)
	case stateVoided:
		permitted = h.mayBeVoided(c, forever)
	}
	if !permitted {
		bad("a claim in a wrong state", "nothing can have caused this state")
	}
	if live(row.state) && i >= 0 && h.mustReturn(c, forever) {
		bad("a returned claim is there", "its return was acknowledged")
	}
	if live(row.state) && i >= 0 && h.mustBeVoided(c) {
		bad("a voided claim is there", "its void was acknowledged")
	}
}

// holding is a time in which a user held a claim, certainly or possibly.
type holding = span

// certain returns the times in which the user certainly held a claim.
func (h *claimHistory) certain(row *claimRow) (list []holding) {
	for _, c := range h.claims {
		here := row != nil && row.id == c.id
		if here && row.state == stateRejected || !here && h.mayBeRejected(c, forever) {
			continue
		}
		t := holding{c.sure, forever}
		for _, o := range h.ops {
			if o.act == returns && o.claim == c.id && o.may() {
				t.end = min(t.end, o.start)
			}
		}
		if !here || !live(row.state) {
			for _, v := range h.user.claimVoids {
				t.end = min(t.end, v.start)
			}
			if h.drop.within > 0 && !h.mustConfirm(c) {
				t.end = min(t.end, c.expires-clocksAgree)
				if h.st.site.steppedIn(c.first, forever) {
					continue
				}
			}
		}
		if t.end > t.begin {
			list = append(list, t)
		}
	}
	return list
}

// mayEndFirst reports whether MySQL may have ended a claim by a time. Then a return leaves it as it is, and the gate
// holds it until it learns of its end.
func (h *claimHistory) mayEndFirst(id int64, by time.Duration) bool {
	i := slices.IndexFunc(h.claims, func(c named) bool { return c.id == id })
	return i < 0 || h.mayExpire(h.claims[i], by) || h.mayBeVoided(h.claims[i], by) || h.mayBeRejected(h.claims[i], by)
}

// possible returns the times in which the gate may have held a claim of the user: from the request until an answer
// that the user has none, or to a return. A request without an answer may take effect later.
func (h *claimHistory) possible() (list []holding) {
	var open []claimOp
	begin := forever
	for _, o := range h.ops {
		if o.act == claims && o.may() {
			begin = min(begin, o.start)
			if o.outcome != ok {
				open = append(open, o)
			}
		}
		open = slices.DeleteFunc(open, func(p claimOp) bool { return h.st.site.last(p.op) < o.start })
		returned := o.act == returns && o.outcome == ok && !h.mayEndFirst(o.claim, o.end)
		if (returned || o.none()) && len(open) == 0 && begin != forever {
			list = append(list, holding{begin, o.end})
			begin = forever
		}
	}
	if begin != forever {
		list = append(list, holding{begin, forever})
	}
	return list
}

// judgeStock checks all shares of a drop together: at no time did more users hold a claim than the stock ever was, no
// claim was made while as many as the stock were held, and an answer that nothing is left was right. After the stock is
// lowered, claims on their way to MySQL may exceed it for a while. They are rejected, unless others end first.
func (st *storm) judgeStock(d *drop, histories []*claimHistory, rows map[int64]claimRow) {
	type event struct {
		at time.Duration
		by int64
	}
	var events []event
	var certain, possible []holding
	for _, h := range histories {
		var row *claimRow
		if r, there := rows[h.user.id]; there {
			row = &r
		}
		for _, t := range h.certain(row) {
			events = append(events, event{t.begin, 1}, event{t.end, -1})
			certain = append(certain, t)
		}
		possible = append(possible, h.possible()...)
	}
	slices.SortFunc(events, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.by, b.by))
	})
	var n int64
	for i, e := range events {
		if n += e.by; e.by < 0 || i+1 < len(events) && events[i+1].at == e.at {
			continue
		}
		if most := d.ever(e.at); n > most {
			st.violations.addf("more claims than the stock", e.at,
				"%s: %d users hold claims, and the stock was never above %d", d.name(), n, most)
		}
	}
	for _, h := range histories {
		for _, c := range h.claims {
			held := int64(0)
			for _, t := range certain {
				if t.begin <= c.first && t.end >= c.sure {
					held++
				}
			}
			if _, most := d.bounds(c.first, c.sure); held >= most {
				st.violations.addf("more claims than the stock", c.sure,
					"%s: %d users held claims, and the stock was at most %d, when claim %d was made: %s",
					d.name(), held, most, c.id, h.story())
			}
		}
	}
	for _, h := range histories {
		for _, o := range h.ops {
			if o.code != "sold_out" {
				continue
			}
			var held int64
			for _, t := range possible {
				if t.begin <= o.end && t.end >= o.start {
					held++
				}
			}
			if least, _ := d.bounds(o.start, o.end); held < least {
				h.bad("sold out too early", o, d.name()+" cannot have been sold out")
			}
		}
	}
}
