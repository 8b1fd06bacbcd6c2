package oracle

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// finished is a run that has ended, with everything that the judge compares. A fault is planted by changing one part.
type finished struct {
	registers []*Register
	likes     []RegisterKey
	contents  map[string][]Content
	creations []*Creation
	view      View

	drop    *Drop
	claims  map[int64][]string // what each user asked, as sharing has it
	rows    map[int64]ClaimRow // by user
	crowd   int64              // the stock that a crowd has claimed
	voids   []ClaimVoid        // of bob
	byClaim map[int64]int64    // users by the claims that answers named

	rejected, confirmed, milestones map[Notice]int
}

const ada, bob, cy, dan = 7, 8, 9, 10

// cleanRun returns a run without a fault. Ada wrote a post and a comment, and bob likes the post. Bob and cy claim a
// stock of two, and dan is too late.
func cleanRun() *finished {
	author := NewAccount(ada, "")
	post := &Target{Kind: "posts", ID: 1, Author: author}
	like := &Register{Target: post, User: NewAccount(bob, "")}
	came, went := like.Begin(true)
	like.Finish(Op{Want: true, Outcome: OK, Status: 200, Start: 1, End: 2}, came, went)
	drop := stockOf(2)
	drop.Post = post
	return &finished{
		registers: []*Register{like},
		likes:     []RegisterKey{{post, bob}},
		contents: map[string][]Content{
			"posts":    {{ID: 1, Marker: "post", Likes: 1, Rows: 1, Comments: 1, CommentsIn: 1}},
			"comments": {{ID: 2, Marker: "comment", Parent: 1}},
		},
		creations: []*Creation{
			{Kind: "posts", Marker: "post", Outcome: OK, ID: 1, Author: author},
			{Kind: "comments", Marker: "comment", Outcome: OK, ID: 2, Parent: 1, Author: author},
			{Kind: "posts", Marker: "refused", Outcome: Failed, Author: author},
			{Kind: "posts", Marker: "perhaps", Outcome: Unknown, Author: author},
		},
		view: View{Target: post, User: bob, Count: 1, Liked: true},
		drop: drop,
		claims: map[int64][]string{
			bob: {"claim 201:21"}, cy: {"claim 201:22"}, dan: {"claim sold_out"},
		},
		rows:       map[int64]ClaimRow{bob: {ID: 21, State: StateConfirmed}, cy: {ID: 22, State: StateConfirmed}},
		crowd:      2,
		byClaim:    map[int64]int64{21: bob, 22: cy},
		milestones: map[Notice]int{{User: ada, Post: 1, Milestone: 1}: 1},
	}
}

// verdict returns the kinds of violations that the judge finds.
func (e *finished) verdict() []Kind {
	post, comment := e.registers[0].Target, e.creations[1]
	j := newJudge()
	j.Known = func(kind string, _ int64) *Target {
		if kind == "comments" {
			return &Target{Kind: kind, ID: comment.ID, Parent: post, Author: post.Author}
		}
		return post
	}
	for kind, list := range e.contents {
		j.Counts(kind, list)
		j.Creations(kind, list, e.creations)
	}
	there := j.Likes(e.registers, e.likes)
	counts := map[*Target]int64{}
	for key := range there {
		counts[key.Target]++
	}
	j.View(e.view, counts, there)
	shares := map[int64]*Share{}
	for user, words := range e.claims {
		shares[user] = sharing(e.drop, user, words...)
	}
	shares[bob].User.ClaimVoids = e.voids
	j.Claims(e.drop, e.rows)
	j.Rush(e.drop, e.crowd, e.rows)
	byClaim := map[int64]*Share{}
	for id, user := range e.byClaim {
		byClaim[id] = shares[user]
	}
	j.Rejections(e.rejected, e.confirmed, byClaim, []*Drop{e.drop}, ClaimRows{e.drop.ID: e.rows})
	j.Reached(e.milestones, e.registers)
	for kind, list := range e.contents {
		j.Missed(e.milestones, kind, list, there)
	}
	return sorts(j)
}

