package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"github.com/sethvargo/go-retry"
)

// child is a role of the product in a process of its own, so that the loader and its garbage are not measured with it.
type child struct {
	name           string
	address, admin string // host:port
	cmd            *exec.Cmd
	exited         chan struct{} // closed when the process has ended
	log            string        // path
}

// startChild starts `program args` with variables in addition to those of this process, which logs to a file of dir.
// It returns when the process is ready. The kernel kills the process when this one ends.
func startChild(
	ctx context.Context, program, dir, name string, variables []string, args ...string,
) (c *child, err error) {
	c = &child{name: name, exited: make(chan struct{}), log: filepath.Join(dir, name+".log")}
	for _, address := range []*string{&c.address, &c.admin} {
		if *address, err = freeAddress(); err != nil {
			return nil, err
		}
	}
	log, err := os.Create(c.log)
	if err != nil {
		return nil, fmt.Errorf("create log: %w", err)
	}
	defer log.Close()
	c.cmd = exec.Command(program, args...) //nolint:noctx // stop ends it
	c.cmd.Env = append(os.Environ(), variables...)
	c.cmd.Env = append(c.cmd.Env, "LIKEWISE_LISTEN="+c.address, "LIKEWISE_ADMIN_LISTEN="+c.admin)
	c.cmd.Stdout, c.cmd.Stderr = log, log
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := c.spawn(); err != nil {
		return nil, err
	}
	if err := c.awaitReady(ctx); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

func (c *child) spawn() error {
	started := make(chan error)
	go func() {
		// The kernel kills the child when the thread that started it ends, so the thread is kept.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		_ = c.cmd.Wait() // its state has the result
		close(c.exited)
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start %s: %w", c.name, err)
	}
	return nil
}

// awaitReady waits until /readyz answers 200.
func (c *child) awaitReady(ctx context.Context) error {
	poll := retry.WithMaxDuration(time.Minute, retry.NewConstant(20*time.Millisecond))
	err := retry.Do(ctx, poll, func(ctx context.Context) error {
		select {
		case <-c.exited:
			return fmt.Errorf("%s has ended: %s", c.name, c.cmd.ProcessState)
		default:
		}
		body, err := c.readAdmin(ctx, "/readyz")
		if err != nil {
			return retry.RetryableError(err)
		}
		return body.Close()
	})
	if err != nil {
		text, _ := os.ReadFile(c.log) // the error is reported without it
		return fmt.Errorf("%s is not ready: %w\n%s", c.name, err, text[max(0, len(text)-4096):])
	}
	return nil
}

// readAdmin requests a path of the admin listener. The caller closes the body.
func (c *child) readAdmin(ctx context.Context, path string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.admin+path, nil)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", c.name, err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", c.name, err)
	}
	if response.StatusCode != http.StatusOK {
		response.Body.Close()
		return nil, fmt.Errorf("ask %s: %s: %s", c.name, path, response.Status)
	}
	return response.Body, nil
}

// stopLimit is more than a role takes to drain.
const stopLimit = 10 * time.Second

// stop sends SIGTERM, and waits until the process has ended. After stopLimit, it kills the process.
func (c *child) stop() error {
	if c == nil {
		return nil
	}
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-c.exited:
	case <-time.After(stopLimit):
		_ = c.cmd.Process.Kill()
		<-c.exited
	}
	if !c.cmd.ProcessState.Success() {
		return fmt.Errorf("%s: %s", c.name, c.cmd.ProcessState)
	}
	return nil
}

// allocations are what a process has allocated since its start.
type allocations struct{ objects, bytes float64 }

// allocated reads runtime.MemStats of the process from its metrics.
func (c *child) allocated(ctx context.Context) (a allocations, err error) {
	body, err := c.readAdmin(ctx, "/metrics")
	if err != nil {
		return a, err
	}
	defer body.Close()
	found := 0
	for lines := bufio.NewScanner(body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		into := map[string]*float64{
			"go_memstats_mallocs_total": &a.objects, "go_memstats_alloc_bytes_total": &a.bytes,
		}[name]
		if into == nil {
			continue
		}
		if *into, err = strconv.ParseFloat(value, 64); err != nil {
			return a, fmt.Errorf("metric %s: %w", name, err)
		}
		found++
	}
	if found != 2 {
		return a, fmt.Errorf("%s exports %d of 2 metrics of its memory", c.name, found)
	}
	return a, nil
}

// The processes whose processor time is measured. The API is the one that a scenario uses.
const (
	roleAPI     = "api"
	roleWorker  = "worker"
	roleClients = "clients"
	roleMySQL   = "mysql"
	roleRedis   = "redis"
	roleKafka   = "kafka"
)

// used returns the processor time that each role has used since it was started.
func (b *bench) used(api *child) (map[string]time.Duration, error) {
	used := map[string]time.Duration{}
	for role, pid := range map[string]int{
		roleClients: os.Getpid(),
		roleAPI:     api.cmd.Process.Pid,
		roleWorker:  b.worker.cmd.Process.Pid,
		roleMySQL:   b.all.MySQL.Pid(),
		roleRedis:   b.all.Redis.Pid(),
		roleKafka:   b.all.Kafka.Pid(),
	} {
		process, err := procfs.NewProc(pid)
		if err != nil {
			return nil, fmt.Errorf("processor time of %s: %w", role, err)
		}
		stat, err := process.Stat()
		if err != nil {
			return nil, fmt.Errorf("processor time of %s: %w", role, err)
		}
		used[role] = time.Duration(stat.CPUTime() * float64(time.Second))
	}
	return used, nil
}

// freeAddress returns an address of this machine that nobody listens on.
func freeAddress() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}
