package content

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"likewise/models"
	"likewise/models/db"
)

// postFacts is what the choice of a plan depends on. Posts are counted up to a bound.
type postFacts struct {
	Posts       int64 // about the number of all posts
	Blocks      bool  // the viewer blocks somebody, or the author whose posts are listed
	TagID       int64 // 0 if no post ever had the tag
	TagPosts    int64 // posts with the tag, not bounded
	AuthorPosts int64
	WindowPosts int64   // posts of the window, among those of the source that is walked
	terms       []int64 // posts with each of the terms
}

// postFacts reads, in one query, the facts about the conditions of q. Each count stops at most+1.
func (s *Store) postFacts(ctx context.Context, q PostQuery, limit int) (postFacts, error) {
	columns := []string{
		`COALESCE((SELECT MAX(id) FROM posts), 0) AS posts`,
		`EXISTS (SELECT 1 FROM blocks WHERE user_id=? AND ? IN (0, blocked_id)) AS blocks`,
	}
	args := []any{q.ViewerID, q.AuthorID}
	add := func(column string, values ...any) {
		columns = append(columns, column)
		args = append(args, values...)
	}
	count := func(from string) string {
		return fmt.Sprintf("(SELECT COUNT(*) FROM (SELECT 1 FROM %s LIMIT %d) n)", from, limit+1)
	}
	if q.Tag != "" {
		add(`COALESCE((SELECT id FROM tags WHERE name=?), 0) AS tag_id`, q.Tag)
		add(`COALESCE((SELECT posts_count FROM tags WHERE name=?), 0) AS tag_posts`, q.Tag)
	}
	if q.countsAuthor() {
		add(count(`posts FORCE INDEX (idx_user_status_created) WHERE user_id=? AND status=?`)+` AS author_posts`,
			q.AuthorID, models.StatusNormal)
	}
	if q.hasWindow() {
		src := q.source(&postFacts{})
		if q.Tag != "" {
			src.where = db.Matching("g.tag_id=(SELECT id FROM tags WHERE name=?) AND g.status=?", q.Tag,
				models.StatusNormal)
		}
		src.where.Add(src.column("created_at")+">=?", models.WholeSeconds(q.Since))
		add(count(src.from(models.PostsNew)+" "+src.where.Clause())+` AS window_posts`, src.where.Args...)
	}
	if len(q.Terms) > 0 {
		counts := make([]string, len(q.Terms))
		for i, term := range q.Terms {
			counts[i] = count(`post_terms WHERE term=?`)
			args = append(args, term)
		}
		add(`CONCAT_WS(' ', ` + strings.Join(counts, ", ") + `) AS term_posts`)
	}
	var row struct {
		PostFacts postFacts `gorm:"embedded"`
		TermPosts string
	}
	query := `
		SELECT
			` + strings.Join(columns, `,
			`)
	if err := s.Read(ctx).Raw(query, args...).Scan(&row).Error; err != nil {
		return postFacts{}, fmt.Errorf("count posts: %w", err)
	}
	f := row.PostFacts
	for n := range strings.FieldsSeq(row.TermPosts) {
		count, err := strconv.ParseInt(n, 10, 64)
		if err != nil {
			return postFacts{}, fmt.Errorf("count posts: %w", err)
		}
		f.terms = append(f.terms, count)
	}
	return f, nil
}

// postOrder is how the database keeps an order: the column, and how the value of a ListKey is written and read.
type postOrder struct{ column, value, read string }

var postOrders = map[models.PostSort]postOrder{
	models.PostsNew:    {"created_at", "FROM_UNIXTIME(?)", "UNIX_TIMESTAMP(%s)"},
	models.PostsHot:    {"hot_score", "?", "%s"},
	models.PostsTop:    {"likes_count", "?", "%s"},
	models.PostsActive: {"active_at", "FROM_UNIXTIME(?)", "UNIX_TIMESTAMP(%s)"},
}