// planted are faults, by the verdict that each must get.
var planted = map[Kind]func(*finished){
	LostLike: func(e *finished) { e.likes = nil },
	LikedAfterUnlike: func(e *finished) {
		e.registers[0].Finish(Op{Outcome: OK, Status: 200, Start: 3, End: 4}, false, true)
	},
	LikedTwice:  func(e *finished) { e.likes = append(e.likes, e.likes[0]) },
	NobodysLike: func(e *finished) { e.likes = append(e.likes, RegisterKey{e.likes[0].Target, cy}) },

	WrongLikesCount:    func(e *finished) { e.contents["posts"][0].Rows = 2 },
	WrongCommentsCount: func(e *finished) { e.contents["posts"][0].CommentsIn = 0 },

	LostCreation:      func(e *finished) { e.contents["comments"] = nil },
	MadeTwice:         func(e *finished) { e.add("comments", Content{ID: 3, Parent: 1, Marker: "comment"}) },
	MadeThoughRefused: func(e *finished) { e.add("posts", Content{ID: 3, Marker: "refused"}) },
	NobodysCreation:   func(e *finished) { e.add("posts", Content{ID: 3, Marker: "nobody's"}) },
	WrongAnswer:       func(e *finished) { e.contents["comments"][0].Parent = 3 },

	APICountsOtherwise: func(e *finished) { e.view.Count = 5 },
	APISeesOtherwise:   func(e *finished) { e.view.Liked = false },

	LostClaim:      func(e *finished) { delete(e.rows, bob) },
	ForgottenClaim: func(e *finished) { e.bobAsks("confirmed:21", "claim 201:21", "claim sold_out") },
	ClaimMadeTwice: func(e *finished) { e.bobAsks("confirmed:21", "claim 201:21", "return 204:21", "claim 201:21") },
	TwoClaims:      func(e *finished) { e.bobAsks("confirmed:25", "claim 201:21", "claim 201:25") },
	NobodysClaim:   func(e *finished) { e.rows[ada] = ClaimRow{ID: 26, State: StateReturned} },
	EndedClaim:     func(e *finished) { e.bobAsks("returned:21", "claim 201:21", "return 204:21", "claim 200:21") },
	ReturnedClaim:  func(e *finished) { e.bobAsks("confirmed:21", "claim 201:21", "return 204:21") },
	VoidedClaim: func(e *finished) {
		e.voids = []ClaimVoid{{Start: time.Minute, Until: 2 * time.Minute, Certain: true}}
	},
	WrongState:   func(e *finished) { e.rows[bob] = ClaimRow{ID: 21, State: StateReserved} },
	ClosedDrop:   func(e *finished) { e.drop.Closing = []Setting{{Start: -3, End: -2, Outcome: OK, Calm: true}} },
	OutOfTime:    func(e *finished) { e.drop.Begins = time.Hour },
	BlamedClient: func(e *finished) { e.claims[dan] = []string{"claim ended"} },
	OverTheStock: func(e *finished) {
		e.claims[dan], e.rows[dan] = []string{"claim 201:23"}, ClaimRow{ID: 23, State: StateConfirmed}
	},
	SoldOutEarly: func(e *finished) { e.drop.Stocks[0].Stock = 3 },
	NotTheStock:  func(e *finished) { e.crowd = 3 },

	NotifiedTwice:      func(e *finished) { e.milestones[Notice{User: ada, Post: 1, Milestone: 1}] = 2 },
	NotifiedOfAnothers: func(e *finished) { e.rejected = map[Notice]int{{User: bob, Claim: 22}: 1} },
	NotifiedOtherwise:  func(e *finished) { e.milestones[Notice{User: ada, Post: 1, Milestone: 10}] = 1 },
	SilentRejection: func(e *finished) {
		e.drop.Stocks = append(e.drop.Stocks, Setting{Stock: 1, Start: 2, End: 3, Outcome: OK})
		e.rows[bob] = ClaimRow{ID: 21, State: StateRejected}
	},
	MissedMilestone: func(e *finished) { clear(e.milestones) },
}

// alsoFound are violations that follow from a planted fault.
var alsoFound = map[Kind][]Kind{
	LostLike:        {APICountsOtherwise, APISeesOtherwise},
	NobodysLike:     {APICountsOtherwise},
	LostClaim:       {LostClaim, NotTheStock, NotTheStock},
	ClaimMadeTwice:  {EndedClaim, ReturnedClaim},
	TwoClaims:       {LostClaim, OverTheStock, OverTheStock},
	NobodysClaim:    {NotTheStock},
	EndedClaim:      {NotTheStock, NotTheStock},
	WrongState:      {NotTheStock},
	ClosedDrop:      {ClosedDrop},
	OutOfTime:       {OutOfTime},
	OverTheStock:    {NotTheStock},
	SilentRejection: {NotTheStock, NotTheStock},
}

func (e *finished) add(kind string, c Content) { e.contents[kind] = append(e.contents[kind], c) }

// bobAsks sets the history of bob's claims, and the row of the last, as STATE:ID.
func (e *finished) bobAsks(row string, words ...string) {
	e.claims[bob], e.rows[bob] = words, rowOf(row)
}

// The judge finds every kind of fault, and nothing else.
func TestJudge_findsEveryPlantedFault(t *testing.T) {
	require.Empty(t, cleanRun().verdict())
	for _, kind := range kinds(t) {
		t.Run(string(kind), func(t *testing.T) {
			plant := planted[kind]
			require.NotNil(t, plant, "a fault of this kind is planted")
			run := cleanRun()
			plant(run)
			want := append([]Kind{kind}, alsoFound[kind]...)
			slices.Sort(want)
			assert.Equal(t, want, run.verdict())
		})
	}
}

// kinds returns the kinds of violations that the package declares.
func kinds(t *testing.T) (list []Kind) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "violation.go", nil, 0)
	require.NoError(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		spec, is := n.(*ast.ValueSpec)
		if is && spec.Type != nil && spec.Type.(*ast.Ident).Name == "Kind" {
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			list = append(list, Kind(text))
		}
		return true
	})
	require.NotEmpty(t, list)
	return list
}
