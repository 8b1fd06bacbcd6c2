package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"likewise/internal/servers"
)

// process is one process of the product. While it is wanted, it is restarted whenever it ends, as by a supervisor.
type process struct {
	name   string // such as api1
	binary string
	args   []string
	env    []string
	log    string // path; every start appends to it
	clock  clock

	mu      sync.Mutex
	wanted  bool
	running *servers.Process // the last that was started
	exited  chan struct{}    // closed when that has ended and the fields below show it; nil before the first start
	alone   int              // number of times that it ended by itself
	paused  []pause
}

// pause is a time in which a process or a proxy stood still. Its end is zero until it is known.
type pause struct{ begin, end time.Time }

// endPause sets the end of the last pause of a list.
func endPause(list []pause) {
	if n := len(list); n > 0 && list[n-1].end.IsZero() {
		list[n-1].end = time.Now()
	}
}

// pauses returns the times in which the process was paused.
func (p *process) pauses() []pause {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.paused)
}

// restartDelay limits the load of a process that cannot start while a server is down.
const restartDelay = 500 * time.Millisecond

// start starts the process unless it is running.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted = true
	return p.startLocked()
}

func (p *process) startLocked() error {
	if p.exited != nil {
		select {
		case <-p.exited:
		default:
			return nil
		}
	}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(p.binary, p.args...)
	cmd.Env = p.env
	cmd.Stdout, cmd.Stderr = log, log
	if p.running, err = servers.Spawn(cmd); err != nil {
		return err
	}
	p.exited = make(chan struct{})
	go p.await(p.running.Exited(), p.exited)
	return nil
}

// await waits until the process has ended, and restarts it if it is wanted.
func (p *process) await(ended <-chan struct{}, exited chan<- struct{}) {
	<-ended
	p.mu.Lock()
	endPause(p.paused)
	again := p.wanted
	if again {
		p.alone++
	}
	close(exited)
	p.mu.Unlock()
	if !again {
		return
	}
	time.AfterFunc(restartDelay, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.wanted {
			_ = p.startLocked() // if it fails, the recovery is reported as failed
		}
	})
}

// signal sends a signal to the process if it is running.
func (p *process) signal(sig syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.signalLocked(sig)
}

func (p *process) signalLocked(sig syscall.Signal) {
	if p.exited == nil {
		return
	}
	select {
	case <-p.exited:
	default:
		if sig == syscall.SIGSTOP {
			p.paused = append(p.paused, pause{begin: time.Now()})
		}
		p.running.Signal(sig)
		if sig == syscall.SIGCONT {
			endPause(p.paused)
		}
	}
}

// kill kills the process with SIGKILL, and waits until it has ended. It is not restarted until start.
func (p *process) kill() {
	p.mu.Lock()
	p.wanted = false
	p.signalLocked(syscall.SIGKILL)
	exited := p.exited
	p.mu.Unlock()
	if exited != nil {
		<-exited
	}
}

// term sends SIGTERM, and waits until the process has ended, as Terminate does. It is not restarted until start.
func (p *process) term(limit time.Duration) error {
	p.mu.Lock()
	p.wanted = false
	running, exited := p.running, p.exited
	p.mu.Unlock()
	if running == nil {
		return nil
	}
	select {
	case <-exited: // it is about to be restarted
		return nil
	default:
	}
	err := running.Terminate(limit)
	<-exited
	if err != nil {
		return fmt.Errorf("%s %w", p.name, err)
	}
	return nil
}

func (p *process) deaths() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.alone
}
