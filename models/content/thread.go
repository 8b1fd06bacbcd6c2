package content

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gorm.io/gorm"

	"likewise/models"
	"likewise/models/db"
)

// FirstReplies adds to each of comments its first replies, earliest first and at most each of them. It runs one query,
// or more if many replies are hidden.
func (s *Store) FirstReplies(ctx context.Context, viewer int64, comments []models.Comment, each int) error {
	parents := make([]*models.Comment, len(comments))
	for i := range comments {
		parents[i] = &comments[i]
	}
	bounds := branchBounds{each, db.PageBytes, db.MaxPassed / 2}
	if err := s.attachReplies(ctx, viewer, models.CommentsOld, parents, bounds); err != nil {
		return fmt.Errorf("read first replies: %w", err)
	}
	return nil
}

// Thread reads a post's comments level by level, in one query a level, or more if many are hidden. rest is the place
// where the top level continues; nil at its end.
//
// A level may have half of what is left of the limit, rounded up, and the last level all of it. Within a level each
// parent has the same share; if there is not enough for all, only the first parents have one. Content is shared in the
// same way: a level ends when it has used its half of PageBytes. So there is a first comment if the post has any,
// unless too many are passed over. If the post is deleted or never existed, Thread returns CodeNotFound.
//
// With Around, the top level has the topmost ancestor of that comment alone, and each ancestor the next one, down to
// the comment. Below it is what Thread reads of a post. Where the lists of the path continue after it takes one query
// more. If the content of the path exceeds PageBytes, it ends early. Thread returns CodeNotFound if the comment is
// deleted, belongs to another post or never existed.
func (s *Store) Thread(
	ctx context.Context, q models.ThreadQuery,
) (top []models.Comment, rest *models.ListKey, err error) {
	r := threadReader{s, q, branchBounds{q.Limit, db.PageBytes, db.MaxPassed}}
	begin, next := r.top, 2
	if q.Around != 0 {
		begin, next = r.path, 1
	}
	root, level, err := begin(ctx)
	for n := next; err == nil && n <= q.Depth && len(level) > 0 && r.left.comments > 0; n++ {
		level, err = r.below(ctx, level, n)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read the thread of post %d: %w", q.PostID, err)
	}
	return root.Replies, root.RepliesRest(q.Sort), nil
}

// threadReader reads a thread.
type threadReader struct {
	*Store

	q    models.ThreadQuery
	left branchBounds
}

// share returns what a level may have of what is left.
func (r *threadReader) share(level int) branchBounds {
	if level == r.q.Depth {
		return r.left
	}
	return branchBounds{(r.left.comments + 1) / 2, (r.left.bytes + 1) / 2, r.left.passed / 2}
}

// take subtracts the replies to c from what is left, and returns them.
func (r *threadReader) take(c *models.Comment) []*models.Comment {
	taken := make([]*models.Comment, len(c.Replies))
	for i := range c.Replies {
		taken[i] = &c.Replies[i]
		r.left.comments--
		r.left.bytes -= len(taken[i].Content)
	}
	return taken
}

// top reads the top level, as the replies of root.
func (r *threadReader) top(ctx context.Context) (root *models.Comment, level []*models.Comment, err error) {
	bounds := r.share(1)
	q := CommentQuery{ViewerID: r.q.ViewerID, PostID: r.q.PostID, Sort: r.q.Sort, After: r.q.After}
	if root, err = r.readRoot(ctx, q, bounds); err != nil {
		return nil, nil, err
	}
	r.left.passed -= bounds.passed
	return root, r.take(root), nil
}

// below reads the level n, the replies to those of parents that have any.
func (r *threadReader) below(ctx context.Context, parents []*models.Comment, n int) ([]*models.Comment, error) {
	parents = slices.DeleteFunc(parents, func(c *models.Comment) bool { return !c.More })
	if len(parents) == 0 {
		return nil, nil
	}
	bounds := r.share(n)
	parents = parents[:min(len(parents), bounds.comments)]
	bounds.comments /= len(parents)
	if err := r.attachReplies(ctx, r.q.ViewerID, r.q.Sort, parents, bounds); err != nil {
		return nil, fmt.Errorf("level %d: %w", n, err)
	}
	r.left.passed -= bounds.passed
	var level []*models.Comment
	for _, p := range parents {
		level = append(level, r.take(p)...)
	}
	return level, nil
}

