package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"
)

// flow is what a proxy does with the bytes that it receives.
type flow int

const (
	through flow = iota
	cut          // every connection is reset, and so is each new one
	stalled      // bytes are delayed until the fault is healed, as by a broken network route
	lost         // bytes are lost; the connection stays open until it is reset at the end of the fault
	deaf         // requests arrive and replies are lost; the connection is reset at the end of the fault
)

// condition is the state of a network link. Delay and rate apply only if bytes pass.
type condition struct {
	flow  flow
	delay time.Duration // of all data, each way
	rate  int           // in bytes a second each way; 0 means unlimited
}

// proxy is a TCP proxy between the product and one of its servers.
type proxy struct {
	listener net.Listener

	mu      sync.Mutex
	target  string // host:port
	now     condition
	changed chan struct{} // closed when now is replaced
	links   map[*link]struct{}
	orphans []net.Conn // connections to the server whose clients were reset; see orphan
	held    []pause    // when hold held connections
	kept    int        // requests that were held since the last release
}

// link is one connection through the proxy.
type link struct {
	client, server *net.TCPConn
	ended          chan struct{}
	end            sync.Once
	orphaned       bool          // guarded by proxy.mu
	held           chan struct{} // guarded by proxy.mu; closed when release lets requests pass; nil unless held
}

// newProxy listens on a loopback port outside the range of client ports. Within that range, a client that dials the
// proxy could be assigned the same port, and connect to itself.
func newProxy() (*proxy, error) {
	listener, err := listenLow()
	if err != nil {
		return nil, err
	}
	p := &proxy{listener: listener, changed: make(chan struct{}), links: map[*link]struct{}{}}
	go p.serve()
	return p, nil
}

func listenLow() (net.Listener, error) {
	var err error
	for range 50 {
		var l net.Listener
		l, err = net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(10000+rand.IntN(10000))))
		if err == nil {
			return l, nil
		}
	}
	return nil, fmt.Errorf("no free port: %w", err)
}

func (p *proxy) addr() string { return p.listener.Addr().String() }

func (p *proxy) lead(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// set sets the condition of the link. It resets connections that lost bytes or that are cut.
func (p *proxy) set(c condition) {
	p.mu.Lock()
	holed := p.now.flow == lost || p.now.flow == deaf
	p.now = c
	close(p.changed)
	p.changed = make(chan struct{})
	p.mu.Unlock()
	if holed || c.flow == cut {
		p.reset()
	}
}

// reset ends every connection with RST, both ways.
func (p *proxy) reset() {
	p.mu.Lock()
	var all []*link
	for l := range p.links {
		all = append(all, l)
	}
	p.mu.Unlock()
	for _, l := range all {
		l.close(true)
	}
}

// resetTo ends every connection to one server with RST, both ways.
func (p *proxy) resetTo(server string) {
	p.mu.Lock()
	var all []*link
	for l := range p.links {
		if l.server.RemoteAddr().String() == server {
			all = append(all, l)
		}
	}
	p.mu.Unlock()
	for _, l := range all {
		l.close(true)
	}
}

// close stops the proxy.
func (p *proxy) close() {
	p.listener.Close()
	p.set(condition{flow: cut})
}

// orphan resets the clients of all connections, without notice to the server. Their transactions and locks stay open
// until bury.
func (p *proxy) orphan() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.orphaned = true
		p.orphans = append(p.orphans, l.server)
		abort(l.client)
	}
}

// bury resets the connections that orphan left.
func (p *proxy) bury() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.orphans {
		abort(c.(*net.TCPConn))
	}
	p.orphans = nil
}

// hold keeps what the clients of some of the present connections send, and delivers it on release, even if they have
// hung up. New connections are not held. So what they send is overtaken by what their clients send next.
func (p *proxy) hold(batch func() bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = append(p.held, pause{begin: time.Now()})
	for l := range p.links {
		if l.held == nil && batch() {
			l.held = make(chan struct{})
		}
	}
}

// release delivers what hold has kept, and returns the number of requests.
func (p *proxy) release() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		if l.held != nil {
			close(l.held)
			l.held = nil
		}
	}
	for i := range p.held {
		endPause(p.held[:i+1])
	}
	n := p.kept
	p.kept = 0
	return n
}

// holds returns the times in which connections were held.
func (p *proxy) holds() []pause {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.held)
}

// keep returns the channel that is closed when the link's next request may pass, or nil if it may pass at once.
func (p *proxy) keep(l *link) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.held != nil {
		p.kept++
	}
	return l.held
}

func (p *proxy) state() (condition, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now, p.changed
}

func (p *proxy) serve() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return // closed at the end of the program
		}
		go p.open(c.(*net.TCPConn))
	}
}

func (p *proxy) open(client *net.TCPConn) {
	p.mu.Lock()
	target, now := p.target, p.now
	p.mu.Unlock()
	if now.flow == cut {
		abort(client)
		return
	}
	server, err := net.DialTimeout("tcp", target, 2*time.Second)
	if err != nil {
		abort(client)
		return
	}
	l := &link{client: client, server: server.(*net.TCPConn), ended: make(chan struct{})}
	p.mu.Lock()
	if p.now.flow == cut {
		p.mu.Unlock()
		l.close(true)
		return
	}
	p.links[l] = struct{}{}
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.pump(l, l.client, l.server, false) })
	both.Go(func() { p.pump(l, l.server, l.client, true) })
	both.Wait()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// pump copies bytes one way until one end closes. The condition of the link applies to the close as to the bytes:
// across a broken route, the other end is not notified.
func (p *proxy) pump(l *link, from, to *net.TCPConn, reply bool) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && !p.pass(l, to, buffer[:n], reply) {
			return
		}
		if err != nil {
			p.hangUp(l)
			return
		}
	}
}

// pass delivers b according to the link's condition. It reports false if the link has ended.
func (p *proxy) pass(l *link, to *net.TCPConn, b []byte, reply bool) bool {
	now, changed := p.state()
	for now.flow == stalled {
		select {
		case <-changed:
			now, changed = p.state()
		case <-l.ended:
			return false
		}
	}
	if !reply {
		if held := p.keep(l); held != nil {
			select {
			case <-held:
			case <-l.ended:
				return false
			}
		}
	}
	if now.flow == lost || (now.flow == deaf && reply) {
		return true
	}
	wait := now.delay
	if now.rate > 0 {
		wait += time.Duration(len(b)) * time.Second / time.Duration(now.rate)
	}
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-l.ended:
			return false
		}
	}
	if _, err := to.Write(b); err != nil {
		p.hangUp(l)
		return false
	}
	return true
}

func (p *proxy) hangUp(l *link) {
	for {
		now, changed := p.state()
		if now.flow == through || now.flow == cut {
			break
		}
		select {
		case <-changed:
		case <-l.ended:
			return
		}
	}
	p.mu.Lock()
	orphaned := l.orphaned
	p.mu.Unlock()
	if orphaned {
		l.end.Do(func() { close(l.ended) }) // bury closes the server's side
		return
	}
	l.close(false)
}

func (l *link) close(reset bool) {
	l.end.Do(func() { close(l.ended) })
	if reset {
		abort(l.client)
		abort(l.server)
		return
	}
	l.client.Close()
	l.server.Close()
}

// abort closes the connection with RST, after which the other end knows that its data may be lost.
func abort(c *net.TCPConn) {
	_ = c.SetLinger(0) // fails if the connection is closed
	c.Close()
}
