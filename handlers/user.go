package handlers

import (
	"net/http"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

type userJSON struct {
	ID        int64     `json:"id"`
	Username  string    `json:"username"`
	Email     *string   `json:"email"` // null: the account has none
	Role      string    `json:"role"`
	CreatedAt time.Time `json:"created_at"`
}

func newUserJSON(u *models.User) userJSON {
	out := userJSON{ID: u.ID, Username: u.Username, Role: u.Role.String(), CreatedAt: u.CreatedAt}
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
	hash, err := s.passwords.hash(c.UserContext(), in.Password)
	if err != nil {
		return err
	}
	user := &models.User{Username: in.Username, Email: in.Email, PasswordHash: hash}
	if err := s.store.CreateUser(c.UserContext(), user); err != nil {
		return err
	}
	return s.replyCreatedUser(c, user)
}

func (s *Server) openSession(c *fiber.Ctx, status int, user *models.User) error {
	token, err := s.store.CreateSession(c.UserContext(), user.ID)
	if err != nil {
		return err
	}
	return c.Status(status).JSON(sessionJSON{newUserJSON(user), token})
}

func (s *Server) login(c *fiber.Ctx) error {
	var name, password string
	if err := decode(c, fields{"login": &name, "password": &password}); err != nil {
		return err
	}
	user, err := s.store.UserByLogin(c.UserContext(), name)
	if models.ErrorCode(err) == models.CodeNotFound {
		user, err = &models.User{}, nil // goes the same way, to the same answer in the same time
	}
	if err != nil {
		return err
	}
	ok, err := s.passwords.match(c.UserContext(), password, user.PasswordHash)
	if err != nil {
		return err
	}
	if !ok {
		return models.Errorf(models.CodeUnauthorized, "The login or the password is wrong.")
	}
	return s.openSession(c, http.StatusOK, user)
}

func (s *Server) logout(c *fiber.Ctx) error {
	token, err := bearer(c)
	if err != nil {
		return err
	}
	if err := s.store.DeleteSession(c.UserContext(), models.HashToken(token)); err != nil {
		return err
	}
	s.sessions.forget(token)
	return c.SendStatus(http.StatusNoContent)
}

func (s *Server) me(c *fiber.Ctx) error {
	user, err := s.store.UserByID(c.UserContext(), viewerID(c))
	if err != nil {
		return err
	}
	return c.JSON(newUserJSON(user))
}
