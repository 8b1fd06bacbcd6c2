package handlers

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

// userJSON is an account as its own user sees it.
type userJSON struct {
	ID          int64       `json:"id"`
	Username    string      `json:"username"`
	Email       *string     `json:"email"` // null: the account has none
	Role        string      `json:"role"`
	DisplayName *string     `json:"display_name"` // null: shows the username
	Bio         string      `json:"bio"`
	AvatarURL   shownAvatar `json:"avatar_url"`
	CreatedAt   time.Time   `json:"created_at"`
}

func (s *Server) newUserJSON(u *models.User) userJSON {
	out := userJSON{ID: u.ID, Username: u.Username, Role: u.Role.String(), DisplayName: u.DisplayName, Bio: u.Bio, AvatarURL: s.avatarHosts.show(u.AvatarURL), CreatedAt: u.CreatedAt}
	if !strings.HasSuffix(u.Email, models.NoEmailDomain) {
		out.Email = &u.Email
	}
	return out
}

type sessionJSON struct {
	User  userJSON `json:"user"`
	Token string   `json:"token"`
}

func (s *Server) register(c *fiber.Ctx) error {
	var in models.Registration
	if err := decode(c, fields{"username": &in.Username, "email": &in.Email, "password": &in.Password}); err != nil {
		return err
	}
	if err := in.Validate(); err != nil {
		return err
	}
	if err := s.reserved.Check(in.Username); err != nil {
		return err
	}
	if err := s.take(c, registerQuota); err != nil {
		return err
	}
	hash, err := s.passwords.Hash(c.UserContext(), in.Password)
	if err != nil {
		return err
	}
	user := &models.User{Username: in.Username, Email: in.Email, PasswordHash: hash}
	token, err := s.store.Register(c.UserContext(), user, userAgent(c))
	if err != nil {
		return err
	}
	return s.replyRegistered(c, user, token)
}

func (s *Server) replyRegistered(c *fiber.Ctx, user *models.User, token string) error {
	c.Set(fiber.HeaderLocation, "/v1/me")
	return c.Status(http.StatusCreated).JSON(sessionJSON{s.newUserJSON(user), token})
}

// userAgent is what the client calls itself, in Fiber's memory.
func userAgent(c *fiber.Ctx) string { return c.Get(fiber.HeaderUserAgent) }

func (s *Server) login(c *fiber.Ctx) error {
	var name, password string
	if err := decode(c, fields{"login": &name, "password": &password}); err != nil {
		return err
	}
	user, token, err := s.openSession(c, name, password)
	if err != nil {
		return err
	}
	return c.JSON(sessionJSON{s.newUserJSON(user), token})
}

// openSession opens a session for whoever knows the password.
func (s *Server) openSession(c *fiber.Ctx, name, password string) (*models.User, string, error) {
	user, err := s.store.UserByLogin(c.UserContext(), name)
	if models.ErrorCode(err) == models.CodeNotFound {
		user, err = &models.User{}, nil // goes the same way, to the same answer in the same time
	}
	if err != nil {
		return nil, "", err
	}
	attempt, err := s.countLogin(c, user, name)
	if err != nil {
		return nil, "", err
	}
	target := user.ID
	if attempt.blocked {
		user = &models.User{}
	}
	ok, err := s.passwords.Match(c.UserContext(), password, user.PasswordHash)
	if err != nil {
		return nil, "", err
	}
	if !ok {
		if err := s.store.LogFailedLogin(c.UserContext(), target, name); err != nil {
			s.log.Warn("failed login not logged", "request_id", requestID(c), "error", err)
		}
		return nil, "", models.Errorf(models.CodeUnauthorized, "The login or the password is wrong.")
	}
	s.loginSucceeded(c.UserContext(), attempt)
	token, err := s.store.Login(c.UserContext(), user, userAgent(c))
	return user, token, err
}

func (s *Server) me(c *fiber.Ctx) error {
	user, err := s.store.UserByID(c.UserContext(), viewerID(c))
	if err != nil {
		return err
	}
	return c.JSON(s.newUserJSON(user))
}

// editMe changes the profile. There is no version to hold it to: nobody but the user edits it, and what was saved last
// stays.
func (s *Server) editMe(c *fiber.Ctx) error {
	var displayName, bio, avatarURL *string
	if err := decode(c, fields{"display_name": &displayName, "bio": &bio, "avatar_url": &avatarURL}); err != nil {
		return err
	}
	user, err := s.store.UserByID(c.UserContext(), viewerID(c))
	if err != nil {
		return err
	}
	profile := models.Profile{DisplayName: valueOf(user.DisplayName), Bio: user.Bio, AvatarURL: valueOf(user.AvatarURL)}
	for changed, to := range map[*string]*string{&profile.DisplayName: displayName, &profile.Bio: bio, &profile.AvatarURL: avatarURL} {
		if to != nil {
			*changed = *to
		}
	}
	if err := profile.Validate(); err != nil {
		return err
	}
	if avatarURL != nil {
		if err := s.avatarHosts.check(*avatarURL); err != nil {
			return err
		}
	}
	if err := s.store.UpdateProfile(c.UserContext(), user.ID, profile); err != nil {
		return err
	}
	s.sessions.Refresh(sessionHash(c)) // it shows the name in what is written from now on
	return s.me(c)
}

