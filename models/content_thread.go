package models

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gorm.io/gorm"
)

// FirstReplies reads the first replies to each of comments, earliest first and at most each of them, in one query, or
// more if many are hidden.
func (s *Store) FirstReplies(ctx context.Context, viewer int64, comments []Comment, each int) error {
	parents := make([]*Comment, len(comments))
	for i := range comments {
		parents[i] = &comments[i]
	}
	if err := s.attachReplies(ctx, viewer, CommentsOld, parents, branchBounds{each, PageBytes, maxPassed / 2}); err != nil {
		return fmt.Errorf("read first replies: %w", err)
	}
	return nil
}

// ThreadQuery says which part of a post's comments to read as a tree.
type ThreadQuery struct {
	ViewerID int64 // 0 for the anonymous
	PostID   int64
	Sort     CommentSort // of every level
	After    *ListKey    // of the top level; nil for its beginning
	Depth    int         // levels at most, from 1
	Limit    int         // comments at most, from 1
}

// Thread reads a post's comments level by level, in one query a level, or more if many are hidden. rest is where the top
// level continues; nil for its end. A level gets half of what is left of the limit, rounded up, and the last one all of
// it; within a level each parent gets the same share, the first parents alone when there is not enough for all. Content
// is shared out the same way: a level ends where its half of PageBytes is used up. So there is always a first comment,
// if the post has any at the place, unless too many are passed over. CodeNotFound: the post is gone.
func (s *Store) Thread(ctx context.Context, q ThreadQuery) (top []Comment, rest *ListKey, err error) {
	left := branchBounds{q.Limit, PageBytes, maxPassed}
	share := func(level int) branchBounds {
		if level == q.Depth {
			return left
		}
		return branchBounds{(left.comments + 1) / 2, (left.bytes + 1) / 2, left.passed / 2}
	}
	take := func(c *Comment) {
		left.comments--
		left.bytes -= len(c.Content)
	}
	bounds := share(1)
	root, err := s.readRoot(ctx, CommentQuery{ViewerID: q.ViewerID, PostID: q.PostID, Sort: q.Sort, After: q.After}, bounds)
	if err != nil {
		return nil, nil, fmt.Errorf("read the thread of post %d: %w", q.PostID, err)
	}
	left.passed -= bounds.passed
	var level []*Comment
	for i := range root.Replies {
		level = append(level, &root.Replies[i])
		take(level[i])
	}
	for n := 2; n <= q.Depth && left.comments > 0; n++ {
		parents := slices.DeleteFunc(level, func(c *Comment) bool { return !c.More })
		if len(parents) == 0 {
			break
		}
		bounds := share(n)
		parents = parents[:min(len(parents), bounds.comments)]
		bounds.comments /= len(parents)
		if err := s.attachReplies(ctx, q.ViewerID, q.Sort, parents, bounds); err != nil {
			return nil, nil, fmt.Errorf("read level %d of the thread of post %d: %w", n, q.PostID, err)
		}
		left.passed -= bounds.passed
		level = nil
		for _, p := range parents {
			for i := range p.Replies {
				level = append(level, &p.Replies[i])
				take(&p.Replies[i])
			}
		}
	}
	return root.Replies, root.RepliesRest(q.Sort), nil
}

// readRoot reads a piece of the list that q asks for, whose limit is in the bounds, as the replies of a comment.
func (s *Store) readRoot(ctx context.Context, q CommentQuery, bounds branchBounds) (*Comment, error) {
	pages, err := s.readBranches(ctx, q.ViewerID, q.Sort, []branch{q.branch()}, bounds)
	if err != nil {
		return nil, err
	}
	if len(pages[0].found) == 0 && pages[0].rest == nil {
		if err := s.commentListOpen(ctx, q); err != nil {
			return nil, err
		}
	}
	root := &Comment{}
	root.attach(pages[0], bounds.comments)
	return root, nil
}

// attachReplies reads the first replies to each of parents that has more, within bounds.
func (s *Store) attachReplies(ctx context.Context, viewer int64, sort CommentSort, parents []*Comment, bounds branchBounds) error {
	parents = slices.DeleteFunc(slices.Clone(parents), func(p *Comment) bool { return !p.More })
	branches := make([]branch, len(parents))
	for i, p := range parents {
		branches[i] = branch{from: "%s", where: "c.post_id=? AND c.parent_id=?", args: []any{p.PostID, p.ID}}
	}
	pages, err := s.readBranches(ctx, viewer, sort, branches, bounds)
	if err != nil {
		return err
	}
	for i, p := range parents {
		p.attach(pages[i], bounds.comments)
	}
	return nil
}

