package models

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gorm.io/gorm"
)

// FirstReplies reads the first replies to each of comments, earliest first and at most each of them, in one query.
func (s *Store) FirstReplies(ctx context.Context, viewer int64, comments []Comment, each int) error {
	parents := make([]*Comment, len(comments))
	for i := range comments {
		parents[i] = &comments[i]
	}
	if err := s.attachReplies(ctx, viewer, CommentsOld, parents, each, PageBytes); err != nil {
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

// Thread reads a post's comments level by level, in one query a level, and reports whether the top level goes on. A
// level gets half of what is left of the limit, rounded up, and the last one all of it; within a level each parent gets
// the same share, the first parents alone when there is not enough for all. Content is shared out the same way: a
// level ends where its half of PageBytes is used up. So there is always a first comment, if the post has any at the place.
// CodeNotFound: the post is gone.
func (s *Store) Thread(ctx context.Context, q ThreadQuery) (top []Comment, more bool, err error) {
	left, room := q.Limit, PageBytes
	share := func(level, of int) int {
		if level == q.Depth {
			return of
		}
		return (of + 1) / 2
	}
	take := func(c *Comment) {
		left--
		room -= len(c.Content)
	}
	var root Comment
	if err := s.readTop(ctx, q, &root, share(1, left), share(1, room)); err != nil {
		return nil, false, err
	}
	var level []*Comment
	for i := range root.Replies {
		level = append(level, &root.Replies[i])
		take(level[i])
	}
	for n := 2; n <= q.Depth && left > 0; n++ {
		parents := slices.DeleteFunc(level, func(c *Comment) bool { return !c.More })
		if len(parents) == 0 {
			break
		}
		size := share(n, left)
		parents = parents[:min(len(parents), size)]
		if err := s.attachReplies(ctx, q.ViewerID, q.Sort, parents, size/len(parents), share(n, room)); err != nil {
			return nil, false, fmt.Errorf("read level %d of the thread of post %d: %w", n, q.PostID, err)
		}
		level = nil
		for _, p := range parents {
			for i := range p.Replies {
				level = append(level, &p.Replies[i])
				take(&p.Replies[i])
			}
		}
	}
	return root.Replies, root.More, nil
}

// readTop reads a piece of the top level of a thread as the replies of root.
func (s *Store) readTop(ctx context.Context, q ThreadQuery, root *Comment, size, room int) error {
	list := CommentQuery{ViewerID: q.ViewerID, PostID: q.PostID, Sort: q.Sort, After: q.After}
	found, err := s.readBranches(ctx, q.ViewerID, q.Sort, []branch{list.branch()}, size+1, room)
	if err != nil {
		return fmt.Errorf("read the thread of post %d: %w", q.PostID, err)
	}
	if len(found) == 0 {
		return s.commentListOpen(ctx, list)
	}
	root.attach(found, size)
	return nil
}

// attachReplies reads the first replies to each of parents in one query: at most each of them, and at most room bytes
// of content in all.
func (s *Store) attachReplies(ctx context.Context, viewer int64, sort CommentSort, parents []*Comment, each, room int) error {
	var branches []branch
	for _, p := range parents {
		if p.More {
			branches = append(branches, branch{from: "%s", where: "c.post_id=? AND c.parent_id=?", args: []any{p.PostID, p.ID}})
		}
	}
	if len(branches) == 0 {
		return nil
	}
	found, err := s.readBranches(ctx, viewer, sort, branches, each+1, room)
	if err != nil {
		return err
	}
	byParent := map[int64][]foundComment{}
	for _, f := range found {
		byParent[*f.ParentID] = append(byParent[*f.ParentID], f)
	}
	for _, p := range parents {
		if p.More {
			p.attach(byParent[p.ID], each)
		}
	}
	return nil
}

// attach makes the first of found the replies of c, up to size of them or to the first one that did not fit.
func (c *Comment) attach(found []foundComment, size int) {
	for i, f := range found {
		if c.More = i == size || f.Cut; c.More {
			return
		}
		c.Replies = append(c.Replies, f.Comment)
	}
	c.More = false
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

// foundComment is a comment, or no more than the fact that there is one, where it did not fit.
type foundComment struct {
	Comment `gorm:"embedded"`
	Cut     bool
}

// readBranches reads the first comments of several lists that the viewer sees, at most each of a list, one list after
// the other. It reads no more rows than that, however long the lists are: a limited SELECT along the index for each, in
// one statement. The content of those past room bytes is not read.
func (s *Store) readBranches(ctx context.Context, viewer int64, sort CommentSort, branches []branch, each, room int) ([]foundComment, error) {
	var found []foundComment
	if err := s.branchQuery(ctx, viewer, sort, branches, each, room).Scan(&found).Error; err != nil {
		return nil, err
	}
	size := 0
	for i := range found {
		size += commentSize(&found[i].Comment)
	}
	return found, hold(ctx, size)
}

// branchQuery is the query of readBranches.
func (s *Store) branchQuery(ctx context.Context, viewer int64, sort CommentSort, branches []branch, each, room int) *gorm.DB {
	o := sort.order()
	parts := make([]string, len(branches))
	args := []any{viewer}
	for i, b := range branches {
		where := b.where + " AND " + commentShown
		args = append(append(args, b.args...), viewer)
		if b.after != nil {
			// Two ranges on the index, so that not even those of the same value are read that were seen already.
			where += " AND (" + o.column + o.later + o.value + " OR " + o.column + "=" + o.value + " AND c.id" + o.later + "?)"
			args = append(args, b.after.Value, b.after.Value, b.after.ID)
		}
		parts[i] = "(SELECT c.id, " + strconv.Itoa(i) + " AS branch, " + o.column + " AS place, IF(c.status=1, LENGTH(c.content), 0) AS size FROM " +
			fmt.Sprintf(b.from, "comments c FORCE INDEX ("+o.index+")") + " WHERE " + where +
			" ORDER BY " + o.column + o.direction + ", c.id" + o.direction + " LIMIT " + strconv.Itoa(each) + ")"
	}
	order := " ORDER BY y.branch, y.place" + o.direction + ", y.id" + o.direction
	fits := "x.total<=" + strconv.Itoa(room)
	columns := strings.Replace(commentColumns, "c.content", "IF(c.status=1 AND "+fits+", c.content, '') AS content", 1)
	return s.db.WithContext(ctx).Raw("SELECT "+columns+", NOT "+fits+" AS cut FROM (SELECT y.id, y.branch, y.place, SUM(y.size) OVER ("+order+
		" ROWS UNBOUNDED PRECEDING) AS total FROM ("+strings.Join(parts, " UNION ALL ")+") y) x"+
		" JOIN comments c ON c.id=x.id JOIN users u ON u.id=c.user_id"+strings.ReplaceAll(order, "y.", "x."), args...)
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
		LIMIT ?`, id, viewer, after, after, limit), commentSize)
	if err != nil {
		return nil, fmt.Errorf("read ancestors of comment %d: %w", id, err)
	}
	return path, nil
}