// valueOf gives what p points to, "" for nil.
func valueOf(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}

// provePassword holds the viewer, whose account is user, to their password, which came in field.
func (s *Server) provePassword(c *fiber.Ctx, user *models.User, field, password string) error {
	ok, err := s.passwords.Match(c.UserContext(), password, user.PasswordHash)
	if err != nil {
		return err
	}
	if !ok {
		if err := s.store.LogFailedPassword(c.UserContext(), user.ID); err != nil {
			s.log.Warn("failed password not logged", "request_id", requestID(c), "error", err)
		}
		return &models.Error{Code: models.CodeForbidden, Message: "The password is wrong.",
			Fields: []models.FieldError{{Field: field, Message: "is not the password of this account"}}}
	}
	return nil
}

// changePassword ends all other sessions, so that whoever knew the old password is out.
func (s *Server) changePassword(c *fiber.Ctx) error {
	var current, password string
	if err := decode(c, fields{"current_password": &current, "new_password": &password}); err != nil {
		return err
	}
	user, err := s.store.UserByID(c.UserContext(), viewerID(c))
	if err != nil {
		return err
	}
	if err := user.ValidatePassword("new_password", password); err != nil {
		return err
	}
	if err := s.provePassword(c, user, "current_password", current); err != nil {
		return err
	}
	hash, err := s.passwords.Hash(c.UserContext(), password)
	if err != nil {
		return err
	}
	ended, err := s.store.ChangePassword(c.UserContext(), user.ID, user.PasswordHash, hash, sessionHash(c))
	if err != nil {
		return err
	}
	s.sessions.Forget(ended...)
	return c.SendStatus(http.StatusNoContent)
}

// deleteMe makes the account a placeholder. What the user liked is taken back by the cron job that voids likes.
func (s *Server) deleteMe(c *fiber.Ctx) error {
	var password string
	if err := decode(c, fields{"password": &password}); err != nil {
		return err
	}
	user, err := s.store.UserByID(c.UserContext(), viewerID(c))
	if err != nil {
		return err
	}
	if err := s.provePassword(c, user, "password", password); err != nil {
		return err
	}
	ended, err := s.store.DeleteUser(c.UserContext(), user.ID, user.PasswordHash)
	if err != nil {
		return err
	}
	s.sessions.Forget(ended...)
	return c.SendStatus(http.StatusNoContent)
}

// publicUserJSON is a user as everybody sees them.
type publicUserJSON struct {
	ID             int64       `json:"id"`
	Username       string      `json:"username"`
	DisplayName    *string     `json:"display_name"` // null: shows the username
	Bio            string      `json:"bio"`
	AvatarURL      shownAvatar `json:"avatar_url"`
	PostsCount     int64       `json:"posts_count"`
	CommentsCount  int64       `json:"comments_count"`
	FollowersCount int64       `json:"followers_count"`
	FollowingCount int64       `json:"following_count"`
	Followed       bool        `json:"followed"` // by the viewer
	Blocked        bool        `json:"blocked"`  // by the viewer
	CreatedAt      time.Time   `json:"created_at"`
}

func (s *Server) newPublicUserJSON(u *models.PublicUser) publicUserJSON {
	return publicUserJSON{
		ID: u.Author.ID, Username: u.Author.Username, DisplayName: u.Author.DisplayName, Bio: u.Bio, AvatarURL: s.avatarHosts.show(u.Author.AvatarURL),
		PostsCount: u.PostsCount, CommentsCount: u.CommentsCount, FollowersCount: u.FollowersCount, FollowingCount: u.FollowingCount,
		Followed: u.Followed, Blocked: u.Blocked, CreatedAt: u.CreatedAt,
	}
}

// existingUser reads the user's id in the path. It returns CodeNotFound if there is no such user.
func (s *Server) existingUser(c *fiber.Ctx) (int64, error) {
	id, err := pathID(c, "user")
	if err != nil {
		return 0, err
	}
	return id, s.store.UserExists(c.UserContext(), id)
}

func (s *Server) readUser(c *fiber.Ctx) error {
	id, err := pathID(c, "user")
	if err != nil {
		return err
	}
	user, err := s.store.PublicUserByID(c.UserContext(), viewerID(c), id)
	if err != nil {
		return err
	}
	return c.JSON(s.newPublicUserJSON(user))
}

// findUsers gives the user of a name, as a list of one or none: what a text mentions need not be anybody.
func (s *Server) findUsers(c *fiber.Ctx) error {
	name := c.Query("username")
	if name == "" {
		return models.Invalid("username", "must be the name of a user")
	}
	out := list[publicUserJSON]{Items: []publicUserJSON{}}
	user, err := s.store.PublicUserByName(c.UserContext(), viewerID(c), name)
	switch {
	case err == nil:
		out.Items = append(out.Items, s.newPublicUserJSON(user))
	case models.ErrorCode(err) != models.CodeNotFound:
		return err
	}
	return c.JSON(out)
}

// listUserPosts is the list of posts with the author from the path.
func (s *Server) listUserPosts(c *fiber.Ctx) error {
	id, err := s.existingUser(c)
	if err != nil {
		return err
	}
	c.Context().QueryArgs().Set("author", strconv.FormatInt(id, 10))
	return s.listPosts(c)
}
