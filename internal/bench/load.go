package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/valyala/fasthttp"

	"likewise/internal/servers"
)

// turn is one request of a load.
type turn struct {
	client int // index of the connection
	n      int // number of this request among those of its client, from 0
	i      int // number of this request among all
}

// job is a kind of request, with the answer that it must get.
type job struct {
	api     *servers.Product
	clients int // connections, one request in flight on each
	// total is the number of requests in a closed loop; 0: as many as fit into the length of a round.
	total     int
	status    int  // of the answer; 0: 200
	mayRefuse bool // 503 is an answer, too, though not one that counts
	// request sets the path of a GET, and what differs from one.
	request func(t turn, r *fasthttp.Request)
	// Each of these may be nil. answered is called for each answer that counts, probe examines one answer before the
	// load, and check is called when MySQL has everything.
	answered func(t turn, at time.Time)
	probe    func(body string) error
	check    func(ctx context.Context, requests int) error
}

// load is what a job was measured with.
type load struct {
	requests  int // all, with those that were refused
	took      time.Duration
	latencies *hdrhistogram.Histogram // of the answers that count, in microseconds
}

// rate returns the answers a second that count.
func (l *load) rate() float64 { return float64(l.latencies.TotalCount()) / l.took.Seconds() }

// newLatencies returns an empty histogram from a microsecond to a minute, exact to three digits.
func newLatencies() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, time.Minute.Microseconds(), 3)
}

// schedule decides when requests are due. Calls are serialized. It returns false when there are no more.
type schedule func(i int, now time.Time) (due time.Time, ok bool)

// closedLoop makes each client send its next request when the last one was answered, until total requests were sent
// or, if total is 0, the length is over.
func closedLoop(total int, length time.Duration) schedule {
	deadline := time.Now().Add(length)
	return func(i int, now time.Time) (time.Time, bool) {
		if total > 0 {
			return now, i < total
		}
		return now, now.Before(deadline)
	}
}

// openLoop makes total requests due at a constant rate, whether earlier ones were answered or not. If all clients are
// busy, a request is sent late. Its latency still begins when it was due, so a server that stalls is charged for all
// the requests that it has held up, as it would be by clients that know nothing of each other.
func openLoop(total int, perSecond float64) schedule {
	began := time.Now()
	return func(i int, _ time.Time) (time.Time, bool) {
		return began.Add(time.Duration(float64(i) / perSecond * float64(time.Second))), i < total
	}
}

// loader is one load in progress.
type loader struct {
	*job
	due schedule

	mu     sync.Mutex
	drawn  int
	failed error
	sum    *hdrhistogram.Histogram
}

// run sends the requests of the job on a schedule. The first unexpected answer ends the load, and is its error.
func (j *job) run(ctx context.Context, due schedule) (*load, error) {
	began := time.Now()
	l := &loader{job: j, due: due, sum: newLatencies()}
	client := j.newClient()
	defer client.CloseIdleConnections()
	var running sync.WaitGroup
	for i := range j.clients {
		running.Go(func() { l.client(ctx, client, i) })
	}
	running.Wait()
	result := &load{requests: l.drawn, took: time.Since(began), latencies: l.sum}
	return result, errors.Join(l.failed, ctx.Err())
}

func (j *job) newClient() *fasthttp.HostClient {
	return &fasthttp.HostClient{
		Addr:     j.api.Address,
		MaxConns: j.clients,
		// An answer that takes longer is an error, because the API answers or refuses every request before.
		ReadTimeout:               20 * time.Second,
		WriteTimeout:              20 * time.Second,
		MaxIdemponentCallAttempts: 1, // a request that was sent twice would be measured as one
		NoDefaultUserAgentHeader:  true,
	}
}

// draw returns the number of the next request, and when it is due.
func (l *loader) draw() (i int, due time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		return 0, time.Time{}, false
	}
	if due, ok = l.due(l.drawn, time.Now()); ok {
		l.drawn++
	}
	return l.drawn - 1, due, ok
}

// client sends one request after the other.
func (l *loader) client(ctx context.Context, client *fasthttp.HostClient, number int) {
	latencies := newLatencies()
	var request fasthttp.Request
	var response fasthttp.Response
	var err error
	timer := time.NewTimer(0)
	defer timer.Stop()
	for n := 0; err == nil && ctx.Err() == nil; n++ {
		i, due, ok := l.draw()
		if !ok {
			break
		}
		await(ctx, timer, time.Until(due))
		var counts bool
		t := turn{client: number, n: n, i: i}
		if counts, err = l.send(ctx, client, t, &request, &response); counts {
			now := time.Now()
			err = latencies.RecordValue(max(1, now.Sub(due).Microseconds()))
			if l.answered != nil {
				l.answered(t, now)
			}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sum.Merge(latencies)
	l.failed = errors.Join(l.failed, err)
}

// await waits until d has passed or ctx has ended.
func await(ctx context.Context, timer *time.Timer, d time.Duration) {
	if d <= 0 {
		return
	}
	timer.Reset(d)
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// send sends one request, and reports whether its answer counts.
func (j *job) send(
	ctx context.Context, client *fasthttp.HostClient, t turn, request *fasthttp.Request, response *fasthttp.Response,
) (counts bool, err error) {
	request.Reset()
	request.Header.SetHost(j.api.Address)
	j.request(t, request)
	if err := client.Do(request, response); err != nil {
		return false, fmt.Errorf("%s: %w", request.RequestURI(), err)
	}
	status := fasthttp.StatusOK
	if j.status > 0 {
		status = j.status
	}
	switch {
	case response.StatusCode() == status:
		return true, nil
	case j.mayRefuse && response.StatusCode() == fasthttp.StatusServiceUnavailable:
		pause(ctx, 50*time.Millisecond) // the client retries a little later
		return false, nil
	}
	return false, fmt.Errorf("%s %s: %d, not %d: %.500s", request.Header.Method(), request.RequestURI(),
		response.StatusCode(), status, response.Body())
}

// first returns the body of the answer to the job's first request.
func (j *job) first(ctx context.Context) (body string, err error) {
	client := j.newClient()
	defer client.CloseIdleConnections()
	var request fasthttp.Request
	var response fasthttp.Response
	_, err = j.send(ctx, client, turn{}, &request, &response)
	return string(response.Body()), err
}
