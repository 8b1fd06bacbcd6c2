package oracle

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// ended is when an operation of the tests can no longer take effect.
func ended(o Op) time.Duration { return o.End }

// history returns a register with operations. + is a like and - an unlike; o means ok, ? unknown (503), ! unknown for
// want of an answer, and x failed.
func history(t *testing.T, words ...string) *Register {
	t.Helper()
	r := &Register{Target: &Target{Kind: "posts", ID: 1}, User: NewAccount(7, "")}
	for i, w := range words {
		o := Op{
			Want:    w[0] == '+',
			Outcome: map[byte]Outcome{'o': OK, '?': Unknown, '!': Unknown, 'x': Failed}[w[1]],
			Start:   time.Duration(i),
		}
		if w[1] == '?' {
			o.Status = 503
		}
		came, went := r.Begin(o.Want)
		r.Finish(o, came, went)
	}
	return r
}

func TestRegister_endsAsLastAcknowledgedOrLaterUnknown(t *testing.T) {
	cases := []struct {
		words    []string
		liked    bool
		notLiked bool
	}{
		{nil, false, true},
		{[]string{"+o"}, true, false},
		{[]string{"+o", "-o"}, false, true},
		{[]string{"+o", "-?"}, true, true},
		{[]string{"-o", "+?"}, true, true},
		{[]string{"+?", "-o"}, false, true}, // the unknown one is earlier
		{[]string{"+?", "-?", "+o"}, true, false},
		{[]string{"+o", "+?"}, true, false},
		{[]string{"+o", "-x"}, true, false},
		{[]string{"+x"}, false, true},
		{[]string{"+?"}, true, true},
	}
	for _, c := range cases {
		liked, notLiked := history(t, c.words...).possible(ended)
		assert.Equal(t, c.liked, liked, "liked after %v", c.words)
		assert.Equal(t, c.notLiked, notLiked, "not liked after %v", c.words)
	}
}

// A client that gives up continues with its next operation. Until the API's own deadline, the first operation may take
// effect after later ones.
func TestRegister_operationsWithoutAnAnswerMayBeLate(t *testing.T) {
	late := func(words ...string) *Register {
		r := history(t, words...)
		for i := range r.Ops {
			r.Ops[i].Start, r.Ops[i].End = time.Duration(10*i), time.Duration(10*i+5)
		}
		return r
	}
	last := func(o Op) time.Duration {
		if o.Status == NoStatus && o.Outcome == Unknown {
			return o.Start + 12
		}
		return o.End
	}
	liked, not := late("+!", "-o").possible(last)
	assert.Equal(t, []bool{true, true}, []bool{liked, not}, "the like may be applied after the unlike")
	liked, not = late("+!", "-o", "-o").possible(last)
	assert.Equal(t, []bool{false, true}, []bool{liked, not}, "the second unlike came when the like had ended")
	liked, not = late("+o", "-!", "+o", "+o").possible(last)
	assert.Equal(t, []bool{true, false}, []bool{liked, not})
}

func TestRegister_endsWithoutTheLikesThatWereWithdrawn(t *testing.T) {
	const s = time.Second
	period := func(since, until time.Duration, certain bool) Void {
		return Void{Start: 100 * s, Since: since, Until: until, Certain: certain}
	}
	sure, perhaps := []Void{period(0, 50*s, true)}, []Void{period(0, 50*s, false)}
	account := []Void{{Start: 100 * s, All: true, Certain: true}}
	type times []time.Duration
	for name, c := range map[string]struct {
		voids          []Void
		at             times
		words          []string
		liked, unliked bool
	}{
		"in the period":        {sure, times{10 * s}, []string{"+o"}, false, true},
		"perhaps requested":    {perhaps, times{10 * s}, []string{"+o"}, true, true},
		"at its edge":          {sure, times{49 * s}, []string{"+o"}, true, true},
		"after it":             {sure, times{60 * s}, []string{"+o"}, true, false},
		"liked again after it": {sure, times{10 * s, 60 * s, 70 * s}, []string{"+o", "-o", "+o"}, true, false},
		"repeated after it":    {sure, times{10 * s, 60 * s}, []string{"+o", "+o"}, false, true},
		"repeated later":       {sure, times{10 * s, 110 * s}, []string{"+o", "+o"}, true, true},
		"with its account":     {account, times{10 * s, 110 * s}, []string{"+o", "+o"}, false, true},
	} {
		r := history(t, c.words...)
		for i, at := range c.at {
			r.Ops[i].Start, r.Ops[i].End = at, at+s/10
		}
		r.User.Voids = c.voids
		liked, not := r.possible(ended)
		assert.Equal(t, [2]bool{c.liked, c.unliked}, [2]bool{liked, not}, name)
	}
}

