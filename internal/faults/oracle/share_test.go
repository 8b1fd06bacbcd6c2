package oracle

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
func sharing(d *Drop, user int64, words ...string) *Share {
	s := d.Share(NewAccount(user, ""))
	for i, w := range words {
		act, rest, _ := strings.Cut(w, " ")
		said, id, _ := strings.Cut(rest, ":")
		o := ClaimOp{Trouble: -1}
		o.Act = map[string]Claiming{"claim": Claims, "return": Returns, "confirm": Confirms, "look": Looks}[act]
		_, _ = fmt.Sscan(id, &o.Claim)
		o.Start = time.Duration(10*i) * time.Second
		o.End = o.Start + time.Second
		if d.Within > 0 {
			o.Expires = o.Start + d.Within
		}
		switch said {
		case "201", "200", "204":
			o.Outcome, o.State = OK, StateReserved
			_, _ = fmt.Sscan(said, &o.Status)
		case "?":
			o.Outcome, o.Status = Unknown, http.StatusServiceUnavailable
		case "!":
			o.Outcome = Unknown
		case "404":
			o.Outcome, o.Status = Failed, http.StatusNotFound
		case "sold_out", "too_late", "conflict":
			o.Outcome, o.Status, o.Code = Failed, http.StatusConflict, said
		case "ended", "not_started":
			o.Outcome, o.Status, o.Code = Failed, http.StatusForbidden, said
		default:
			o.Outcome, o.Status, o.State = OK, http.StatusOK, said
		}
		if act == "return" {
			o.State = ""
		}
		s.Ops = append(s.Ops, o)
	}
	return s
}

// stockOf returns a drop that was made with a stock, at 0 s.
func stockOf(stock int64) *Drop {
	return &Drop{ID: 3, Post: &Target{Kind: "posts", ID: 1}, Stocks: []Setting{{Stock: stock, Outcome: OK, Calm: true}}}
}

// rowOf returns a row that is written as STATE:ID.
func rowOf(text string) (row ClaimRow) {
	state, id, _ := strings.Cut(text, ":")
	row.State = state
	_, _ = fmt.Sscan(id, &row.ID)
	return row
}

func TestClaimHistory_findsAnswersThatCannotBe(t *testing.T) {
	const (
		lost   = LostClaim
		wrong  = WrongState
		back   = EndedClaim
		blamed = BlamedClient
	)
	for _, c := range []struct {
		name   string
		within time.Duration
		words  string
		row    string // state:id; empty for none
		sort   Kind   // of the violation; empty for none
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
			d.Within = c.within
			j := newJudge()
			h := &claimHistory{Share: sharing(d, 7, strings.Split(c.words, ", ")...), j: j}
			h.walk()
			if c.row == "" {
				h.end(nil)
			} else {
				row := rowOf(c.row)
				h.end(&row)
			}
			if c.sort == "" {
				assert.Empty(t, sorts(j))
			} else {
				assert.Contains(t, sorts(j), c.sort)
			}
		})
	}
}

// A clock that is set back makes a claim confirmable again, until something has ended it.
func TestClaimHistory_permitsAConfirmationAfterAStepBack(t *testing.T) {
	d, j := stockOf(5), newJudge()
	d.Within = 15 * time.Second
	j.Stepped = []Span{{22 * time.Second, 25 * time.Second}}
	h := &claimHistory{
		Share: sharing(d, 7, "claim 201:7", "look reserved:7", "confirm too_late:7", "confirm confirmed:7"), j: j,
	}
	h.walk()
	h.end(&ClaimRow{ID: 7, State: StateConfirmed})
	assert.Empty(t, sorts(j))
}

func TestClaimHistory_permitsWhatActorsCaused(t *testing.T) {
	d, j := stockOf(5), newJudge()
	s := sharing(d, 7, "claim 201:7")
	h := &claimHistory{Share: s, j: j}
	h.walk()
	end := func(state string) []Kind {
		j.List = nil
		h.end(&ClaimRow{ID: 7, State: state})
		return sorts(j)
	}
	assert.NotEmpty(t, end(StateRejected))
	d.Stocks = append(d.Stocks, Setting{Stock: 4, Start: time.Second, Outcome: Unknown})
	assert.Empty(t, end(StateRejected), "the stock may have been lowered")

	assert.NotEmpty(t, end(StateVoided))
	s.User.ClaimVoids = []ClaimVoid{{Start: 5 * time.Second, Until: Forever}}
	assert.Empty(t, end(StateVoided), "a moderator may have voided it")
	assert.Empty(t, end(StateConfirmed), "nobody acknowledged the void")
	s.User.ClaimVoids[0].Certain = true
	assert.Equal(t, []Kind{VoidedClaim}, end(StateConfirmed))
}

