package handlers

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
)

// alive says that the process runs and answers, and nothing else: a process does not get better by being restarted
// because a server that it needs is away.
func (s *Server) alive(c *fiber.Ctx) error { return c.JSON(fiber.Map{"status": "ok"}) }

// readyTimeout bounds how long a dependency is waited for.
const readyTimeout = 2 * time.Second

type readyJSON struct {
	Status       string            `json:"status"`       // "ok", "degraded" or "unavailable"
	Dependencies map[string]string `json:"dependencies"` // "ok" or "unavailable" by name
}

// readiness says whether requests should come here. Without MySQL there is nothing to read: 503. Without Redis alone
// the answer is 200, "degraded": likes are refused, but posts and comments are read and written, and taking every
// copy of the API out of service would end that too.
func (s *Server) readiness(c *fiber.Ctx) error {
	ctx, cancel := context.WithTimeout(c.UserContext(), readyTimeout)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	out := readyJSON{Status: "ok", Dependencies: map[string]string{}}
	down := map[string]error{}
	ask := func(name string, ping func(context.Context) error) {
		wg.Go(func() {
			err := ping(ctx)
			mu.Lock()
			defer mu.Unlock()
			out.Dependencies[name] = "ok"
			if err != nil {
				out.Dependencies[name], down[name] = "unavailable", err
			}
		})
	}
	ask("mysql", s.store.Ping)
	for name, ping := range s.ready {
		ask(name, ping)
	}
	wg.Wait()
	for name, err := range down {
		out.Status = "degraded"
		s.log.Warn("dependency is away", "dependency", name, "error", err)
	}
	if down["mysql"] != nil {
		out.Status = "unavailable"
		c.Set(fiber.HeaderRetryAfter, "1")
		c.Status(http.StatusServiceUnavailable)
	}
	return c.JSON(out)
}
