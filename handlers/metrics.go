package handlers

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	limited  *prometheus.CounterVec
	open     prometheus.Gauge
	refused  prometheus.Counter
	inFlight prometheus.Gauge
	held     prometheus.Gauge
	known    *sync.Map // requestLabels to requestSeries
}

// requestLabels are those of a request. Only routes of the table, known methods and statuses of the API occur.
type requestLabels struct {
	method, route string
	status        int
}

// requestSeries are the series of some requestLabels, which a search by label would cost each request anew.
type requestSeries struct {
	requests prometheus.Counter
	duration prometheus.Observer
}

func newMetrics(registry *prometheus.Registry) (metrics, error) {
	m := metrics{
		known: &sync.Map{},
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "likewise_http_requests_total",
			Help: "Answered requests, by method, route pattern and status.",
		}, []string{"method", "route", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "likewise_http_request_duration_seconds",
			Help:    "Time from the request's arrival to its answer, by method and route pattern.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"method", "route"}),
	}
	m.limited = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "likewise_rate_limited_total",
		Help: "Requests refused because of a limit, by limit.",
	}, []string{"limit"})
	m.open = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "likewise_http_connections",
		Help: "Open connections.",
	})
	m.refused = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "likewise_http_connections_refused_total",
		Help: "Connections closed at once because too many were open.",
	})
	m.inFlight = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "likewise_http_requests_in_flight",
		Help: "Requests in flight, until their answers are written; an image, until its reader is sent the first byte.",
	})
	m.held = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "likewise_http_answer_bytes",
		Help: "Memory of answers and of the content they are built from, until they are written, in bytes.",
	})
	for _, c := range []prometheus.Collector{m.inFlight, m.held, m.requests, m.duration, m.limited, m.open, m.refused} {
		if err := registry.Register(c); err != nil {
			return metrics{}, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

func (m metrics) observe(method, route string, status int, took time.Duration) {
	labels := requestLabels{method, route, status}
	known, ok := m.known.Load(labels)
	if !ok {
		known, _ = m.known.LoadOrStore(labels, requestSeries{
			m.requests.WithLabelValues(method, route, strconv.Itoa(status)), m.duration.WithLabelValues(method, route),
		})
	}
	series, _ := known.(requestSeries)
	series.requests.Inc()
	series.duration.Observe(took.Seconds())
}

// noRoute labels the requests without a route, so that paths that clients invent never become labels.
const noRoute = "none"

// routeOf returns the names of a request in metrics and logs. Both come from the routing table and not from the
// request, whose memory Fiber reuses.
func routeOf(c *fiber.Ctx) (method, route string) {
	r := c.Route()
	root := c.Path() == "/" && (c.Method() == fiber.MethodGet || c.Method() == fiber.MethodHead)
	// Fiber's placeholder; our own middleware, which has the path of the root, too
	if len(r.Handlers) == 0 || r.Path == "/" && !root || r.Path == "/v1" {
		return knownMethodName(c.Method()), noRoute
	}
	return r.Method, r.Path
}

// unknownMethod stands for every unknown HTTP method, in the routing table and in metrics.
const unknownMethod = "other"

func knownMethodName(method string) string {
	for _, m := range fiber.DefaultMethods {
		if strings.EqualFold(m, method) {
			return m
		}
	}
	return unknownMethod
}
