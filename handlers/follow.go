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
	read func(ctx context.Context, viewer, userID int64, after *models.ListKey, limit int) ([]models.ListedUser, *models.ListKey, error),
) error {
	return replyList(s, c, listing[models.ListedUser, listedUserJSON]{
		name: name + ":user=" + strconv.FormatInt(userID, 10),
		sift: func(ctx context.Context, after *models.ListKey, limit int) ([]models.ListedUser, *models.ListKey, error) {
			return read(ctx, viewerID(c), userID, after, limit)
		},
		key:  (*models.ListedUser).Key,
		show: each(func(u *models.ListedUser) listedUserJSON { return listedUserJSON{s.author(u.Author), u.Since} }),
	})
}

// readFeed lists the posts of those whom the viewer follows, latest first.
func (s *Server) readFeed(c *fiber.Ctx) error {
	return replyList(s, c, listing[models.Post, postJSON]{
		name: "feed:user=" + strconv.FormatInt(viewerID(c), 10),
		read: func(ctx context.Context, after *models.ListKey, limit int) ([]models.Post, error) {
			return s.store.Feed(ctx, viewerID(c), after, limit)
		},
		key:  func(p *models.Post) models.ListKey { return p.Key(models.PostsNew) },
		show: s.eachPost,
	})
}
