package content

import (
	"context"
	"fmt"
	"slices"
	"time"

	"likewise/models"
	"likewise/models/db"
	"likewise/models/search"
)

// PostQuery selects the posts of a list.
type PostQuery struct {
	ViewerID int64 // 0 for the anonymous
	View     PostView
	Sort     models.PostSort
	AuthorID int64           // 0 for all
	Tag      string          // see NormalTag; "" for all
	Terms    []string        // see search.QueryTerms; a post must have all of them
	Pinned   bool            // only pinned posts, at most MaxPinned
	Except   []int64         // posts that the list leaves out
	Since    time.Time       // created then or later; the zero time for all
	After    *models.ListKey // nil for the first page
	Limit    int
}

// PostPage is the result of ListPosts.
type PostPage struct {
	Posts []models.Post
	// Rest is the place where the list continues, if the page is shorter than the query's Limit. It is nil at the end
	// of the list.
	Rest *models.ListKey
	// Complete reports whether everything was examined that could belong to the page. If not, the list may continue at
	// Rest, or, with PostsRelevance, there may be older posts that the list leaves out.
	Complete bool
	// Total is the number of posts with the tag of the query, if it has no other condition; nil otherwise. Posts of
	// authors whom the viewer blocks are counted.
	Total    *int64
	Examined int // upper bound of the index entries that were read: the cost of the page

	sort  models.PostSort
	floor int64 // the least id in a list by relevance; 0 for none
}

// relevanceBits is the width of a relevance, which is at most search.MaxTerms*search.MaxWeight. A list by relevance
// keeps its floor in its keys, above the relevance, so that all pages are of the same posts.
const relevanceBits = 13

const _ = uint(1<<relevanceBits - 1 - search.MaxTerms*search.MaxWeight)

// Key returns the place of p in the list.
func (page *PostPage) Key(p *models.Post) models.ListKey {
	if page.sort == models.PostsRelevance {
		return models.ListKey{Value: page.floor<<relevanceBits | p.Relevance, ID: p.ID}
	}
	return p.Key(page.sort)
}

// ListPosts lists posts that are not deleted. It runs one query. If there is a viewer, a tag, terms or a window, a
// query before it reads the facts that the plan depends on.
//
// Each order has an index: of all posts, of the posts of an author, and of those of a tag. A list without other
// conditions reads as many entries as the page has posts. A list with conditions walks the index in segments, until the
// page is full or maxExamined entries were read. If one of the conditions matches fewer posts than that, these are read
// and sorted instead. So a page can be shorter than its limit, or empty, and have a Rest.
//
// A search by relevance sorts the posts that match the rarest condition. If these are too many, it sorts the newest
// ones, up to maxExamined lookups, and the page is not Complete.
func (s *Store) ListPosts(ctx context.Context, q PostQuery) (PostPage, error) {
	page := PostPage{Complete: true, sort: q.Sort}
	var facts postFacts
	limit := db.MaxExamined / q.lookups()
	if q.ViewerID != 0 || q.Tag != "" || len(q.Terms) > 0 || q.hasWindow() {
		var err error
		if facts, err = s.postFacts(ctx, q, limit); err != nil {
			return PostPage{}, err
		}
		for _, n := range facts.terms {
			page.Examined += int(n)
		}
		if q.Tag != "" && q.AuthorID == 0 && len(q.Terms) == 0 && q.Since.IsZero() && !q.Pinned {
			page.Total = &facts.TagPosts
		}
		if q.Tag != "" && facts.TagPosts == 0 || slices.Contains(facts.terms, 0) {
			return page, nil
		}
	}
	if err := s.listPosts(ctx, &q, &facts, int64(limit), &page); err != nil {
		return PostPage{}, fmt.Errorf("list posts: %w", err)
	}
	return page, nil
}

