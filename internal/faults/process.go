package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
)

// process is one process of the product. While it is wanted, it is restarted whenever it ends, as by a supervisor.
type process struct {
	name   string // such as api1
	binary string
	args   []string
	env    []string
	log    string // path; every start appends to it
	clock  clock

	mu     sync.Mutex
	wanted bool
	pid    int
	exited chan struct{} // closed when the process with this pid has ended; nil before the first start
	status syscall.WaitStatus
	alone  int // number of times that it ended by itself
	paused []pause
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
	exited := make(chan struct{})
	if err := spawn(cmd, func() { p.ended(cmd, exited) }); err != nil {
		return err
	}
	p.pid, p.exited = cmd.Process.Pid, exited
	return nil
}

// ended runs when the process has ended, and restarts it if it is wanted.
func (p *process) ended(cmd *exec.Cmd, exited chan struct{}) {
	p.mu.Lock()
	p.status, _ = cmd.ProcessState.Sys().(syscall.WaitStatus)
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

// spawn starts the command, and calls ended when it has ended. The kernel kills the command when this program ends.
func spawn(cmd *exec.Cmd, ended func()) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error)
	go func() {
		// The kernel kills the child when the thread that started it ends, so the thread is kept.
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
		_ = syscall.Kill(p.pid, sig) // the pid is not reused before Wait has returned
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

// errSlowStop means that a process did not stop within the limit of term.
var errSlowStop = errors.New("did not end in time after SIGTERM")

// term sends SIGTERM, and waits until the process has ended. It is not restarted until start. If the process takes
// longer than limit, term kills it and returns errSlowStop. An exit status other than 0 is an error, too.
func (p *process) term(limit time.Duration) error {
	p.mu.Lock()
	p.wanted = false
	alive := p.exited != nil
	if alive {
		select {
		case <-p.exited:
			alive = false // it is about to be restarted
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
