package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics count requests of browsers, and those to the API. Their labels come from the routes, and never from a path.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	api      *prometheus.HistogramVec
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	buckets := []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "likewise_web_requests_total",
			Help: "Answered requests for pages, by method, route pattern and status.",
		}, []string{"method", "route", "status"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "likewise_web_request_duration_seconds",
			Help:    "Time from a request's arrival to the first byte of its answer, by method and route pattern.",
			Buckets: buckets,
		}, []string{"method", "route"}),
		api: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "likewise_web_api_request_duration_seconds",
			Help:    "Time until the API has begun to answer, by method and status; none, if it did not answer.",
			Buckets: buckets,
		}, []string{"method", "status"}),
	}
	for _, c := range []prometheus.Collector{m.requests, m.duration, m.api} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}

// noRoute labels the requests without a route, so that what clients invent never becomes a label.
const noRoute = "none"

// count wraps the routes. They set the pattern of the request.
func (m *metrics) count(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o := &observed{ResponseWriter: w, began: time.Now()}
		defer func() { // the proxy panics if a browser leaves
			method, route, found := strings.Cut(r.Pattern, " ")
			if !found {
				method, route = noRoute, noRoute
			}
			if o.status == 0 {
				o.begin(http.StatusOK)
			}
			m.requests.WithLabelValues(method, route, strconv.Itoa(o.status)).Inc()
			m.duration.WithLabelValues(method, route).Observe(o.took.Seconds())
		}()
		next.ServeHTTP(o, r)
	})
}

// observed remembers the status of an answer, and when it began. A stream would otherwise take as long as it is open.
type observed struct {
	http.ResponseWriter

	began  time.Time
	took   time.Duration
	status int
}

func (o *observed) begin(status int) {
	if o.status == 0 && status >= http.StatusOK {
		o.status, o.took = status, time.Since(o.began)
	}
}

func (o *observed) WriteHeader(status int) {
	o.begin(status)
	o.ResponseWriter.WriteHeader(status)
}

func (o *observed) Write(p []byte) (int, error) {
	o.begin(http.StatusOK)
	return o.ResponseWriter.Write(p)
}

// Unwrap lets the proxy flush the events of a stream.
func (o *observed) Unwrap() http.ResponseWriter { return o.ResponseWriter }

// timed is a transport to the API that measures its requests.
type timed struct {
	http.RoundTripper

	seen *prometheus.HistogramVec
}

func (t timed) RoundTrip(r *http.Request) (*http.Response, error) {
	began := time.Now()
	resp, err := t.RoundTripper.RoundTrip(r)
	switch {
	case err == nil:
		t.seen.WithLabelValues(r.Method, strconv.Itoa(resp.StatusCode)).Observe(time.Since(began).Seconds())
	case !errors.Is(err, context.Canceled): // the browser has left
		t.seen.WithLabelValues(r.Method, noRoute).Observe(time.Since(began).Seconds())
	}
	return resp, err
}
