package models

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// PostSort is the order of a list of posts.
type PostSort string

// The orders. Ties are broken by id, latest first.
const (
	PostsNew       PostSort = "new"       // latest first
	PostsHot       PostSort = "hot"       // highest HotScore first
	PostsTop       PostSort = "top"       // most likes first
	PostsActive    PostSort = "active"    // latest comment first
	PostsRelevance PostSort = "relevance" // to the terms of the query, which must have some
)

// PostQuery says which posts to list.
type PostQuery struct {
	ViewerID int64 // 0 for the anonymous
	Sort     PostSort
	AuthorID int64     // 0 for all
	Tag      string    // see NormalTag; "" for all
	Terms    []string  // see SearchTerms; a post must have all of them
	Pinned   bool      // only posts that are pinned, at most MaxPinned
	Since    time.Time // created then or later; the zero time for all
	After    *ListKey  // nil for the first page
	Limit    int
}

// Key returns the place of p in a list sorted by sort. With PostsRelevance, PostPage.Key does.
func (p *Post) Key(sort PostSort) ListKey {
	switch sort {
	case PostsHot:
		return ListKey{p.HotScore, p.ID}
	case PostsTop:
		return ListKey{p.LikesCount, p.ID}
	case PostsActive:
		return ListKey{p.ActiveAt.Unix(), p.ID}
	}
	return ListKey{p.CreatedAt.Unix(), p.ID}
}

// PostPage is what ListPosts returns.
type PostPage struct {
	Posts []Post
	// Rest is where the list continues after all that was examined, when that has fewer posts than the query's Limit. It is
	// nil when the list ends.
	Rest *ListKey
	// Complete reports whether all was examined that could belong to the page. Otherwise the list may continue at Rest, or,
	// with PostsRelevance, there may be older posts that it does not have.
	Complete bool
	Examined int // entries of indexes that were read, at most: what the page has cost

	sort  PostSort
	floor int64 // of the ids of a list by relevance; 0 for none
}

// A list by relevance keeps its floor in its keys, above the relevance: all pages are of the same posts.
const relevanceBits = 13 // room for MaxSearchTerms*(titleWeight+contentWeight)

// Key returns the place of p in the list.
func (page *PostPage) Key(p *Post) ListKey {
	if page.sort == PostsRelevance {
		return ListKey{page.floor<<relevanceBits | p.Relevance, p.ID}
	}
	return p.Key(page.sort)
}

const (
	// maxExamined bounds the entries of indexes that are read for one page of a list with conditions, lookups included.
	maxExamined = 20_000
	// firstSegment is how many entries of an order's index are looked through first. Each segment after it is four times as
	// long as the one before.
	firstSegment = 256
)

// postOrder is how an order is kept: the column, how a ListKey's value is written, and how it is read.
type postOrder struct{ column, value, read string }

var postOrders = map[PostSort]postOrder{
	PostsNew:    {"created_at", "FROM_UNIXTIME(?)", "UNIX_TIMESTAMP(%s)"},
	PostsHot:    {"hot_score", "?", "%s"},
	PostsTop:    {"likes_count", "?", "%s"},
	PostsActive: {"active_at", "FROM_UNIXTIME(?)", "UNIX_TIMESTAMP(%s)"},
}

// postSource is a table that has an index for each order of some of the posts. The indexes hold created_at and user_id,
// too, so that an entry can be passed over without reading the post.
type postSource struct {
	table, alias, id string
	index            string // its name, up to that of the order
	where            string // the beginning of each index
	args             []any
	total            int64 // about how many posts it has
}

func (src *postSource) indexOf(sort PostSort) string {
	return src.index + map[PostSort]string{PostsNew: "created", PostsHot: "hot", PostsTop: "likes", PostsActive: "active"}[sort]
}

// source returns the source that is walked in the order of q.
func (q *PostQuery) source(f *postFacts) postSource {
	switch {
	case q.Tag != "":
		return postSource{"post_tags", "g", "g.post_id", "idx_tag_status_", "g.tag_id=? AND g.status=1", []any{f.TagID}, f.TagPosts}
	case q.AuthorID != 0:
		return postSource{"posts", "p", "p.id", "idx_user_status_", "p.user_id=? AND p.status=1", []any{q.AuthorID}, f.AuthorPosts}
	}
	return postSource{"posts", "p", "p.id", "idx_status_", "p.status=1", nil, f.Posts}
}

// sifts reports whether the entries of the source are looked through for what q asks for, instead of taken as they come.
func (q *PostQuery) sifts(f *postFacts) bool {
	return f.Blocks || len(q.Terms) > 0 || q.Tag != "" && q.AuthorID != 0 || !q.Since.IsZero() && q.Sort != PostsNew
}