// path reads the ancestors of the comment Around and the comment, each as the only reply of the one above, and the
// topmost as that of root. It returns the comment as a level; none if its path ends early.
func (r *threadReader) path(ctx context.Context) (root *models.Comment, level []*models.Comment, err error) {
	path, err := r.pathTo(ctx, pathQuery{viewer: r.q.ViewerID, id: r.q.Around, postID: r.q.PostID, self: true,
		limit: models.MaxDepth})
	if err != nil {
		return nil, nil, err
	}
	topLevel := CommentQuery{PostID: r.q.PostID}
	branches := make([]branch, len(path))
	for i := range path {
		if i == 0 {
			branches[i] = topLevel.branch()
		} else {
			branches[i] = repliesTo(&path[i-1])
		}
		key := path[i].Key(r.q.Sort)
		branches[i].after = &key
		r.left.bytes -= len(path[i].Content)
	}
	// No comment more of each branch, and no content: only whether there is one.
	bounds := branchBounds{passed: r.left.passed / 2}
	after, err := r.readBranches(ctx, r.q.ViewerID, r.q.Sort, branches, bounds)
	if err != nil {
		return nil, nil, err
	}
	r.left.passed -= bounds.passed
	root = &models.Comment{}
	last := root
	for i := range path {
		last.Replies = path[i : i+1 : i+1]
		attachReplies(last, after[i], 0)
		last = &path[i]
	}
	if last.ID != r.q.Around {
		return root, nil, nil
	}
	return root, []*models.Comment{last}, nil
}

// readRoot reads a part of the list that q selects, as the replies of a comment. The limit is in bounds.
func (s *Store) readRoot(ctx context.Context, q CommentQuery, bounds branchBounds) (*models.Comment, error) {
	pages, err := s.readBranches(ctx, q.ViewerID, q.Sort, []branch{q.branch()}, bounds)
	if err != nil {
		return nil, err
	}
	if len(pages[0].found) == 0 && pages[0].rest == nil {
		if err := s.commentListOpen(ctx, q); err != nil {
			return nil, err
		}
	}
	root := &models.Comment{}
	attachReplies(root, pages[0], bounds.comments)
	return root, nil
}

// attachReplies reads the first replies, within bounds, to each of those parents that have more.
func (s *Store) attachReplies(ctx context.Context, viewer int64, sort models.CommentSort, parents []*models.Comment,
	bounds branchBounds,
) error {
	parents = slices.DeleteFunc(slices.Clone(parents), func(p *models.Comment) bool { return !p.More })
	pages, ok, err := s.readFew(ctx, viewer, sort, parents, bounds)
	if err != nil {
		return err
	}
	if !ok {
		branches := make([]branch, len(parents))
		for i, p := range parents {
			branches[i] = repliesTo(p)
		}
		if pages, err = s.readBranches(ctx, viewer, sort, branches, bounds); err != nil {
			return err
		}
	}
	for i, p := range parents {
		attachReplies(p, pages[i], bounds.comments)
	}
	return nil
}

// fewHidden is how many hidden replies readFew reads, beyond those that the parents count.
const fewHidden = 100

