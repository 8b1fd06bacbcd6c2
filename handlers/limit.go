package handlers

import (
	"github.com/gofiber/fiber/v2"

	"likewise/handlers/admission"
	"likewise/models/db"
)

// routeLimit is what a request of a route is counted against. Every request also counts once against its address.
type routeLimit struct {
	quota *admission.Quota // nil: none of its own
	// cost is how many requests of its address the request counts as; 0 means 1. It weighs the work of the databases:
	// index reads for each row of a page, and rows of several tables. A cost above 1 makes the request expensive: it
	// runs in an admission.Share. What a list examined is charged in addition, by charge.
	cost int
	// including is the cost with ?include=, which reads a list, too; 0 means the same.
	including int
	// searchable means that a request with ?q= counts against admission.SearchQuota.
	searchable bool
}

// The limits of routes, by name; routes.go assigns one to each.
var (
	limitNone = &routeLimit{} // not counted and never refused

	limitRead         = &routeLimit{searchable: true}
	limitReadList     = &routeLimit{searchable: true, cost: 2}
	limitReadComments = &routeLimit{searchable: true, cost: 3} // a list with the first replies
	limitReadLarge    = &routeLimit{searchable: true, cost: 5} // rows of many tables or authors
	limitReadTags     = &routeLimit{cost: 2}                   // ?q= reads an index alone
	limitReadProfile  = &routeLimit{searchable: true, including: 3}

	limitWrite    = &routeLimit{quota: &admission.WriteQuota}
	limitNote     = &routeLimit{quota: &admission.NoteQuota} // it changes nothing that others see
	limitUpload   = &routeLimit{quota: &admission.UploadQuota}
	limitPost     = &routeLimit{quota: &admission.PostQuota}
	limitComment  = &routeLimit{quota: &admission.CommentQuota}
	limitReport   = &routeLimit{quota: &admission.ReportQuota}
	limitPassword = &routeLimit{quota: &admission.PasswordQuota}
	limitLogin    = &routeLimit{quota: &admission.LoginQuota}
	limitMail     = &routeLimit{quota: &admission.MailQuota}            // and a rate of the recipient; see takeMail
	limitRender   = &routeLimit{quota: &admission.RenderQuota, cost: 2} // and more by the length of the text

	// The handlers of these count by themselves.
	limitRegister = &routeLimit{cost: 1} // admission.RegisterQuota, after the fields were validated
	limitLike     = &routeLimit{cost: 1} // admission.Rates.Like
)

// spend counts a request against the limit of its route and runs the rest of the chain. It runs after the session is
// known.
func (s *Server) spend(c *fiber.Ctx, limit *routeLimit) error {
	quota := limit.quota
	if limit.searchable && c.Context().QueryArgs().Has("q") {
		quota = &admission.SearchQuota
	}
	cost := limit.cost
	if limit.including > 0 && c.Context().QueryArgs().Has("include") {
		cost = limit.including
	}
	if quota == nil && cost <= 1 {
		return c.Next()
	}
	from := s.client(c)
	if quota != nil {
		if err := s.rates.Take(c.UserContext(), from, *quota); err != nil {
			return err
		}
	}
	if cost <= 1 {
		return c.Next()
	}
	if err := s.rates.Weigh(from, 1, cost); err != nil { // countRequest has taken one
		return err
	}
	share := s.expensive
	if from.Moderator {
		share = s.moderatorShare // a moderator may have to end what all others wait for
	}
	p := admission.NewPlace(share)
	defer p.Leave()
	c.Locals(placeKey, p)
	c.SetUserContext(db.WithEntrance(c.UserContext(), p.Enter))
	return c.Next()
}

// hasPlace reports whether the request has a place in an admission.Share.
func hasPlace(c *fiber.Ctx) bool {
	p, ok := c.Locals(placeKey).(*admission.Place)
	return ok && p.Has()
}

// charge counts the index entries that a list has examined.
func (s *Server) charge(c *fiber.Ctx, examined int) {
	s.rates.Charge(c.UserContext(), s.client(c), examined, c.Context().QueryArgs().Has("q"))
}
