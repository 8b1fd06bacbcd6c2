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

// CommentPage is the result of FindComments. Its fields mean what those of PostPage mean.
type CommentPage struct {
	Comments []models.FoundComment
	Rest     *models.ListKey
	Complete bool
	Examined int

	sort  models.PostSort
	floor int64
}

// Key returns the place of c in the list.
func (page *CommentPage) Key(c *models.FoundComment) models.ListKey {
	if page.sort == models.PostsRelevance {
		return models.ListKey{Value: page.floor<<relevanceBits | c.Relevance, ID: c.Comment.ID}
	}
	return models.ListKey{ID: c.Comment.ID}
}

// FindComments searches the comments that are not deleted, on posts that are not deleted. It leaves out comments and
// posts of authors whom the viewer blocks. Like a search of posts, it reads at most maxExamined index entries. By
// relevance it ranks the newest comments with the rarest term, so a page of a common word is not Complete. The latest
// first are found in segments of the index until the page is full; a shorter page has a Rest.
func (s *Store) FindComments(ctx context.Context, q models.CommentSearch) (CommentPage, error) {
	page := CommentPage{Complete: true, sort: q.Sort}
	limit := db.MaxExamined / len(q.Terms)
	counts, err := s.countTerms(ctx, q.Terms, limit)
	if err != nil {
		return page, err
	}
	order := make([]int, len(q.Terms))
	for i := range order {
		order[i] = i
		page.Examined += int(counts[i])
	}
	slices.SortStableFunc(order, func(a, b int) int { return int(counts[a] - counts[b]) })
	terms := make([]string, len(order))
	for i, term := range order {
		terms[i] = q.Terms[term]
	}
	rarest := int(counts[order[0]])
	if rarest == 0 {
		return page, nil
	}
	q.Terms = terms
	if q.Sort == models.PostsRelevance {
		err = s.rankComments(ctx, &q, rarest, limit, &page)
	} else {
		err = s.walkComments(ctx, &q, limit, &page)
	}
	if err != nil {
		return page, fmt.Errorf("search comments: %w", err)
	}
	return page, nil
}

// countTerms counts the comments that have each of the terms. Each count stops at most+1.
func (s *Store) countTerms(ctx context.Context, terms []string, limit int) ([]int64, error) {
	columns, args := make([]string, len(terms)), make([]any, len(terms))
	for i, term := range terms {
		columns[i] = fmt.Sprintf(
			"(SELECT COUNT(*) FROM (SELECT 1 FROM comment_terms WHERE term=? LIMIT %d) n)", limit+1)
		args[i] = term
	}
	query := `
		SELECT CONCAT_WS(' ', ` + strings.Join(columns, ", ") + `)`
	var text string
	if err := s.Read(ctx).Raw(query, args...).Scan(&text).Error; err != nil {
		return nil, fmt.Errorf("count comments: %w", err)
	}
	counts := make([]int64, 0, len(terms))
	for word := range strings.FieldsSeq(text) {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("count comments: %w", err)
		}
		counts = append(counts, n)
	}
	return counts, nil
}

// rankComments reads a page by relevance. If more than most comments have the rarest term, it ranks the newest ones,
// from a floor on that all pages of the list have in common.
func (s *Store) rankComments(ctx context.Context, q *models.CommentSearch, rarest, limit int, page *CommentPage) error {
	after := q.After
	switch {
	case after != nil:
		page.floor = after.Value >> relevanceBits
		after = &models.ListKey{Value: after.Value & (1<<relevanceBits - 1), ID: after.ID}
	case rarest > limit:
		last, err := s.termBoundary(ctx, q.Terms[0], nil, limit)
		if err != nil {
			return err
		}
		if last != nil {
			page.floor = last.ID
		}
	}
	page.Complete = page.floor == 0
	page.Examined += min(rarest, limit) * len(q.Terms)
	among := db.Matching("term=?", q.Terms[0])
	among.AddIf(page.floor > 0, "comment_id>=?", page.floor)
	var where db.Conditions
	score := relevance(len(q.Terms))
	if between, keys := db.KeyRange(score, "?", "t0.comment_id", after, nil); between != "" {
		where.Add(between, keys...)
	}
	// From a floor on, the oldest are taken: comments that were written since the first page are not in the list.
	direction := "DESC"
	if page.floor > 0 {
		direction = "ASC"
	}
	var err error
	page.Comments, _, err = s.readFound(ctx, q, among, limit, direction, where, score+" DESC, ", q.Limit, db.PageBytes)
	return err
}