// countsAuthor reports whether it matters how many posts the author has.
func (q *PostQuery) countsAuthor() bool {
	return q.AuthorID != 0 && (q.Tag != "" || len(q.Terms) > 0 || !q.Since.IsZero() && q.Sort != PostsNew)
}

// lookups is how many entries of indexes are read for each post that is looked at.
func (q *PostQuery) lookups() int { return max(1, len(q.Terms)) }

// ListPosts lists posts that are not deleted: one query, and for a viewer, a tag, terms or a window one before it, for
// the facts that the plan goes by.
//
// An index has each order: of all posts, of an author's, and of a tag's. A list without other conditions reads no more
// entries of it than the page has. With others the index is walked in segments until the page is full or the budget
// (maxExamined) is used up, unless the posts that fulfil one of the conditions are fewer: then those are read and sorted.
// So a page can be shorter than its limit, or empty, and have a Rest.
//
// A search by relevance sorts the posts of its rarest condition. If that is too common, it sorts the newest posts that
// have the rarest term, as many as the budget allows, and is not complete.
func (s *Store) ListPosts(ctx context.Context, q PostQuery) (PostPage, error) {
	page := PostPage{Complete: true, sort: q.Sort}
	var facts postFacts
	most := maxExamined / q.lookups()
	if q.ViewerID != 0 || q.Tag != "" || len(q.Terms) > 0 || !q.Since.IsZero() && q.Sort != PostsNew {
		var err error
		if facts, err = s.postFacts(ctx, q, most); err != nil {
			return PostPage{}, err
		}
		for _, n := range facts.terms {
			page.Examined += int(n)
		}
		if q.Tag != "" && facts.TagPosts == 0 || slices.Contains(facts.terms, 0) {
			return page, nil
		}
	}
	err := s.listPosts(ctx, &q, &facts, int64(most), &page)
	if err != nil {
		return PostPage{}, fmt.Errorf("list posts: %w", err)
	}
	return page, nil
}

func (s *Store) listPosts(ctx context.Context, q *PostQuery, facts *postFacts, most int64, page *PostPage) error {
	if q.Sort == PostsRelevance && q.After != nil {
		page.floor = q.After.Value >> relevanceBits
		q.After = &ListKey{q.After.Value & (1<<relevanceBits - 1), q.After.ID}
		page.Complete = page.floor == 0
	}
	by, matches := q.rarest(facts)
	switch {
	case q.Pinned:
		return s.gather(ctx, q, facts, byPinned, MaxPinned, page)
	case q.Sort == PostsRelevance:
		if matches > most {
			by = byTerm
			if q.After == nil {
				if err := s.findFloor(ctx, q.byRarity(facts)[0], most, page); err != nil {
					return err
				}
			}
		}
		return s.gather(ctx, q, facts, by, most, page)
	case !q.sifts(facts):
		posts, _, err := s.readPosts(ctx, q, q.walk(facts, q.After, nil, q.Limit), PageBytes)
		page.Posts, page.Examined = posts, page.Examined+len(posts)
		return err
	}
	// A full page takes about limit*total/matches entries of the order's index, and gathering takes matches.
	total := q.source(facts)
	if matches > most || matches*matches > int64(q.Limit)*total.total {
		if full, err := s.siftPosts(ctx, q, facts, min(matches, most), page); err != nil || full || matches > most {
			return err
		}
	}
	page.Posts, page.Rest, page.Complete = nil, nil, true
	return s.gather(ctx, q, facts, by, most, page)
}

// siftPosts walks the index of the order in segments, at most budget entries of it, and reports whether nothing is left to do:
// the page is full, or the list ends.
func (s *Store) siftPosts(ctx context.Context, q *PostQuery, facts *postFacts, budget int64, page *PostPage) (full bool, err error) {
	after, room := q.After, PageBytes
	for size := int64(firstSegment); budget > 0; size *= 4 {
		size = min(size, budget)
		budget -= size
		until, err := s.postBoundary(ctx, q, facts, after, size)
		if err != nil {
			return false, err
		}
		var posts []Post
		if posts, room, err = s.readPosts(ctx, q, q.walk(facts, after, until, q.Limit-len(page.Posts)), room); err != nil {
			return false, err
		}
		page.Posts = append(page.Posts, posts...)
		page.Examined += int(size) * q.lookups()
		if room < 0 || len(page.Posts) == q.Limit || until == nil {
			return true, nil
		}
		after = until
	}
	page.Rest, page.Complete = after, false
	return false, nil
}