func TestOracle_findsMoreClaimsThanTheStock(t *testing.T) {
	judge := func(d *Drop, rows map[int64]ClaimRow) []Kind {
		j := newJudge()
		var histories []*claimHistory
		for _, s := range d.All() {
			h := &claimHistory{Share: s, j: j}
			h.walk()
			histories = append(histories, h)
		}
		j.stock(d, histories, rows)
		return sorts(j)
	}
	const sort = OverTheStock
	d := stockOf(1)
	sharing(d, 7, "claim 201:7", "return ?:7")
	sharing(d, 8, "claim ?", "claim ?", "claim 201:8")
	rows := map[int64]ClaimRow{7: {ID: 7, State: StateReturned}, 8: {ID: 8, State: StateConfirmed}}
	assert.Empty(t, judge(d, rows))
	sharing(d, 9, "claim 201:9")
	rows[9] = ClaimRow{ID: 9, State: StateConfirmed}
	assert.Equal(t, []Kind{sort, sort, sort}, judge(d, rows), "at 1 s, and from 21 s")

	d.Stocks = append(d.Stocks, Setting{Stock: 2, Start: 0, End: time.Second, Outcome: OK})
	assert.Empty(t, judge(d, rows), "the stock was raised")
	lowered := Setting{Stock: 1, Start: 5 * time.Second, End: 6 * time.Second, Outcome: OK}
	d.Stocks = append(d.Stocks, lowered)
	assert.Empty(t, judge(d, rows), "the gate may learn of it later")
	d.Stocks[2].Calm = true
	assert.Equal(t, []Kind{sort}, judge(d, rows), "it was lowered before the third")
}

func TestOracle_findsWhatIsSoldOutTooEarly(t *testing.T) {
	judge := func(words ...string) []Kind {
		d, j := stockOf(1), newJudge()
		sharing(d, 7, words...)
		other := sharing(d, 8, "claim sold_out")
		other.Ops[0].Start, other.Ops[0].End = 35*time.Second, 36*time.Second
		var histories []*claimHistory
		for _, s := range d.All() {
			h := &claimHistory{Share: s, j: j}
			h.walk()
			histories = append(histories, h)
		}
		j.stock(d, histories, nil)
		return sorts(j)
	}
	assert.Empty(t, judge("claim 201:7"))
	assert.Empty(t, judge("claim ?"))
	assert.Empty(t, judge("claim 201:7", "return ?:7"))
	assert.Equal(t, []Kind{SoldOutEarly}, judge("claim 201:7", "return 204:7"))
	assert.Equal(t, []Kind{SoldOutEarly}, judge())
}

func TestDrop_knowsWhatTheStockMayBe(t *testing.T) {
	d := stockOf(5)
	raised := Setting{Stock: 9, Start: 10 * time.Second, End: 11 * time.Second, Outcome: OK}
	d.Stocks = append(d.Stocks, raised)
	bounds := func(begin, end time.Duration) [2]int64 {
		low, high := d.bounds(begin, end)
		return [2]int64{low, high}
	}
	assert.Equal(t, []int64{5, 9}, []int64{d.Ever(9 * time.Second), d.Ever(10 * time.Second)})
	assert.Equal(t, [2]int64{5, 9}, bounds(12*time.Second, 13*time.Second), "the gate may learn of it later")
	d.Stocks[1].Calm = true
	assert.Equal(t, [2]int64{5, 9}, bounds(10*time.Second, 11*time.Second))
	assert.Equal(t, [2]int64{9, 9}, bounds(12*time.Second, 13*time.Second))
	d.Stocks = append(d.Stocks, Setting{Stock: 2, Start: 20 * time.Second, End: Forever, Outcome: Unknown})
	assert.Equal(t, [2]int64{2, 9}, bounds(30*time.Second, 31*time.Second))
	assert.False(t, d.mayBeLowered(19*time.Second))
	assert.True(t, d.mayBeLowered(20*time.Second))
}
