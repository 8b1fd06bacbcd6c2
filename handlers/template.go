package handlers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

// template is the JSON of a page as the anonymous see it, cut where it differs between viewers. Encoding a page costs
// more than reading what is the viewer's own, so one request encodes it and the others fill the gaps.
type template struct {
	pieces   [][]byte // one before each gap, and one at the end
	gaps     []gap
	posts    []models.Post        // those in the page
	comments []models.Comment     // those in the page, without content and replies
	likes    []models.TargetCount // the posts and comments whose likes are shown
	size     int                  // of the longest page, in bytes
	examined int                  // see Server.charge
}

// gap is a value that is missing in a template.
type gap struct {
	member string // the name, as it is in JSON
	of     int    // the index in posts or comments
	isPost bool
	likes  int // the index in likes
}

// The members that differ between viewers, in the order of the JSON. The next name that is equal to one of them must be
// that member: within a JSON string each quote has a backslash before it, so no text holds one.
const (
	likesCountMember   = `"likes_count":`
	likedMember        = `"liked":`
	bookmarkedMember   = `"bookmarked":`
	lastReadMember     = `"last_read":`
	unreadMember       = `"unread_count":`
	subscriptionMember = `"subscription":`
	canMember          = `"can":`
)

var (
	postMembers = []string{
		likesCountMember, likedMember, bookmarkedMember, lastReadMember, unreadMember, subscriptionMember, canMember,
	}
	commentMembers = []string{likesCountMember, likedMember, canMember}
)

// own is what a viewer has done with a post or comment.
type own struct {
	likes    models.LikeState
	standing models.Standing
}

// widest has the longest JSON. A page is encoded with it before it is cut, so a filled page is not longer than
// db.PageBytes.
var widest = own{
	models.LikeState{Count: math.MaxInt64},
	models.Standing{
		Mark: &models.ReadMark{CommentID: math.MaxInt64, Unread: math.MaxInt64,
			ReadAt: time.Date(9999, 12, 31, 23, 59, 59, 999_999_999, time.UTC)},
		Subscription: models.Following,
	},
}

// slot is a post or comment in the JSON of a page, in the order of the JSON.
type slot struct {
	post    *models.Post
	comment *models.Comment // if post is nil
}

// likes returns the target and its count, and whether its likes are shown.
func (s slot) likes() (models.TargetCount, bool) {
	if s.post != nil {
		return models.TargetCount{Target: postTarget(s.post.ID), Count: s.post.LikesCount}, true
	}
	m := s.comment
	return models.TargetCount{Target: commentTarget(m.ID), Count: m.LikesCount}, !m.Hidden()
}