// postSource is a table that has an index for each order of some of the posts. The indexes include created_at and
// user_id, so that an entry can be passed over without reading the post.
type postSource struct {
	table, alias, id string
	index            string        // the name of each index, without the order
	where            db.Conditions // of the first columns of each index
	total            int64         // about the number of its posts
}

// indexNames are the ends of the names of the indexes of a source.
var indexNames = map[models.PostSort]string{models.PostsNew: "created", models.PostsHot: "hot",
	models.PostsTop: "likes", models.PostsActive: "active"}

// from returns the table with the index of an order.
func (src *postSource) from(sort models.PostSort) string {
	return src.table + " " + src.alias + " FORCE INDEX (" + src.index + indexNames[sort] + ")"
}

func (src *postSource) column(name string) string { return src.alias + "." + name }

// source returns the source that is walked in the order of q.
func (q *PostQuery) source(f *postFacts) postSource {
	switch {
	case q.Tag != "":
		return tagSource(f)
	case q.AuthorID != 0:
		return authorSource(q.AuthorID, f)
	}
	return postSource{"posts", "p", "p.id", "idx_status_", db.Matching("p.status=?", models.StatusNormal), f.Posts}
}

func tagSource(f *postFacts) postSource {
	where := db.Matching("g.tag_id=? AND g.status=?", f.TagID, models.StatusNormal)
	return postSource{"post_tags", "g", "g.post_id", "idx_tag_status_", where, f.TagPosts}
}

func authorSource(authorID int64, f *postFacts) postSource {
	where := db.Matching("p.user_id=? AND p.status=?", authorID, models.StatusNormal)
	return postSource{"posts", "p", "p.id", "idx_user_status_", where, f.AuthorPosts}
}

func pinnedSource() postSource {
	where := db.Matching("p.pinned=1 AND p.status=?", models.StatusNormal)
	return postSource{"posts", "p", "p.id", "idx_pinned_", where, 0}
}

// hasWindow reports whether the posts of the window are other than the first ones of the order.
func (q *PostQuery) hasWindow() bool { return !q.Since.IsZero() && q.Sort != models.PostsNew }

// sifts reports whether entries of the source may be passed over, because not all of them match q.
func (q *PostQuery) sifts(f *postFacts) bool {
	return f.Blocks || len(q.Terms) > 0 || q.Tag != "" && q.AuthorID != 0 || q.hasWindow()
}

// countsAuthor reports whether the plan depends on the number of the author's posts.
func (q *PostQuery) countsAuthor() bool {
	return q.AuthorID != 0 && (q.Tag != "" || len(q.Terms) > 0 || q.hasWindow())
}

// lookups returns the number of index entries that are read for each post that is examined.
func (q *PostQuery) lookups() int { return max(1, len(q.Terms)) }

// postCondition is a condition of a PostQuery whose posts can be read by themselves.
type postCondition int

const (
	byNothing postCondition = iota
	byTerm                  // the rarest
	byTag
	byAuthor
	byWindow // of the source
	byPinned
)

// rarest returns the condition that the fewest posts match, and their number, as far as facts count them.
func (q *PostQuery) rarest(f *postFacts) (by postCondition, posts int64) {
	posts = 1 << 62
	consider := func(condition postCondition, asked bool, n int64) {
		if asked && n < posts {
			by, posts = condition, n
		}
	}
	if len(q.Terms) > 0 {
		consider(byTerm, true, slices.Min(f.terms))
	}
	consider(byTag, q.Tag != "", f.TagPosts)
	consider(byAuthor, q.countsAuthor(), f.AuthorPosts)
	consider(byWindow, q.hasWindow(), f.WindowPosts)
	return by, posts
}

// byRarity returns the terms of q, the rarest first.
func (q *PostQuery) byRarity(f *postFacts) []string {
	order := make([]int, len(q.Terms))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(f.terms[a] - f.terms[b]) })
	sorted := make([]string, len(order))
	for i, term := range order {
		sorted[i] = q.Terms[term]
	}
	return sorted
}

