package db_test

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/likes"
	"likewise/models/media"
	"likewise/models/moderation"
	"likewise/models/people"
	"likewise/models/privacy"
	"likewise/models/reader"
	"likewise/models/stock"
	"likewise/models/webhooks"
)

// wire sees what a store sends to MySQL.
type wire struct {
	net.Conn
	log *wireLog
}

type wireLog struct {
	mu      sync.Mutex
	queries []string
}

// Write looks for the packet COM_QUERY, which the driver writes whole: four bytes of length and number, 3, the text.
func (w wire) Write(b []byte) (int, error) {
	if len(b) > 5 && b[3] == 0 && b[4] == 3 {
		w.log.mu.Lock()
		w.log.queries = append(w.log.queries, strings.TrimSpace(testkit.Unlimited(string(b[5:]))))
		w.log.mu.Unlock()
	}
	return w.Conn.Write(b)
}

// selects returns the reads since the last call.
func (l *wireLog) selects() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	queries := slices.DeleteFunc(l.queries, func(q string) bool {
		return !strings.HasPrefix(q, "SELECT") && !strings.HasPrefix(q, "WITH") && !strings.HasPrefix(q, "(")
	})
	l.queries = nil
	return queries
}

func openWatched(t testing.TB, dsn string) (*db.DB, *wireLog) {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
	require.NoError(t, err)
	log := &wireLog{}
	network := "plans" + config.DBName
	mysql.RegisterDialContext(network, func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		return wire{conn, log}, err
	})
	t.Cleanup(func() { mysql.DeregisterDialContext(network) })
	config.Net = network
	store, err := db.Open(t.Context(), config.FormatDSN(), db.Options{Excerpt: strings.ToUpper})
	require.NoError(t, err)
	t.Cleanup(func() { store.Close() })
	addPatient(t, store, dsn)
	return store, log
}

// planStep is a line of EXPLAIN.
type planStep struct{ table, access, key, extra, rows string }

func explain(t testing.TB, store *db.DB, query string) []planStep {
	t.Helper()
	rows, err := store.Pool().QueryContext(t.Context(), "EXPLAIN FORMAT=TRADITIONAL "+query)
	require.NoError(t, err, query)
	defer rows.Close()
	columns, err := rows.Columns()
	require.NoError(t, err)
	var steps []planStep
	for rows.Next() {
		values := make([]sql.NullString, len(columns))
		into := make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		require.NoError(t, rows.Scan(into...))
		value := func(column string) string {
			return values[slices.IndexFunc(columns, func(c string) bool { return strings.EqualFold(c, column) })].String
		}
		steps = append(steps, planStep{value("table"), value("type"), value("key"), value("Extra"), value("rows")})
	}
	require.NoError(t, rows.Err())
	return steps
}

// planned is a call of the store whose queries must have good plans.
type planned struct {
	method string
	name   string
	sorts  bool // it may sort what it has found, a bounded number of rows or those of the rarest condition
	byID   bool // it goes over a table in the order of its ids, or of another column that nothing is asked of
	call   func(ctx context.Context, s *db.DB) error
}

// storesOf returns the stores of the packages of models.
func storesOf(s *db.DB) []any {
	return []any{s, accounts.New(s), media.New(s), people.New(s), content.New(s), stock.New(s), likes.New(s),
		reader.New(s), moderation.New(s), webhooks.New(s), privacy.New(s)}
}

// plan makes a planned of a method and its arguments after the context.
func plan(method, name string, args ...any) planned {
	return planned{method: method, name: name, call: func(ctx context.Context, s *db.DB) error {
		in := []reflect.Value{reflect.ValueOf(ctx)}
		var f reflect.Value
		for _, store := range storesOf(s) {
			if f = reflect.ValueOf(store).MethodByName(method); f.IsValid() {
				break
			}
		}
		if !f.IsValid() {
			return fmt.Errorf("no store has a method %s", method)
		}
		for i, arg := range args {
			v := reflect.ValueOf(arg)
			if !v.IsValid() {
				v = reflect.Zero(f.Type().In(i + 1))
			}
			in = append(in, v.Convert(f.Type().In(i+1)))
		}
		err, _ := reflect.TypeAssert[error](f.Call(in)[f.Type().NumOut()-1])
		return err
	}}
}