func (s *Store) listPosts(ctx context.Context, q *PostQuery, facts *postFacts, limit int64, page *PostPage) error {
	if q.Sort == models.PostsRelevance && q.After != nil {
		page.floor = q.After.Value >> relevanceBits
		q.After = &models.ListKey{Value: q.After.Value & (1<<relevanceBits - 1), ID: q.After.ID}
		page.Complete = page.floor == 0
	}
	by, matches := q.rarest(facts)
	switch {
	case q.Pinned:
		return s.gather(ctx, q, facts, byPinned, models.MaxPinned, page)
	case q.Sort == models.PostsRelevance:
		if matches > limit {
			by = byTerm
			if q.After == nil {
				if err := s.findFloor(ctx, q.byRarity(facts)[0], limit, page); err != nil {
					return err
				}
			}
		}
		return s.gather(ctx, q, facts, by, limit, page)
	case !q.sifts(facts):
		posts, _, err := s.readPosts(ctx, q, q.walk(facts, q.After, nil, q.Limit), db.PageBytes)
		page.Posts, page.Examined = posts, page.Examined+len(posts)
		return err
	}
	// Walking reads about limit*total/matches entries for a full page, gathering reads as many as match.
	total := q.source(facts).total
	if matches > limit || matches*matches > int64(q.Limit)*total {
		full, err := s.siftPosts(ctx, q, facts, min(matches, limit), page)
		if err != nil || full || matches > limit {
			return err
		}
	}
	page.Posts, page.Rest, page.Complete = nil, nil, true
	return s.gather(ctx, q, facts, by, limit, page)
}

// siftPosts walks the index of the order in segments, at most budget entries of it. It reports whether it is done: the
// page is full, or the list ends.
func (s *Store) siftPosts(ctx context.Context, q *PostQuery, facts *postFacts, budget int64, page *PostPage,
) (done bool, err error) {
	after, room := q.After, db.PageBytes
	for size := int64(db.FirstSegment); budget > 0; size *= 4 {
		size = min(size, budget)
		budget -= size
		until, err := s.postBoundary(ctx, q, facts, after, size)
		if err != nil {
			return false, err
		}
		plan := q.walk(facts, after, until, q.Limit-len(page.Posts))
		var posts []models.Post
		if posts, room, err = s.readPosts(ctx, q, plan, room); err != nil {
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

// postBoundary returns the last of the next size entries after a key in the index of the order; nil if there are fewer.
func (s *Store) postBoundary(ctx context.Context, q *PostQuery, facts *postFacts, after *models.ListKey, size int64,
) (*models.ListKey, error) {
	src, order := q.source(facts), postOrders[q.Sort]
	column := src.column(order.column)
	where := q.segment(&src, after, nil)
	query := `
		SELECT ` + fmt.Sprintf(order.read, column) + ` AS value, ` + src.id + ` AS id
		FROM ` + src.from(q.Sort) + `
		` + where.Clause() + `
		ORDER BY ` + column + ` DESC, ` + src.id + ` DESC
		LIMIT 1 OFFSET ?`
	var keys []models.ListKey
	err := s.Read(ctx).Raw(query, append(where.Args, size-1)...).Scan(&keys).Error
	if err != nil || len(keys) == 0 {
		return nil, err
	}
	return &keys[0], nil
}

// findFloor finds the least id among the newest posts with a term, if a search by relevance does not rank all of them.
func (s *Store) findFloor(ctx context.Context, term string, limit int64, page *PostPage) error {
	const query = `
		SELECT post_id
		FROM post_terms FORCE INDEX (PRIMARY)
		WHERE term=?
		ORDER BY post_id DESC
		LIMIT 1 OFFSET ?`
	var ids []int64
	err := s.Read(ctx).Raw(query, term, limit-1).Scan(&ids).Error
	if err == nil && len(ids) > 0 {
		page.floor, page.Complete = ids[0], false
		page.Examined += int(limit)
	}
	return err
}

// gather reads at most as many posts as most that match a condition, and sorts those that match the query.
func (s *Store) gather(ctx context.Context, q *PostQuery, facts *postFacts, by postCondition, limit int64,
	page *PostPage,
) error {
	p := q.gathering(facts, by, limit, page.floor)
	posts, _, err := s.readPosts(ctx, q, p, db.PageBytes)
	_, matches := q.rarest(facts)
	page.Posts, page.Examined = posts, page.Examined+int(min(matches, limit))*q.lookups()
	return err
}

// readPosts runs a plan and reads up to room bytes of content, as scanPage does. Posts that must be sorted are sorted
// as ids, before their texts are read.
func (s *Store) readPosts(ctx context.Context, q *PostQuery, p *postPlan, room int,
) (posts []models.Post, left int, err error) {
	query, args := p.query(q.View, q.ViewerID)
	return db.ScanPage(s.Read(ctx).Raw(query, args...), room, db.PostSize)
}