func TestSpell_mayAndMustHold(t *testing.T) {
	var s Spell
	assert.False(t, s.May(0))
	assert.True(t, s.Take())
	assert.False(t, s.Take())
	s.Begin(10, 4)
	assert.True(t, s.May(5))
	assert.False(t, s.Must(50, 4), "it is not acknowledged")
	s.Confirm(20)
	assert.True(t, s.Must(21, 4))
	assert.False(t, s.Must(15, 4), "it began later")
	assert.False(t, s.Must(21, 6), "a fault was injected since")
	s.BeginEnd(30)
	assert.True(t, s.May(40))
	assert.False(t, s.Must(40, 4))
	s.End(50)
	assert.True(t, s.May(49))
	assert.False(t, s.May(51))
	s.Release()
	assert.True(t, s.Take())
}

func TestTarget_boundsHoldEveryPossibleCount(t *testing.T) {
	for _, c := range []struct {
		words     []string
		low, high int64
	}{
		{[]string{"+o"}, 1, 1},
		{[]string{"+o", "-o"}, 0, 0},
		{[]string{"+?"}, 0, 1},
		{[]string{"+?", "-?"}, 0, 1},
		{[]string{"+o", "-?"}, 0, 1},
		{[]string{"+o", "-?", "+o"}, 1, 1},
		{[]string{"+o", "-x"}, 1, 1},
		{[]string{"+x"}, 0, 0},
		{[]string{"+?", "-o", "+x"}, 0, 0},
		{[]string{"+!", "-o"}, 0, 1},
		{[]string{"+o", "-!", "+o"}, 0, 1},
	} {
		r := history(t, c.words...)
		low, high := r.Target.Since(r.Target.Bounds())
		assert.Equal(t, c.low, low, "least after %v", c.words)
		assert.Equal(t, c.high, high, "most after %v", c.words)
	}

	r := history(t, "+o")
	before := r.Target.Bounds()
	came, went := r.Begin(false)
	r.Finish(Op{Want: false, Outcome: OK}, came, went)
	low, high := r.Target.Since(before)
	assert.Equal(t, []int64{0, 1}, []int64{low, high}, "while it is unliked both are honest")
}

func sorts(j *Judge) []Kind {
	var list []Kind
	for _, v := range j.List {
		list = append(list, v.Sort)
	}
	slices.Sort(list)
	return list
}

// newJudge returns a judge of a run of two hours, in which nothing happened to the site.
func newJudge() *Judge { return &Judge{Violations: &Violations{}, At: 2 * time.Hour} }

func TestOracle_findsLikesThatAreNotAsAcknowledged(t *testing.T) {
	lost, kept, back, either := history(t, "+o"), history(t, "-?", "+o"), history(t, "+o", "-o"), history(t, "+?")
	key := func(r *Register) RegisterKey { return RegisterKey{r.Target, r.User.ID} }
	nobodys := RegisterKey{&Target{Kind: "comments", ID: 3}, 7}
	j := newJudge()
	j.Likes([]*Register{lost, kept, back, either}, []RegisterKey{key(kept), key(back), key(either), nobodys})
	assert.Equal(t, []Kind{NobodysLike, LostLike, LikedAfterUnlike}, sorts(j))

	j = newJudge()
	j.Likes([]*Register{kept, either}, []RegisterKey{key(kept)})
	assert.Empty(t, sorts(j))
}