func (p planned) sorting() planned {
	p.sorts = true
	return p
}

func (p planned) walking() planned {
	p.byID = true
	return p
}

// plans lists the query of every list, for its first page and for one in the middle. Every method of the store that
// returns a slice has a line here, which TestPlans_everyListUsesAnIndex checks.
func plans() []planned {
	middle := models.ListKey{Value: time.Now().Unix() - 30*largePosts, ID: largePosts / 2}
	afters := map[string]*models.ListKey{"at the beginning": nil, "in the middle": &middle}
	var list []planned
	add := func(p ...planned) { list = append(list, p...) }
	posts := func(name string, sorts bool, q content.PostQuery) {
		q.ViewerID, q.Limit = 1, 21
		for where, after := range afters {
			q := q
			if q.After = after; after != nil && (q.Sort == models.PostsTop || q.Sort == models.PostsRelevance) {
				q.After = &models.ListKey{Value: 40, ID: largePosts / 2}
			}
			for _, q.View = range []content.PostView{content.ViewFull, content.ViewSummary} {
				p := plan("ListPosts", fmt.Sprintf("%s, %s, %s, %s", name, q.Sort, where, q.View), q)
				p.sorts = sorts
				// EXPLAIN estimates the postings above the floor, without the LIMIT that bounds them.
				p.byID = q.Sort == models.PostsRelevance && q.Terms[0] == "common"
				add(p)
			}
		}
	}
	since := time.Now().AddDate(0, 0, -50) // before the middle
	for _, sort := range []models.PostSort{models.PostsNew, models.PostsHot, models.PostsTop, models.PostsActive} {
		other := sort != models.PostsNew
		posts("all", false, content.PostQuery{Sort: sort})
		posts("of a time", sort == models.PostsTop, content.PostQuery{Sort: sort, Since: since})
		posts("of an author", other, content.PostQuery{Sort: sort, AuthorID: 1})
		posts("with a usual tag", false, content.PostQuery{Sort: sort, Tag: "tag1"})
		posts("with a rare tag", other, content.PostQuery{Sort: sort, Tag: "tag2"})
		posts(
			"with a usual tag of a time",
			sort == models.PostsTop,
			content.PostQuery{Sort: sort, Tag: "tag1", Since: since},
		)
		posts("of an author with a tag", other, content.PostQuery{Sort: sort, Tag: "tag1", AuthorID: 1})
		posts("with a common word", false, content.PostQuery{Sort: sort, Terms: []string{"common"}})
		posts("with a rare word", true, content.PostQuery{Sort: sort, Terms: []string{"word7"}})
		posts("with two words", true, content.PostQuery{Sort: sort, Terms: []string{"word7", "mid7"}})
		posts(
			"with a word and a tag of an author",
			true,
			content.PostQuery{Sort: sort, Terms: []string{"word7"}, Tag: "tag1", AuthorID: 1},
		)
	}
	posts("with a common word", true, content.PostQuery{Sort: models.PostsRelevance, Terms: []string{"common"}})
	posts("with a rare word", true, content.PostQuery{Sort: models.PostsRelevance, Terms: []string{"word7"}})
	posts("with two words", true, content.PostQuery{Sort: models.PostsRelevance, Terms: []string{"mid2", "common"}})
	posts(
		"with two words of an author",
		true,
		content.PostQuery{Sort: models.PostsRelevance, Terms: []string{"mid2", "common"}, AuthorID: 1},
	)
	posts(
		"with two words and a rare tag",
		true,
		content.PostQuery{Sort: models.PostsRelevance, Terms: []string{"mid2", "common"}, Tag: "tag2"},
	)
	add(
		plan(
			"ListPosts",
			"with two words, for the anonymous",
			content.PostQuery{Sort: models.PostsRelevance, Terms: []string{"mid2", "common"}, Limit: 21},
		).sorting(),
		plan(
			"ListPosts",
			"with two words and a tag, for the anonymous",
			content.PostQuery{
				Sort:  models.PostsRelevance,
				Terms: []string{"mid2", "word7"},
				Tag:   "tag1",
				Limit: 21,
			},
		).sorting(),
	)

	for _, sort := range []models.TagSort{models.TagsPopular, models.TagsName} {
		for where, after := range map[string]*models.ListKey{
			"at the beginning": nil,
			"in the middle":    {Value: 100, ID: 5000},
		} {
			add(plan("ListTags", string(sort)+" "+where, models.TagQuery{Sort: sort, After: after, Limit: 21}))
			p := plan(
				"ListTags",
				string(sort)+" with a prefix "+where,
				models.TagQuery{Sort: sort, Prefix: "tag12", After: after, Limit: 21},
			)
			p.sorts = sort == models.TagsPopular
			add(p)
		}
	}
	for _, sort := range []models.PostSort{models.PostsRelevance, models.PostsNew} {
		for where, after := range afters {
			for _, terms := range [][]string{{"common"}, {"common", "mid7"}, {"mid7", "word12"}} {
				q := models.CommentSearch{ViewerID: 1, Terms: terms, Sort: sort, After: after, Limit: 21}
				add(plan("FindComments", fmt.Sprintf("%s, %v, %s", sort, terms, where), q).sorting())
			}
		}
	}
	for _, sort := range []models.CommentSort{models.CommentsOld, models.CommentsNew, models.CommentsTop,
		models.CommentsFlatOld, models.CommentsFlatNew} {
		for where, after := range afters {
			for name, q := range map[string]content.CommentQuery{
				"of a post":    {PostID: 1},
				"to a comment": {ParentID: 1},
			} {
				if sort.Flat() && q.PostID == 0 {
					continue
				}
				q.ViewerID, q.Sort, q.After, q.Limit = 1, sort, after, 21
				add(plan("ListComments", fmt.Sprintf("%s, %s, %s", name, sort, where), q))
			}
		}
		if sort.Flat() {
			continue
		}
		add(
			plan(
				"Thread",
				string(sort),
				models.ThreadQuery{ViewerID: 1, PostID: 1, Sort: sort, Depth: 3, Limit: 100},
			).sorting(),
			plan(
				"Thread",
				"around a comment, "+string(sort),
				models.ThreadQuery{
					ViewerID: 1, PostID: 1, Sort: sort, Around: largeShare - 1, Depth: 3, Limit: 100,
				},
			).sorting(),
		)
	}
	for _, before := range []int64{0, largePosts / 2} {
		where := map[int64]string{0: "at the beginning", largePosts / 2: "in the middle"}[before]
		for _, target := range []models.Target{{Kind: models.KindPost, ID: 1}, {Kind: models.KindComment, ID: 1}} {
			add(plan("Likers", string(target.Kind)+" "+where, 1, target, min(before, largeShare/2), 21))
		}
		for _, target := range []models.Target{{Kind: models.KindPost, ID: 1}, {Kind: models.KindComment, ID: 1}} {
			q := content.RevisionQuery{Target: target, Before: min(before, largeShare/2), Limit: 21}
			add(
				plan("ListRevisions", string(target.Kind)+" "+where, q),
				plan("RevisionOf", string(target.Kind)+" "+where, q, q.Before),
			)
		}
		add(
			plan("Redactions", "open "+where, false, min(before, largeShare), 21),
			plan("Redactions", "resolved "+where, true, min(before, largeShare), 21),
			plan("RedactionsBy", where, 1, min(before, largeShare), 21),
			plan("BookmarkedPosts", where, 1, before, 21),
			plan("SubscribedPosts", where, 1, before, 21),
			plan("Drafts", where, 1, before, 21),
			plan("Images", where, 1, before, 21),
			plan("PostTimes", where, before, 500).walking(),
			plan("LikedPosts", where, 1, 1, before, 21),
			plan("LikedComments", where, 1, 1, before, 21),
			plan(
				"Notifications",
				"all "+where,
				1,
				false,
				before,
				21,
			),
			plan("Notifications", "unread "+where, 1, true, before, 21),
			plan("DropsOfPost", where, 1, min(before, largeShare/2), 21),
			plan("Claims", where, 1, min(before, largeShare), 21),
			plan("ClaimsOfDrop", where, 1, min(before, largeShare/2), 21),
			plan("LiveClaims", where, 1, min(before, largeShare/2), 500).walking(), // clustered by drop
			plan("SettingsToSend", where, min(before, largeShare), 500),
			plan("ClaimsToRelease", where, models.EndedClaim{DropID: min(before, largeShare)}, 500),
		)
	}
	for where, after := range afters {
		add(
			plan("Feed", where, 1, after, 21).sorting(),
			plan("Followers", where, 1, 1, after, 21),
			plan("Following", where, 1, 1, after, 21),
			plan(
				"BlockedUsers",
				where,
				1,
				after,
				21,
			),
			plan("Sessions", where, 1, after, 21),
			plan("FormerUsernames", where, 1),
			plan("Tokens", where, 1, after, 21),
			plan("CommentsByUser", where, 1, 1, after, 21),
			plan("UnreadPosts", where, 1, after, 21).sorting(),
		)
	}
	batch := []models.Target{
		{Kind: models.KindPost, ID: 1},
		{Kind: models.KindComment, ID: 7},
		{Kind: models.KindPost, ID: 999},
	}
	void := likes.LikeVoid{UserID: 1, RequestedAt: time.Now()}
	add(
		plan("Ancestors", "", 1, largeShare-1, 0, 20).sorting(),
		plan("LiveCounts", "", batch),
		plan("LikeStates", "", 1, []models.TargetCount{{Target: batch[0]}, {Target: batch[1]}}),
		plan(
			"CommentIDs",
			"",
			1,
			100,
			500,
		),
		plan("LikerIDs", "", batch[0], 100, 500),
		plan("UserIDs", "", 500).walking(),
		plan(
			"Missing",
			"",
			batch,
		),
		plan("VoidedLikes", "posts", void, models.KindPost, 100, 500),
		plan("VoidedLikes", "comments", void, models.KindComment, 100, 500),
		plan(
			"Tally",
			"posts",
			models.KindPost,
			largePosts/2,
			500,
		).walking(),
		plan("Tally", "comments", models.KindComment, largePosts/2, 500).walking(),
		plan("TallyShard", "posts", models.KindPost, 3, largePosts/2, 500).walking(),
		plan("IndexPosts", "", 100),
		plan("IndexComments", "", 100),
		plan("UsersByPrefix", "", 1, "user1", 20).sorting(),
		plan("BlockersAmong", "", 1, []int64{1, 7, 999}),
		plan("PostStates", "", []int64{1, 7, 999}),
		plan("UnreadVersions", "", []int64{1, 7, 999}),
		plan("BlockedBy", "", []int64{1, 7, 999}),
		plan("ThreadVersions", "", []int64{1, 7, 999}),
		plan("TagVersions", "", []int64{1, 2, 3}),
		plan("CommentNews", "", []int64{1, 7, 999}),
		plan("TagNews", "", []int64{1, 2, 3}),
		plan("PostNews", ""),
		plan("DropsByPost", "", []int64{1, 7, 999}),
		plan("TagIDs", "", []string{"tag1", "tag2"}),
		plan("OpenCases", ""),
		plan("WriteExcerpts", "", 100),
		plan("PostByID", "", 1, 1),
		plan("UnreadCount", "", 1),
		plan("LatestComments", "", 1, 50),
		plan("ReaderStates", "", 1, []int64{1, 2, 3, 999}),
		plan("MarkRead", "", 1, 1, 0),
		plan("NotifyFollowers", "", 0, 500, map[int64]bool{}),
		plan("PurgeReadMarks", "", 500),
		plan("PurgeDrafts", "", 500),
		plan("OrphanImages", "", 100),
		plan("Images", "", 1, 0, 50),
		plan("ImageUses", "", 1),
	)
	for _, q := range []models.AccountQuery{
		{}, {Username: "user1"}, {Email: "user1"}, {Role: models.RoleModerator}, {Banned: true},
		{After: largeUsers / 2},
	} {
		q.Limit = 21
		p := plan("Accounts", fmt.Sprintf("%+v", q), q)
		p.sorts, p.byID = q.Banned, !q.Banned && q.Role == 0
		add(p)
	}
	for _, q := range []models.ActQuery{
		{}, {ActorID: 1}, {Action: "post.delete"}, {TargetType: "post", TargetID: 1}, {TargetType: "shard"},
		{After: &middle},
	} {
		q.Limit = 21
		add(plan("ModerationLog", fmt.Sprintf("%+v", q), q))
	}
	for _, q := range []models.EventQuery{
		{}, {UserID: 1}, {ActorID: 1}, {Address: "192.0.2.1"}, {Kind: "login.failed"}, {Since: since},
		{UserID: 1, After: &middle},
	} {
		q.Limit = 21
		add(plan("SecurityLog", fmt.Sprintf("%+v", q), q))
	}
	for _, section := range privacy.ExportSections() {
		p := plan("ExportItems", section, 1, section, models.ListKey{}, 500)
		// A job reads these, and an account has few of them.
		p.sorts = slices.Contains(
			[]string{"post_revisions", "comment_revisions", "account_acts", "security_events"},
			section,
		)
		add(p)
	}
	add(plan("WaitingExports", "", 5), plan("DueMails", "", []byte("key"), 50))
	for _, kind := range []models.TargetKind{models.KindPost, models.KindComment} {
		add(
			plan("LikesBetween", string(kind), kind, 100, 600, since),
			plan("LatestLikesOf", string(kind), kind, 1, since, 100),
			plan("LikesGiven", string(kind), kind, 1, largePosts/2, 21),
		)
	}
	for _, status := range []models.CaseStatus{models.CasesOpen, models.CasesClaimed, models.CasesResolved} {
		p := plan("ReportCases", string(status), status, 100, 21)
		p.sorts = status == models.CasesClaimed
		add(p)
	}
	for _, q := range []moderation.ContentQuery{
		{}, {Status: models.StatusDeleted}, {AuthorID: 1}, {AuthorID: 1, Status: models.StatusNormal},
		{Pinned: true}, {Locked: true}, {Reported: true}, {Text: "no such text"}, {Since: since}, {After: &middle},
		{View: content.ViewSummary},
	} {
		q.Limit = 21
		name := fmt.Sprintf("%+v", q)
		posts, comments := plan("ModeratedPosts", name, q), plan("ModeratedComments", name, q)
		// Reported content, and that of an author, is sorted as ids alone. A text is searched in a bounded number of
		// rows.
		posts.sorts = q.Reported || q.Text != "" || q.AuthorID != 0 && q.Status == 0
		posts.byID = q.Status == 0 && q.AuthorID == 0 && q.Since.IsZero() && q.After == nil
		comments.sorts, comments.byID = posts.sorts, posts.byID
		if add(posts); !q.Pinned && !q.Locked {
			add(comments)
		}
	}
	add(
		plan("ListDeadLetters", "", false, 100, 21),
		plan("ReportsBy", "", 1, 100, 21),
		plan(
			"ReportsOf",
			"",
			99_999,
			1,
			100,
			21,
		),
		plan("LikeRings", "", 1, 100, 21),
		plan("OpenOperations", "", 21).sorting(),
		plan("OpenClosings", "", 100, 100),
		plan("TallyDrops", "", largeShare, 500).walking(),
		plan("TallyDropsOfShard", "", 3, largeShare, 200).walking(),
		plan("DropGate", "", []int64{1, 7, 999}, 5000).sorting(),
		plan("Drop", "", 7),
		plan("Drops", "", []int64{1, 7, 999}),
		plan("DropIDs", "", 7),
		plan("ClaimByID", "", 7),
		plan("ClaimsAmong", "", 1, []int64{1, 7, 999}),
		plan("ExpireClaims", ""),
		plan("SessionChanges", "", int64(1), []int64{2, 3}, 100),
		plan("Webhooks", "", 10, 21),
		plan("WebhookBacklog", ""),
		plan("WebhookByID", "", 7),
		plan("Deliveries", "all", 7, models.DeliveryState(0), largeShare, 21),
		plan("Deliveries", "of a state", 7, models.DeliveryFailed, largeShare, 21),
		plan("PendingEvents", "", 7, largeShare, 500),
		plan("PendingDelivery", "", 7),
		plan("PurgeWebhookEvents", "", 500),
	)
	return list
}