// readFew reads all replies to parents along one range of the index, if they are not more than the branches of
// readBranches may read. That takes a third of the time: the server plans one SELECT and not one for each parent. ok is
// false if there are too many, or if their content does not fit within the bounds.
func (s *Store) readFew(ctx context.Context, viewer int64, sort models.CommentSort, parents []*models.Comment,
	bounds branchBounds,
) (pages []branchPage, ok bool, err error) {
	most, expected := bounds.comments+1, 0
	ids, places := make([]int64, len(parents)), make(map[int64]int, len(parents))
	for i, p := range parents {
		expected += int(p.RepliesCount)
		ids[i], places[p.ID] = p.ID, i
		if p.PostID != parents[0].PostID {
			return nil, false, nil
		}
	}
	if len(parents) < 2 || expected < len(parents) || expected > most*len(parents) {
		return nil, false, nil
	}
	limit := expected + min(fewHidden, bounds.passed)
	o := orderOf(sort)
	inner := `
		SELECT c.id, c.parent_id AS branch, ` + o.column + ` AS place,
			IF(c.status=` + db.SQLNormal + `, LENGTH(c.content), 0) AS size,
			` + commentShown + ` AS shown
		FROM comments c FORCE INDEX (` + o.index + `)
		WHERE c.post_id=? AND c.parent_id IN (` + db.JoinIDs(ids) + `)
		ORDER BY c.parent_id` + o.direction + `, ` + o.column + o.direction + `, c.id` + o.direction + `
		LIMIT ` + strconv.Itoa(limit+1)
	var found []foundComment
	query := s.shownQuery(ctx, o, inner, max(0, bounds.bytes), "x.entries>"+strconv.Itoa(limit),
		viewer, viewer, parents[0].PostID)
	if err := query.Scan(&found).Error; err != nil {
		return nil, false, err
	}
	size := 0
	pages = make([]branchPage, len(parents))
	for i := range found {
		f := &found[i]
		if f.Entries > limit || f.Cut {
			return nil, false, nil
		}
		size += db.CommentSize(&f.Comment)
		if page := &pages[places[f.Branch]]; len(page.found) < most {
			page.found = append(page.found, *f)
		}
	}
	return pages, true, db.Spend(ctx, size)
}

// attachReplies makes the first comments of a page the replies of c: at most size, and none from the first one that did
// not fit.
func attachReplies(c *models.Comment, page branchPage, size int) {
	for i, f := range page.found {
		if c.More = i == size || f.Cut; c.More {
			return
		}
		c.Replies = append(c.Replies, f.Comment)
	}
	c.More, c.Rest = page.rest != nil, page.rest
}

// branch is one list of comments c.
type branch struct {
	from     string // the tables, with %s for comments c
	fromArgs []any
	where    db.Conditions
	after    *models.ListKey // nil for the beginning
}

// branch returns the list that q selects. It reads the parent or the post by its id first: to the servers, a row that
// is read by its id is a constant, with which they find the place in the index.
func (q *CommentQuery) branch() branch {
	if q.ParentID != 0 {
		return branch{
			from: `comments o
			JOIN posts p ON p.id=o.post_id AND p.status=?
			JOIN %s ON c.post_id=o.post_id AND c.parent_id=o.id`,
			fromArgs: []any{models.StatusNormal}, where: db.Matching("o.id=?", q.ParentID), after: q.After,
		}
	}
	level := " AND c.parent_id IS NULL"
	if q.Sort.Flat() {
		level = ""
	}
	return branch{
		from: `posts p
			JOIN %s ON c.post_id=p.id` + level,
		where: db.Matching("p.id=? AND p.status=?", q.PostID, models.StatusNormal), after: q.After,
	}
}

// repliesTo returns the list of replies to a comment.
func repliesTo(p *models.Comment) branch {
	return branch{from: "%s", where: db.Matching("c.post_id=? AND c.parent_id=?", p.PostID, p.ID)}
}

// foundComment is an entry of a branch. It has no text if the comment did not fit or is not shown.
type foundComment struct {
	models.Comment `gorm:"embedded"`
	Cut            bool
	Shown          bool
	Branch         int64 // index of the branch, or the parent's id
	Entry          int   // number of the entry in the branch, from 1
	Entries        int   // of all branches
}

// branchPage is the part of a branch that was read.
type branchPage struct {
	found []foundComment
	// rest is the last entry that was examined, if the page is short because entries were passed over. It is nil at the
	// end of the list.
	rest *models.ListKey
}

