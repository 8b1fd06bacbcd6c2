package handlers

import (
	"fmt"
	"strconv"
	"strings"
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
}

func newMetrics(registry *prometheus.Registry) (metrics, error) {
	m := metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "likewise_http_requests_total",
			Help: "Requests answered, by method, route pattern and status.",
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
	m.open = prometheus.NewGauge(prometheus.GaugeOpts{Name: "likewise_http_connections", Help: "Connections that are open."})
	m.refused = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "likewise_http_connections_refused_total",
		Help: "Connections that were closed at once because there were too many.",
	})
	m.inFlight = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "likewise_http_requests_in_flight",
		Help: "Requests of /v1 that are under way: until their answers are written.",
	})
	m.held = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "likewise_http_answer_bytes",
		Help: "Memory that answers take until they are written, in bytes, and the content that they are made of.",
	})
	for _, c := range []prometheus.Collector{m.inFlight, m.held, m.requests, m.duration, m.limited, m.open, m.refused} {
		if err := registry.Register(c); err != nil {
			return metrics{}, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

func (m metrics) observe(method, route string, status int, took time.Duration) {
	m.requests.WithLabelValues(method, route, strconv.Itoa(status)).Inc()
	m.duration.WithLabelValues(method, route).Observe(took.Seconds())
}

// noRoute labels the requests that match no route, so that what clients make up never becomes a label.
const noRoute = "none"

// routeOf names a request in metrics and logs. Both names come from the routing table and not from the request, whose
// memory is used again.
func routeOf(c *fiber.Ctx) (method, route string) {
	r := c.Route()
	if len(r.Handlers) == 0 || r.Path == "/" || r.Path == "/v1" { // Fiber's placeholder; our own middleware
		return knownMethodName(c.Method()), noRoute
	}
	return r.Method, r.Path
}

// unknownMethod names what is not a method of HTTP, in the routing table and in metrics.
const unknownMethod = "other"

func knownMethodName(method string) string {
	for _, m := range fiber.DefaultMethods {
		if strings.EqualFold(m, method) {
			return m
		}
	}
	return unknownMethod
}
