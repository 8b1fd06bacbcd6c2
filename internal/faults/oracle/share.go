package oracle

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
	*Share

	j      *Judge
	claims []named // in the order in which answers named them
	judged bool    // violations were recorded before
}

func (h *claimHistory) mayReturn(c named, by time.Duration) bool {
	return slices.ContainsFunc(h.Ops, func(o ClaimOp) bool {
		return o.Act == Returns && o.Claim == c.id && o.may() && o.Start <= by
	})
}

// mustReturn reports whether a return of the claim was acknowledged by a time.
func (h *claimHistory) mustReturn(c named, by time.Duration) bool {
	return slices.ContainsFunc(h.Ops, func(o ClaimOp) bool {
		return o.Act == Returns && o.Claim == c.id && o.Outcome == OK && o.End <= by
	})
}

func (h *claimHistory) mayConfirm(c named, by time.Duration) bool {
	return slices.ContainsFunc(h.Ops, func(o ClaimOp) bool {
		return o.Act == Confirms && o.Claim == c.id && o.may() && o.Start <= by
	})
}

func (h *claimHistory) mustConfirm(c named) bool {
	return slices.ContainsFunc(h.Ops, func(o ClaimOp) bool {
		return o.Act == Confirms && o.Claim == c.id && o.Outcome == OK
	})
}

// mayExpire reports whether the claim may have expired by a time. A claim whose confirmation was acknowledged never
// expires.
func (h *claimHistory) mayExpire(c named, by time.Duration) bool {
	return h.Drop.Within > 0 && !h.mustConfirm(c) &&
		(by >= c.expires-clocksAgree || h.j.steppedIn(c.first, by))
}

// wasLate reports whether a confirmation that was refused as too late was so. The claim may be confirmed later all the
// same, if a clock is set back before anything has ended it.
func (h *claimHistory) wasLate(c named, refused ClaimOp) bool {
	return h.Drop.Within > 0 && refused.End >= c.expires-clocksAgree &&
		!slices.ContainsFunc(h.Ops, func(o ClaimOp) bool {
			return o.Act == Confirms && o.Claim == c.id && o.Outcome == OK &&
				(o.Start <= refused.End || !h.j.steppedIn(refused.Start, o.End))
		})
}

func (h *claimHistory) mayBeVoided(c named, by time.Duration) bool {
	return slices.ContainsFunc(h.User.ClaimVoids, func(v ClaimVoid) bool {
		return v.Start <= by && v.Until >= c.first && (v.Drop == nil || v.Drop == h.Drop)
	})
}

// mustBeVoided reports whether an acknowledged void covers the claim.
func (h *claimHistory) mustBeVoided(c named) bool {
	return slices.ContainsFunc(h.User.ClaimVoids, func(v ClaimVoid) bool {
		return v.Certain && c.sure < v.Start && (v.Drop == nil || v.Drop == h.Drop)
	})
}

// mayBeRejected reports whether MySQL may have refused the claim.
func (h *claimHistory) mayBeRejected(c named, by time.Duration) bool {
	return h.Drop.mayBeLowered(by) || h.Drop.Post.MayBeGone(c.first) ||
		slices.ContainsFunc(h.User.ClaimVoids, func(v ClaimVoid) bool { return v.Account && v.Start <= by })
}

func (h *claimHistory) mayEnd(c named, by time.Duration) bool {
	return h.mayReturn(c, by) || h.mayExpire(c, by) || h.mayBeVoided(c, by) || h.mayBeRejected(c, by)
}

// mayBeAnother reports whether an operation without an answer may have made a claim after one, by a time.
func (h *claimHistory) mayBeAnother(c named, by time.Duration) bool {
	return h.mayEnd(c, by) && slices.ContainsFunc(h.Ops, func(o ClaimOp) bool {
		return o.Act == Claims && o.Start <= by &&
			(o.Made() && o.Claim != c.id && o.End >= c.sure ||
				(o.Outcome == Unknown || o.Outcome == Pending) && h.j.last(o.Op) >= c.first)
	})
}

