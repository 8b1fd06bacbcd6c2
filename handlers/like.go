package handlers

import (
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

type likeJSON struct {
	Liked      bool  `json:"liked"`
	LikesCount int64 `json:"likes_count"`
}

// setLike makes the viewer's like of the post or comment in the path as the method says. Saying it again changes
// nothing and gets the same answer.
func (s *Server) setLike(kind models.TargetKind, liked bool) fiber.Handler {
	return func(c *fiber.Ctx) error {
		id, err := pathID(c, kind)
		if err != nil {
			return err
		}
		target := models.Target{Kind: kind, ID: id}
		if liked {
			if err := s.mayLike(c, target); err != nil {
				return err
			}
		}
		state, err := s.likes.SetLike(c.UserContext(), target, viewerID(c), liked)
		if err != nil {
			return err
		}
		return c.JSON(likeJSON{state.Liked, state.Count})
	}
}

type likerJSON struct {
	User      authorJSON `json:"user"`
	CreatedAt time.Time  `json:"created_at"` // when the like was accepted
}

// listLikers shows who likes the post or comment in the path, latest first, as MySQL has it.
func (s *Server) listLikers(kind models.TargetKind) fiber.Handler {
	return func(c *fiber.Ctx) error {
		id, err := pathID(c, kind)
		if err != nil {
			return err
		}
		n, err := limit(c)
		if err != nil {
			return err
		}
		name := "likers:" + string(kind) + "=" + strconv.FormatInt(id, 10)
		after, err := s.cursors.after(c, name)
		if err != nil {
			return err
		}
		var before int64
		if after != nil {
			before = after.ID
		}
		likers, err := s.store.Likers(c.UserContext(), models.Target{Kind: kind, ID: id}, before, n+1)
		if err != nil {
			return err
		}
		likers, next := page(s.cursors, name, likers, n, func(l *models.Liker) models.ListKey { return models.ListKey{ID: l.RowID} })
		items := make([]likerJSON, len(likers))
		for i, l := range likers {
			items[i] = likerJSON{authorJSON(l.Author), l.CreatedAt}
		}
		return c.JSON(list[likerJSON]{items, next})
	}
}
