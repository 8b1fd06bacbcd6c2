// Package servers runs private MySQL, Redis and Kafka servers for `likewise dev`, the tests and the benchmarks.
//
// Each server listens on a loopback port of its own and keeps everything it has in one folder: data, log, process id,
// port and, for MySQL, the password. Starting on the same folder again continues with the same data, and on the same
// port unless another program took it meanwhile.
//
// No server outlives the process that started it: the kernel kills the children when their parent is gone, whatever
// ended it. Should one survive all the same, the next start on its folder recognises it in /proc and stops it first.
// A folder has one owner at a time; a second one is refused.
//
// The environment chooses other programs than the default ones:
//
//	LIKEWISE_SERVERS_MYSQL=chroot:DIR   Oracle's mysqld, installed in the folder tree DIR; default mariadbd
//	LIKEWISE_SERVERS_KAFKA=apache:DIR   Apache Kafka, whose jars are in DIR; default the embedded broker
//
// The package works on Linux only.
package servers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	startTimeout = 60 * time.Second // when the caller's context has no deadline
	stopTimeout  = 20 * time.Second // the same; a server that does not end by then is killed
	pollInterval = 10 * time.Millisecond
)

// program holds the differences between the kinds of servers.
type program struct {
	name  string // for messages
	ports int    // how many it listens on

	// prepare makes the data when the folder has none. It may be interrupted at any instant: the next run starts over.
	prepare func(ctx context.Context, s *Server) error
	// command is the process to run on s.ports.
	command func(s *Server) (*exec.Cmd, error)
	// probe returns nil once this very server, and no other that happens to have the port, answered a real request.
	probe func(ctx context.Context, s *Server) error
}

// Server is one private server. Its methods may be called by several goroutines; those that start or stop it run one
// after the other.
type Server struct {
	program program
	dir     string // absolute

	mu    sync.Mutex // held while starting and stopping; guards what follows
	lock  *os.File   // the folder's lock, from Start to Stop or Kill
	ports []int      // fixed by the first start
	child *child
}

func start(ctx context.Context, p program, dir string) (*Server, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("folder of %s: %w", p.name, err)
	}
	s := &Server{program: p, dir: dir}
	if err := s.Start(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Start runs the server again after Stop, Kill or a crash, on the same port and data, and returns when it answers. The
// context bounds the start (one minute when it has no deadline), not the server's life. When it fails, nothing is left
// running and the error ends with what the server logged last.
func (s *Server) Start(ctx context.Context) error {
	ctx, cancel := withDefaultTimeout(ctx, startTimeout)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.child.alive() {
		return fmt.Errorf("%s in %s is already running", s.program.name, s.dir)
	}
	if err := s.start(ctx); err != nil {
		s.release()
		return fmt.Errorf("start %s in %s: %w", s.program.name, s.dir, err)
	}
	return nil
}

func (s *Server) start(ctx context.Context) error {
	if s.lock == nil {
		lock, err := lockFolder(s.dir)
		if err != nil {
			return err
		}
		s.lock = lock
	}
	if err := stopLeftover(ctx, s.file("pid")); err != nil {
		return fmt.Errorf("stop what an earlier run left: %w", err)
	}
	if err := s.program.prepare(ctx, s); err != nil {
		return err
	}
	if s.ports != nil {
		return s.run(ctx)
	}
	// A port that is free now can be taken before the server listens; then another one will do.
	for attempt := 1; ; attempt++ {
		s.ports = s.choosePorts()
		err := s.run(ctx)
		if err == nil {
			return s.savePorts()
		}
		taken := !free(s.ports)
		s.ports = nil
		if !taken || attempt == 3 || ctx.Err() != nil {
			return err
		}
	}
}

// run starts the process and waits until it answers.
func (s *Server) run(ctx context.Context) error {
	cmd, err := s.program.command(s)
	if err != nil {
		return err
	}
	log, err := openLog(s.file("log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	c, err := spawn(cmd)
	if err != nil {
		return err
	}
	s.child = c
	if err := writePid(s.file("pid"), c.pid); err != nil {
		c.kill()
		return err
	}
	if err := s.awaitReady(ctx); err != nil {
		c.kill()
		return fmt.Errorf("%w\n%s", err, s.LogTail())
	}
	return nil
}

func (s *Server) awaitReady(ctx context.Context) error {
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	for {
		// Client libraries log or retry when nobody listens: start them only after the port is open.
		conn, err := net.DialTimeout("tcp", s.Addr(), time.Second)
		if err == nil {
			conn.Close()
			err = s.tryProbe(ctx)
		}
		if err == nil {
			return nil
		}
		select {
		case <-s.child.exited:
			return fmt.Errorf("it ended before it was ready: %w", s.child.err)
		case <-ctx.Done():
			return fmt.Errorf("it did not answer in time: %w", err)
		case <-poll.C:
		}
	}
}

// tryProbe bounds one attempt, so that a connection that hangs does not use up the whole time.
func (s *Server) tryProbe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	return s.program.probe(ctx, s)
}

// Stop asks the server to end and waits until it has; at the context's deadline (20 s when it has none) it is killed.
// Stop of a server that is not running returns nil.
func (s *Server) Stop(ctx context.Context) error {
	ctx, cancel := withDefaultTimeout(ctx, stopTimeout)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.release()
	if !s.child.alive() {
		return nil
	}
	s.child.signal(syscall.SIGTERM)
	s.child.signal(syscall.SIGCONT) // a paused process hears SIGTERM only when it goes on
	select {
	case <-s.child.exited:
		return nil
	case <-ctx.Done():
		s.child.kill()
		return fmt.Errorf("%s in %s did not stop in time and was killed: %w", s.program.name, s.dir, ctx.Err())
	}
}

// Kill ends the server with SIGKILL, as a crash would, and waits until it is gone.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.release()
	if !s.child.alive() {
		return fmt.Errorf("%s in %s is not running", s.program.name, s.dir)
	}
	s.child.kill()
	return nil
}

// Pause freezes the server with SIGSTOP: its port stays open and nobody answers.
func (s *Server) Pause() error { return s.signal(syscall.SIGSTOP) }

// Resume lets a paused server go on.
func (s *Server) Resume() error { return s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.child.alive() {
		return fmt.Errorf("%s in %s is not running", s.program.name, s.dir)
	}
	s.child.signal(sig)
	return nil
}

// Dir is the folder that holds everything the server has; its data is in the folder "data" there.
func (s *Server) Dir() string { return s.dir }

// Addr is where the server listens, as host:port. It stays the same for the life of the Server.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.ports[0])) }

// Pid is the process id of the last process that ran the server.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.child.pid
}

