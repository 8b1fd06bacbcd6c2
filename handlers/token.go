package handlers

import (
	"context"
	"net/http"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/handlers/pages"
	"likewise/models"
)

// tokenJSON is an API token in the viewer's list.
type tokenJSON struct {
	ID         string     `json:"id"`
	Name       string     `json:"name"`
	Scopes     []string   `json:"scopes"`
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  time.Time  `json:"expires_at"`
	LastUsedAt *time.Time `json:"last_used_at"` // to the minute; null: never
}

// newTokenJSON is the only answer that contains the token itself.
type newTokenJSON struct {
	tokenJSON
	Token string `json:"token"`
}

func newTokenInfo(t *models.APIToken) tokenJSON {
	return tokenJSON{models.SessionID(t.Hash()), t.Name, t.Scopes.Names(), t.CreatedAt, t.ExpiresAt, t.LastUsedAt}
}

func (s *Server) listTokens(c *fiber.Ctx) error {
	return replyList(s, c, pages.Listing[models.APIToken, tokenJSON]{
		Name: pages.OfUser("tokens", viewerID(c)),
		Read: func(ctx context.Context, at pages.Position) ([]models.APIToken, *models.ListKey, error) {
			return pages.All(s.accounts.Tokens(ctx, viewerID(c), at.After, at.Limit))
		},
		Key:  (*models.APIToken).Key,
		Show: pages.Each(newTokenInfo),
	})
}

func (s *Server) createToken(c *fiber.Ctx) error {
	grant := models.TokenGrant{Days: models.DefaultTokenDays}
	err := decode(c, fields{"name": lineOf{&grant.Name}, "scopes": &grant.Scopes, "expires_in_days": &grant.Days})
	if err != nil {
		return err
	}
	token, secret, err := s.accounts.CreateToken(c.UserContext(), viewerID(c), sessionHash(c), grant)
	if err != nil {
		return err
	}
	return replyCreatedToken(c, token, secret)
}

func replyCreatedToken(c *fiber.Ctx, token *models.APIToken, secret string) error {
	return c.Status(http.StatusCreated).JSON(newTokenJSON{newTokenInfo(token), secret})
}

func (s *Server) revokeToken(c *fiber.Ctx) error {
	return s.endSessions(c)(s.accounts.RevokeToken(c.UserContext(), viewerID(c), c.Params("id")))
}
