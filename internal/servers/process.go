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
)

// deathSignal is what the kernel sends a child when its parent is gone. A test turns it off to leave a server behind.
var deathSignal = syscall.SIGKILL

// child is one process that was started, until it has been waited for.
type child struct {
	pid    int
	exited chan struct{} // closed when the process has ended
	err    error         // why, once exited is closed
}

// spawn starts the command in a process group of its own, so that Ctrl-C in a terminal reaches only us and children are
// stopped in our order, and ties its life to ours.
func spawn(cmd *exec.Cmd) (*child, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.SysProcAttr.Pdeathsig = deathSignal
	c := &child{exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel watches the thread that started the child, not the process: keep it until the child has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			c.pid = cmd.Process.Pid
		}
		started <- err
		if err != nil {
			return
		}
		c.err = cmd.Wait()
		if c.err == nil {
			c.err = errors.New("exit status 0")
		}
		close(c.exited)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("run %s: %w", cmd.Path, err)
	}
	return c, nil
}

// alive reports whether the process runs; a child that was never started does not.
func (c *child) alive() bool {
	if c == nil {
		return false
	}
	select {
	case <-c.exited:
		return false
	default:
		return true
	}
}

// signal reaches the whole process group: Redis forks to rewrite its log. If the process has just ended,
// signal returns nil: exited reports the end.
func (c *child) signal(sig syscall.Signal) { _ = syscall.Kill(-c.pid, sig) }

func (c *child) kill() {
	c.signal(syscall.SIGKILL)
	<-c.exited
}

// lockFolder makes the folder and takes the lock that its owner holds. The kernel frees it when the owner dies.
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

// identity names a process so that a later process with the same id is not taken for it: id, start time in clock ticks
// since boot, and which boot. Empty when there is no such process or it has ended and only waits to be collected.
func identity(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The second field is the program's name in parentheses and may hold anything. After it come the state (third
	// field), the number of threads (20th) and the start time (22nd).
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 || fields[0] == "X" {
		return ""
	}
	// While other threads of a killed process are still ending, its files and ports are still open.
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
	// Empty if the process has ended already: then there is nothing to find later.
	if err := os.WriteFile(path, []byte(identity(pid)), 0o600); err != nil {
		return fmt.Errorf("write process id: %w", err)
	}
	return nil
}

// stopLeftover ends the process that the file names, if it is still the same one: first politely, after five seconds
// by force.
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
	process, err := os.FindProcess(pid) // holds the process, not the number: no signal can reach a successor
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

// openLog appends to the log; one that has grown over 8 MiB is put aside first, in place of the one before it.
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
		_, _ = f.Seek(max(0, info.Size()-length), io.SeekStart) // what cannot be sought is shown from its begin
	}
	text, _ := io.ReadAll(io.LimitReader(f, length))
	return strings.TrimSpace(string(text))
}

// find looks for a program on PATH and where Debian puts servers, which is not on the PATH of an ordinary user. The
// error says what to install.
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

// environment is what a child gets to see: nothing of ours can change how it behaves.
func environment() []string {
	return []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "TZ=UTC"}
}
