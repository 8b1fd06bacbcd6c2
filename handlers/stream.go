package handlers

import (
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
	"golang.org/x/sys/unix"

	"likewise/counters"
	"likewise/models"
)

const (
	mimeEventStream = "text/event-stream"
	// maxStreamTargets is how many posts and comments one stream may watch.
	maxStreamTargets = 100
	// maxStreams is how many streams a process holds unless it is told otherwise, and maxStreamsOfOne how many of them one
	// address may have, times Config.LimitFactor. A school has one address for all, and a hundredth of all is what it may
	// take from others.
	maxStreams, maxStreamsOfOne = 10_000, 100
	// maxWatched is how many posts and comments all streams of a process watch together: a second of reading. One address
	// may have maxWatchedOfOne of them watched, times Config.LimitFactor.
	maxWatched, maxWatchedOfOne = 20_000, 4_000
	// fewStreams is how many streams an address may have while three quarters of all are open.
	fewStreams = 10
	// retryCrowded is when a client is asked to try again whose address has too many streams.
	retryCrowded = 10 * time.Second
	// retryFrom and retrySpread say after how many milliseconds a client connects again. Clients that lose a server at the
	// same moment must not come to the next one at the same moment.
	retryFrom, retrySpread = 1000, 4000
	// streamSendBuffer is what the kernel may hold for a client, in bytes.
	streamSendBuffer = 16 << 10
	// vanishedAfter is how long the network may be silent about what was written.
	vanishedAfter = 30 * time.Second
)

// openStream tells of counts as they change, in server-sent events. The connection is taken out of the server's hands:
// that writes an answer within one deadline, and a stream has one for each write.
func (s *Server) openStream(c *fiber.Ctx) error {
	targets, err := streamTargets(c)
	if err != nil {
		return err
	}
	from := networkOf(s.clientAddress(c))
	if err := s.hub.admit(from, nil, nil); err != nil {
		return s.crowded(c, err)
	}
	known := s.hub.latest(targets)
	if unknown := slices.DeleteFunc(slices.Clone(targets), func(t models.Target) bool { return known[t] != nil }); len(unknown) > 0 {
		read, err := s.activities(c.UserContext(), unknown)
		if err != nil {
			return err
		}
		maps.Copy(known, read)
	}
	if !slices.ContainsFunc(targets, func(t models.Target) bool { return !known[t].gone }) {
		return models.Errorf(models.CodeNotFound, "There are no such posts or comments.")
	}
	if err := s.hub.admit(from, targets, known); err != nil {
		return s.crowded(c, err)
	}
	c.Set(fiber.HeaderContentType, mimeEventStream)
	c.Set(fiber.HeaderCacheControl, "no-store, no-transform") // a proxy that compresses would hold events back
	c.Set("X-Accel-Buffering", "no")                          // so would nginx
	if c.Method() == fiber.MethodHead {
		return nil
	}
	c.Context().SetConnectionClose()
	stream := &stream{
		hub: s.hub, from: from, targets: make([]*watched, len(targets)), sent: make([]*counts, len(targets)),
		changed: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	resume, request := strings.Clone(c.Get("Last-Event-ID")), strings.Clone(requestID(c))
	// The header is written by the stream, when it has joined: the answer must not end with a length.
	c.Response().Header.SetContentLength(-2)
	head := c.Response().Header.AppendBytes(nil)
	var refused fasthttp.ResponseHeader
	c.Response().Header.CopyTo(&refused)
	c.Context().HijackSetNoResponse(true)
	c.Context().Hijack(func(conn net.Conn) {
		if wrapped, ok := conn.(interface{ UnsafeConn() net.Conn }); ok {
			conn = wrapped.UnsafeConn() // what the server has read ahead is not for us
		}
		stream.conn = conn
		if err := s.hub.join(stream, targets, known); err != nil { // the last place was taken since
			s.refuseStream(conn, &refused, request, err)
			return
		}
		bound(conn)
		go stream.serve(head, resume)
		go stream.discard()
	})
	return nil
}

// crowded counts a refusal that the client's own address is the reason for.
func (s *Server) crowded(c *fiber.Ctx, err error) error {
	if models.ErrorCode(err) == models.CodeRateLimited {
		s.metrics.limited.WithLabelValues("streams-by-address").Inc()
		streams := s.hub.limits.ofOne.streams
		setLimitHeaders(c, "streams-by-address", counters.Rate{Burst: streams, Every: retryCrowded / time.Duration(streams)}, counters.Taken{ResetAfter: retryCrowded})
	}
	return err
}

// refuseStream answers with an error on a connection that was taken out of the server's hands, and closes it.
func (s *Server) refuseStream(conn net.Conn, header *fasthttp.ResponseHeader, request string, err error) {
	defer conn.Close()
	text := newProblem(err, request)
	body, err := json.Marshal(text)
	if err != nil {
		return
	}
	header.SetStatusCode(text.Status)
	header.SetContentType(mimeProblem)
	header.SetContentLength(len(body))
	header.Set(fiber.HeaderRetryAfter, strconv.FormatInt(seconds(retryCrowded), 10))
	if conn.SetWriteDeadline(time.Now().Add(s.hub.pace.write)) == nil {
		_, _ = conn.Write(header.AppendBytes(nil)) // that the client is gone is no news
		_, _ = conn.Write(body)
	}
}

// streamTargets reads ?posts= and ?comments=, each a comma-separated list of ids, and gives every target once, in an
// order that depends on nothing else: ids of events rely on it.
func streamTargets(c *fiber.Ctx) ([]models.Target, error) {
	var targets []models.Target
	for _, list := range []struct {
		name string
		kind models.TargetKind
	}{{"posts", models.KindPost}, {"comments", models.KindComment}} {
		if !c.Context().QueryArgs().Has(list.name) {
			continue
		}
		var ids []int64
		for text := range strings.SplitSeq(c.Query(list.name), ",") {
			id, ok := parseID(text)
			if !ok {
				return nil, models.Invalid(list.name, "must be a comma-separated list of ids")
			}
			ids = append(ids, id)
		}
		slices.Sort(ids)
		for _, id := range slices.Compact(ids) {
			targets = append(targets, models.Target{Kind: list.kind, ID: id})
		}
		if len(targets) > maxStreamTargets {
			return nil, models.Invalid(list.name, "must name at most "+strconv.Itoa(maxStreamTargets)+" posts and comments in all")
		}
	}
	if len(targets) == 0 {
		return nil, models.Invalid("posts", "must name what to watch, unless comments does")
	}
	return targets, nil
}

// bound lets the kernel hold little for a client, and give a client up that does not answer. That it may refuse is no
// reason to refuse the client.
func bound(conn net.Conn) {
	if l, ok := conn.(*lingeringConn); ok {
		conn = l.Conn
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	_ = tcp.SetWriteBuffer(streamSendBuffer)
	if raw, err := tcp.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(vanishedAfter.Milliseconds()))
		})
	}
}

