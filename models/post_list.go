package models

import (
	"context"
	"fmt"
	"slices"
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

// ListKey is where a list of posts or comments goes on: the sort column's value and the id of the last item seen. A
// time is in seconds since 1970 UTC.
type ListKey struct {
	Value int64
	ID    int64
}

// PostQuery says which posts to list.
type PostQuery struct {
	ViewerID int64 // 0 for the anonymous
	Sort     PostSort
	AuthorID int64     // 0 for all
	Tag      string    // see NormalTag; "" for all
	Terms    []string  // see SearchTerms; a post must have all of them
	Pinned   bool      // only posts that are pinned, of which there are few
	Since    time.Time // created then or later; the zero time for all
	After    *ListKey  // nil for the first page
	Limit    int
}

// Key gives the place of p in a list sorted by sort.
func (p *Post) Key(sort PostSort) ListKey {
	switch sort {
	case PostsHot:
		return ListKey{p.HotScore, p.ID}
	case PostsTop:
		return ListKey{p.LikesCount, p.ID}
	case PostsActive:
		return ListKey{p.ActiveAt.Unix(), p.ID}
	case PostsRelevance:
		return ListKey{p.Relevance, p.ID}
	}
	return ListKey{p.CreatedAt.Unix(), p.ID}
}

// postOrder is how an order is kept: the column, how a ListKey's value is written, and the index on posts that has it.
type postOrder struct{ column, value, index string }

var postOrders = map[PostSort]postOrder{
	PostsNew:    {"p.created_at", "FROM_UNIXTIME(?)", "idx_status_created"},
	PostsHot:    {"p.hot_score", "?", "idx_status_hot"},
	PostsTop:    {"p.likes_count", "?", "idx_status_likes"},
	PostsActive: {"p.active_at", "FROM_UNIXTIME(?)", "idx_status_active"},
}

// ListPosts lists posts that are not deleted: one query, and one more before it for a tag or terms, to find out how many
// posts have them.
//
// An index has each order, and PostsNew within an author and within a tag; such a list reads no more rows than it gives,
// on any page. In the other orders all posts of an author are read and sorted. Where two conditions meet otherwise, either
// the index of the order is walked and most rows are thrown away, or the rows of the rarer condition are read and sorted;
// whatever is expected to read less.
func (s *Store) ListPosts(ctx context.Context, q PostQuery) ([]Post, error) {
	var facts postFacts
	if q.Tag != "" || len(q.Terms) > 0 {
		var err error
		if facts, err = s.postFacts(ctx, q.ViewerID, q.Tag, q.Terms); err != nil {
			return nil, err
		}
		if q.Tag != "" && facts.TagPosts == 0 || slices.Contains(facts.terms, 0) {
			return nil, nil
		}
	}
	query, args := q.plan(facts)
	posts, _, err := scanPage(s.db.WithContext(ctx).Raw(query, args...), postSize)
	if err != nil {
		return nil, fmt.Errorf("list posts: %w", err)
	}
	return posts, nil
}

// postPlan is a query under construction. Tables are joined in the order in which they are written down: the databases'
// own choice goes by what a LIMIT might save, and is at times wrong by the length of the table.
type postPlan struct {
	from  string
	joins []any // arguments of from
	where []string
	args  []any // of where
	id    string
}

func (p *postPlan) join(table string, args ...any) {
	if p.from != "" {
		p.from += " STRAIGHT_JOIN "
	}
	p.from += table
	p.joins = append(p.joins, args...)
}

func (p *postPlan) filter(condition string, args ...any) {
	p.where = append(p.where, condition)
	p.args = append(p.args, args...)
}

// plan writes the query. What it reads from first is its driver; everything else is looked up from there by primary key.
func (q PostQuery) plan(facts postFacts) (query string, args []any) {
	p := &postPlan{id: "p.id"}
	order, sorted := postOrders[q.Sort], true
	// Walking the index of the order until the page is full reads about limit*posts/matches rows, reading all matches
	// reads that many.
	few := func(matches int64) bool { return matches*matches <= int64(q.Limit)*facts.Posts }
	terms, rarest := byRarity(q.Terms, facts.terms)
	tag, score := q.Tag, relevance(len(terms))
	posts := true // are joined
	switch {
	case q.Pinned:
		p.join("posts p FORCE INDEX (idx_pinned_created)")
		p.filter("p.pinned=1")
		sorted = q.Sort == PostsNew
	case len(terms) > 0 && (few(rarest) || q.Sort == PostsRelevance && q.AuthorID == 0 && (q.Tag == "" || rarest <= facts.TagPosts)):
		p.join("post_terms t0 FORCE INDEX (PRIMARY)")
		p.filter("t0.term=?", terms[0])
		for i, term := range terms[1:] {
			p.join(fmt.Sprintf("post_terms t%d ON t%d.post_id=t0.post_id AND t%d.term=?", i+1, i+1, i+1), term)
		}
		// Only posts that are not deleted have terms. So a post need not be read to be found, unless something else of it
		// is asked for.
		if posts = q.Sort != PostsRelevance || q.AuthorID != 0 || !q.Since.IsZero() || facts.Blocks; posts {
			p.join("posts p ON p.id=t0.post_id")
		}
		p.id, sorted, terms = "t0.post_id", false, nil
	case q.AuthorID != 0:
		p.join("posts p FORCE INDEX (idx_user_status_created)")
		sorted = q.Sort == PostsNew
	case q.Tag != "" && (q.Sort == PostsNew || few(facts.TagPosts) || q.Sort == PostsRelevance):
		p.join("post_tags g FORCE INDEX (idx_tag_status_created)")
		p.filter("g.tag_id=? AND g.status=1", facts.TagID)
		if !q.Since.IsZero() {
			p.filter("g.created_at>=?", second(q.Since))
		}
		p.join("posts p ON p.id=g.post_id")
		if sorted = q.Sort == PostsNew; sorted {
			order.column, p.id = "g.created_at", "g.post_id"
		}
		tag = ""
	case q.Sort == PostsTop && q.shortWindow():
		// Most posts with many likes are old, so their index would be walked for long.
		p.join("posts p FORCE INDEX (idx_status_created)")
		sorted = false
	default:
		p.join("posts p FORCE INDEX (" + order.index + ")")
		if !q.Since.IsZero() && q.Sort != PostsTop {
			p.filter(order.column+">="+order.value, q.Since.Unix()) // no score and no comment is older than its post
		}
	}
	if tag != "" {
		p.join("post_tags g ON g.post_id="+p.id+" AND g.tag_id=?", facts.TagID)
	}
	for i, term := range terms {
		p.join(fmt.Sprintf("post_terms t%d ON t%d.post_id=p.id AND t%d.term=?", i, i, i), term)
	}
	if posts {
		p.filter("p.status=1")
		p.filter(notBlocked("p.user_id"), q.ViewerID)
	}
	if q.AuthorID != 0 {
		p.filter("p.user_id=?", q.AuthorID)
	}
	if !q.Since.IsZero() {
		p.filter("p.created_at>=?", second(q.Since))
	}
	if q.Sort == PostsRelevance {
		order = postOrder{column: score, value: "?"}
	}
	if q.After != nil {
		// Two ranges on the index, so that not even those of the same value are read that were seen already: most posts
		// have the same number of likes.
		p.filter("("+order.column+"<"+order.value+" OR "+order.column+"="+order.value+" AND "+p.id+"<?)", q.After.Value, q.After.Value, q.After.ID)
	}
	return p.query(q, order.column, score, sorted)
}

// listedUsers reads the author by the primary key: where there are few users MariaDB would read them all and lose the order.
const listedUsers = "users u FORCE INDEX (PRIMARY) ON u.id=p.user_id"

// query writes the plan down. What has to be sorted is sorted as ids alone, before the texts are read.
func (p *postPlan) query(q PostQuery, column, score string, sorted bool) (query string, args []any) {
	rest := " FROM " + p.from
	where := " WHERE " + strings.Join(p.where, " AND ") + " ORDER BY " + column + " DESC, " + p.id + " DESC LIMIT ?"
	args = append([]any{q.ViewerID}, p.joins...)
	args = append(append(args, p.args...), q.Limit)
	if sorted {
		return "SELECT " + postColumns + ", " + score + " AS relevance" + rest + " STRAIGHT_JOIN " + listedUsers + where, args
	}
	return "SELECT " + postColumns + ", o.relevance FROM (SELECT " + p.id + " AS id, " + column + " AS place, " + score + " AS relevance" + rest + where + ") o" +
		" STRAIGHT_JOIN posts p ON p.id=o.id STRAIGHT_JOIN " + listedUsers + " ORDER BY o.place DESC, o.id DESC", args
}

// shortWindow reports whether the posts of the window are few enough to sort them.
func (q PostQuery) shortWindow() bool {
	return !q.Since.IsZero() && time.Since(q.Since) < 60*24*time.Hour
}

// byRarity sorts terms by the number of posts that have them, and gives the smallest number.
func byRarity(terms []string, posts []int64) (sorted []string, rarest int64) {
	if len(terms) == 0 {
		return nil, 0
	}
	order := make([]int, len(terms))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(posts[a] - posts[b]) })
	for _, i := range order {
		sorted = append(sorted, terms[i])
	}
	return sorted, posts[order[0]]
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
