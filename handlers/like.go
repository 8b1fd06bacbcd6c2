package handlers

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/handlers/pages"
	"likewise/models"
)

type likeJSON struct {
	Liked      bool  `json:"liked"`
	LikesCount int64 `json:"likes_count"`
}

// setLike returns the handler that sets or removes the viewer's like of the post or comment in the path. Repeating it
// changes nothing and returns the same answer.
func (s *Server) setLike(kind models.TargetKind, liked bool) fiber.Handler {
	return func(c *fiber.Ctx) error {
		id, err := pathID(c, kind)
		if err != nil {
			return err
		}
		target := models.Target{Kind: kind, ID: id}
		if err := s.rates.Like(c.UserContext(), s.client(c)); err != nil {
			return err
		}
		if liked {
			if err := s.mayLike(c, target); err != nil {
				return err
			}
		}
		state, err := s.gate.SetLike(c.UserContext(), target, viewerID(c), liked)
		if err != nil {
			return err
		}
		return c.JSON(likeJSON{state.Liked, state.Count})
	}
}

// targetLikesJSON holds the likes of one target of several.
type targetLikesJSON struct {
	Type       models.TargetKind `json:"type"`
	ID         int64             `json:"id"`
	LikesCount int64             `json:"likes_count"`
	Liked      bool              `json:"liked"`
}

type targetsLikesJSON struct {
	Items []targetLikesJSON `json:"items"`
}

// maxTargets is how many targets ?targets= may name.
const maxTargets = 100

// readLikes returns the likes of the posts and comments that the query names, in its order and each once. It omits
// targets that are deleted or never existed.
func (s *Server) readLikes(c *fiber.Ctx) error {
	targets, err := targetsOf(c)
	if err != nil {
		return err
	}
	states, err := s.gate.StatesOf(c.UserContext(), viewerID(c), targets)
	if err != nil {
		return err
	}
	items := make([]targetLikesJSON, 0, len(targets))
	for _, t := range targets {
		if state, there := states[t]; there {
			items = append(items, targetLikesJSON{t.Kind, t.ID, state.Count, state.Liked})
		}
	}
	return c.JSON(targetsLikesJSON{items})
}

// targetsOf reads ?targets=post:1,comment:9, each target once. It returns CodeInvalid for the first invalid one.
func targetsOf(c *fiber.Ctx) ([]models.Target, error) {
	var words []string
	if text := c.Query("targets"); text != "" {
		words = strings.Split(text, ",")
	}
	if len(words) == 0 || len(words) > maxTargets {
		return nil, models.Invalid("targets", models.WrongCount(len(words), 1, maxTargets).
			Saying("must be 1 to %d of post:ID and comment:ID, separated by commas", maxTargets))
	}
	targets := make([]models.Target, 0, len(words))
	seen := map[models.Target]bool{}
	for _, word := range words {
		kind, id, _ := strings.Cut(word, ":")
		target := models.Target{Kind: models.TargetKind(strings.Clone(kind))}
		var ok bool
		if target.ID, ok = parseID(id); !ok || target.Kind != models.KindPost && target.Kind != models.KindComment {
			return nil, models.Invalid("targets",
				models.BadFormat(models.FormatTarget, fmt.Sprintf("%.60q is neither post:ID nor comment:ID", word)))
		}
		if !seen[target] {
			seen[target] = true
			targets = append(targets, target)
		}
	}
	return targets, nil
}

type likerJSON struct {
	User      authorJSON `json:"user"`
	CreatedAt time.Time  `json:"created_at"` // when the like was accepted
}

// listLikers returns the handler that lists the likes of the post or comment in the path that MySQL holds, latest
// first.
func (s *Server) listLikers(kind models.TargetKind) fiber.Handler {
	return func(c *fiber.Ctx) error {
		id, err := pathID(c, kind)
		if err != nil {
			return err
		}
		return replyList(s, c, pages.Listing[models.Liker, likerJSON]{
			Name: "likers:" + string(kind) + "=" + strconv.FormatInt(id, 10),
			Read: func(ctx context.Context, at pages.Position) ([]models.Liker, *models.ListKey, error) {
				return s.likes.Likers(ctx, viewerID(c), models.Target{Kind: kind, ID: id}, at.ID(), at.Limit)
			},
			Key:  func(l *models.Liker) models.ListKey { return models.ListKey{ID: l.RowID} },
			Show: pages.Each(func(l *models.Liker) likerJSON { return likerJSON{s.author(l.Author), l.CreatedAt} }),
		})
	}
}
