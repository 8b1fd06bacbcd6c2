package handlers

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/handlers/pages"
	"likewise/models"
)

// accountJSON is an account as moderators see it in a list.
type accountJSON struct {
	ID          int64       `json:"id"`
	Username    string      `json:"username"`
	Role        string      `json:"role"`
	DisplayName *string     `json:"display_name"`
	AvatarURL   shownAvatar `json:"avatar_url"`
	Ban         *banJSON    `json:"ban"` // null unless banned now
	CreatedAt   time.Time   `json:"created_at"`
}

// accountDetailJSON is one account as moderators see it.
type accountDetailJSON struct {
	accountJSON
	Email                *string  `json:"email"`            // null: none, or the role is not below the viewer
	FormerUsernames      []string `json:"former_usernames"` // latest first
	Bio                  string   `json:"bio"`
	FollowersCount       int64    `json:"followers_count"`
	PostsCount           int64    `json:"posts_count"`
	DeletedPostsCount    int64    `json:"deleted_posts_count"`
	CommentsCount        int64    `json:"comments_count"`
	DeletedCommentsCount int64    `json:"deleted_comments_count"`
	SessionsCount        int64    `json:"sessions_count"`
	TokensCount          int64    `json:"tokens_count"`
	GivenLikesCount      int      `json:"given_likes_count"` // counted to 10,000
}

func (s *Server) newAccountJSON(a *models.Account) accountJSON {
	u := s.newUserJSON(&a.User)
	return accountJSON{
		ID: u.ID, Username: u.Username, Role: u.Role, DisplayName: u.DisplayName, AvatarURL: u.AvatarURL,
		Ban: newBanJSON(a.Ban(s.now())), CreatedAt: u.CreatedAt,
	}
}

// prefixOf reads a parameter that is a prefix of a name; "" if it is missing.
func prefixOf(c *fiber.Ctx, parameter string, limit int) (string, error) {
	if !c.Context().QueryArgs().Has(parameter) {
		return "", nil
	}
	prefix := c.Query(parameter)
	unprintable := func(r rune) bool { return r <= ' ' || r > '~' }
	var fault models.Fault
	switch {
	case prefix == "" || len(prefix) > limit:
		fault = models.WrongLength(len(prefix), 1, limit)
	case strings.ContainsFunc(prefix, unprintable):
		fault = models.Broken(models.FieldBadCharacters, "")
	default:
		return prefix, nil
	}
	return "", models.Invalid(parameter, fault.Saying("must be 1 to %d characters of ASCII, without spaces", limit))
}

func (s *Server) listAccounts(c *fiber.Ctx) error {
	var q models.AccountQuery
	var err error
	if q.Username, err = prefixOf(c, "username", models.MaxUsername); err != nil {
		return err
	}
	if q.Email, err = prefixOf(c, "email", models.MaxEmail); err != nil {
		return err
	}
	if q.Username != "" && q.Email != "" {
		return models.Invalid("email",
			models.About(models.FieldExclusive, "username", "cannot be combined with username"))
	}
	// Otherwise a moderator could read every address, a character at a time.
	if q.Email != "" && viewer(c).Role < models.RoleAdmin {
		return &models.Error{Code: models.CodeForbidden, Message: "Only an admin can search by e-mail address.",
			Fields: []models.FieldError{
				models.Broken(models.FieldNotPermitted, "can be used by admins only").In("email"),
			}}
	}
	role, err := oneOf(c, "role", append([]string{""}, models.RoleNames()...)...)
	if err != nil {
		return err
	}
	if role != "" {
		if q.Role, err = models.ParseRole(role); err != nil {
			return models.Invalid("role", models.NotOneOf(models.RoleNames()...))
		}
	}
	banned, err := oneOf(c, "banned", "false", "true")
	if err != nil {
		return err
	}
	q.Banned = banned == "true"
	name := fmt.Sprintf("accounts:%d:%t username=%s email=%s", q.Role, q.Banned, q.Username, q.Email)
	if q.Email != "" {
		if err := s.accounts.LogEmailSearched(c.UserContext()); err != nil {
			return err
		}
	}
	return replyList(s, c, pages.Listing[models.Account, accountJSON]{
		Name: name,
		Read: func(ctx context.Context, at pages.Position) ([]models.Account, *models.ListKey, error) {
			q.After, q.Limit = at.ID(), at.Limit
			return pages.All(s.accounts.Accounts(ctx, q))
		},
		Key:  func(a *models.Account) models.ListKey { return models.ListKey{ID: a.User.ID} },
		Show: pages.Each(s.newAccountJSON),
	})
}

func (s *Server) readAccount(c *fiber.Ctx) error {
	id, err := pathID(c, "user")
	if err != nil {
		return err
	}
	account, counts, err := s.accounts.AccountByID(c.UserContext(), id)
	if err != nil {
		return err
	}
	likes, err := s.likes.LikesGivenCount(c.UserContext(), id)
	if err != nil {
		return err
	}
	former, err := s.accounts.FormerUsernames(c.UserContext(), id)
	if err != nil {
		return err
	}
	out := accountDetailJSON{
		accountJSON: s.newAccountJSON(account), FormerUsernames: former, Bio: account.User.Bio,
		FollowersCount: account.User.FollowersCount,
		PostsCount:     counts.Posts, DeletedPostsCount: counts.DeletedPosts,
		CommentsCount: counts.Comments, DeletedCommentsCount: counts.DeletedComments,
		SessionsCount: counts.Sessions, TokensCount: counts.Tokens, GivenLikesCount: likes,
	}
	email := s.newUserJSON(&account.User).Email
	if email != nil && models.Outranks(viewerID(c), viewer(c).Role, id, account.User.Role) == nil {
		if err := s.accounts.LogEmailRead(c.UserContext(), id); err != nil {
			return err // an address is shown only if that is recorded
		}
		out.Email = email
	}
	return c.JSON(out)
}
