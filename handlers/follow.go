package handlers

import (
	"context"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/handlers/pages"
	"likewise/models"
)

type followJSON struct {
	Followed       bool  `json:"followed"`
	FollowersCount int64 `json:"followers_count"`
}

// otherUser reads the user's id in the path. It returns an error if the route's permission excludes that user, such as
// the viewer.
func otherUser(c *fiber.Ctx) (int64, error) {
	id, err := pathID(c, "user")
	if err != nil {
		return 0, err
	}
	return id, allowOn(c, id)
}

// setFollow returns the handler that makes the viewer follow or unfollow the user in the path. Repeating it changes
// nothing.
func (s *Server) setFollow(followed bool) fiber.Handler {
	change := s.people.Unfollow
	if followed {
		change = s.people.Follow
	}
	return func(c *fiber.Ctx) error {
		id, err := otherUser(c)
		if err != nil {
			return err
		}
		followers, err := change(c.UserContext(), viewerID(c), id)
		if err != nil {
			return err
		}
		return c.JSON(followJSON{followed, followers})
	}
}

// listedUserJSON is a user in a list of followers, of followed users or of blocked users.
type listedUserJSON struct {
	User      authorJSON `json:"user"`
	CreatedAt time.Time  `json:"created_at"` // of the follow or block
}

func (s *Server) listFollowers(c *fiber.Ctx) error {
	id, err := s.existingUser(c)
	if err != nil {
		return err
	}
	read := func(ctx context.Context, at pages.Position) ([]models.ListedUser, *models.ListKey, error) {
		return s.people.Followers(ctx, viewerID(c), id, at.After, at.Limit)
	}
	return s.replyUsers(c, "followers", id, read)
}

func (s *Server) listFollowing(c *fiber.Ctx) error {
	id, err := s.existingUser(c)
	if err != nil {
		return err
	}
	read := func(ctx context.Context, at pages.Position) ([]models.ListedUser, *models.ListKey, error) {
		return s.people.Following(ctx, viewerID(c), id, at.After, at.Limit)
	}
	return s.replyUsers(c, "following", id, read)
}

// usersReader is the read of a listing of users.
type usersReader = func(ctx context.Context, at pages.Position) ([]models.ListedUser, *models.ListKey, error)

// replyUsers answers with a page of one of a user's lists of users.
func (s *Server) replyUsers(c *fiber.Ctx, name string, userID int64, read usersReader) error {
	return replyList(s, c, pages.Listing[models.ListedUser, listedUserJSON]{
		Name: pages.OfUser(name, userID),
		Read: read,
		Key:  (*models.ListedUser).Key,
		Show: pages.Each(func(u *models.ListedUser) listedUserJSON {
			return listedUserJSON{s.author(u.Author), u.Since}
		}),
	})
}

// readFeed lists the posts of the users whom the viewer follows, latest first.
func (s *Server) readFeed(c *fiber.Ctx) error {
	return replyList(s, c, pages.Listing[models.Post, postItem]{
		Name: pages.OfUser("feed", viewerID(c)),
		Read: func(ctx context.Context, at pages.Position) ([]models.Post, *models.ListKey, error) {
			return pages.All(s.reader.Feed(ctx, viewerID(c), at.After, at.Limit))
		},
		Key:  func(p *models.Post) models.ListKey { return p.Key(models.PostsNew) },
		Show: pages.Each(s.summary),
	})
}
