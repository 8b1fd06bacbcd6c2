package handlers

import (
	"context"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

type followJSON struct {
	Followed       bool  `json:"followed"`
	FollowersCount int64 `json:"followers_count"`
}

// otherUser reads the user in the path and holds the viewer to what the route's permission says of others and oneself.
func otherUser(c *fiber.Ctx) (int64, error) {
	id, err := pathUser(c)
	if err != nil {
		return 0, err
	}
	return id, allowOn(c, id)
}

// setFollow makes the viewer follow the user in the path, or no longer. Saying it again changes nothing.
func (s *Server) setFollow(followed bool) fiber.Handler {
	change := s.store.Unfollow
	if followed {
		change = s.store.Follow
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

// listedUserJSON is a user in a list of followers, followed or blocked users.
type listedUserJSON struct {
	User      authorJSON `json:"user"`
	CreatedAt time.Time  `json:"created_at"` // of the follow or block
}

func (s *Server) listFollowers(c *fiber.Ctx) error {
	id, err := s.someUser(c)
	if err != nil {
		return err
	}
	return s.pageOfUsers(c, "followers", id, s.store.Followers)
}

func (s *Server) listFollowing(c *fiber.Ctx) error {
	id, err := s.someUser(c)
	if err != nil {
		return err
	}
	return s.pageOfUsers(c, "following", id, s.store.Following)
}

// pageOfUsers shows a page of one of a user's lists of users.
func (s *Server) pageOfUsers(c *fiber.Ctx, name string, userID int64,
	read func(ctx context.Context, viewer, userID int64, after *models.ListKey, limit int) ([]models.ListedUser, error),
) error {
	n, err := limit(c)
	if err != nil {
		return err
	}
	name += ":user=" + strconv.FormatInt(userID, 10)
	after, err := s.cursors.after(c, name)
	if err != nil {
		return err
	}
	users, err := read(c.UserContext(), viewerID(c), userID, after, n+1)
	if err != nil {
		return err
	}
	users, next := page(s.cursors, name, users, n, (*models.ListedUser).Key)
	items := make([]listedUserJSON, len(users))
	for i, u := range users {
		items[i] = listedUserJSON{s.author(u.Author), u.Since}
	}
	return c.JSON(list[listedUserJSON]{items, next})
}

// readFeed lists the posts of those whom the viewer follows, latest first.
func (s *Server) readFeed(c *fiber.Ctx) error {
	n, err := limit(c)
	if err != nil {
		return err
	}
	name := "feed:user=" + strconv.FormatInt(viewerID(c), 10)
	after, err := s.cursors.after(c, name)
	if err != nil {
		return err
	}
	posts, err := s.store.Feed(c.UserContext(), viewerID(c), after, n+1)
	if err != nil {
		return err
	}
	posts, next := page(s.cursors, name, posts, n, func(p *models.Post) models.ListKey { return p.Key(models.PostsNew) })
	items, err := s.postsJSON(c, posts)
	if err != nil {
		return err
	}
	return c.JSON(list[postJSON]{items, next})
}
