package models

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"gorm.io/gorm"
)

// Status says whether content is shown.
type Status int8

// The states of posts and comments.
const (
	StatusNormal  Status = 1
	StatusDeleted Status = 2
)

func (s Status) String() string {
	if s == StatusDeleted {
		return "deleted"
	}
	return "normal"
}

// Post is a post as it is read: with its author's name.
type Post struct {
	ID            int64
	Author        Author `gorm:"embedded;embeddedPrefix:author_"`
	Title         string
	Content       string // Markdown
	LikesCount    int64
	CommentsCount int64
	Status        Status
	Version       int64 // grows with each edit
	CreatedAt     time.Time
	UpdatedAt     time.Time
	HotScore      int64     // see HotScore
	ActiveAt      time.Time // of the latest comment; CreatedAt while there is none
	Bookmarked    bool      // by the viewer
}

// hotDecade is what ten times as many likes are worth to a post in the order PostsHot, in seconds of youth.
const hotDecade = 45_000

// HotScore is a post's place in the order PostsHot: when it was created, in seconds since 1970, plus 45,000 seconds
// (12.5 hours) for each factor of ten in its likes. It changes only with likes, never with the clock, so an index keeps
// the order.
func HotScore(createdAt time.Time, likes int64) int64 {
	return createdAt.Unix() + int64(math.Floor(hotDecade*math.Log10(float64(max(likes, 1)))))
}

// Limits on content. A title is counted in characters; content in bytes, as TEXT is.
const (
	MaxTitle   = 200
	MaxContent = 60_000
)

// PostText is what an author writes.
type PostText struct {
	Title   string
	Content string
}

// Validate names every field that breaks a rule (CodeInvalid).
func (t PostText) Validate() error {
	var f fieldErrors
	f.check(strings.TrimSpace(t.Title) != "", "title", "must not be empty")
	f.check(utf8.RuneCountInString(t.Title) <= MaxTitle, "title", fmt.Sprintf("must have at most %d characters", MaxTitle))
	f.check(!strings.ContainsFunc(t.Title, isControl), "title", "must be a single line without control characters")
	checkContent(&f, t.Content)
	return f.err()
}

func checkContent(f *fieldErrors, content string) {
	f.check(strings.TrimSpace(content) != "", "content", "must not be empty")
	f.check(len(content) <= MaxContent, "content", fmt.Sprintf("must have at most %d bytes", MaxContent))
	f.check(utf8.ValidString(content) && !strings.ContainsRune(content, 0), "content", "must be valid UTF-8 without NUL")
}

func isControl(r rune) bool { return r < 0x20 || r == 0x7f || r == utf8.RuneError }

// CanEdit reports whether the user may change or delete what author wrote.
func CanEdit(userID int64, author Author) bool { return userID != 0 && userID == author.ID }

// postColumns has one placeholder: the viewer's id.
const postColumns = "p.id, " + authorColumns + ", p.title, p.content, p.likes_count," +
	" p.comments_count, p.status, p.version, p.created_at, p.updated_at, p.hot_score, p.active_at," +
	" EXISTS (SELECT 1 FROM bookmarks m WHERE m.user_id=? AND m.post_id=p.id) AS bookmarked"

// CreatePost writes a post and gives it back as it will be read.
func (s *Store) CreatePost(ctx context.Context, author Author, text PostText) (*Post, error) {
	now := second(s.now())
	p := &Post{Author: author, Title: text.Title, Content: text.Content, Status: StatusNormal, CreatedAt: now, UpdatedAt: now,
		HotScore: HotScore(now, 0), ActiveAt: now}
	id, err := s.insert(s.db.WithContext(ctx), "INSERT INTO posts (user_id, title, content, created_at, updated_at, hot_score, active_at) VALUES (?,?,?,?,?,?,?)",
		author.ID, text.Title, text.Content, now, now, p.HotScore, now)
	if err != nil {
		return nil, fmt.Errorf("create post: %w", err)
	}
	p.ID = id
	return p, nil
}

// insert runs an INSERT of one row and gives the row's id.
func (s *Store) insert(tx *gorm.DB, query string, args ...any) (int64, error) {
	result, err := tx.Statement.ConnPool.ExecContext(tx.Statement.Context, query, args...)
	if err != nil {
		return 0, err
	}
	return result.LastInsertId()
}

