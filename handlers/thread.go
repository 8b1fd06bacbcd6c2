package handlers

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"

	"likewise/handlers/pages"
	"likewise/models"
)

// Bounds of a thread.
const (
	defaultDepth       = 3
	maxDepth           = 10
	defaultThreadLimit = 100
	maxThreadLimit     = 500
)

// What a thread includes on request: the names of the words and of the members.
const (
	includePost  = "post"
	includeDrops = "drops"
	includeDraft = "draft"
)

// readThread shows a post's comments as a tree, with a cursor wherever it is cut. Cursors of the top level also work
// with listComments.
func (s *Server) readThread(c *fiber.Ctx) error {
	id, err := pathID(c, models.KindPost)
	if err != nil {
		return err
	}
	q := models.ThreadQuery{PostID: id}
	if q.Depth, err = numberOf(c, "depth", defaultDepth, maxDepth); err != nil {
		return err
	}
	if q.Limit, err = numberOf(c, "limit", defaultThreadLimit, maxThreadLimit); err != nil {
		return err
	}
	if q.Around, err = aroundOf(c); err != nil {
		return err
	}
	if q.Sort, q.After, err = s.commentsPosition(c, topLevelList(id)); err != nil {
		return err
	}
	list := commentList{name: topLevelList(id) + string(q.Sort), sort: q.Sort, replies: q.Sort}
	list.read = func(ctx context.Context, viewer int64) ([]models.Comment, *models.ListKey, error) {
		q := q
		q.ViewerID = viewer
		return s.content.Thread(ctx, q)
	}
	shared := fmt.Sprintf("%s depth=%d limit=%d around=%d", list.name, q.Depth, q.Limit, q.Around)
	return s.replyIncluding(c, id, list, shared, q.After == nil)
}

// replyIncluding answers like replyCommentList, with the members that ?include= names.
func (s *Server) replyIncluding(c *fiber.Ctx, postID int64, list commentList, shared string, share bool) error {
	include, err := someOf(c, "include", includePost, includeDrops, includeDraft)
	if err != nil {
		return err
	}
	if slices.Contains(include, includePost) {
		list.post = func(ctx context.Context, viewer int64) (*models.Post, error) {
			return s.content.PostByID(ctx, viewer, postID)
		}
		shared += " with its post"
	}
	if list.members, err = s.threadMembers(c, postID, include); err != nil {
		return err
	}
	return s.replyCommentList(c, list, shared, share)
}

// aroundOf reads ?around=, the id of a comment; 0 if it is not there.
func aroundOf(c *fiber.Ctx) (int64, error) {
	query := c.Context().QueryArgs()
	if !query.Has("around") {
		return 0, nil
	}
	id, ok := parseID(c.Query("around"))
	switch {
	case !ok:
		return 0, models.Invalid("around", models.BadFormat(models.FormatID, "must be the id of a comment"))
	case query.Has("cursor"):
		return 0, models.Invalid("around",
			models.About(models.FieldExclusive, "cursor", "cannot be sent with a cursor"))
	}
	return id, nil
}

// threadMembers returns the included members of a thread that are the caller's, or change without an edition: claims
// and drafts end none.
func (s *Server) threadMembers(c *fiber.Ctx, postID int64, include []string) (members []pages.Member, err error) {
	if slices.Contains(include, includeDrops) {
		drops, err := s.stock.DropsOfPost(c.UserContext(), postID, 0, defaultLimit)
		if err != nil {
			return nil, err
		}
		shown, err := s.dropsJSON(c, drops)
		if err != nil {
			return nil, err
		}
		members = append(members, pages.Member{Name: includeDrops, Value: shown})
	}
	if slices.Contains(include, includeDraft) {
		draft, err := s.draftOfComment(c, postID)
		if err != nil {
			return nil, err
		}
		members = append(members, pages.Member{Name: includeDraft, Value: draft})
	}
	return members, nil
}

// draftOfComment returns the caller's draft of a comment on a post, by the key that the contract names; nil without
// one, and for callers who may not read drafts.
func (s *Server) draftOfComment(c *fiber.Ctx, postID int64) (*draftJSON, error) {
	able := abilities{viewer: viewer(c)}
	if !able.may(models.PermDraftRead, viewerID(c)) {
		return nil, nil
	}
	d, err := s.reader.DraftByKey(c.UserContext(), viewerID(c), "comment-"+strconv.FormatInt(postID, 10))
	switch {
	case models.ErrorCode(err) == models.CodeNotFound:
		return nil, nil
	case err != nil:
		return nil, err
	case d.Text.PostID != postID:
		return nil, nil // the client uses such keys in another way
	}
	out := newDraftJSON(d)
	return &out, nil
}

// someOf reads a parameter that is a list of some of the words, separated by commas. It returns CodeInvalid for other
// words.
func someOf(c *fiber.Ctx, parameter string, words ...string) ([]string, error) {
	if !c.Context().QueryArgs().Has(parameter) {
		return nil, nil
	}
	asked := strings.Split(strings.Clone(c.Query(parameter)), ",")
	for _, word := range asked {
		if !slices.Contains(words, word) {
			return nil, models.Invalid(parameter, models.NotOneOf(words...))
		}
	}
	return asked, nil
}

// readAncestors lists the ancestors of a comment, from the top level down.
func (s *Server) readAncestors(c *fiber.Ctx) error {
	id, err := pathID(c, models.KindComment)
	if err != nil {
		return err
	}
	return replyList(s, c, pages.Listing[models.Comment, *commentItem]{
		Name: "ancestors:" + strconv.FormatInt(id, 10),
		Read: func(ctx context.Context, at pages.Position) ([]models.Comment, *models.ListKey, error) {
			return pages.All(s.content.Ancestors(ctx, viewerID(c), id, at.ID(), at.Limit))
		},
		Key:  func(m *models.Comment) models.ListKey { return models.ListKey{ID: m.ID} },
		Show: pages.TryEach(s.commentItem),
	})
}