// bad records a violation by an operation.
func (h *claimHistory) bad(sort Kind, o ClaimOp, what string) {
	if h.judged {
		return
	}
	h.j.Addf(sort, o.End, "%s: %s of claim %d: %s", what, o.Act, o.Claim, h.Story())
}

// none checks an answer that says that the user has no claim.
func (h *claimHistory) none(o ClaimOp) {
	for _, c := range h.claims {
		if !h.mayEnd(c, o.End) {
			h.bad(ForgottenClaim, o, "the answer ignores the claim of the user")
		}
	}
}

// walk checks the answers in their order.
func (h *claimHistory) walk() {
	for _, o := range h.Ops {
		i := slices.IndexFunc(h.claims, func(c named) bool { return c.id == o.Claim })
		switch {
		case o.Act == Claims && o.Outcome == OK:
			h.claimed(o, i)
		case o.Act == Claims && o.None():
			h.none(o)
			h.refused(o)
		case o.Outcome == OK && i >= 0:
			h.answered(o, h.claims[i])
		case o.Outcome == Failed && i >= 0:
			h.denied(o, h.claims[i])
		}
	}
}

// claimed checks a positive answer to a claiming. i is the index of its claim, or negative.
func (h *claimHistory) claimed(o ClaimOp, i int) {
	if i >= 0 && o.Made() {
		h.bad(ClaimMadeTwice, o, "the claim existed")
	}
	if i >= 0 && i != len(h.claims)-1 {
		h.bad(EndedClaim, o, "the user has made another since")
	}
	// Until the gate learns that MySQL has ended a claim, the answer is that claim as it is.
	if i >= 0 && Live(o.State) && h.mustReturn(h.claims[i], o.Start) {
		h.bad(EndedClaim, o, "its return was acknowledged")
	}
	for j, c := range h.claims {
		if j != i && !h.mayEnd(c, o.End) {
			h.bad(TwoClaims, o, "the user has a claim")
		}
	}
	if i >= 0 {
		return
	}
	c := named{id: o.Claim, first: o.Start, sure: o.End, expires: o.Expires}
	if !o.Made() {
		tried := slices.IndexFunc(h.Ops, func(p ClaimOp) bool {
			return p.Act == Claims && p.Outcome == Unknown && p.Start < o.Start
		})
		if tried < 0 {
			h.bad(NobodysClaim, o, "no request can have made it")
		} else {
			c.first = h.Ops[tried].Start
		}
	}
	h.claims = append(h.claims, c)
	if !o.Made() {
		return
	}
	d, skewed := h.Drop, h.j.skewedSince(o.Start)
	if d.mustBeClosed(o.Start) {
		h.bad(ClosedDrop, o, "the closing was acknowledged")
	}
	if !skewed && (o.End < d.Begins || d.Ends != 0 && o.Start > d.Ends+clocksAgree) {
		h.bad(OutOfTime, o, "the drop has not begun, or has ended")
	}
}

// refused checks a negative answer to a claiming or to a return. Whether the stock was used up is checked with all
// shares.
func (h *claimHistory) refused(o ClaimOp) {
	d, skewed := h.Drop, h.j.steppedIn(o.Start, o.End)
	switch o.Code {
	case "not_started":
		if !skewed && o.Start > d.Begins+clocksAgree {
			h.bad(BlamedClient, o, "the drop has begun")
		}
	case "ended":
		if !skewed && !d.MayBeClosed(o.End) && (d.Ends == 0 || o.End < d.Ends-clocksAgree) {
			h.bad(BlamedClient, o, "the drop has not ended")
		}
	}
}