// PostByID reads a post as viewer (0 for the anonymous) sees it. CodeNotFound: it is deleted or was never there.
func (s *Store) PostByID(ctx context.Context, viewer, id int64) (*Post, error) {
	var p Post
	read := s.db.WithContext(ctx).Raw("SELECT "+postColumns+" FROM posts p JOIN users u ON u.id=p.user_id WHERE p.id=? AND p.status=1", viewer, id).Scan(&p)
	if read.Error != nil {
		return nil, fmt.Errorf("read post %d: %w", id, read.Error)
	}
	if read.RowsAffected == 0 {
		return nil, notFound(KindPost)
	}
	return &p, nil
}

// PostSort is the order of a list of posts.
type PostSort string

// The orders. Ties are broken by id, latest first.
const (
	PostsNew PostSort = "new" // latest first
	PostsTop PostSort = "top" // most likes first
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
	AuthorID int64    // 0 for all
	After    *ListKey // nil for the first page
	Limit    int
}

// Key gives the place of p in a list sorted by sort.
func (p *Post) Key(sort PostSort) ListKey {
	if sort == PostsTop {
		return ListKey{p.LikesCount, p.ID}
	}
	return ListKey{p.CreatedAt.Unix(), p.ID}
}

// ListPosts lists posts that are not deleted, in one query that reads no more rows than it gives.
func (s *Store) ListPosts(ctx context.Context, q PostQuery) ([]Post, error) {
	column, value := "p.created_at", "FROM_UNIXTIME(?)"
	if q.Sort == PostsTop {
		column, value = "p.likes_count", "?"
	}
	where, args := "p.status=1 AND "+notBlocked("p.user_id"), []any{q.ViewerID, q.ViewerID}
	if q.AuthorID != 0 {
		where, args = where+" AND p.user_id=?", append(args, q.AuthorID)
	}
	if q.After != nil {
		// "At or before, and not one of those seen" keeps a single range on the index, which a plain OR would not.
		where += " AND " + column + "<=" + value + " AND (" + column + "<" + value + " OR p.id<?)"
		args = append(args, q.After.Value, q.After.Value, q.After.ID)
	}
	var posts []Post
	err := s.db.WithContext(ctx).Raw("SELECT "+postColumns+" FROM posts p JOIN users u ON u.id=p.user_id WHERE "+where+
		" ORDER BY "+column+" DESC, p.id DESC LIMIT ?", append(args, q.Limit)...).Scan(&posts).Error
	if err != nil {
		return nil, fmt.Errorf("list posts: %w", err)
	}
	return posts, nil
}

// UpdatePost replaces the text if the post still has the version that the editor saw. CodePrecondition says that
// somebody was faster; CodeNotFound that the post is gone.
func (s *Store) UpdatePost(ctx context.Context, editor, id, version int64, text PostText) (*Post, error) {
	update := s.db.WithContext(ctx).Exec("UPDATE posts SET title=?, content=?, version=version+1, updated_at=? WHERE id=? AND version=? AND status=1",
		text.Title, text.Content, second(s.now()), id, version)
	if update.Error != nil {
		return nil, fmt.Errorf("update post %d: %w", id, update.Error)
	}
	p, err := s.PostByID(ctx, editor, id)
	if err != nil {
		return nil, err
	}
	if update.RowsAffected == 0 {
		return nil, VersionMismatch(p.Version)
	}
	return p, nil
}

// VersionMismatch makes the error of an edit that was made from another version than the one that is there now.
func VersionMismatch(now int64) *Error {
	return &Error{Code: CodePrecondition, Message: fmt.Sprintf("It was edited meanwhile and has version %d now.", now), Version: &now}
}

// DeletePost hides a post. CodeNotFound when it is gone already.
func (s *Store) DeletePost(ctx context.Context, id int64) error {
	update := s.db.WithContext(ctx).Exec("UPDATE posts SET status=2, updated_at=updated_at WHERE id=? AND status=1", id)
	if update.Error != nil {
		return fmt.Errorf("delete post %d: %w", id, update.Error)
	}
	if update.RowsAffected == 0 {
		return notFound(KindPost)
	}
	return nil
}
