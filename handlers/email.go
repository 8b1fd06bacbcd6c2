package handlers

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

// CheckRegistration returns an error for a mode of registration that does not exist, or that needs mail without it.
func CheckRegistration(mode Registration, mail bool) error {
	switch mode {
	case "", RegistrationOpen, RegistrationClosed:
		return nil
	case RegistrationVerified:
		if !mail {
			return errors.New("the mode verified needs mail")
		}
		return nil
	}
	return fmt.Errorf("%q is none of open, verified and closed", mode)
}

// mailedJSON is the answer to what causes a mail. It is the same whatever the mail says, and whether there is one.
type mailedJSON struct {
	Detail string `json:"detail"`
}

func replyMailed(c *fiber.Ctx) error {
	const detail = "If the address can be used for this, a mail is on its way to it."
	return c.Status(http.StatusAccepted).JSON(mailedJSON{detail})
}

// needMail returns CodeMailOff if the site sends no mail.
func (s *Server) needMail() error {
	if !s.mail {
		return models.Errorf(models.CodeMailOff,
			"This site sends no mail, so it cannot do this. Ask its administrator.")
	}
	return nil
}

// takeMail counts a mail to an address that the client names against the rate of the address.
func (s *Server) takeMail(c *fiber.Ctx, address string) error {
	return s.rates.TakeMail(c.UserContext(), s.client(c), address)
}

// recipient reads the address of a request that causes a mail to it, and counts the mail.
func (s *Server) recipient(c *fiber.Ctx) (email string, err error) {
	if err := s.needMail(); err != nil {
		return "", err
	}
	if err := decode(c, fields{"email": lineOf{&email}}); err != nil {
		return "", err
	}
	if err := models.ValidateEmail("email", email); err != nil {
		return "", err
	}
	return email, s.takeMail(c, email)
}

// requestReset has the same answer, limits and statements for any address.
func (s *Server) requestReset(c *fiber.Ctx) error {
	email, err := s.recipient(c)
	if err != nil {
		return err
	}
	if err := s.accounts.RequestReset(c.UserContext(), email); err != nil {
		return err
	}
	return replyMailed(c)
}

// resetPassword neither signs in nor passes over a second factor. A weak password does not use up the link.
func (s *Server) resetPassword(c *fiber.Ctx) error {
	var token, password string
	if err := decode(c, fields{"token": &token, "password": &password}); err != nil {
		return err
	}
	user, err := s.accounts.UserOfReset(c.UserContext(), token)
	if err != nil {
		return err
	}
	if err := user.ValidatePassword("password", password); err != nil {
		return err
	}
	hash, err := s.passwords.Hash(c.UserContext(), password)
	if err != nil {
		return err
	}
	ended, err := s.accounts.ResetPassword(c.UserContext(), token, hash)
	if err != nil {
		return err
	}
	s.sessions.Forget(ended...)
	return c.SendStatus(http.StatusNoContent)
}

func (s *Server) confirmEmail(c *fiber.Ctx) error {
	var token string
	if err := decode(c, fields{"token": &token}); err != nil {
		return err
	}
	if err := s.accounts.ConfirmEmail(c.UserContext(), token); err != nil {
		return err
	}
	return c.SendStatus(http.StatusNoContent)
}

func (s *Server) undoEmail(c *fiber.Ctx) error {
	var token string
	if err := decode(c, fields{"token": &token}); err != nil {
		return err
	}
	ended, err := s.accounts.UndoEmail(c.UserContext(), token)
	if err != nil {
		return err
	}
	s.sessions.Forget(ended...)
	return c.SendStatus(http.StatusNoContent)
}

// changeEmail answers with the account, which keeps its address until the new one is confirmed. Its present address can
// be sent, too: the mail then verifies it.
func (s *Server) changeEmail(c *fiber.Ctx) error {
	email, err := s.recipient(c)
	if err != nil {
		return err
	}
	if err := s.accounts.RequestEmail(c.UserContext(), viewerID(c), email); err != nil {
		return err
	}
	user, err := s.accounts.UserByID(c.UserContext(), viewerID(c))
	if err != nil {
		return err
	}
	return c.Status(http.StatusAccepted).JSON(s.newUserJSON(user))
}