func TestOracle_findsCreationsThatAreNotAsAcknowledged(t *testing.T) {
	made := []*Creation{
		{Kind: "posts", Marker: "lost", Outcome: OK, ID: 1},
		{Kind: "posts", Marker: "twice", Outcome: Unknown},
		{Kind: "posts", Marker: "refused", Outcome: Failed},
		{Kind: "posts", Marker: "well", Outcome: OK, ID: 5},
		{Kind: "posts", Marker: "perhaps", Outcome: Unknown},
		{Kind: "posts", Marker: "perhaps not", Outcome: Unknown},
		{Kind: "comments", Marker: "of another kind", Outcome: OK, ID: 9},
	}
	for _, c := range made {
		c.Author = NewAccount(7, "")
	}
	there := []Content{
		{ID: 2, Marker: "twice"},
		{ID: 3, Marker: "twice"},
		{ID: 4, Marker: "refused"},
		{ID: 5, Marker: "well"},
		{ID: 6, Marker: "perhaps"},
		{ID: 7, Marker: "out of nowhere"},
	}
	j := newJudge()
	j.Creations("posts", there, made)
	assert.Equal(t, []Kind{NobodysCreation, LostCreation, MadeThoughRefused, MadeTwice}, sorts(j))
}

// Milestones count the likes of others than the author.
func TestOracle_findsNotificationsOfMilestonesThatAreWrong(t *testing.T) {
	j := newJudge()
	author := NewAccount(7, "")
	own := &Target{Kind: "posts", ID: 1, Author: author}
	liked := &Target{Kind: "comments", ID: 2, Parent: own, Author: author}
	j.Known = func(kind string, id int64) *Target {
		return map[string]*Target{"posts 1": own, "comments 2": liked}[fmt.Sprint(kind, " ", id)]
	}
	registers := []*Register{{Target: own, User: author, ever: true}}
	own.Likers.Store(1)
	liked.Likers.Store(9)
	first, ofComment := Notice{User: 7, Post: 1, Milestone: 1}, Notice{User: 7, Post: 1, Comment: 2, Milestone: 1}

	j.Reached(map[Notice]int{ofComment: 1}, registers)
	assert.Empty(t, sorts(j))
	tenth := ofComment
	tenth.Milestone = 10
	j.Reached(map[Notice]int{ofComment: 2, first: 1, tenth: 1}, registers)
	assert.Equal(t, []Kind{NotifiedOtherwise, NotifiedOtherwise, NotifiedTwice}, sorts(j))

	j = newJudge()
	post := &Target{Kind: "posts", ID: 1, Author: author}
	j.Known = func(string, int64) *Target { return post }
	there := map[RegisterKey]bool{{post, author.ID}: true}
	j.Missed(nil, "posts", []Content{{ID: 1, Likes: 1}}, there)
	j.Missed(map[Notice]int{first: 1}, "posts", []Content{{ID: 1, Likes: 10}}, there)
	assert.Empty(t, sorts(j))
	j.Missed(map[Notice]int{first: 1}, "posts", []Content{{ID: 1, Likes: 10}}, nil)
	j.Missed(nil, "posts", []Content{{ID: 1, Likes: 2}}, there)
	assert.Equal(t, []Kind{MissedMilestone, MissedMilestone}, sorts(j))
}

func TestViolations_keepsSomeAndCountsAll(t *testing.T) {
	var v Violations
	for range 100 {
		v.Addf("a sort", 0, "text")
	}
	assert.Equal(t, 100, v.Total())
	assert.Len(t, v.List, keptOfSort)
}
