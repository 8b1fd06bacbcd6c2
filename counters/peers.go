package counters

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Peers carries requests between the processes of a site, through channels of Redis. A request is carried once at most:
// nothing is stored, and what Redis or a process loses is not repeated.
//
// Serve owns the goroutine that receives, and one for each request that is being answered; Close waits for them.
type Peers struct {
	redis *Redis
	log   *slog.Logger
	name  string
	stop  func()

	mu      sync.Mutex
	waiting map[string]chan json.RawMessage // of the calls that wait, by the id of their message
	running sync.WaitGroup
}

// peerMessage is a request to a process, or the reply to it.
type peerMessage struct {
	ID   string          `json:"id"`             // of the request
	From string          `json:"from,omitempty"` // the name of the process that asks; "" in a reply
	Body json.RawMessage `json:"body"`
}

var (
	// ErrNoPeer means that no process with the name receives.
	ErrNoPeer = errors.New("the process does not receive requests")
	// ErrPeerSilent means that the process has not replied in time. It may have carried the request out.
	ErrPeerSilent = errors.New("the process does not reply")
)

// peerWait is how long a call waits for the reply. peersAtOnce is how many requests a process answers at a time; others
// wait in the buffer of the connection.
const (
	peerWait    = 3 * time.Second
	peersAtOnce = 32
)

// NewPeers returns the peers of a new process. It receives nothing until Serve.
func NewPeers(r *Redis, log *slog.Logger) *Peers {
	return &Peers{redis: r, log: log, name: rand.Text(), stop: func() {}, waiting: map[string]chan json.RawMessage{}}
}

// Name returns the name of this process, which no other has. It consists of letters and digits.
func (p *Peers) Name() string { return p.name }

// Serve begins to receive, and replies to requests with what answer returns. While Redis is unavailable, it keeps
// trying to connect. It is called once.
func (p *Peers) Serve(answer func(ctx context.Context, request json.RawMessage) any) {
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	subscription := p.redis.blocking.SSubscribe(ctx, peerChannel(p.name))
	places := make(chan struct{}, peersAtOnce)
	p.running.Go(func() {
		defer subscription.Close()
		received := subscription.Channel()
		for {
			select {
			case <-ctx.Done():
				return
			case message, ok := <-received:
				if !ok {
					return
				}
				p.receive(ctx, message, places, answer)
			}
		}
	})
}

// receive passes a reply on, or begins to answer a request once a place is free.
func (p *Peers) receive(
	ctx context.Context, received *redis.Message, places chan struct{},
	answer func(context.Context, json.RawMessage) any,
) {
	var m peerMessage
	if err := json.Unmarshal([]byte(received.Payload), &m); err != nil {
		p.log.WarnContext(ctx, "a message of another process cannot be read", "error", err)
		return
	}
	if m.From == "" {
		p.mu.Lock()
		defer p.mu.Unlock()
		if reply := p.waiting[m.ID]; reply != nil {
			reply <- m.Body // it has room for the one reply
			delete(p.waiting, m.ID)
		}
		return
	}
	select {
	case <-ctx.Done():
		return
	case places <- struct{}{}:
	}
	p.running.Go(func() {
		defer func() { <-places }()
		ctx, cancel := context.WithTimeout(ctx, peerWait)
		defer cancel()
		if _, err := p.send(ctx, m.From, peerMessage{ID: m.ID}, answer(ctx, m.Body)); err != nil && ctx.Err() == nil {
			p.log.WarnContext(ctx, "another process gets no reply", "error", err)
		}
	})
}

// Call sends a request to the process with the name, and decodes its reply. It returns ErrNoPeer if no such process
// receives, and ErrPeerSilent if it does not reply in time.
func (p *Peers) Call(ctx context.Context, name string, request, reply any) error {
	ctx, cancel := context.WithTimeout(ctx, peerWait)
	defer cancel()
	id, replied := rand.Text(), make(chan json.RawMessage, 1)
	p.mu.Lock()
	p.waiting[id] = replied
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.waiting, id)
	}()
	receivers, err := p.send(ctx, name, peerMessage{ID: id, From: p.name}, request)
	switch {
	case err != nil:
		return err
	case receivers == 0:
		return ErrNoPeer
	}
	select {
	case <-ctx.Done():
		return ErrPeerSilent
	case body := <-replied:
		if err := json.Unmarshal(body, reply); err != nil {
			return fmt.Errorf("decode the reply of a process: %w", err)
		}
		return nil
	}
}

// send sends a message with a body, and returns how many processes receive it.
func (p *Peers) send(ctx context.Context, to string, m peerMessage, body any) (receivers int64, err error) {
	if m.Body, err = json.Marshal(body); err != nil {
		return 0, fmt.Errorf("encode a message: %w", err)
	}
	text, err := json.Marshal(m)
	if err != nil {
		return 0, fmt.Errorf("encode a message: %w", err)
	}
	if receivers, err = p.redis.client.SPublish(ctx, peerChannel(to), text).Result(); err != nil {
		return 0, fmt.Errorf("send a message to a process: %w", err)
	}
	return receivers, nil
}

// Close ends Serve, and waits until the requests that have arrived are answered or given up.
func (p *Peers) Close() {
	p.stop()
	p.running.Wait()
}
