package oracle

import (
	"fmt"
	"sync"
	"time"
)

// Kind is what is wrong. Those that the judge finds have a name.
type Kind string

// What the judge finds.
const (
	LostLike           Kind = "an acknowledged like is lost"
	LikedAfterUnlike   Kind = "liked after an acknowledged unlike"
	LikedTwice         Kind = "liked twice"
	NobodysLike        Kind = "a like that nobody made"
	WrongLikesCount    Kind = "likes_count is not its rows"
	WrongCommentsCount Kind = "comments_count is not its comments"
	LostCreation       Kind = "an acknowledged creation is lost"
	MadeTwice          Kind = "made twice"
	MadeThoughRefused  Kind = "made though refused"
	NobodysCreation    Kind = "a creation that nobody made"
	WrongAnswer        Kind = "a wrong answer"
	APICountsOtherwise Kind = "the API counts otherwise than MySQL"
	APISeesOtherwise   Kind = "the API sees likes otherwise than MySQL"
	LostClaim          Kind = "an acknowledged claim is lost"
	ForgottenClaim     Kind = "a claim is forgotten"
	ClaimMadeTwice     Kind = "one claim is made twice"
	TwoClaims          Kind = "two claims of one user"
	NobodysClaim       Kind = "a claim that nobody made"
	EndedClaim         Kind = "an ended claim is back"
	ReturnedClaim      Kind = "a returned claim is there"
	VoidedClaim        Kind = "a voided claim is there"
	WrongState         Kind = "a claim in a wrong state"
	ClosedDrop         Kind = "a closed drop takes claims"
	OutOfTime          Kind = "a claim out of time"
	BlamedClient       Kind = "blamed the client"
	OverTheStock       Kind = "more claims than the stock"
	SoldOutEarly       Kind = "sold out too early"
	NotTheStock        Kind = "not exactly the stock"
	NotifiedTwice      Kind = "notified twice"
	NotifiedOfAnothers Kind = "notified of the claim of another"
	NotifiedOtherwise  Kind = "notified otherwise than it is"
	SilentRejection    Kind = "a rejection without its notification"
	MissedMilestone    Kind = "a milestone without its notification"
)

// Violations are the observed violations of the promise. All are counted, and keptOfSort of each sort are recorded.
type Violations struct {
	mu    sync.Mutex
	Count map[Kind]int
	List  []Violation
	Log   func(Violation) // called with each recorded violation; may be nil
}

// Violation is one of them.
type Violation struct {
	Sort Kind          `json:"sort"`
	At   time.Duration `json:"at_ns"`
	Text string        `json:"text"`
}

// keptOfSort is how many violations of each sort are recorded, because one defect may break thousands of likes.
const keptOfSort = 5

// Addf counts a violation. At is a time of the run.
func (v *Violations) Addf(sort Kind, at time.Duration, format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.Count == nil {
		v.Count = map[Kind]int{}
	}
	v.Count[sort]++
	if v.Count[sort] <= keptOfSort {
		kept := Violation{sort, at, fmt.Sprintf(format, args...)}
		v.List = append(v.List, kept)
		if v.Log != nil {
			v.Log(kept)
		}
	}
}

// Total returns the number of violations.
func (v *Violations) Total() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := 0
	for _, c := range v.Count {
		n += c
	}
	return n
}