// stream is one client of the hub. What it has to send is what of its targets differs from sent: there is no queue.
type stream struct {
	hub     *hub
	from    string // the network of the client
	conn    net.Conn
	targets []*watched // fixed by join
	sent    []*counts  // of each target what the client has; serve's alone
	changed chan struct{}
	ended   chan struct{}
	once    sync.Once
}

// wake lets the stream look at its targets.
func (s *stream) wake() {
	select {
	case s.changed <- struct{}{}:
	default: // it is about to anyway
	}
}

// end makes serve and discard return. What a client has not read it may still read.
func (s *stream) end() {
	s.once.Do(func() {
		close(s.ended)
		s.conn.Close()
	})
}

// serve writes to the client until the stream ends.
func (s *stream) serve(head []byte, resume string) {
	defer s.hub.running.Done()
	defer s.hub.leave(s)
	defer s.end()
	head = append(head, "retry: "...)
	head = strconv.AppendInt(head, retryFrom+rand.Int64N(retrySpread), 10)
	head = append(head, "\n\n"...)
	s.resume(resume)
	if !s.write(s.news(head)) {
		return
	}
	written := time.Now()
	heartbeat := time.NewTimer(s.hub.pace.heartbeat)
	defer heartbeat.Stop()
	for {
		text := []byte(":\n\n")
		select {
		case <-s.ended:
			return
		case <-heartbeat.C:
		case <-s.changed:
			if !s.rest(s.hub.pace.round - time.Since(written)) {
				return
			}
			if text = s.news(nil); text == nil {
				continue
			}
		}
		if !s.write(text) {
			return
		}
		written = time.Now()
		heartbeat.Reset(s.hub.pace.heartbeat)
	}
}

// rest waits so long, unless the stream ends before.
func (s *stream) rest(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	pause := time.NewTimer(d)
	defer pause.Stop()
	select {
	case <-s.ended:
		return false
	case <-pause.C:
		return true
	}
}

// resume takes for sent what the id of the last event that the client got stands for. The id is the digests of all
// targets; that of another list of targets fits nothing, and everything is sent.
func (s *stream) resume(id string) {
	if len(id) != digestLength*len(s.targets) {
		return
	}
	for i, w := range s.targets {
		if now := w.counts.Load(); id[digestLength*i:digestLength*(i+1)] == now.digest {
			s.sent[i] = now
		}
	}
}

// news appends to text an event for each target whose counts the client does not have. The last of them has the id: a
// client that did not get all of them resumes from before.
func (s *stream) news(text []byte) []byte {
	last, events := 0, 0
	for i, w := range s.targets {
		now := w.counts.Load()
		if s.sent[i] != nil && string(s.sent[i].event) == string(now.event) {
			continue
		}
		s.sent[i] = now
		last = len(text)
		events++
		text = append(text, now.event...)
	}
	if events == 0 {
		return text
	}
	s.hub.metrics.events.Add(float64(events))
	event := slices.Clone(text[last:])
	text = append(text[:last], "id: "...)
	for _, sent := range s.sent {
		text = append(text, sent.digest...)
	}
	return append(append(text, '\n'), event...)
}

func (s *stream) write(text []byte) bool {
	err := s.conn.SetWriteDeadline(time.Now().Add(s.hub.pace.write))
	if err == nil {
		_, err = s.conn.Write(text)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, unix.ETIMEDOUT) {
		s.hub.metrics.dropped.Inc()
	}
	return err == nil
}

// discard reads what the client has no business to send, and so notices when it goes away.
func (s *stream) discard() {
	defer s.hub.running.Done()
	defer s.end()
	var few [64]byte // io.Discard would take 8 KiB for each client
	for {
		if _, err := s.conn.Read(few[:]); err != nil {
			return // however it ends, the stream ends with it
		}
	}
}
