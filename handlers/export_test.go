package handlers

import (
	"context"
	"maps"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"likewise/handlers/admission"
	"likewise/handlers/signin"
	"likewise/models"
)

// Routes returns the routes that Fiber serves, without middleware.
func (s *Server) Routes() []fiber.Route { return s.app.GetRoutes(true) }

// Answer serves one request without a connection.
func (s *Server) Answer(r *fasthttp.RequestCtx) { s.app.Server().Handler(r) }

// RouteLimit is the limit of a route as it is in the table.
type RouteLimit struct {
	None, Read, Counted bool // limitNone; a read; with a quota, or counted by the handler
}

// Limits returns the limit of each route, by method and path.
func (s *Server) Limits() map[string]RouteLimit {
	limits := map[string]RouteLimit{}
	for _, row := range s.table {
		l := row.limit
		counted := l.quota != nil || l == limitRegister || l == limitLike
		limits[row.method+" "+row.path] = RouteLimit{None: l == limitNone, Read: l != limitNone && !counted,
			Counted: counted}
	}
	return limits
}

// ProblemStatuses returns the status of each code of a problem.
func ProblemStatuses() map[models.Code]int {
	all := maps.Clone(statuses)
	for status, refusal := range transport {
		all[refusal.code] = status
	}
	return all
}

// Hashes returns how often a password was hashed.
func (s *Server) Hashes() int64 { return s.passwords.Hashed() }

// SharedBytes returns what the cache of shared reads counts against its bound.
func (s *Server) SharedBytes() uint64 { return s.shared.Bytes() }

// FillExpensiveShare takes every place for expensive requests of users, until release.
func (s *Server) FillExpensiveShare() (release func()) {
	var all []*admission.Place
	for range cap(s.expensive) {
		p := admission.NewPlace(s.expensive)
		if err := p.Enter(context.Background()); err != nil {
			panic(err) // impossible: it would wait
		}
		all = append(all, p)
	}
	return func() {
		for _, p := range all {
			p.Leave()
		}
	}
}

// Permissions returns the permission of each route, by method and path.
func (s *Server) Permissions() map[string]models.Permission {
	permissions := map[string]models.Permission{}
	for _, row := range s.table {
		permissions[row.method+" "+row.path] = row.permission
	}
	return permissions
}

// HashCheaply makes hashes of passwords cost next to nothing from here on. Call it before the first test.
func HashCheaply() { signin.Cost.Memory, signin.Cost.Iterations = 64, 1 }
