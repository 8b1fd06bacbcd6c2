package handlers

import (
	"context"

	"github.com/gofiber/fiber/v2"

	"likewise/handlers/pages"
	"likewise/models"
)

type subscriptionJSON struct {
	Subscription *string `json:"subscription"` // null without one
}

// setSubscription makes the viewer follow or mute the post in the path. Repeating it changes nothing.
func (s *Server) setSubscription(c *fiber.Ctx) error {
	id, err := pathID(c, models.KindPost)
	if err != nil {
		return err
	}
	var word string
	if err := decode(c, fields{"level": &word}); err != nil {
		return err
	}
	var level models.Subscription
	switch word {
	case models.Following.String():
		level = models.Following
	case models.Muted.String():
		level = models.Muted
	default:
		return models.Invalid("level", models.NotOneOf("following", "muted"))
	}
	return s.subscribe(c, id, level)
}

// endSubscription ends the viewer's subscription to the post in the path. Repeating it changes nothing.
func (s *Server) endSubscription(c *fiber.Ctx) error {
	id, err := pathID(c, models.KindPost)
	if err != nil {
		return err
	}
	return s.subscribe(c, id, models.NotSubscribed)
}

func (s *Server) subscribe(c *fiber.Ctx, postID int64, level models.Subscription) error {
	if err := s.people.SetSubscription(c.UserContext(), viewerID(c), postID, level); err != nil {
		return err
	}
	return c.JSON(subscriptionJSON{present(level.String())})
}

// listSubscriptions lists the posts that the viewer follows or mutes, the latest subscription first.
func (s *Server) listSubscriptions(c *fiber.Ctx) error {
	return replyList(s, c, pages.Listing[models.KeptPost, postItem]{
		Name: pages.OfUser("subscriptions", viewerID(c)),
		Read: func(ctx context.Context, at pages.Position) ([]models.KeptPost, *models.ListKey, error) {
			return s.reader.SubscribedPosts(ctx, viewerID(c), at.ID(), at.Limit)
		},
		Key:  keptKey,
		Show: pages.Each(s.keptPost),
	})
}