// attach makes the first of a page the replies of c, up to size of them or to the first one that did not fit.
func (c *Comment) attach(page branchPage, size int) {
	for i, f := range page.found {
		if c.More = i == size || f.Cut; c.More {
			return
		}
		c.Replies = append(c.Replies, f.Comment)
	}
	c.More, c.Rest = page.rest != nil, page.rest
}

// RepliesRest returns where the list of replies of c, sorted by sort, continues after those that were read; nil for its
// end. It is the zero ListKey if none was.
func (c *Comment) RepliesRest(sort CommentSort) *ListKey {
	switch {
	case !c.More:
		return nil
	case c.Rest != nil:
		return c.Rest
	case len(c.Replies) == 0:
		return &ListKey{}
	}
	key := c.Replies[len(c.Replies)-1].Key(sort)
	return &key
}

// branch is one list of comments c.
type branch struct {
	from  string // the tables, with %s for comments c
	where string
	args  []any
	after *ListKey // nil for the beginning
}

// branch is the list that q asks for. It reads the comment or the post that the list is about first: what is read from
// one row by its id is a constant to the servers, with which they find their place in the index.
func (q *CommentQuery) branch() branch {
	if q.ParentID != 0 {
		return branch{
			from:  "comments o JOIN posts p ON p.id=o.post_id AND p.status=1 JOIN %s ON c.post_id=o.post_id AND c.parent_id=o.id",
			where: "o.id=?", args: []any{q.ParentID}, after: q.After,
		}
	}
	return branch{
		from:  "posts p JOIN %s ON c.post_id=p.id AND c.parent_id IS NULL",
		where: "p.id=? AND p.status=1", args: []any{q.PostID}, after: q.After,
	}
}

// foundComment is a comment, or no more than the fact that there is one, where it did not fit or is not in the list.
type foundComment struct {
	Comment `gorm:"embedded"`
	Cut     bool
	Shown   bool
	Branch  int // its place among the branches
	Entry   int // its place among the entries of the branch, from 1
}

// branchPage is what was read of a branch.
type branchPage struct {
	found []foundComment
	// rest is the last entry that was looked at, if those that are passed over make the page short; nil for the list's end.
	rest *ListKey
}

// branchBounds bounds a read of branches.
type branchBounds struct {
	comments int // of each branch; one more is read, to find whether the list goes on
	bytes    int // of content in all
	passed   int // entries in all that are looked at, besides as many of each branch as it may have comments
}

