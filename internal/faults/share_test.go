package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// sharing returns the operations of words on a share, ten seconds apart and each a second long. A word names the act,
// the answer and, after a colon, the claim: "claim 201:7", "return 204:7", "confirm ?:7", "look returned:7". An answer
// is a status, a state, a code, ? for a 503 or ! for none.
func sharing(d *drop, user int64, words ...string) *share {
	s := d.share(newAccount(user, ""))
	for i, w := range words {
		act, rest, _ := strings.Cut(w, " ")
		said, id, _ := strings.Cut(rest, ":")
		o := claimOp{trouble: -1}
		o.act = map[string]claiming{"claim": claims, "return": returns, "confirm": confirms, "look": looks}[act]
		_, _ = fmt.Sscan(id, &o.claim)
		o.start = time.Duration(10*i) * time.Second
		o.end = o.start + time.Second
		if d.within > 0 {
			o.expires = o.start + d.within
		}
		switch said {
		case "201", "200", "204":
			o.outcome, o.state = ok, stateReserved
			_, _ = fmt.Sscan(said, &o.status)
		case "?":
			o.outcome, o.status = unknown, http.StatusServiceUnavailable
		case "!":
			o.outcome = unknown
		case "404":
			o.outcome, o.status = failed, http.StatusNotFound
		case "sold_out", "too_late", "conflict":
			o.outcome, o.status, o.code = failed, http.StatusConflict, said
		case "ended", "not_started":
			o.outcome, o.status, o.code = failed, http.StatusForbidden, said
		default:
			o.outcome, o.status, o.state = ok, http.StatusOK, said
		}
		if act == "return" {
			o.state = ""
		}
		s.ops = append(s.ops, o)
	}
	return s
}

// stockOf returns a drop that was made with a stock, at 0 s.
func stockOf(stock int64) *drop {
	return &drop{id: 3, post: &target{kind: "posts", id: 1}, stocks: []setting{{stock: stock, outcome: ok, calm: true}}}
}

