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
	for name, c := range map[string]struct {
		within time.Duration
		words  []string
		row    string // state:id; empty for none
		sort   string // of the violation; empty for none
	}{
		"made":                   {words: []string{"claim 201:7"}, row: "confirmed:7"},
		"repeated":               {words: []string{"claim 201:7", "claim 200:7"}, row: "confirmed:7"},
		"unknown, then there":    {words: []string{"claim ?", "claim 200:7"}, row: "confirmed:7"},
		"unknown":                {words: []string{"claim !"}, row: "confirmed:7"},
		"unknown and not made":   {words: []string{"claim !"}},
		"returned":               {words: []string{"claim 201:7", "return 204:7"}, row: "returned:7"},
		"return unknown":         {words: []string{"claim 201:7", "return !:7"}, row: "confirmed:7"},
		"made again":             {words: []string{"claim 201:7", "return 204:7", "claim 201:8"}, row: "confirmed:8"},
		"made again, unknown":    {words: []string{"claim 201:7", "return 204:7", "claim !"}, row: "confirmed:9"},
		"confirmed":              {within: time.Minute, words: []string{"claim 201:7", "confirm confirmed:7"}, row: "confirmed:7"},
		"expired":                {within: 15 * time.Second, words: []string{"claim 201:7", "look reserved:7", "confirm too_late:7"}, row: "expired:7"},
		"sold out":               {words: []string{"claim sold_out"}},
		"lost":                   {words: []string{"claim 201:7"}, sort: "an acknowledged claim is lost"},
		"lost for a later one":   {words: []string{"claim 201:7"}, row: "confirmed:8", sort: "an acknowledged claim is lost"},
		"an earlier one is back": {words: []string{"claim 201:7", "return 204:7", "claim 201:8"}, row: "returned:7", sort: "an acknowledged claim is lost"},
		"there after its return": {words: []string{"claim 201:7", "return 204:7"}, row: "confirmed:7", sort: "a returned claim is there"},
		"two of one user":        {words: []string{"claim 201:7", "claim 201:8"}, row: "confirmed:8", sort: "two claims of one user"},
		"made twice":             {words: []string{"claim 201:7", "return 204:7", "claim 201:7"}, row: "confirmed:7", sort: "one claim is made twice"},
		"returned and answered":  {words: []string{"claim 201:7", "return 204:7", "claim 200:7"}, row: "returned:7", sort: "an ended claim is back"},
		"of nobody":              {words: []string{"claim 200:7"}, row: "confirmed:7", sort: "a claim that nobody made"},
		"forgotten":              {words: []string{"claim 201:7", "claim sold_out"}, row: "confirmed:7", sort: "a claim is forgotten"},
		"never confirmed":        {within: time.Minute, words: []string{"claim 201:7"}, row: "confirmed:7", sort: "a claim in a wrong state"},
		"left reserved":          {words: []string{"claim 201:7"}, row: "reserved:7", sort: "a claim in a wrong state"},
		"expired though sure":    {within: 15 * time.Second, words: []string{"claim 201:7", "confirm confirmed:7"}, row: "expired:7", sort: "a claim in a wrong state"},
		"expired too early":      {within: time.Hour, words: []string{"claim 201:7", "look expired:7"}, row: "expired:7", sort: "a claim in a wrong state"},
		"too late too early":     {within: time.Hour, words: []string{"claim 201:7", "confirm too_late:7"}, row: "reserved:7", sort: "blamed the client"},
		"rejected for nothing":   {words: []string{"claim 201:7"}, row: "rejected:7", sort: "a claim in a wrong state"},
		"voided for nothing":     {words: []string{"claim 201:7"}, row: "voided:7", sort: "a claim in a wrong state"},
		"returned for nothing":   {words: []string{"claim 201:7", "look returned:7"}, row: "confirmed:7", sort: "a claim in a wrong state"},
		"not found":              {words: []string{"claim 201:7", "look 404:7"}, row: "confirmed:7", sort: "blamed the client"},
		"ended for nothing":      {words: []string{"claim ended"}, sort: "blamed the client"},
	} {
		t.Run(name, func(t *testing.T) {
			d := stockOf(5)
			d.within = c.within
			st := newOracle()
			st.site.began = time.Now().Add(-2 * time.Hour)
			h := &claimHistory{share: sharing(d, 7, c.words...), st: st}
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
	s.user.claimVoids = []claimVoid{{start: 5 * time.Second}}
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
	d := stockOf(1)
	sharing(d, 7, "claim 201:7", "return ?:7")
	sharing(d, 8, "claim ?", "claim ?", "claim 201:8")
	rows := map[int64]claimRow{7: {id: 7, state: stateReturned}, 8: {id: 8, state: stateConfirmed}}
	assert.Empty(t, judge(d, rows))
	sharing(d, 9, "claim 201:9")
	rows[9] = claimRow{id: 9, state: stateConfirmed}
	assert.Equal(t, []string{"more claims than the stock", "more claims than the stock"}, judge(d, rows))

	d.stocks = append(d.stocks, setting{stock: 2, start: 0, end: time.Second, outcome: ok})
	assert.Empty(t, judge(d, rows), "the stock was raised")
	d.stocks = append(d.stocks, setting{stock: 1, start: 15 * time.Second, end: 16 * time.Second, outcome: ok})
	assert.Equal(t, []string{"more claims than the stock"}, judge(d, rows), "it was lowered before the third")
}

func TestOracle_findsWhatIsSoldOutTooEarly(t *testing.T) {
	judge := func(words ...string) []string {
		d, st := stockOf(1), newOracle()
		sharing(d, 7, words...)
		other := sharing(d, 8, "claim sold_out")
		other.ops[0].start, other.ops[0].end = 35*time.Second, 36*time.Second
		var histories []*claimHistory
		for _, s := range d.all() {
			histories = append(histories, &claimHistory{share: s, st: st})
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
	assert.Equal(t, []int64{5, 9, 9}, []int64{d.most(9 * s1), d.most(10 * s1), d.most(12 * s1)})
	assert.Equal(t, int64(5), d.least(12*s1, 13*s1), "the gate may learn of it later")
	d.stocks[1].calm = true
	assert.Equal(t, []int64{5, 9}, []int64{d.least(10*s1, 11*s1), d.least(12*s1, 13*s1)})
	d.stocks = append(d.stocks, setting{stock: 2, start: 20 * s1, end: forever, outcome: unknown})
	assert.Equal(t, []int64{9, 2}, []int64{d.most(30 * s1), d.least(30*s1, 31*s1)})
	assert.False(t, d.mayBeLowered(19*s1))
	assert.True(t, d.mayBeLowered(20*s1))
}