// segment returns the conditions of a segment of the order's index: after a key and up to another.
func (q *PostQuery) segment(src *postSource, after, until *models.ListKey) db.Conditions {
	order := postOrders[q.Sort]
	column := src.column(order.column)
	where := src.where.Clone()
	// No score and no comment is older than its post.
	where.AddIf(!q.Since.IsZero() && q.Sort != models.PostsTop, column+">="+order.value, q.Since.Unix())
	if between, keys := db.KeyRange(column, order.value, src.id, after, until); between != "" {
		where.Add(between, keys...)
	}
	return where
}

// postPlan is a query under construction. Tables are joined in the order of the calls of join: the optimizers would
// choose an order by what a LIMIT might save, which can read a whole table.
type postPlan struct {
	from     string
	fromArgs []any
	where    db.Conditions
	id       string
	score    string

	column string // of the order
	limit  int
	sorted bool // the rows are read in the order of the list
}

func (p *postPlan) join(table string, args ...any) {
	if p.from != "" {
		p.from += "\n\t\tSTRAIGHT_JOIN "
	}
	p.from += table
	p.fromArgs = append(p.fromArgs, args...)
}

// walk returns the plan that reads a segment of the order's index and passes over what does not match q.
func (q *PostQuery) walk(facts *postFacts, after, until *models.ListKey, limit int) *postPlan {
	src := q.source(facts)
	p := &postPlan{
		where: q.segment(&src, after, until), id: src.id, score: "0",
		column: src.column(postOrders[q.Sort].column), limit: limit, sorted: true,
	}
	p.join(src.from(q.Sort))
	q.match(p, facts, src.alias, byNothing)
	q.leaveOut(p)
	if src.alias != "p" {
		p.join("posts p ON p.id=" + src.id)
	}
	return p
}

// gathering returns the plan that reads the posts that match one condition, at most as many as most, and sorts those
// that match q. floor is the least id in a search by relevance; 0 for none.
func (q *PostQuery) gathering(facts *postFacts, by postCondition, limit, floor int64) *postPlan {
	p := &postPlan{limit: q.Limit, score: "0"}
	alias := ""
	switch by {
	case byTerm:
		p.joinTerm(q.byRarity(facts)[0], limit, floor)
	case byTag:
		alias = p.joinNewest(tagSource(facts), limit)
	case byAuthor:
		alias = p.joinNewest(authorSource(q.AuthorID, facts), limit)
	case byWindow:
		src := q.source(facts)
		src.where.Add(src.column("created_at")+">=?", models.WholeSeconds(q.Since))
		alias = p.joinNewest(src, limit)
	default:
		alias = p.joinNewest(pinnedSource(), limit)
	}
	p.where.AddIf(by != byTerm && floor > 0, p.id+">=?", floor)
	q.match(p, facts, alias, by)
	q.leaveOut(p)
	if alias == "" {
		alias = "p"
	}
	order := postOrders[q.Sort]
	if p.column = alias + "." + order.column; q.Sort == models.PostsRelevance {
		order.value, p.column = "?", p.score
	}
	if after, keys := db.KeyRange(p.column, order.value, p.id, q.After, nil); after != "" {
		p.where.Add(after, keys...)
	}
	return p
}

// joinTerm begins a plan with the posts that have a term, as the table t0: the newest ones, or with a floor the oldest
// ones from it on.
func (p *postPlan) joinTerm(term string, limit, floor int64) {
	p.id = "t0.post_id"
	if floor > 0 {
		p.join(`(
			SELECT post_id, weight
			FROM post_terms FORCE INDEX (PRIMARY)
			WHERE term=? AND post_id>=?
			ORDER BY post_id ASC
			LIMIT ?
		) t0`, term, floor, limit)
		return
	}
	p.join(`(
			SELECT post_id, weight
			FROM post_terms FORCE INDEX (PRIMARY)
			WHERE term=?
			ORDER BY post_id DESC
			LIMIT ?
		) t0`, term, limit)
}