func TestClaimHistory_findsAnswersThatCannotBe(t *testing.T) {
	const (
		lost   = "an acknowledged claim is lost"
		wrong  = "a claim in a wrong state"
		back   = "an ended claim is back"
		blamed = "blamed the client"
	)
	for _, c := range []struct {
		name   string
		within time.Duration
		words  string
		row    string // state:id; empty for none
		sort   string // of the violation; empty for none
	}{
		{"made", 0, "claim 201:7", "confirmed:7", ""},
		{"repeated", 0, "claim 201:7, claim 200:7", "confirmed:7", ""},
		{"unknown, then there", 0, "claim ?, claim 200:7", "confirmed:7", ""},
		{"unknown", 0, "claim !", "confirmed:7", ""},
		{"unknown and not made", 0, "claim !", "", ""},
		{"returned", 0, "claim 201:7, return 204:7", "returned:7", ""},
		{"return unknown", 0, "claim 201:7, return !:7", "confirmed:7", ""},
		{"made again", 0, "claim 201:7, return 204:7, claim 201:8", "confirmed:8", ""},
		{"made again, unknown", 0, "claim 201:7, return 204:7, claim !", "confirmed:9", ""},
		{"confirmed", time.Minute, "claim 201:7, confirm confirmed:7", "confirmed:7", ""},
		{"expired", 15 * time.Second, "claim 201:7, look reserved:7, confirm too_late:7", "expired:7", ""},
		{"sold out", 0, "claim sold_out", "", ""},
		{"lost", 0, "claim 201:7", "", lost},
		{"lost for a later one", 0, "claim 201:7", "confirmed:8", lost},
		{"an earlier one is back", 0, "claim 201:7, return 204:7, claim 201:8", "returned:7", lost},
		{"there after its return", 0, "claim 201:7, return 204:7", "confirmed:7", "a returned claim is there"},
		{"two of one user", 0, "claim 201:7, claim 201:8", "confirmed:8", "two claims of one user"},
		{"made twice", 0, "claim 201:7, return 204:7, claim 201:7", "confirmed:7", "one claim is made twice"},
		{"returned and answered", 0, "claim 201:7, return 204:7, claim 200:7", "returned:7", back},
		{"of nobody", 0, "claim 200:7", "confirmed:7", "a claim that nobody made"},
		{"forgotten", 0, "claim 201:7, claim sold_out", "confirmed:7", "a claim is forgotten"},
		{"never confirmed", time.Minute, "claim 201:7", "confirmed:7", wrong},
		{"left reserved", 0, "claim 201:7", "reserved:7", wrong},
		{"expired though sure", 15 * time.Second, "claim 201:7, confirm confirmed:7", "expired:7", wrong},
		{"expired too early", time.Hour, "claim 201:7, look expired:7", "expired:7", wrong},
		{"too late too early", time.Hour, "claim 201:7, confirm too_late:7", "reserved:7", blamed},
		{"too late, then not", 15 * time.Second,
			"claim 201:7, look reserved:7, confirm too_late:7, confirm confirmed:7",
			"confirmed:7", blamed},
		{"rejected for nothing", 0, "claim 201:7", "rejected:7", wrong},
		{"voided for nothing", 0, "claim 201:7", "voided:7", wrong},
		{"returned for nothing", 0, "claim 201:7, look returned:7", "confirmed:7", wrong},
		{"not found", 0, "claim 201:7, look 404:7", "confirmed:7", blamed},
		{"ended for nothing", 0, "claim ended", "", blamed},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := stockOf(5)
			d.within = c.within
			st := newOracle()
			st.site.began = time.Now().Add(-2 * time.Hour)
			h := &claimHistory{share: sharing(d, 7, strings.Split(c.words, ", ")...), st: st}
			h.walk()
			if state, id, there := strings.Cut(c.row, ":"); there {
				row := claimRow{state: state}
				_, _ = fmt.Sscan(id, &row.id)
				h.end(&row)
			} else {
				h.end(nil)
			}
			if c.sort == "" {
				assert.Empty(t, sorts(st))
			} else {
				assert.Contains(t, sorts(st), c.sort)
			}
		})
	}
}

// A clock that is set back makes a claim confirmable again, until something has ended it.
func TestClaimHistory_permitsAConfirmationAfterAStepBack(t *testing.T) {
	d, st := stockOf(5), newOracle()
	d.within = 15 * time.Second
	st.site.began = time.Now().Add(-2 * time.Hour)
	st.site.stepped = []pause{{st.site.began.Add(22 * time.Second), st.site.began.Add(25 * time.Second)}}
	h := &claimHistory{
		share: sharing(d, 7, "claim 201:7", "look reserved:7", "confirm too_late:7", "confirm confirmed:7"), st: st,
	}
	h.walk()
	h.end(&claimRow{id: 7, state: stateConfirmed})
	assert.Empty(t, sorts(st))
}

func TestClaimHistory_permitsWhatActorsCaused(t *testing.T) {
	d, st := stockOf(5), newOracle()
	s := sharing(d, 7, "claim 201:7")
	h := &claimHistory{share: s, st: st}
	h.walk()
	end := func(state string) []string {
		st.violations.list = nil
		h.end(&claimRow{id: 7, state: state})
		return sorts(st)
	}
	assert.NotEmpty(t, end(stateRejected))
	d.stocks = append(d.stocks, setting{stock: 4, start: time.Second, outcome: unknown})
	assert.Empty(t, end(stateRejected), "the stock may have been lowered")

	assert.NotEmpty(t, end(stateVoided))
	s.user.claimVoids = []claimVoid{{start: 5 * time.Second, until: forever}}
	assert.Empty(t, end(stateVoided), "a moderator may have voided it")
	assert.Empty(t, end(stateConfirmed), "nobody acknowledged the void")
	s.user.claimVoids[0].certain = true
	assert.Equal(t, []string{"a voided claim is there"}, end(stateConfirmed))
}

