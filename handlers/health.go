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

	"likewise/handlers/pages"
)

// aliveBody answers /healthz on either listener.
const aliveBody = `{"status":"ok"}`

// alive reports that the process answers requests, and nothing else: restarting it would not bring back a server that
// it depends on.
func (s *Server) alive(c *fiber.Ctx) error {
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	return c.SendString(aliveBody)
}

// Bounds of the admin listener. A scrape gathers every metric and readiness queries every server, so neither runs for
// each request.
const (
	readyTimeout = 2 * time.Second // for all servers together
	readyFor     = time.Second     // how long their answers are cached
	maxScrapes   = 4               // at once
)

// AdminConfig holds the parts of a role's admin listener.
type AdminConfig struct {
	Registry *prometheus.Registry // required; its metrics are at /metrics
	// Dependencies maps the names of the servers that the role depends on to a ping. /readyz is 503 without "mysql".
	Dependencies map[string]func(ctx context.Context) error
	Stopping     <-chan struct{}  // closed when the role stops taking work, so that /readyz is 503; may be nil
	Logger       *slog.Logger     // nil means slog.Default()
	Now          func() time.Time // the clock that ages the answers of /readyz; nil means time.Now
}

// Admin returns the handler of a role's admin listener: GET /healthz, /readyz and /metrics. It registers the metric of
// the servers, so a Registry has one listener. They expose versions, pools
// and routes and have no limits by address, so clients must not be able to reach the listener.
func Admin(c AdminConfig) http.Handler {
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	r := &readiness{dependencies: c.Dependencies, stopping: c.Stopping, log: c.Logger, now: c.Now}
	c.Registry.MustRegister(r)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(c.Registry, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes}))
	mux.Handle("GET /readyz", r)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(aliveBody)) // the client is gone if this fails
	})
	return mux
}

// readiness reports whether a process should receive requests. Without MySQL it answers 503. Without Redis alone it
// answers 200, "degraded": likes are refused, but posts and comments are served, and they would not be if every process
// were taken out of service.
type readiness struct {
	dependencies map[string]func(context.Context) error
	stopping     <-chan struct{}
	log          *slog.Logger
	now          func() time.Time

	mu    sync.Mutex // held during the queries, so that concurrent requests share their result
	known readyJSON
	until time.Time // known expires
}

type readyJSON struct {
	Status       string            `json:"status"`       // "ok", "degraded", "unavailable" or "stopping"
	Dependencies map[string]string `json:"dependencies"` // "ok" or "unavailable" by name
}

func (r *readiness) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	known := r.check(context.WithoutCancel(request.Context()))
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", pages.Uncached)
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
	_, _ = w.Write(body) // the client is gone if this fails
}

var dependencyUp = prometheus.NewDesc("likewise_dependency_up",
	"1 if the server answers this process, as /readyz has it.", []string{"dependency"}, nil)

// Describe sends the description of the metric.
func (r *readiness) Describe(to chan<- *prometheus.Desc) { to <- dependencyUp }

// Collect sends the metric of each server.
func (r *readiness) Collect(to chan<- prometheus.Metric) {
	for name, state := range r.check(context.Background()).Dependencies {
		up := 0.0
		if state == "ok" {
			up = 1
		}
		to <- prometheus.MustNewConstMetric(dependencyUp, prometheus.GaugeValue, up, name)
	}
}

// check returns the state of the servers, at most readyFor old. The result is shared by all that wait, so ctx must not
// end with one of their requests.
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
			r.log.Warn("a dependency is unavailable", "dependency", name, "error", err)
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