// joinNewest begins a plan with the newest posts of a source and returns their alias.
func (p *postPlan) joinNewest(src postSource, limit int64) (alias string) {
	p.id = src.id
	table := fmt.Sprintf(`(
			SELECT %[1]s, %[2]s.user_id, %[2]s.created_at, %[2]s.hot_score, %[2]s.likes_count, %[2]s.active_at
			FROM %[3]s
			%[4]s
			ORDER BY %[2]s.created_at DESC, %[1]s DESC
			LIMIT ?
		) %[2]s`, src.id, src.alias, src.from(models.PostsNew), src.where.Clause())
	p.join(table, append(src.where.Args, limit)...)
	return src.alias
}

// match adds the conditions of q that the plan's source does not have. The columns of posts are those of alias. With ""
// the posts are joined if they are needed.
func (q *PostQuery) match(p *postPlan, facts *postFacts, alias string, by postCondition) {
	terms := q.byRarity(facts)
	if len(terms) > 0 {
		p.score = relevance(len(terms))
	}
	for i, term := range terms {
		if i > 0 || by != byTerm {
			p.join(fmt.Sprintf("post_terms t%d ON t%d.post_id=%s AND t%d.term=?", i, i, p.id, i), term)
		}
	}
	if q.Tag != "" && alias != "g" {
		p.join("post_tags g ON g.post_id="+p.id+" AND g.tag_id=?", facts.TagID)
	}
	// Only posts that are not deleted have terms. So a post is read only if another of its columns is needed.
	if alias == "" &&
		(q.Sort != models.PostsRelevance || q.AuthorID != 0 || !q.Since.IsZero() || q.Pinned || facts.Blocks) {
		p.join("posts p ON p.id=" + p.id)
		p.where.Add("p.status=?", models.StatusNormal)
	}
	if alias == "" {
		alias = "p"
	}
	p.where.AddIf(q.AuthorID != 0, alias+".user_id=?", q.AuthorID)
	p.where.AddIf(!q.Since.IsZero(), alias+".created_at>=?", models.WholeSeconds(q.Since))
	p.where.AddIf(facts.Blocks, db.NotBlocked(alias+".user_id"), q.ViewerID)
}

// leaveOut adds the condition on Except.
func (q *PostQuery) leaveOut(p *postPlan) {
	p.where.AddIf(len(q.Except) > 0, p.id+" NOT IN ("+db.JoinIDs(q.Except)+")")
}

// relevance returns the sum of the weights of n terms.
func relevance(n int) string {
	if n == 0 {
		return "0"
	}
	weights := make([]string, n)
	for i := range weights {
		weights[i] = fmt.Sprintf("t%d.weight", i)
	}
	return strings.Join(weights, "+")
}

// ListedUsers reads the author by the primary key. With few users MariaDB would read all of them and lose the order.
const ListedUsers = "users u FORCE INDEX (PRIMARY) ON u.id=p.user_id"

// query returns the query of the plan, with the columns of a view.
func (p *postPlan) query(view PostView, viewerID int64) (query string, args []any) {
	args = slices.Concat([]any{viewerID}, p.fromArgs, p.where.Args)
	if p.sorted {
		return `
		SELECT ` + view.Columns() + `, ` + p.score + ` AS relevance
		FROM ` + p.from + `
		STRAIGHT_JOIN ` + ListedUsers + `
		` + view.Join(viewerID) + `
		` + p.where.Clause() + `
		ORDER BY ` + p.column + ` DESC, ` + p.id + ` DESC
		LIMIT ` + strconv.Itoa(p.limit), args
	}
	return `
		SELECT ` + view.Columns() + `, o.relevance
		FROM (
			SELECT ` + p.id + ` AS id, ` + p.column + ` AS place, ` + p.score + ` AS relevance
			FROM ` + p.from + `
			` + p.where.Clause() + `
			ORDER BY ` + p.column + ` DESC, ` + p.id + ` DESC
			LIMIT ` + strconv.Itoa(p.limit) + `
		) o
		STRAIGHT_JOIN posts p ON p.id=o.id
		STRAIGHT_JOIN ` + ListedUsers + `
		` + view.Join(viewerID) + `
		ORDER BY o.place DESC, o.id DESC`, args
}
