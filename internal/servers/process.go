package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// deathSignal is the signal that the kernel sends a child when its parent ends. A test disables it to leave a server
// behind.
var deathSignal = syscall.SIGKILL

// Process is a process that Spawn started.
type Process struct {
	cmd    *exec.Cmd
	exited chan struct{}
}

// Spawn starts the command in its own process group, so that Ctrl-C in a terminal does not reach it, and children are
// stopped in order. The kernel kills the process when this one ends.
func Spawn(cmd *exec.Cmd) (*Process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.SysProcAttr.Pdeathsig = deathSignal
	p := &Process{cmd: cmd, exited: make(chan struct{})}
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
		_ = cmd.Wait() // the state has the result
		close(p.exited)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("run %s: %w", cmd.Path, err)
	}
	return p, nil
}

// Pid returns the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Exited returns a channel that is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// State returns how the process has ended. It may be called once Exited is closed.
func (p *Process) State() *os.ProcessState { return p.cmd.ProcessState }

// alive reports whether the process is running. It reports false for a nil Process.
func (p *Process) alive() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.exited:
		return false
	default:
		return true
	}
}

// Signal sends a signal to the process alone. If the process has ended, Signal does nothing.
func (p *Process) Signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) }

// signalGroup sends a signal to the whole process group, because Redis forks to rewrite its log. If the process has
// just ended, signalGroup does nothing.
func (p *Process) signalGroup(sig syscall.Signal) { _ = syscall.Kill(-p.Pid(), sig) }

// waitStopped waits until SIGSTOP has stopped the process. Sending a signal only notes it: on a busy machine, the
// threads run on for a while, and can answer a request.
func (p *Process) waitStopped() error {
	for {
		var child unix.Siginfo
		err := unix.Waitid(unix.P_PID, p.Pid(), &child, unix.WSTOPPED|unix.WNOWAIT|unix.WNOHANG, nil)
		switch {
		case err == nil && child.Signo != 0:
			return nil
		case err != nil && !errors.Is(err, syscall.EINTR):
			return fmt.Errorf("wait until a process has stopped: %w", err)
		}
		select {
		case <-p.exited:
			return errors.New("the process ended while it was being paused")
		case <-time.After(time.Millisecond):
		}
	}
}

func (p *Process) killGroup() {
	p.signalGroup(syscall.SIGKILL)
	<-p.exited
}

// Kill kills the process with SIGKILL, as a crash would, and waits until it has ended.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.exited
}

// Terminate sends SIGTERM, and waits until the process has ended. After a time limit, it kills the process and returns
// an error. An exit status other than 0 is an error, too.
func (p *Process) Terminate(limit time.Duration) error {
	p.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(limit):
		p.Kill()
		return fmt.Errorf("did not end within %v after SIGTERM", limit)
	}
	if !p.State().Success() {
		return fmt.Errorf("ended with %s after SIGTERM", p.State())
	}
	return nil
}

// lockFolder creates the folder, and acquires its lock. The kernel releases the lock when its owner ends.
func lockFolder(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("the folder %s is in use by another process", dir)
		}
		return nil, fmt.Errorf("lock folder: %w", err)
	}
	return f, nil
}

// identity identifies a process uniquely, even if its id is reused: by its id, its start time in clock ticks since
// boot, and the id of the boot. It is empty if the process does not exist or is a zombie.
func identity(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The second field is the program's name in parentheses, which may contain any character. After it come the state
	// (third field), the number of threads (20th) and the start time (22nd).
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 || fields[0] == "X" {
		return ""
	}
	// While other threads of a killed process are ending, its files and ports are still open.
	if fields[0] == "Z" && (fields[17] == "0" || fields[17] == "1") {
		return ""
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d %s %s", pid, fields[19], strings.TrimSpace(string(boot)))
}

func writePid(path string, pid int) error {
	// If the process has ended, the identity is empty, and the next start finds no process.
	if err := os.WriteFile(path, []byte(identity(pid)), 0o600); err != nil {
		return fmt.Errorf("write process id: %w", err)
	}
	return nil
}

// stopLeftover stops the process that the file identifies, if it is running. It sends SIGTERM, and SIGKILL after five
// seconds.
func stopLeftover(ctx context.Context, path string) error {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read process id: %w", err)
	}
	noted := string(text)
	pid, err := strconv.Atoi(strings.SplitN(noted, " ", 2)[0])
	if err != nil || identity(pid) != noted {
		return nil
	}
	process, err := os.FindProcess(pid) // a pidfd, so that no signal reaches another process with the same id
	if err != nil {
		return nil
	}
	defer process.Release()
	if identity(pid) != noted {
		return nil
	}
	_ = process.Signal(syscall.SIGTERM)
	_ = process.Signal(syscall.SIGCONT)
	force := time.NewTimer(5 * time.Second)
	defer force.Stop()
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	for identity(pid) == noted {
		select {
		case <-poll.C:
		case <-force.C:
			_ = process.Kill()
		case <-ctx.Done():
			return fmt.Errorf("process %d does not end: %w", pid, ctx.Err())
		}
	}
	return nil
}

// openLog opens the log to append to it. If the log exceeds 8 MiB, openLog renames it first, over the previous one.
func openLog(path string) (*os.File, error) {
	if info, err := os.Stat(path); err == nil && info.Size() > 8<<20 {
		if err := os.Rename(path, path+".old"); err != nil {
			return nil, fmt.Errorf("put old log aside: %w", err)
		}
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	return f, nil
}

func tail(path string, length int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil {
		_, _ = f.Seek(max(0, info.Size()-length), io.SeekStart) // after an error, the text starts at the beginning
	}
	text, _ := io.ReadAll(io.LimitReader(f, length))
	return strings.TrimSpace(string(text))
}

// find searches a program in PATH and in Debian's folders of servers, which are not in every user's PATH. Its error
// names the command that installs the program.
func find(program, install string) (string, error) {
	if path, err := exec.LookPath(program); err == nil {
		return filepath.Abs(path)
	}
	for _, dir := range []string{"/usr/sbin", "/usr/local/sbin", "/usr/local/bin"} {
		if path, err := exec.LookPath(filepath.Join(dir, program)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s not found: run %q", program, install)
}

// environment returns the environment of a child. It has no variables of ours that could change the child's behaviour.
func environment() []string {
	return []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "TZ=UTC"}
}