// branchBounds bounds a read of branches.
type branchBounds struct {
	comments int // of each branch; one more is read, to find whether the list continues
	bytes    int // of content, in all branches
	passed   int // entries to examine in all branches, beyond the first ones that comments allows
}

// readBranches reads the first comments of several lists that the viewer sees. One statement has a limited SELECT along
// the index for each list. Lists whose hidden comments make the page short are read further, in segments that grow.
// Content that does not fit within the bounds is not read.
func (s *Store) readBranches(ctx context.Context, viewer int64, sort models.CommentSort, branches []branch,
	bounds branchBounds,
) ([]branchPage, error) {
	pages := make([]branchPage, len(branches))
	short := make([]int, len(branches)) // the branches to read
	for i := range short {
		short[i] = i
	}
	limit := bounds.comments + 1
	for entries := limit; len(short) > 0 && entries > 0; {
		segments := make([]branch, len(short))
		for i, n := range short {
			segments[i] = branches[n]
			if pages[n].rest != nil {
				segments[i].after, pages[n].rest = pages[n].rest, nil
			}
		}
		var found []foundComment
		query := s.branchQuery(ctx, viewer, sort, segments, entries, max(0, bounds.bytes))
		if err := query.Scan(&found).Error; err != nil {
			return nil, err
		}
		size := 0
		var still []int
		for i := range found {
			f := &found[i]
			size += db.CommentSize(&f.Comment)
			n := short[f.Branch]
			page := &pages[n]
			if f.Shown && len(page.found) < limit {
				page.found = append(page.found, *f)
			}
			if f.Entry == entries && len(page.found) < limit && !page.isCut() {
				key := f.Key(sort)
				page.rest = &key
				still = append(still, n)
			}
		}
		if err := db.Spend(ctx, size); err != nil {
			return nil, err
		}
		bounds.bytes -= size
		if short = still; len(short) > 0 {
			entries = min(4*entries, bounds.passed/len(short))
			bounds.passed -= entries * len(short)
		}
	}
	return pages, nil
}

// isCut reports whether a comment of the page did not fit.
func (p *branchPage) isCut() bool {
	return slices.ContainsFunc(p.found, func(f foundComment) bool { return f.Cut })
}

// branchQuery returns the query of readBranches. It examines the first entries of each branch and returns those that
// the list shows. The last entry is returned in any case if a branch has that many.
func (s *Store) branchQuery(ctx context.Context, viewer int64, sort models.CommentSort, branches []branch, entries,
	room int,
) *gorm.DB {
	o := orderOf(sort)
	parts := make([]string, len(branches))
	args := []any{viewer}
	for i, b := range branches {
		where := b.where.Clone()
		if b.after != nil {
			// With two ranges on the index, entries of the same value that were read already are not read again.
			where.Add(fmt.Sprintf("(%[1]s%[2]s%[3]s OR %[1]s=%[3]s AND c.id%[2]s?)", o.column, o.later, o.value),
				b.after.Value, b.after.Value, b.after.ID)
		}
		args = slices.Concat(args, []any{viewer}, b.fromArgs, where.Args)
		parts[i] = `(
			SELECT c.id, ` + strconv.Itoa(i) + ` AS branch, ` + o.column + ` AS place,
				IF(c.status=` + db.SQLNormal + `, LENGTH(c.content), 0) AS size,
				` + commentShown + ` AS shown
			FROM ` + fmt.Sprintf(b.from, "comments c FORCE INDEX ("+o.index+")") + `
			` + where.Clause() + `
			ORDER BY ` + o.column + o.direction + `, c.id` + o.direction + `
			LIMIT ` + strconv.Itoa(entries) + `
		)`
	}
	return s.shownQuery(ctx, o, strings.Join(parts, " UNION ALL "), room, "x.entry="+strconv.Itoa(entries), args...)
}

