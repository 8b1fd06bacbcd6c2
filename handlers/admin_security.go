package handlers

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/handlers/pages"
	"likewise/models"
)

// eventJSON is a row of the security log.
type eventJSON struct {
	ID        int64     `json:"id"`
	Kind      string    `json:"kind"`
	AccountID *int64    `json:"account_id"`
	ActorID   *int64    `json:"actor_id"`
	LoginHash *string   `json:"login_hash"`
	Address   *string   `json:"address"`
	UserAgent string    `json:"user_agent"`
	Detail    string    `json:"detail"`
	Count     int64     `json:"count"`
	CreatedAt time.Time `json:"created_at"` // of the first
	LastAt    time.Time `json:"last_at"`    // of the last
}

func (s *Server) listSecurityEvents(c *fiber.Ctx) error {
	var q models.EventQuery
	args := c.Context().QueryArgs()
	for parameter, id := range map[string]*int64{"account": &q.UserID, "actor": &q.ActorID} {
		if !args.Has(parameter) {
			continue
		}
		var ok bool
		if *id, ok = parseID(c.Query(parameter)); !ok {
			return models.Invalid(parameter, models.BadFormat(models.FormatID, "must be an id"))
		}
	}
	if args.Has("address") {
		address, err := netip.ParseAddr(c.Query("address"))
		if err != nil || address.Zone() != "" {
			return models.Invalid("address", models.BadFormat(models.FormatIP, "must be an IP address"))
		}
		q.Address = address.Unmap().String()
	}
	if args.Has("kind") {
		q.Kind = c.Query("kind")
		if q.Kind == "" || len(q.Kind) > maxLogWord || strings.Trim(q.Kind, logAlphabet) != "" {
			return models.Invalid("kind",
				models.BadFormat(models.FormatWord, "must be a kind of event, such as login.failed"))
		}
	}
	var err error
	if q.Since, q.Until, err = timeSpan(c); err != nil {
		return err
	}
	name := fmt.Sprintf("security:%d:%d:%s:%s:%d:%d",
		q.UserID, q.ActorID, q.Address, q.Kind, q.Since.UnixMilli(), q.Until.UnixMilli())
	return replyList(s, c, pages.Listing[models.LoggedEvent, eventJSON]{
		Name: name,
		Read: func(ctx context.Context, at pages.Position) ([]models.LoggedEvent, *models.ListKey, error) {
			q.After, q.Limit = at.After, at.Limit
			return pages.All(s.accounts.SecurityLog(ctx, q))
		},
		Key:  (*models.LoggedEvent).Key,
		Show: pages.Each(newEventJSON),
	})
}

func newEventJSON(e *models.LoggedEvent) eventJSON {
	return eventJSON{
		e.ID, e.Kind, e.UserID, e.ActorID, present(e.LoginHash), present(e.Address), e.UserAgent, e.Detail,
		e.Attempts, e.CreatedAt, e.LastAt,
	}
}