// answered checks a positive answer about a claim.
func (h *claimHistory) answered(o ClaimOp, c named) {
	if o.Act == Returns {
		return
	}
	permitted := false
	switch o.State {
	case StateReserved:
		// A moment after the gate has a claim, MySQL confirms it.
		permitted = !slices.ContainsFunc(h.Ops, func(p ClaimOp) bool {
			return p.Claim == c.id && p.State == StateConfirmed && p.End < o.Start
		})
	case StateConfirmed:
		permitted = h.Drop.Within == 0 || h.mayConfirm(c, o.End)
	case StateReturned:
		permitted = h.mayReturn(c, o.End)
	case StateExpired:
		permitted = h.mayExpire(c, o.End) || h.wasLate(c, o)
	case StateVoided:
		permitted = h.mayBeVoided(c, o.End)
	case StateRejected:
		permitted = h.mayBeRejected(c, o.End)
	}
	if !permitted {
		h.bad(WrongState, o, "nothing can have caused this state")
	}
	// While a fault is active, MySQL may answer for a gate that is out of reach.
	for _, p := range h.Ops {
		ended := p.Claim == c.id && p.End < o.Start && (p.Act == Returns && p.Outcome == OK ||
			p.State != "" && !Live(p.State))
		if ended && Live(o.State) && p.Trouble == o.Trouble && o.Trouble%2 == 0 {
			h.bad(EndedClaim, o, "it had ended")
			return
		}
	}
}

// denied checks a negative answer about a claim.
func (h *claimHistory) denied(o ClaimOp, c named) {
	permitted := true
	switch {
	case o.Status == http.StatusNotFound:
		permitted = h.mayBeAnother(c, o.End) || o.Act == Returns && h.Drop.Post.MayBeGone(o.Start)
	case o.Act == Returns:
		h.refused(o)
	case o.Act == Confirms && o.Code == "too_late":
		permitted = h.mayExpire(c, o.End) || h.wasLate(c, o)
	case o.Act == Confirms && o.Code == "conflict":
		permitted = h.mayReturn(c, o.End) || h.mayBeVoided(c, o.End) || h.mayBeRejected(c, o.End)
	}
	if !permitted {
		h.bad(BlamedClient, o, "the request was valid")
	}
}

// end checks the row of the user in MySQL, after everything has ended. row is nil if there is none.
func (h *claimHistory) end(row *ClaimRow) {
	at := h.j.At
	bad := func(sort Kind, what string) {
		was := "no row"
		if row != nil {
			was = row.String()
		}
		h.j.Addf(sort, at, "at the end, in MySQL: %s: %s: %s", was, what, h.Story())
	}
	if row == nil {
		if len(h.claims) > 0 {
			bad(LostClaim, "it has no row")
		}
		return
	}
	i := slices.IndexFunc(h.claims, func(c named) bool { return c.id == row.ID })
	c := named{id: row.ID}
	switch {
	case i >= 0:
		c = h.claims[i]
		if i != len(h.claims)-1 {
			bad(LostClaim, "a later claim of the user has no row")
		}
	case len(h.claims) > 0:
		if last := h.claims[len(h.claims)-1]; !h.mayBeAnother(last, Forever) {
			bad(LostClaim, "the row has another")
		}
	default:
		if !slices.ContainsFunc(h.Ops, func(o ClaimOp) bool { return o.Act == Claims && o.may() }) {
			bad(NobodysClaim, "the user has not asked for it")
		}
	}
	permitted := false
	switch row.State {
	case StateReserved:
		permitted = h.Drop.Within > 0 && !row.Overdue && !h.mustConfirm(c)
	case StateConfirmed:
		permitted = h.Drop.Within == 0 || h.mayConfirm(c, Forever)
	case StateReturned:
		permitted = h.mayReturn(c, Forever)
	case StateExpired:
		// The client of a claim without an answer does not know when it expires.
		permitted = h.mayExpire(c, Forever) || i < 0 && h.Drop.Within > 0
	case StateRejected:
		permitted = h.mayBeRejected(c, Forever)
	case StateVoided:
		permitted = h.mayBeVoided(c, Forever)
	}
	if !permitted {
		bad(WrongState, "nothing can have caused this state")
	}
	if Live(row.State) && i >= 0 && h.mustReturn(c, Forever) {
		bad(ReturnedClaim, "its return was acknowledged")
	}
	if Live(row.State) && i >= 0 && h.mustBeVoided(c) {
		bad(VoidedClaim, "its void was acknowledged")
	}
}

