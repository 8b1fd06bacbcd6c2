package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"
)

// flow is what a proxy does with the bytes that come.
type flow int

const (
	through flow = iota
	cut          // every connection is reset, and each new one at once
	stalled      // bytes wait, and arrive when the fault is over, as after a broken network route
	lost         // bytes vanish; both ends believe in their connection until it is reset at the end
	deaf         // what clients send arrives, the replies vanish; reset at the end
)

// condition is the state of a network link. Delay and rate only matter where bytes pass.
type condition struct {
	flow  flow
	delay time.Duration // of every piece of data, each way
	rate  int           // bytes a second each way; 0 is unlimited
}

// proxy stands between the product and one of its servers.
type proxy struct {
	listener net.Listener

	mu      sync.Mutex
	target  string // host:port
	now     condition
	changed chan struct{} // closed when now is replaced
	links   map[*link]struct{}
	orphans []net.Conn // to the server, whose clients are gone without its knowing
}

// link is one connection through the proxy.
type link struct {
	client, server *net.TCPConn
	ended          chan struct{}
	end            sync.Once
	orphaned       bool // guarded by proxy.mu
}

// newProxy listens on a loopback port that the kernel never assigns to clients: one of those could be taken while the
// proxy's user dials it, and find itself connected to itself.
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

// set makes the link as c says. Connections whose bytes were lost, or that are cut now, are reset.
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

// orphan resets the clients and leaves their server in the belief that they are there: what they had begun and locked
// stays so until bury.
func (p *proxy) orphan() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.orphaned = true
		p.orphans = append(p.orphans, l.server)
		abort(l.client)
	}
}

// bury resets what orphan left.
func (p *proxy) bury() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.orphans {
		abort(c.(*net.TCPConn))
	}
	p.orphans = nil
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
			return // closed: the program ends
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

// pump carries bytes one way until an end closes. The condition of the link applies to the closing as to the bytes: an
// end behind a broken route does not learn of it.
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

// pass delivers b as the link's condition allows; false when the link has ended.
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
		l.end.Do(func() { close(l.ended) }) // the server's side is closed by bury
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

// abort closes with RST: the other end learns that what it sent may never have been read.
func abort(c *net.TCPConn) {
	_ = c.SetLinger(0) // fails when it is closed already
	c.Close()
}