// cutPage encodes a page as encodePage does, and cuts it. The slots before are those of further members of the page.
// Slots returns those in the item of a row, by its index.
func cutPage[R, J any](
	s *Server, c *fiber.Ctx, p page[R], show shower[R, J], before []slot, slots func(i int, item J) []slot,
) (*template, error) {
	var found [][]slot
	body, answered, err := encodeRows(s, c, p, func(c *fiber.Ctx, rows []R) iter.Seq2[J, error] {
		return func(yield func(J, error) bool) {
			for item, err := range show(c, rows) {
				found = append(found, slots(len(found), item))
				if !yield(item, err) {
					return
				}
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return cutTemplate(body, slices.Concat(before, slices.Concat(found[:answered]...)))
}

// cutTemplate cuts the JSON of a page at the members of its slots.
func cutTemplate(body []byte, slots []slot) (*template, error) {
	t := &template{size: len(body)}
	begin, at := 0, 0 // of the piece, and of what is not yet read
	for _, s := range slots {
		likes, shown := s.likes()
		members, of := commentMembers, len(t.comments)
		if s.post != nil {
			members, of = postMembers, len(t.posts)
			t.posts = append(t.posts, *s.post)
		} else {
			m := *s.comment
			m.Content, m.Replies = "", nil
			t.comments = append(t.comments, m)
		}
		for _, m := range members {
			next := bytes.Index(body[at:], []byte(m))
			if next < 0 {
				return nil, fmt.Errorf("a page has no member %s for %s", m, likes.Target)
			}
			at += next + len(m)
			length := valueLength(body[at:])
			if shown || m == canMember {
				t.pieces = append(t.pieces, body[begin:at])
				t.gaps = append(t.gaps, gap{m, of, s.post != nil, len(t.likes)})
				begin = at + length
			}
			at += length
		}
		if shown {
			t.likes = append(t.likes, likes)
		}
	}
	t.pieces = append(t.pieces, body[begin:])
	return t, nil
}

// valueLength returns the length of the JSON of a member: an object of plain values, or a plain value. No text of one
// has a comma or a brace.
func valueLength(json []byte) int {
	if bytes.HasPrefix(json, []byte("{")) {
		return bytes.IndexByte(json, '}') + 1
	}
	return max(0, bytes.IndexAny(json, ",}"))
}

// fill returns the page as the viewer sees it.
func (s *Server) fill(c *fiber.Ctx, t *template, view models.Viewpoint) ([]byte, error) {
	likes, err := s.likes.LikeStates(c.UserContext(), viewerID(c), t.likes)
	if err != nil {
		return nil, err
	}
	var bookmarked map[int64]bool
	var standings map[int64]models.Standing
	if len(t.posts) > 0 {
		if view.Bookmarks {
			if bookmarked, err = s.store.Bookmarked(c.UserContext(), viewerID(c), idsOf(t.posts)); err != nil {
				return nil, err
			}
		}
		if standings, err = s.standings(c, t.posts); err != nil {
			return nil, err
		}
	}
	able, err := s.abilitiesIn(c, t)
	if err != nil {
		return nil, err
	}
	if err := hold(c, t.size); err != nil {
		return nil, err
	}
	body := make([]byte, 0, t.size)
	for i, g := range t.gaps {
		body = append(body, t.pieces[i]...)
		switch {
		case g.member == likesCountMember:
			body = strconv.AppendInt(body, likes[g.likes].Count, 10)
		case g.member == likedMember:
			body = strconv.AppendBool(body, likes[g.likes].Liked)
		case g.member == bookmarkedMember:
			body = strconv.AppendBool(body, bookmarked[t.posts[g.of].ID])
		case g.member == canMember && g.isPost:
			body, err = able.appendJSON(body, able.post(&t.posts[g.of]))
		case g.member == canMember:
			body, err = able.appendJSON(body, able.comment(&t.comments[g.of]))
		default:
			body, err = appendStanding(body, g.member, standings[t.posts[g.of].ID])
		}
		if err != nil {
			return nil, err
		}
	}
	return append(body, t.pieces[len(t.gaps)]...), nil
}

// abilitiesIn returns the viewer's abilities on what a template shows.
func (s *Server) abilitiesIn(c *fiber.Ctx, t *template) (abilities, error) {
	if len(t.posts) == 0 {
		return s.commentAbilities(c, t.comments)
	}
	authors := make([]int64, len(t.posts))
	for i := range t.posts {
		authors[i] = t.posts[i].Author.ID
	}
	return s.abilitiesOn(c, authors, nil)
}

// appendStanding appends the JSON of a member of standingJSON.
func appendStanding(body []byte, member string, standing models.Standing) ([]byte, error) {
	if standing == (models.Standing{}) {
		return append(body, "null"...), nil
	}
	shown := newStandingJSON(standing)
	var value any = shown.Subscription
	switch member {
	case lastReadMember:
		value = shown.LastRead
	case unreadMember:
		value = shown.UnreadCount
	}
	encoded, err := json.Marshal(value)
	return append(body, encoded...), err
}

// replyTemplate answers with a page that requests share, if share is set. Cut reads it as the anonymous see it, and own
// returns it as the viewer does. The name must differ from those of all other reads.
func (s *Server) replyTemplate(
	c *fiber.Ctx, name string, share bool, cut func(context.Context) (*template, error), own func() ([]byte, error),
) error {
	if !share {
		return s.replyOwn(c, own)
	}
	edition, ok := s.edition(c)
	if !ok {
		return s.replyOwn(c, own)
	}
	view, asAnyone, err := s.asAnyone(c)
	if err != nil {
		return err
	}
	if !asAnyone {
		return s.replyOwn(c, own)
	}
	t, err := readShared(c, s, name, cut)
	if err != nil {
		return err
	}
	s.charge(c, t.examined)
	fill := func() ([]byte, error) { return s.fill(c, t, view) }
	if viewerID(c) != 0 || hasPlace(c) {
		return s.replyOwn(c, fill)
	}
	answer, err := s.shared.answer(c.UserContext(), edition, name, fill)
	if err != nil {
		return err
	}
	c.Locals(encodedKey, answer)
	return replyEncoded(c, answer.body)
}

// pinnedSlots returns the slots of posts that a page shows apart from its items.
func pinnedSlots(posts []models.Post) []slot {
	slots := make([]slot, len(posts))
	for i := range posts {
		slots[i].post = &posts[i]
	}
	return slots
}

// postSlots returns the slot of each of posts.
func postSlots(posts []models.Post) func(i int, _ any) []slot {
	return func(i int, _ any) []slot { return []slot{{post: &posts[i]}} }
}

// treeSlots returns the slots of comments with their replies.
func treeSlots(comments []models.Comment) func(i int, item commentJSON) []slot {
	byID := map[int64]*models.Comment{}
	var index func(comments []models.Comment)
	index = func(comments []models.Comment) {
		for i := range comments {
			byID[comments[i].ID] = &comments[i]
			index(comments[i].Replies)
		}
	}
	index(comments)
	var slots []slot
	var add func(item commentJSON)
	add = func(item commentJSON) {
		slots = append(slots, slot{comment: byID[item.ID]})
		for _, reply := range item.Replies.Items {
			add(reply)
		}
	}
	return func(_ int, item commentJSON) []slot {
		slots = nil
		add(item)
		return slots
	}
}

// replyOwn answers with the JSON that encode returns.
func (s *Server) replyOwn(c *fiber.Ctx, encode func() ([]byte, error)) error {
	body, err := encode()
	if err != nil {
		return err
	}
	return replyEncoded(c, body)
}
