// Package servers runs private MySQL, Redis and Kafka servers for `likewise dev`, the tests and the benchmarks.
//
// Each server listens on its own loopback port. It has one folder with its data, log, process id, port and, for MySQL,
// password. Starting in the same folder again continues with the same data. It also uses the same port, unless another
// program has taken it.
//
// No server outlives the process that started it, because the kernel kills the children of a process when it ends. If a
// server survives nevertheless, the next start in its folder finds its process in /proc and stops it. A folder has one
// owner at a time. A second owner is refused.
//
// The environment chooses other programs than the default:
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
	startTimeout = 60 * time.Second // if the caller's context has no deadline
	stopTimeout  = 20 * time.Second // the same; afterwards the server is killed
	pollInterval = 10 * time.Millisecond
)

// program holds the differences between the kinds of servers.
type program struct {
	name  string // for messages
	ports int    // number of ports that it listens on

	// prepare creates the data if the folder has none. If it is interrupted, the next start begins again.
	prepare func(ctx context.Context, s *Server) error
	// command returns the command that listens on s.ports.
	command func(s *Server) (*exec.Cmd, error)
	// probe returns nil once the server has answered a request. It must detect another server on the same port.
	probe func(ctx context.Context, s *Server) error
}

// Server is one private server. It is safe for concurrent use. Calls that start or stop it run one at a time.
type Server struct {
	program program
	dir     string // absolute

	mu    sync.Mutex // held while starting and stopping; guards the fields below
	lock  *os.File   // the folder's lock, from Start to Stop or Kill
	ports []int      // fixed by the first start
	child *Process
	env   []string // see Setenv
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

// Start restarts the server after Stop, Kill or a crash, with the same port and data. It returns when the server
// answers. ctx bounds the start, or one minute if ctx has no deadline. It does not bound the life of the server. If
// Start fails, no process is left running, and the error includes the end of the server's log.
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

// Setenv adds variables, each NAME=VALUE, to the environment of the server from its next start on.
func (s *Server) Setenv(variables ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.env = append(s.env, variables...)
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
		return fmt.Errorf("stop the server of an earlier run: %w", err)
	}
	if err := s.program.prepare(ctx, s); err != nil {
		return err
	}
	if s.ports != nil {
		return s.run(ctx)
	}
	// Another program may take a free port before the server listens. Then the next attempt uses another port.
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

// run starts the process, and waits until it answers.
func (s *Server) run(ctx context.Context) error {
	cmd, err := s.program.command(s)
	if err != nil {
		return err
	}
	cmd.Env = append(cmd.Env, s.env...)
	log, err := openLog(s.file("log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	c, err := Spawn(cmd)
	if err != nil {
		return err
	}
	s.child = c
	if err := writePid(s.file("pid"), c.Pid()); err != nil {
		c.killGroup()
		return err
	}
	if err := s.awaitReady(ctx); err != nil {
		c.killGroup()
		return fmt.Errorf("%w\n%s", err, s.LogTail())
	}
	return nil
}

func (s *Server) awaitReady(ctx context.Context) error {
	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	for {
		// Client libraries log or retry if the port is closed, so the probe waits until it is open.
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
			return fmt.Errorf("it ended before it was ready: %s", s.child.State())
		case <-ctx.Done():
			return fmt.Errorf("it did not answer in time: %w", err)
		case <-poll.C:
		}
	}
}

// tryProbe makes one attempt with its own deadline, so that a hanging connection does not use up the whole time.
func (s *Server) tryProbe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	return s.program.probe(ctx, s)
}

// Stop stops the server, and waits until its process has ended. At the deadline of ctx, or after 20 seconds if ctx has
// none, Stop kills the server. If the server is not running, Stop returns nil.
func (s *Server) Stop(ctx context.Context) error {
	ctx, cancel := withDefaultTimeout(ctx, stopTimeout)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.release()
	if !s.child.alive() {
		return nil
	}
	s.child.signalGroup(syscall.SIGTERM)
	s.child.signalGroup(syscall.SIGCONT) // a paused process receives SIGTERM after SIGCONT
	select {
	case <-s.child.exited:
		return nil
	case <-ctx.Done():
		s.child.killGroup()
		return fmt.Errorf("%s in %s did not stop in time and was killed: %w", s.program.name, s.dir, ctx.Err())
	}
}

// Kill kills the server with SIGKILL, as a crash would, and waits until its process has ended.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.release()
	if !s.child.alive() {
		return fmt.Errorf("%s in %s is not running", s.program.name, s.dir)
	}
	s.child.killGroup()
	return nil
}

// Pause pauses the server with SIGSTOP, and waits until all of its threads have stopped. Its port stays open, and it
// does not answer.
func (s *Server) Pause() error {
	if err := s.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return s.child.waitStopped()
}

// Resume resumes a paused server.
func (s *Server) Resume() error { return s.signal(syscall.SIGCONT) }

func (s *Server) signal(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.child.alive() {
		return fmt.Errorf("%s in %s is not running", s.program.name, s.dir)
	}
	s.child.signalGroup(sig)
	return nil
}

// Dir returns the server's folder. Its data are in the subfolder "data".
func (s *Server) Dir() string { return s.dir }

// Addr returns the address of the server, as host:port. It never changes.
func (s *Server) Addr() string { return loopback(s.ports[0]) }

// Pid returns the process id of the server's current or last process.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.child.Pid()
}

// Exited returns a channel that is closed when the server's current process has ended, for any reason.
func (s *Server) Exited() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.child.Exited()
}

// LogTail returns the end of the server's log, at most 4 KiB.
func (s *Server) LogTail() string { return tail(s.file("log"), 4096) }

// file returns the path of a file or folder in the server's folder.
func (s *Server) file(name string) string { return filepath.Join(s.dir, name) }

// release releases the lock of the folder, if it is held.
func (s *Server) release() {
	if s.lock != nil {
		// Closing is not enough: a child of this process holds a copy of the file from its fork until its exec.
		_ = syscall.Flock(int(s.lock.Fd()), syscall.LOCK_UN)
		s.lock.Close()
		s.lock = nil
	}
}

// choosePorts chooses the ports of the last run if they are free, so that stored addresses stay valid.
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
	return chooseFree(s.program.ports)
}

// chooseFree chooses n consecutive ports that are free.
func chooseFree(n int) []int {
	// Ports from 32768 up are assigned to clients. Such a port could be taken while its server is down, even by a
	// client of that server, which would then connect to itself.
	for {
		first := 20000 + rand.IntN(12000)
		var ports []int
		for i := range n {
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
		l, err := net.Listen("tcp", loopback(port))
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

// StartAll starts the three servers at once, in the folders mysql, redis and kafka of dir. If one fails, StartAll stops
// the others. ctx is that of Server.Start. redisFlags are those of StartRedis.
func StartAll(ctx context.Context, dir string, redisFlags ...string) (*All, error) {
	var (
		all  All
		errs [3]error
		wg   sync.WaitGroup
	)
	wg.Go(func() { all.MySQL, errs[0] = StartMySQL(ctx, filepath.Join(dir, "mysql")) })
	wg.Go(func() { all.Redis, errs[1] = StartRedis(ctx, filepath.Join(dir, "redis"), redisFlags...) })
	wg.Go(func() { all.Kafka, errs[2] = StartKafka(ctx, filepath.Join(dir, "kafka")) })
	wg.Wait()
	if err := errors.Join(errs[:]...); err != nil {
		return nil, errors.Join(err, all.Stop(context.WithoutCancel(ctx)))
	}
	return &all, nil
}

// Stop stops the three servers at once. ctx is that of Server.Stop.
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