func TestOracle_findsMoreClaimsThanTheStock(t *testing.T) {
	judge := func(d *drop, rows map[int64]claimRow) []string {
		st := newOracle()
		var histories []*claimHistory
		for _, s := range d.all() {
			h := &claimHistory{share: s, st: st}
			h.walk()
			histories = append(histories, h)
		}
		st.judgeStock(d, histories, rows)
		return sorts(st)
	}
	const sort = "more claims than the stock"
	d := stockOf(1)
	sharing(d, 7, "claim 201:7", "return ?:7")
	sharing(d, 8, "claim ?", "claim ?", "claim 201:8")
	rows := map[int64]claimRow{7: {id: 7, state: stateReturned}, 8: {id: 8, state: stateConfirmed}}
	assert.Empty(t, judge(d, rows))
	sharing(d, 9, "claim 201:9")
	rows[9] = claimRow{id: 9, state: stateConfirmed}
	assert.Equal(t, []string{sort, sort, sort}, judge(d, rows), "at 1 s, and from 21 s")

	d.stocks = append(d.stocks, setting{stock: 2, start: 0, end: time.Second, outcome: ok})
	assert.Empty(t, judge(d, rows), "the stock was raised")
	lowered := setting{stock: 1, start: 5 * s1, end: 6 * s1, outcome: ok}
	d.stocks = append(d.stocks, lowered)
	assert.Empty(t, judge(d, rows), "the gate may learn of it later")
	d.stocks[2].calm = true
	assert.Equal(t, []string{sort}, judge(d, rows), "it was lowered before the third")
}

func TestOracle_findsWhatIsSoldOutTooEarly(t *testing.T) {
	judge := func(words ...string) []string {
		d, st := stockOf(1), newOracle()
		sharing(d, 7, words...)
		other := sharing(d, 8, "claim sold_out")
		other.ops[0].start, other.ops[0].end = 35*time.Second, 36*time.Second
		var histories []*claimHistory
		for _, s := range d.all() {
			h := &claimHistory{share: s, st: st}
			h.walk()
			histories = append(histories, h)
		}
		st.judgeStock(d, histories, nil)
		return sorts(st)
	}
	assert.Empty(t, judge("claim 201:7"))
	assert.Empty(t, judge("claim ?"))
	assert.Empty(t, judge("claim 201:7", "return ?:7"))
	assert.Equal(t, []string{"sold out too early"}, judge("claim 201:7", "return 204:7"))
	assert.Equal(t, []string{"sold out too early"}, judge())
}

func TestDrop_knowsWhatTheStockMayBe(t *testing.T) {
	d := stockOf(5)
	raised := setting{stock: 9, start: 10 * time.Second, end: 11 * time.Second, outcome: ok}
	d.stocks = append(d.stocks, raised)
	bounds := func(begin, end time.Duration) [2]int64 {
		least, most := d.bounds(begin, end)
		return [2]int64{least, most}
	}
	assert.Equal(t, []int64{5, 9}, []int64{d.ever(9 * s1), d.ever(10 * s1)})
	assert.Equal(t, [2]int64{5, 9}, bounds(12*s1, 13*s1), "the gate may learn of it later")
	d.stocks[1].calm = true
	assert.Equal(t, [2]int64{5, 9}, bounds(10*s1, 11*s1))
	assert.Equal(t, [2]int64{9, 9}, bounds(12*s1, 13*s1))
	d.stocks = append(d.stocks, setting{stock: 2, start: 20 * s1, end: forever, outcome: unknown})
	assert.Equal(t, [2]int64{2, 9}, bounds(30*s1, 31*s1))
	assert.False(t, d.mayBeLowered(19*s1))
	assert.True(t, d.mayBeLowered(20*s1))
}