// postBoundary returns the last of the next size entries of the order's index after a key; nil if there are fewer.
func (s *Store) postBoundary(ctx context.Context, q *PostQuery, facts *postFacts, after *ListKey, size int64) (*ListKey, error) {
	src, order := q.source(facts), postOrders[q.Sort]
	column := src.alias + "." + order.column
	where, args := q.segment(&src, after, nil)
	var keys []ListKey
	err := s.db.WithContext(ctx).Raw(`
SELECT `+fmt.Sprintf(order.read, column)+` AS value, `+src.id+` AS id
FROM `+src.table+` `+src.alias+` FORCE INDEX (`+src.indexOf(q.Sort)+`)
WHERE `+where+`
ORDER BY `+column+` DESC, `+src.id+` DESC
LIMIT 1 OFFSET ?`, append(args, size-1)...).Scan(&keys).Error
	if err != nil || len(keys) == 0 {
		return nil, err
	}
	return &keys[0], nil
}

// segment is the condition of a piece of the order's index: after a key and up to another.
func (q *PostQuery) segment(src *postSource, after, until *ListKey) (where string, args []any) {
	order := postOrders[q.Sort]
	where, args = src.where, slices.Clone(src.args)
	if !q.Since.IsZero() && q.Sort != PostsTop {
		// No score and no comment is older than its post.
		where, args = where+" AND "+src.alias+"."+order.column+">="+order.value, append(args, q.Since.Unix())
	}
	if between, keys := keyRange(src.alias+"."+order.column, order.value, src.id, after, until); between != "" {
		where, args = where+" AND "+between, append(args, keys...)
	}
	return where, args
}

// findFloor finds the least id among the newest posts that a search by relevance looks at, if it does not look at all.
func (s *Store) findFloor(ctx context.Context, term string, most int64, page *PostPage) error {
	var ids []int64
	err := s.db.WithContext(ctx).Raw(`
SELECT post_id
FROM post_terms FORCE INDEX (PRIMARY)
WHERE term=?
ORDER BY post_id DESC
LIMIT 1 OFFSET ?`, term, most-1).Scan(&ids).Error
	if err == nil && len(ids) > 0 {
		page.floor, page.Complete = ids[0], false
		page.Examined += int(most)
	}
	return err
}

// postPlan is a query under construction. Tables are joined in the order in which they are written down: the databases'
// own choice goes by what a LIMIT might save, and is at times wrong by the length of the table.
type postPlan struct {
	from  string
	joins []any // arguments of from
	where []string
	args  []any // of where
	id    string
	score string

	column string // of the order
	limit  int
	sorted bool // what it reads from is in the order
}

func (p *postPlan) join(table string, args ...any) {
	if p.from != "" {
		p.from += "\nSTRAIGHT_JOIN "
	}
	p.from += table
	p.joins = append(p.joins, args...)
}

func (p *postPlan) filter(condition string, args ...any) {
	p.where = append(p.where, condition)
	p.args = append(p.args, args...)
}

// walk plans to read a piece of the order's index and to pass over what q does not ask for.
func (q *PostQuery) walk(facts *postFacts, after, until *ListKey, limit int) *postPlan {
	src := q.source(facts)
	p := &postPlan{id: src.id, column: src.alias + "." + postOrders[q.Sort].column, limit: limit, sorted: true, score: "0"}
	p.join(src.table + " " + src.alias + " FORCE INDEX (" + src.indexOf(q.Sort) + ")")
	where, args := q.segment(&src, after, until)
	p.filter(where, args...)
	q.sifted(p, facts, src.alias, byNothing)
	if src.alias != "p" {
		p.join("posts p ON p.id=" + src.id)
	}
	return p
}

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

// rarest returns the condition that the fewest posts fulfil, and how many do; facts count them up to a bound.
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
	consider(byWindow, !q.Since.IsZero() && q.Sort != PostsNew, f.WindowPosts)
	return by, posts
}

