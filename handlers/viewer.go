package handlers

import (
	"bytes"
	"encoding/json"
	"math"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/handlers/pages"
	"likewise/models"
)

// viewersPostJSON is the viewer's half of a post, without likes_count.
type viewersPostJSON struct {
	Liked      bool `json:"liked"`
	Bookmarked bool `json:"bookmarked"`
	readerStateJSON
	Can postCanJSON `json:"can"`
}

// viewersCommentJSON is the viewer's half of a comment, without likes_count.
type viewersCommentJSON struct {
	Liked bool           `json:"liked"`
	Can   commentCanJSON `json:"can"`
}

// The sizes of the longest halves, in bytes.
var (
	longestPostHalf = pages.LongestLikes + sizeOf(viewersPostJSON{
		readerStateJSON: newReaderStateJSON(models.ReaderState{
			Mark: &models.ReadMark{CommentID: math.MaxInt64, Unread: math.MaxInt64,
				ReadAt: time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC)},
			Subscription: models.Following,
		}),
	})
	longestCommentHalf = pages.LongestLikes + sizeOf(viewersCommentJSON{})
)

func sizeOf(v any) int {
	encoded, err := json.Marshal(v)
	if err != nil {
		panic(err) // the types above have JSON
	}
	return len(encoded)
}

// join returns the answer with the halves of the viewer, and with further members.
func (s *Server) join(c *fiber.Ctx, h *pages.Halves, members ...pages.Member) ([]byte, error) {
	if len(h.Gaps) == 0 && len(members) == 0 {
		return bytes.Clone(h.Body), nil // without unused capacity
	}
	own, err := s.viewersOf(c, h)
	if err != nil {
		return nil, err
	}
	return h.Join(budget(c.UserContext(), c), own.half, members...)
}

// viewers is what the viewer has done with the posts and comments of an answer, and may do with them.
type viewers struct {
	likes      []models.LikeState // of each gap
	bookmarked map[int64]bool     // by post, as the next
	states     map[int64]models.ReaderState
	able       abilities
}

// half returns the viewer's half of a post or comment.
func (v *viewers) half(i int, g pages.Gap) (count int64, others any) {
	likes := v.likes[i]
	if m := g.Comment; m != nil {
		return likes.Count, viewersCommentJSON{likes.Liked, v.able.comment(m)}
	}
	p := g.Post
	return likes.Count, viewersPostJSON{
		likes.Liked, p.Bookmarked || v.bookmarked[p.ID], newReaderStateJSON(v.states[p.ID]),
		v.able.post(p),
	}
}

// viewersOf reads what is the viewer's. It takes one call each for likes, bookmarks, states and blocks, and none for
// rows that this request has created.
func (s *Server) viewersOf(c *fiber.Ctx, h *pages.Halves) (v viewers, err error) {
	if v.likes, err = s.likesOf(c, h); err != nil {
		return v, err
	}
	if v.able, err = s.abilitiesOf(c, h); err != nil || h.Rows == pages.JustCreated || viewerID(c) == 0 {
		return v, err
	}
	var posts []int64
	for _, g := range h.Gaps {
		if g.Post != nil {
			posts = append(posts, g.Post.ID)
		}
	}
	if len(posts) == 0 {
		return v, nil
	}
	if h.Rows == pages.ReadByAnyone {
		if v.bookmarked, err = s.bookmarked(c, posts); err != nil {
			return v, err
		}
	}
	v.states, err = s.readerStates(c, posts)
	return v, err
}

// likesOf returns the viewer's likes of each gap. Those of hidden comments are not read.
func (s *Server) likesOf(c *fiber.Ctx, h *pages.Halves) ([]models.LikeState, error) {
	likes := make([]models.LikeState, len(h.Gaps))
	var rows []models.TargetCount
	var of []int // gaps
	for i, g := range h.Gaps {
		row, shown := likesRow(g)
		likes[i].Count = row.Count
		if shown {
			rows, of = append(rows, row), append(of, i)
		}
	}
	if h.Rows == pages.JustCreated || len(rows) == 0 {
		return likes, nil
	}
	states, err := s.gate.LikeStates(c.UserContext(), viewerID(c), rows)
	if err != nil {
		return nil, err
	}
	for i, state := range states {
		likes[of[i]] = state
	}
	return likes, nil
}

// likesRow returns the count of a row, and whether the viewer sees its likes.
func likesRow(g pages.Gap) (row models.TargetCount, shown bool) {
	if p := g.Post; p != nil {
		return models.TargetCount{Target: postTarget(p.ID), Count: p.LikesCount}, true
	}
	return models.TargetCount{Target: commentTarget(g.Comment.ID), Count: g.Comment.LikesCount}, !g.Comment.Hidden()
}

// abilitiesOf returns the viewer's abilities. Who has just created a comment is not blocked by the author of the post,
// and is not bound by a lock.
func (s *Server) abilitiesOf(c *fiber.Ctx, h *pages.Halves) (abilities, error) {
	if viewer(c) == nil {
		return abilities{}, nil
	}
	if h.Rows == pages.JustCreated {
		able := abilities{viewer: viewer(c), places: map[int64]models.PostState{}}
		for _, g := range h.Gaps {
			if g.Comment != nil {
				able.places[g.Comment.PostID] = models.PostState{}
			}
		}
		return able, nil
	}
	var authors, posts []int64
	for _, g := range h.Gaps {
		if g.Post != nil {
			authors = append(authors, g.Post.Author.ID)
		} else {
			authors, posts = append(authors, g.Comment.Author.ID), append(posts, g.Comment.PostID)
		}
	}
	return s.abilitiesOn(c, authors, posts)
}