// readBranches reads the first comments of several lists that the viewer sees, one list after the other. For each list it
// is a limited SELECT along the index, all of them in one statement. Lists of which that passed over some are read
// further, in segments that grow. Content that does not fit within the bounds is not read.
func (s *Store) readBranches(ctx context.Context, viewer int64, sort CommentSort, branches []branch, bounds branchBounds) ([]branchPage, error) {
	pages := make([]branchPage, len(branches))
	short := make([]int, len(branches)) // the branches to read
	for i := range short {
		short[i] = i
	}
	most := bounds.comments + 1
	for entries := most; len(short) > 0 && entries > 0; {
		segments := make([]branch, len(short))
		for i, n := range short {
			segments[i] = branches[n]
			if pages[n].rest != nil {
				segments[i].after, pages[n].rest = pages[n].rest, nil
			}
		}
		var found []foundComment
		if err := s.branchQuery(ctx, viewer, sort, segments, entries, max(0, bounds.bytes)).Scan(&found).Error; err != nil {
			return nil, err
		}
		size := 0
		var still []int
		for i := range found {
			f := &found[i]
			size += commentSize(&f.Comment)
			n := short[f.Branch]
			page := &pages[n]
			if f.Shown && len(page.found) < most {
				page.found = append(page.found, *f)
			}
			if f.Entry == entries && len(page.found) < most && !slices.ContainsFunc(page.found, func(f foundComment) bool { return f.Cut }) {
				key := f.Key(sort)
				page.rest = &key
				still = append(still, n)
			}
		}
		if err := hold(ctx, size); err != nil {
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

// branchQuery is the query of readBranches. It looks at the first entries of each branch, as many as that, and returns
// those that are in the list, and the last one in any case, if there are so many.
func (s *Store) branchQuery(ctx context.Context, viewer int64, sort CommentSort, branches []branch, entries, room int) *gorm.DB {
	o := sort.order()
	parts := make([]string, len(branches))
	args := []any{viewer}
	for i, b := range branches {
		where := b.where
		args = append(append(args, viewer), b.args...)
		if b.after != nil {
			// Two ranges on the index, so that not even those of the same value are read that were seen already.
			where += " AND (" + o.column + o.later + o.value + " OR " + o.column + "=" + o.value + " AND c.id" + o.later + "?)"
			args = append(args, b.after.Value, b.after.Value, b.after.ID)
		}
		parts[i] = `(
	SELECT c.id, ` + strconv.Itoa(i) + ` AS branch, ` + o.column + ` AS place, IF(c.status=1, LENGTH(c.content), 0) AS size, ` + commentShown + ` AS shown
	FROM ` + fmt.Sprintf(b.from, "comments c FORCE INDEX ("+o.index+")") + `
	WHERE ` + where + `
	ORDER BY ` + o.column + o.direction + `, c.id` + o.direction + `
	LIMIT ` + strconv.Itoa(entries) + `
)`
	}
	within := "ORDER BY y.place" + o.direction + ", y.id" + o.direction
	fits := "x.total<=" + strconv.Itoa(room)
	columns := strings.Replace(commentColumns, "c.content", "IF(x.shown AND c.status=1 AND "+fits+", c.content, '') AS content", 1)
	return s.db.WithContext(ctx).Raw(`
SELECT `+columns+`, NOT `+fits+` AS cut, x.shown, x.branch, x.entry
FROM (
	SELECT y.id, y.branch, y.place, y.shown,
		SUM(IF(y.shown, y.size, 0)) OVER (ORDER BY y.branch, y.place`+o.direction+`, y.id`+o.direction+` ROWS UNBOUNDED PRECEDING) AS total,
		ROW_NUMBER() OVER (PARTITION BY y.branch `+within+`) AS entry
	FROM (`+strings.Join(parts, " UNION ALL ")+`) y
) x
JOIN comments c ON c.id=x.id
JOIN users u ON u.id=c.user_id
WHERE x.shown OR x.entry=`+strconv.Itoa(entries)+`
ORDER BY x.branch, x.place`+o.direction+`, x.id`+o.direction, args...)
}

// Ancestors reads what a comment replies to, what that replies to, and so on, from the top level down: at most limit
// below the ancestor with the id after (0 for the first page), in two queries; nothing for a comment of the top level.
// CodeNotFound as CommentByID.
func (s *Store) Ancestors(ctx context.Context, viewer, id, after int64, limit int) ([]Comment, error) {
	var open int
	err := s.db.WithContext(ctx).Raw(`
		SELECT COUNT(*)
		FROM comments c
		JOIN posts p ON p.id=c.post_id AND p.status=?
		WHERE c.id=? AND c.status=?`, StatusNormal, id, StatusNormal).Scan(&open).Error
	if err != nil {
		return nil, fmt.Errorf("read comment %d: %w", id, err)
	}
	if open == 0 {
		return nil, notFound(KindComment)
	}
	// The order is that of the steps up, and does not hang on depths being right.
	path, _, err := scanPage(s.db.WithContext(ctx).Raw(`
		WITH RECURSIVE up (id, parent_id, step) AS (
			SELECT id, parent_id, 0 FROM comments WHERE id=?
			UNION ALL
			SELECT a.id, a.parent_id, up.step+1 FROM up JOIN comments a ON a.id=up.parent_id
		)
		SELECT `+commentColumns+`
		FROM up
		JOIN comments c ON c.id=up.id
		JOIN users u ON u.id=c.user_id
		WHERE up.step>0 AND (?=0 OR up.step<(SELECT last.step FROM up last WHERE last.id=?))
		ORDER BY up.step DESC
		LIMIT ?`, id, viewer, after, after, limit), PageBytes, commentSize)
	if err != nil {
		return nil, fmt.Errorf("read ancestors of comment %d: %w", id, err)
	}
	return path, nil
}