// gather reads the posts that fulfil a condition, at most as many as most, and sorts those that q asks for.
func (s *Store) gather(ctx context.Context, q *PostQuery, facts *postFacts, by postCondition, most int64, page *PostPage) error {
	p := &postPlan{id: "p.id", limit: q.Limit, score: "0"}
	alias := "p"
	newest := func(src postSource, since bool) {
		where, args := src.where, slices.Clone(src.args)
		if since {
			where, args = where+" AND "+src.alias+".created_at>=?", append(args, second(q.Since))
		}
		alias, p.id = src.alias, src.id
		p.join("(SELECT "+src.id+", "+src.alias+".user_id, "+src.alias+".created_at, "+src.alias+".hot_score, "+src.alias+".likes_count, "+src.alias+".active_at"+
			" FROM "+src.table+" "+src.alias+" FORCE INDEX ("+src.indexOf(PostsNew)+") WHERE "+where+
			" ORDER BY "+src.alias+".created_at DESC, "+src.id+" DESC LIMIT ?) "+src.alias, append(args, most)...)
	}
	switch by {
	case byTerm:
		from := "DESC"
		where, args := "term=?", []any{q.byRarity(facts)[0]}
		if page.floor > 0 {
			where, args, from = where+" AND post_id>=?", append(args, page.floor), "ASC"
		}
		p.join("(SELECT post_id, weight FROM post_terms FORCE INDEX (PRIMARY) WHERE "+where+" ORDER BY post_id "+from+" LIMIT ?) t0", append(args, most)...)
		p.id, alias = "t0.post_id", ""
	case byTag:
		newest((&PostQuery{Tag: q.Tag}).source(facts), false)
	case byAuthor:
		newest((&PostQuery{AuthorID: q.AuthorID}).source(facts), false)
	case byWindow:
		newest(q.source(facts), true)
	default:
		newest(postSource{"posts", "p", "p.id", "idx_pinned_", "p.pinned=1 AND p.status=1", nil, 0}, false)
	}
	if by != byTerm && page.floor > 0 {
		p.filter(p.id+">=?", page.floor)
	}
	q.sifted(p, facts, alias, by)
	if alias == "" {
		alias = "p"
	}
	order := postOrders[q.Sort]
	if p.column = alias + "." + order.column; q.Sort == PostsRelevance {
		order.value, p.column = "?", p.score
	}
	if after, args := keyRange(p.column, order.value, p.id, q.After, nil); after != "" {
		p.filter(after, args...)
	}
	posts, _, err := s.readPosts(ctx, q, p, PageBytes)
	_, matches := q.rarest(facts)
	page.Posts, page.Examined = posts, page.Examined+int(min(matches, most))*q.lookups()
	return err
}

// sifted joins and filters what q asks for besides what p reads from. The columns of posts are those of alias; with ""
// the posts are joined if they are needed.
func (q *PostQuery) sifted(p *postPlan, facts *postFacts, alias string, by postCondition) {
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
	// Only posts that are not deleted have terms. So a post need not be read to be found, unless something else of it is
	// asked for.
	if alias == "" && (q.Sort != PostsRelevance || q.AuthorID != 0 || !q.Since.IsZero() || q.Pinned || facts.Blocks) {
		p.join("posts p ON p.id=" + p.id)
		p.filter("p.status=1")
	}
	if alias == "" {
		alias = "p"
	}
	if q.AuthorID != 0 {
		p.filter(alias+".user_id=?", q.AuthorID)
	}
	if !q.Since.IsZero() {
		p.filter(alias+".created_at>=?", second(q.Since))
	}
	if facts.Blocks {
		p.filter(notBlocked(alias+".user_id"), q.ViewerID)
	}
}

// listedUsers reads the author by the primary key: where there are few users MariaDB would read them all and lose the order.
const listedUsers = "users u FORCE INDEX (PRIMARY) ON u.id=p.user_id"

// readPosts runs a plan and reads up to room bytes of content, as scanPage does. What has to be sorted is sorted as ids alone, before the texts are read.
func (s *Store) readPosts(ctx context.Context, q *PostQuery, p *postPlan, room int) (posts []Post, left int, err error) {
	found := "\nFROM " + p.from + "\nWHERE " + strings.Join(append(p.where, "1=1"), " AND ") +
		"\nORDER BY " + p.column + " DESC, " + p.id + " DESC\nLIMIT " + strconv.Itoa(p.limit)
	args := append(append([]any{q.ViewerID}, p.joins...), p.args...)
	query := "SELECT " + postColumns + ", o.relevance\nFROM (SELECT " + p.id + " AS id, " + p.column + " AS place, " + p.score + " AS relevance" + found + ") o" +
		"\nSTRAIGHT_JOIN posts p ON p.id=o.id\nSTRAIGHT_JOIN " + listedUsers + "\nORDER BY o.place DESC, o.id DESC"
	if p.sorted {
		query = "SELECT " + postColumns + ", " + p.score + " AS relevance" + strings.Replace(found, "\nWHERE", "\nSTRAIGHT_JOIN "+listedUsers+"\nWHERE", 1)
	}
	return scanPage(s.db.WithContext(ctx).Raw(query, args...), room, postSize)
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

// relevance is the sum of the weights of n terms.
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
