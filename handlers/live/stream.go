package live

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"likewise/models"
)

const (
	// A client reconnects after reconnectMin to reconnectMin+reconnectSpread ms. Clients that lose a server at the same
	// time must not reach the next one at the same time.
	reconnectMin, reconnectSpread = 1000, 4000
	// sendBuffer bounds what the kernel buffers for a client, in bytes.
	sendBuffer = 16 << 10
	// vanishedAfter is how long sent data may stay unacknowledged before the kernel drops the connection.
	vanishedAfter = 30 * time.Second
)

// bound limits what the kernel buffers for a client, and how long it retransmits to one that has vanished. The stream
// works without these options, so errors are ignored.
func bound(conn net.Conn) {
	if wrapped, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = wrapped.NetConn()
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	_ = tcp.SetWriteBuffer(sendBuffer)
	if raw, err := tcp.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(vanishedAfter.Milliseconds()))
		})
	}
}

// Client is who opens a stream.
type Client struct {
	From  string   // the key of its address
	Owner [32]byte // only a caller with the same value may change the stream
	// Viewer is the id of its user; 0 for the anonymous.
	Viewer int64
	// Valid is asked before each write but the first while the stream is private. Once it reports false, the stream
	// ends.
	Valid func() bool
}

// Following is what a stream follows.
type Following struct {
	Targets []models.Target
	Known   map[models.Target]*Counts // of all targets, as the caller has just read them
	Private bool                      // see Client.Valid
	News    bool                      // whether a target has news, of which Blocked hides some
	Blocked []int64                   // users whom the viewer blocks; the Hub reads them again from time to time
}

// Serve opens a stream on a hijacked connection, and closes conn when the stream ends. head is the header of the
// answer. resume is the id of the last event that the client received, or "". id names the stream, and nobody can guess
// it. If Serve returns an error, which is that of Admit, it has not used conn.
func (h *Hub) Serve(conn net.Conn, id string, client Client, f Following, head []byte, resume string) error {
	s := newStream(h, id, client)
	s.conn = conn
	if err := h.join(s, f); err != nil {
		return err
	}
	bound(conn)
	go s.serve(head, resume)
	go s.discard()
	return nil
}

// stream is one client of the Hub. It sends the counts of its targets that differ from sent: there is no queue.
type stream struct {
	hub      *Hub
	id       string
	from     string // the key of the client's address
	owner    [32]byte
	viewer   int64
	conn     net.Conn
	valid    func() bool             // see Client
	follows  atomic.Pointer[follows] // stored with Hub.mu locked
	blocked  atomic.Pointer[map[int64]bool]
	sending  *follows  // what sent is about; used by serve alone
	sent     []*Counts // the counts of each target that the client has; used by serve alone
	changed  chan struct{}
	replaced chan struct{} // what the stream follows was replaced
	ended    chan struct{}
	once     sync.Once
}

// follows is what a stream follows. It is immutable.
type follows struct {
	targets []*watched
	private bool
	news    bool
}

func newStream(h *Hub, id string, client Client) *stream {
	s := &stream{
		hub: h, id: id, from: client.From, owner: client.Owner, viewer: client.Viewer, valid: client.Valid,
		sending: &follows{},
		changed: make(chan struct{}, 1), replaced: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	s.follows.Store(s.sending)
	return s
}

// wake makes the stream compare its targets with what it has sent.
func (s *stream) wake() {
	select {
	case s.changed <- struct{}{}:
	default: // it will anyway
	}
}

// end makes serve and discard return. The client can still read what was written.
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
	head = strconv.AppendInt(head, reconnectMin+rand.Int64N(reconnectSpread), 10)
	head = fmt.Appendf(head, "\n\nevent: stream\ndata: {\"type\":\"stream\",\"id\":%q}\n\n", s.id)
	s.resume(resume)
	if !s.write(s.appendChanges(head)) {
		return
	}
	written := time.Now()
	heartbeat := time.NewTimer(s.hub.Pace.Heartbeat)
	defer heartbeat.Stop()
	for {
		text := []byte(":\n\n")
		select {
		case <-s.ended:
			return
		case <-heartbeat.C:
		case <-s.changed:
			if !s.pause(s.hub.Pace.Round - time.Since(written)) {
				return
			}
			text = s.appendChanges(nil)
		case <-s.replaced:
			text = s.appendChanges(nil)
		}
		if text == nil {
			continue
		}
		if s.sending.private && !s.valid() || !s.write(text) {
			return
		}
		written = time.Now()
		heartbeat.Reset(s.hub.Pace.Heartbeat)
	}
}

// pause waits for d, or until what the stream follows was replaced. It reports false if the stream ends before.
func (s *stream) pause(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-s.ended:
		return false
	case <-s.replaced:
		return true
	case <-timer.C:
		return true
	}
}

// update makes sent be about what the stream follows now.
func (s *stream) update() {
	now := s.follows.Load()
	if now == s.sending {
		return
	}
	had := make(map[models.Target]*Counts, len(s.sent))
	for i, w := range s.sending.targets {
		had[w.target] = s.sent[i]
	}
	s.sending, s.sent = now, make([]*Counts, len(now.targets))
	for i, w := range now.targets {
		s.sent[i] = had[w.target]
	}
}

// latest returns the event of a target, as the viewer of the stream may see it.
func (s *stream) latest(w *watched) *Counts { return w.counts.Load().without(*s.blocked.Load()) }

// resume marks the counts as sent that id stands for, the id of the last event that the client received. An id holds
// the digests of all targets. If it belongs to another list of targets, no digest matches, and all counts are sent.
func (s *stream) resume(id string) {
	s.update()
	if len(id) != digestLength*len(s.sent) {
		return
	}
	for i, w := range s.sending.targets {
		if now := s.latest(w); id[digestLength*i:digestLength*(i+1)] == now.digest {
			s.sent[i] = now
		}
	}
}

// appendChanges appends an event to text for each target whose counts the client does not have. Only the last event has
// the id: a client that did not receive all of them resumes before the first.
func (s *stream) appendChanges(text []byte) []byte {
	s.update()
	last, events := 0, 0
	for i, w := range s.sending.targets {
		now := s.latest(w)
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
	err := s.conn.SetWriteDeadline(time.Now().Add(s.hub.Pace.Write))
	if err == nil {
		_, err = s.conn.Write(text)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, unix.ETIMEDOUT) {
		s.hub.metrics.dropped.Inc()
	}
	return err == nil
}

// discard reads and drops what the client sends, to notice when it disconnects.
func (s *stream) discard() {
	defer s.hub.running.Done()
	defer s.end()
	var buffer [64]byte // io.Discard would take 8 KiB for each client
	for {
		if _, err := s.conn.Read(buffer[:]); err != nil {
			return // and the stream ends, whatever the error
		}
	}
}