// unplanned are methods whose queries read small tables, or all rows on purpose.
var unplanned = map[string]string{
	"ImportUsers":    "writes",
	"ImportPosts":    "writes",
	"ImportComments": "writes",
	"CreateScripts":  "writes",
	"CreateSessions": "writes",
	"VoidRing":       "writes",

	"ConfirmTOTP":          "writes",
	"ReplaceRecoveryCodes": "writes",

	"FeedAuthors":   "the first half of Feed",
	"ShardStates":   "one row a shard",
	"ShardFailures": "one row a shard",
	"OpenGaps":      "gaps are rare",
	"Samples":       "a day of them, which is most of the table",
	"OpenLikeVoids": "by the index of done_at and turn_at; few are open",
	"OrphanLikes":   "verify goes over every like",
	"StrangeLikes":  "verify goes over every like",
	"StrangeClaims": "verify goes over every claim",
	"ExportChunk":   "bytes, not a list",
	"ImportSources": "once an import, which takes minutes",
}

// TestPlans_everyListUsesAnIndex asks the server for the plan of what the store really sends. No step may read the
// whole of a large table, and a list that is in the order of an index must not be sorted.
func TestPlans_everyListUsesAnIndex(t *testing.T) {
	t.Parallel()
	store, log := openWatched(t, testkit.Database(t))
	started := time.Now()
	fillLarge(t, store)
	t.Logf("filled in %v", time.Since(started))
	covered := map[string]bool{}
	for _, p := range plans() {
		covered[p.method] = true
		log.selects()
		require.NoError(t, p.call(t.Context(), store), "%s %s", p.method, p.name)
		queries := log.selects()
		require.NotEmpty(t, queries, "%s %s asks nothing", p.method, p.name)
		for _, query := range queries {
			steps := explain(t, store, query)
			for _, s := range steps {
				rows, _ := strconv.Atoi(s.rows)
				derived := s.table == "" || s.table[0] == '<' // rows that another step found
				whole := s.access == "ALL" && rows > 500
				// To go through a table by its ids for what belongs to somebody is to read most of it.
				whole = whole || s.access == "index" && (s.key == "PRIMARY" || rows > 500)
				whole = whole || s.access == "range" && s.key == "PRIMARY" && rows > 2*largeShare
				if !derived && whole && !p.byID {
					t.Errorf("%s %s reads all of %s:\n%s\n%v", p.method, p.name, s.table, query, steps)
				}
				if !derived && !p.sorts && strings.Contains(s.extra, "Using filesort") {
					t.Errorf("%s %s is sorted:\n%s\n%v", p.method, p.name, query, steps)
				}
			}
		}
	}
	packages, err := filepath.Glob("../*/store.go")
	require.NoError(t, err)
	require.Len(t, storesOf(store), len(packages), "storesOf has the stores of all packages")
	for _, store := range storesOf(store) {
		for m := range reflect.TypeOf(store).Methods() {
			if f := m.Type; f.NumOut() >= 2 && f.Out(0).Kind() == reflect.Slice &&
				f.Out(0).Elem().Kind() != reflect.Array &&
				unplanned[m.Name] == "" {
				assert.True(t, covered[m.Name], "plans() has no line for %s, which returns a list", m.Name)
			}
		}
	}
	t.Logf("%d calls in %v", len(plans()), time.Since(started))
}
