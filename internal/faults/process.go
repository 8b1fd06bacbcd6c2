package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// process is one copy of the product. While it is wanted it is started again whenever it ends, as a supervisor would.
type process struct {
	name   string // such as api1
	binary string
	args   []string
	env    []string
	log    string // path; all its lives append to it

	mu     sync.Mutex
	wanted bool
	pid    int
	exited chan struct{} // closed when the life with this pid is over; nil before the first
	status syscall.WaitStatus
	alone  int // lives that ended without our doing
}

// restartDelay keeps a process that cannot start, because a server is away, from burning the processor.
const restartDelay = 500 * time.Millisecond

// start begins a life, unless one is going on.
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
	exited := make(chan struct{})
	if err := spawn(cmd, func() { p.ended(cmd, exited) }); err != nil {
		return err
	}
	p.pid, p.exited = cmd.Process.Pid, exited
	return nil
}

// ended runs when a life is over, and begins the next if the process is wanted.
func (p *process) ended(cmd *exec.Cmd, exited chan struct{}) {
	p.mu.Lock()
	p.status, _ = cmd.ProcessState.Sys().(syscall.WaitStatus)
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
			_ = p.startLocked() // if it cannot be started at all, recovery says so
		}
	})
}

// spawn starts the command, tied to our life, and calls ended when it has ended.
func spawn(cmd *exec.Cmd, ended func()) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		// The kernel watches the thread that started the child, not the process: keep it until the child has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		_ = cmd.Wait() // its state has the result
		ended()
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("run %s: %w", cmd.Path, err)
	}
	return nil
}

// signal reaches the life that is going on, if any.
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
		_ = syscall.Kill(p.pid, sig) // not waited for yet, so the number is still its own, even if it just died
	}
}

// kill ends the process with SIGKILL and waits until it is gone. It stays down until start.
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

// errSlowStop: the process did not end within the time.
var errSlowStop = errors.New("did not end in time after SIGTERM")

// term sends SIGTERM and waits; a process that takes longer than limit is killed, and one that ends with another
// status than 0 is an error too. It stays down until start.
func (p *process) term(limit time.Duration) error {
	p.mu.Lock()
	p.wanted = false
	alive := p.exited != nil
	if alive {
		select {
		case <-p.exited:
			alive = false // between two lives
		default:
		}
	}
	p.signalLocked(syscall.SIGTERM)
	exited := p.exited
	p.mu.Unlock()
	if !alive {
		return nil
	}
	select {
	case <-exited:
	case <-time.After(limit):
		p.kill()
		return fmt.Errorf("%s %w (%v)", p.name, errSlowStop, limit)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.status.Exited() || p.status.ExitStatus() != 0 {
		return fmt.Errorf("%s ended with %s after SIGTERM", p.name, describe(p.status))
	}
	return nil
}

func describe(s syscall.WaitStatus) string {
	if s.Signaled() {
		return "signal " + s.Signal().String()
	}
	return fmt.Sprintf("status %d", s.ExitStatus())
}

func (p *process) deaths() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.alone
}
