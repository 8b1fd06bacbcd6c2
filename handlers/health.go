package handlers

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// aliveBody answers /healthz on either listener.
const aliveBody = `{"status":"ok"}`

// alive says that the process runs and answers, and nothing else: a process does not get better by being restarted
// because a server that it needs is away.
func (s *Server) alive(c *fiber.Ctx) error {
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	return c.SendString(aliveBody)
}

// Bounds of the admin listener. A scrape gathers every metric and readiness asks every server, so neither is done for
// each request that arrives.
const (
	readyTimeout = 2 * time.Second // for the answers of all servers
	readyFor     = time.Second     // how long their answers stand for others who ask
	maxScrapes   = 4               // at once
)

// AdminConfig is what the admin listener of a role shows.
type AdminConfig struct {
	Registry *prometheus.Registry // required; /metrics shows everything that is registered in it
	// Dependencies are the servers that the role needs, by name. "mysql" is the one without which /readyz is 503.
	Dependencies map[string]func(ctx context.Context) error
	Stopping     <-chan struct{}  // closed when the role takes no more work: /readyz is 503 from then on; nil means never
	Logger       *slog.Logger     // nil means slog.Default()
	Now          func() time.Time // the clock that ages what /readyz knows; nil means time.Now
}

// Admin returns the handler of a role's admin listener: GET /healthz, /readyz and /metrics. They show versions, pools
// and routes and are not limited by address, so the listener must not be reachable by clients.
func Admin(c AdminConfig) http.Handler {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	r := &readiness{dependencies: c.Dependencies, stopping: c.Stopping, log: c.Logger, now: c.Now}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(c.Registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes}))
	mux.Handle("GET /readyz", r)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(aliveBody)) // nobody is left to report a failure to
	})
	return mux
}

// readiness answers whether a process should get work. Without MySQL there is nothing to read: 503. Without Redis alone
// the answer is 200, "degraded": likes are refused, but posts and comments are read and written, and taking every
// copy of the API out of service would end that too.
type readiness struct {
	dependencies map[string]func(context.Context) error
	stopping     <-chan struct{}
	log          *slog.Logger
	now          func() time.Time

	mu    sync.Mutex // held while the servers are asked: others who ask meanwhile wait and share the answer
	known readyJSON
	until time.Time // known stands
}

type readyJSON struct {
	Status       string            `json:"status"`       // "ok", "degraded", "unavailable" or "stopping"
	Dependencies map[string]string `json:"dependencies"` // "ok" or "unavailable" by name
}

func (r *readiness) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	known := r.check(context.WithoutCancel(request.Context()))
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", uncached)
	select {
	case <-r.stopping:
		known.Status = "stopping"
	default:
	}
	if known.Status == "unavailable" || known.Status == "stopping" {
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	body, err := json.Marshal(known)
	if err != nil { // strings only: it cannot be
		body = nil
	}
	_, _ = w.Write(body) // nobody is left to report a failure to
}

// check returns what the servers answered within readyFor, and asks them if that is longer ago. The answer is for all
// who wait, so ctx must not end with one of their requests.
func (r *readiness) check(ctx context.Context) readyJSON {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now().Before(r.until) {
		return r.known
	}
	r.known = r.ask(ctx)
	r.until = r.now().Add(readyFor)
	return r.known
}

func (r *readiness) ask(ctx context.Context) readyJSON {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	out := readyJSON{Status: "ok", Dependencies: map[string]string{}}
	var asking sync.WaitGroup
	var mu sync.Mutex
	for name, ping := range r.dependencies {
		asking.Go(func() {
			err := ping(ctx)
			mu.Lock()
			defer mu.Unlock()
			out.Dependencies[name] = "ok"
			if err == nil {
				return
			}
			r.log.Warn("dependency is away", "dependency", name, "error", err)
			out.Dependencies[name] = "unavailable"
			switch {
			case name == "mysql":
				out.Status = "unavailable"
			case out.Status == "ok":
				out.Status = "degraded"
			}
		})
	}
	asking.Wait()
	return out
}