// walkComments reads a page of the latest comments.
func (s *Store) walkComments(ctx context.Context, q *models.CommentSearch, most int, page *CommentPage) error {
	after, room := q.After, db.PageBytes
	for size := db.FirstSegment; most > 0; size *= 4 {
		size = min(size, most)
		most -= size
		until, err := s.termBoundary(ctx, q.Terms[0], after, size)
		if err != nil {
			return err
		}
		among := db.Matching("term=?", q.Terms[0])
		if after != nil {
			among.Add("comment_id<?", after.ID)
		}
		if until != nil {
			among.Add("comment_id>=?", until.ID)
		}
		var found []models.FoundComment
		limit := q.Limit - len(page.Comments)
		found, room, err = s.readFound(ctx, q, among, size, "DESC", db.Conditions{}, "", limit, room)
		if err != nil {
			return err
		}
		page.Comments = append(page.Comments, found...)
		page.Examined += size * len(q.Terms)
		if room < 0 || len(page.Comments) == q.Limit || until == nil {
			return nil
		}
		after = until
	}
	page.Rest, page.Complete = after, false
	return nil
}

// termBoundary returns the last of the next n comments with a term, the latest first; nil if there are fewer.
func (s *Store) termBoundary(ctx context.Context, term string, after *models.ListKey, n int) (*models.ListKey, error) {
	where := db.Matching("term=?", term)
	if after != nil {
		where.Add("comment_id<?", after.ID)
	}
	query := `
		SELECT comment_id
		FROM comment_terms FORCE INDEX (PRIMARY)
		` + where.Clause() + `
		ORDER BY comment_id DESC
		LIMIT 1 OFFSET ?`
	var ids []int64
	err := s.Read(ctx).Raw(query, append(where.Args, n-1)...).Scan(&ids).Error
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	return &models.ListKey{ID: ids[0]}, nil
}

// readFound reads up to limit comments that have all terms, and up to room bytes of their content: of the comments with
// the rarest term that are among, at most as many as most, in this direction of ids. They come in this order, and the
// latest first.
func (s *Store) readFound(
	ctx context.Context, q *models.CommentSearch, among db.Conditions, most int, direction string, where db.Conditions,
	order string, limit, room int,
) (found []models.FoundComment, left int, err error) {
	joins := ""
	args := append([]any{q.ViewerID}, among.Args...)
	args = append(args, most)
	for i, term := range q.Terms[1:] {
		joins += fmt.Sprintf(`
			STRAIGHT_JOIN comment_terms t%[1]d ON t%[1]d.comment_id=t0.comment_id AND t%[1]d.term=?`, i+1)
		args = append(args, term)
	}
	where.Add("c.status=?", models.StatusNormal)
	where.Add("p.status=?", models.StatusNormal)
	where.Add(db.NotBlocked("c.user_id"), q.ViewerID)
	where.Add(db.NotBlocked("p.user_id"), q.ViewerID)
	outer := strings.Replace(order, relevance(len(q.Terms)), "o.relevance", 1)
	query := `
		SELECT ` + CommentColumns + `, p.title AS post_title, o.relevance
		FROM (
			SELECT t0.comment_id AS id, ` + relevance(len(q.Terms)) + ` AS relevance
			FROM (
				SELECT comment_id, weight
				FROM comment_terms FORCE INDEX (PRIMARY)
				` + among.Clause() + `
				ORDER BY comment_id ` + direction + `
				LIMIT ?
			) t0` + joins + `
			STRAIGHT_JOIN comments c FORCE INDEX (PRIMARY) ON c.id=t0.comment_id
			STRAIGHT_JOIN posts p FORCE INDEX (PRIMARY) ON p.id=c.post_id
			` + where.Clause() + `
			ORDER BY ` + order + `t0.comment_id DESC
			LIMIT ` + strconv.Itoa(limit) + `
		) o
		STRAIGHT_JOIN comments c FORCE INDEX (PRIMARY) ON c.id=o.id
		STRAIGHT_JOIN posts p FORCE INDEX (PRIMARY) ON p.id=c.post_id
		STRAIGHT_JOIN users u FORCE INDEX (PRIMARY) ON u.id=c.user_id
		ORDER BY ` + outer + `o.id DESC`
	args = append(args, where.Args...)
	size := func(c *models.FoundComment) int { return db.CommentSize(&c.Comment) }
	return db.ScanPage(s.Read(ctx).Raw(query, args...), room, size)
}