// holding is a time in which a user held a claim, certainly or possibly.
type holding = Span

// certain returns the times in which the user certainly held a claim.
func (h *claimHistory) certain(row *ClaimRow) (list []holding) {
	for _, c := range h.claims {
		here := row != nil && row.ID == c.id
		if here && row.State == StateRejected || !here && h.mayBeRejected(c, Forever) {
			continue
		}
		t := holding{c.sure, Forever}
		for _, o := range h.Ops {
			if o.Act == Returns && o.Claim == c.id && o.may() {
				t.End = min(t.End, o.Start)
			}
		}
		if !here || !Live(row.State) {
			for _, v := range h.User.ClaimVoids {
				t.End = min(t.End, v.Start)
			}
			if h.Drop.Within > 0 && !h.mustConfirm(c) {
				t.End = min(t.End, c.expires-clocksAgree)
				if h.j.steppedIn(c.first, Forever) {
					continue
				}
			}
		}
		if t.End > t.Begin {
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
	var open []ClaimOp
	begin := Forever
	for _, o := range h.Ops {
		if o.Act == Claims && o.may() {
			begin = min(begin, o.Start)
			if o.Outcome != OK {
				open = append(open, o)
			}
		}
		open = slices.DeleteFunc(open, func(p ClaimOp) bool { return h.j.last(p.Op) < o.Start })
		returned := o.Act == Returns && o.Outcome == OK && !h.mayEndFirst(o.Claim, o.End)
		if (returned || o.None()) && len(open) == 0 && begin != Forever {
			list = append(list, holding{begin, o.End})
			begin = Forever
		}
	}
	if begin != Forever {
		list = append(list, holding{begin, Forever})
	}
	return list
}

// stock checks all shares of a drop together: at no time did more users hold a claim than the stock ever was, no
// claim was made while as many as the stock were held, and an answer that nothing is left was right. After the stock is
// lowered, claims on their way to MySQL may exceed it for a while. They are rejected, unless others end first.
func (j *Judge) stock(d *Drop, histories []*claimHistory, rows map[int64]ClaimRow) {
	type event struct {
		at time.Duration
		by int64
	}
	var events []event
	var certain, possible []holding
	for _, h := range histories {
		var row *ClaimRow
		if r, there := rows[h.User.ID]; there {
			row = &r
		}
		for _, t := range h.certain(row) {
			events = append(events, event{t.Begin, 1}, event{t.End, -1})
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
		if high := d.Ever(e.at); n > high {
			j.Addf(OverTheStock, e.at,
				"%s: %d users hold claims, and the stock was never above %d", d.Name(), n, high)
		}
	}
	for _, h := range histories {
		for _, c := range h.claims {
			held := int64(0)
			for _, t := range certain {
				if t.Begin <= c.first && t.End >= c.sure {
					held++
				}
			}
			if _, high := d.bounds(c.first, c.sure); held >= high {
				j.Addf(OverTheStock, c.sure,
					"%s: %d users held claims, and the stock was at most %d, when claim %d was made: %s",
					d.Name(), held, high, c.id, h.Story())
			}
		}
	}
	for _, h := range histories {
		for _, o := range h.Ops {
			if o.Code != "sold_out" {
				continue
			}
			var held int64
			for _, t := range possible {
				if t.Begin <= o.End && t.End >= o.Start {
					held++
				}
			}
			if low, _ := d.bounds(o.Start, o.End); held < low {
				h.bad(SoldOutEarly, o, d.Name()+" cannot have been sold out")
			}
		}
	}
}