// Exited is closed when the process that runs the server now has ended, for whatever reason.
func (s *Server) Exited() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.child.exited
}

// LogTail is the end of the server's log, at most 4 KiB.
func (s *Server) LogTail() string { return tail(s.file("log"), 4096) }

// file is the path of one of the files and folders that a server's folder consists of.
func (s *Server) file(name string) string { return filepath.Join(s.dir, name) }

// release lets another owner have the folder. Without a lock there is nothing to release.
func (s *Server) release() {
	if s.lock != nil {
		s.lock.Close()
		s.lock = nil
	}
}

// choosePorts prefers the ports of the last run, so that addresses noted elsewhere stay valid.
func (s *Server) choosePorts() []int {
	var saved []int
	text, _ := os.ReadFile(s.file("port")) // missing on the first start
	for _, field := range strings.Fields(string(text)) {
		if port, err := strconv.Atoi(field); err == nil && port > 0 && port < 1<<16 {
			saved = append(saved, port)
		}
	}
	if len(saved) == s.program.ports && free(saved) {
		return saved
	}
	// Not the ports that the kernel hands to clients (32768 and up): one of those could be taken while its server is
	// down, even by a client of that very server, which then finds itself connected to itself.
	for {
		first := 20000 + rand.IntN(12000)
		var ports []int
		for i := range s.program.ports {
			ports = append(ports, first+i)
		}
		if free(ports) {
			return ports
		}
	}
}

func (s *Server) savePorts() error {
	var fields []string
	for _, port := range s.ports {
		fields = append(fields, strconv.Itoa(port))
	}
	if err := os.WriteFile(s.file("port"), []byte(strings.Join(fields, " ")+"\n"), 0o600); err != nil {
		return fmt.Errorf("remember the port: %w", err)
	}
	return nil
}

func free(ports []int) bool {
	for _, port := range ports {
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			return false
		}
		l.Close()
	}
	return true
}

func withDefaultTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}

// All is one server of each kind.
type All struct {
	MySQL *MySQL
	Redis *Redis
	Kafka *Kafka
}

// StartAll starts the three at the same time, in the folders mysql, redis and kafka of dir. When one fails, the others
// are stopped again. The context is that of Server.Start.
func StartAll(ctx context.Context, dir string) (*All, error) {
	var (
		all  All
		errs [3]error
		wg   sync.WaitGroup
	)
	wg.Go(func() { all.MySQL, errs[0] = StartMySQL(ctx, filepath.Join(dir, "mysql")) })
	wg.Go(func() { all.Redis, errs[1] = StartRedis(ctx, filepath.Join(dir, "redis")) })
	wg.Go(func() { all.Kafka, errs[2] = StartKafka(ctx, filepath.Join(dir, "kafka")) })
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return nil, errors.Join(err, all.Stop(context.WithoutCancel(ctx)))
	}
	return &all, nil
}

// Stop stops the three, at the same time because none needs another to end well. The context is that of Server.Stop.
func (a *All) Stop(ctx context.Context) error {
	var (
		errs [3]error
		wg   sync.WaitGroup
	)
	if a.Kafka != nil {
		wg.Go(func() { errs[0] = a.Kafka.Stop(ctx) })
	}
	if a.Redis != nil {
		wg.Go(func() { errs[1] = a.Redis.Stop(ctx) })
	}
	if a.MySQL != nil {
		wg.Go(func() { errs[2] = a.MySQL.Stop(ctx) })
	}
	wg.Wait()
	return errors.Join(errs[:]...)
}