// shownQuery returns the query of those entries of branches that a list shows, and of those that also selects. Inner
// selects the entries. The first argument is the viewer's id.
func (s *Store) shownQuery(ctx context.Context, o order, inner string, room int, also string, args ...any) *gorm.DB {
	fits := "x.total<=" + strconv.Itoa(room)
	columns := strings.Replace(CommentColumns, "c.content",
		"IF(x.shown AND c.status="+db.SQLNormal+" AND "+fits+", c.content, '') AS content", 1)
	byPlace := "y.place" + o.direction + ", y.id" + o.direction
	return s.Read(ctx).Raw(`
		SELECT `+columns+`,
			NOT `+fits+` AS cut, x.shown, x.branch, x.entry, x.entries
		FROM (
			SELECT y.id, y.branch, y.place, y.shown, COUNT(*) OVER () AS entries,
				SUM(IF(y.shown, y.size, 0)) OVER (ORDER BY y.branch, `+byPlace+` ROWS UNBOUNDED PRECEDING) AS total,
				ROW_NUMBER() OVER (PARTITION BY y.branch ORDER BY `+byPlace+`) AS entry
			FROM (`+inner+`) y
		) x
		JOIN comments c ON c.id=x.id
		JOIN users u ON u.id=c.user_id
		WHERE x.shown OR `+also+`
		ORDER BY x.branch, x.place`+o.direction+`, x.id`+o.direction, args...)
}

// Ancestors reads the chain of parents of a comment, from the top level down: at most limit comments below the ancestor
// with the id after (0 for the first page). A comment of the top level has none. Ancestors runs two queries. It returns
// CodeNotFound as CommentByID does.
func (s *Store) Ancestors(ctx context.Context, viewer, id, after int64, limit int) ([]models.Comment, error) {
	return s.pathTo(ctx, pathQuery{viewer: viewer, id: id, after: after, limit: limit})
}

// pathQuery selects comments of the path from the top level down to a comment.
type pathQuery struct {
	viewer int64
	id     int64 // of the comment
	postID int64 // of its post; 0 for any
	self   bool  // the path includes the comment, as one that the viewer has asked for
	after  int64 // the ancestor after which it begins; 0 for the top level
	limit  int
}

// pathTo reads a path as Ancestors does.
func (s *Store) pathTo(ctx context.Context, q pathQuery) ([]models.Comment, error) {
	var postID int64
	err := s.Read(ctx).Raw(`
		SELECT c.post_id
		FROM comments c
		JOIN posts p ON p.id=c.post_id AND p.status=?
		WHERE c.id=? AND c.status=?`, models.StatusNormal, q.id, models.StatusNormal).Scan(&postID).Error
	if err != nil {
		return nil, fmt.Errorf("read comment %d: %w", q.id, err)
	}
	if postID == 0 || q.postID != 0 && q.postID != postID {
		return nil, models.NotFound(models.KindComment)
	}
	least := 1
	if q.self {
		least = 0
	}
	size := func(c *models.Comment) int {
		c.Blocked = c.Blocked && c.ID != q.id // who asks for it wants to read it
		return db.CommentSize(c)
	}
	// Ordered by the steps up, so that a wrong depth does not change the result.
	path, _, err := db.ScanPage(s.Read(ctx).Raw(`
		WITH RECURSIVE up (id, parent_id, step) AS (
			SELECT id, parent_id, 0 FROM comments WHERE id=?
			UNION ALL
			SELECT a.id, a.parent_id, up.step+1 FROM up JOIN comments a ON a.id=up.parent_id
		)
		SELECT `+CommentColumns+`
		FROM up
		JOIN comments c ON c.id=up.id
		JOIN users u ON u.id=c.user_id
		WHERE up.step>=? AND (?=0 OR up.step<(SELECT last.step FROM up last WHERE last.id=?))
		ORDER BY up.step DESC
		LIMIT ?`, q.id, q.viewer, least, q.after, q.after, q.limit), db.PageBytes, size)
	if err != nil {
		return nil, fmt.Errorf("read ancestors of comment %d: %w", q.id, err)
	}
	return path, nil
}
