package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"likewise/internal/servers"
	"likewise/migrations"
	"likewise/models/db"
)

// site is the API under attack.
type site struct {
	api   string // HOST:PORT
	pid   int
	store *db.Store
	dir   string

	process *exec.Cmd      // nil if the API was already running
	mysql   *servers.MySQL // nil, too

	probes []*http.Client // by address; made by the first probe
	data   worst
	walked int // pages read to find cursors
}

// open starts a site, or attaches to one, and fills it.
func open(ctx context.Context, o options) (s *site, err error) {
	s = &site{api: o.api, pid: o.pid}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close(context.WithoutCancel(ctx)))
		}
	}()
	dsn := o.dsn
	if s.api == "" {
		if dsn, err = s.start(ctx, o.binary); err != nil {
			return s, err
		}
	}
	if s.store, err = db.Open(ctx, dsn, db.Options{MaxConns: 4}); err != nil {
		return s, err
	}
	fmt.Fprintln(os.Stderr, "filling", s.api)
	s.data, err = fill(ctx, s.store)
	return s, err
}

// start starts a private MariaDB and the API, with the limits of production.
func (s *site) start(ctx context.Context, binary string) (dsn string, err error) {
	if s.dir, err = os.MkdirTemp("", "likewise-siege-"); err != nil {
		return "", err
	}
	if binary == "" {
		binary = filepath.Join(s.dir, "likewise")
		fmt.Fprintln(os.Stderr, "building the product")
		if out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, "likewise/cmd/likewise").
			CombinedOutput(); err != nil {
			return "", fmt.Errorf("build the product: %w: %s", err, out)
		}
	}
	if s.mysql, err = servers.StartMySQL(ctx, filepath.Join(s.dir, "mysql")); err != nil {
		return "", err
	}
	root, err := openSQL(s.mysql.DSN(""))
	if err != nil {
		return "", err
	}
	defer root.Close()
	if _, err := root.ExecContext(
		ctx,
		"CREATE DATABASE likewise CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci",
	); err != nil {
		return "", fmt.Errorf("create database: %w", err)
	}
	if dsn, err = db.DSN(s.mysql.DSN("likewise")); err != nil {
		return "", err
	}
	if err := migrations.Up(ctx, dsn, 0); err != nil {
		return "", err
	}
	free := make([]string, 2)
	for i := range free {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", err
		}
		free[i] = ln.Addr().String()
		if err := ln.Close(); err != nil {
			return "", err
		}
	}
	s.api = free[0]
	pictures := filepath.Join(s.dir, "images")
	if err := os.Mkdir(pictures, 0o750); err != nil {
		return "", err
	}
	log, err := os.Create(filepath.Join(s.dir, "api.log"))
	if err != nil {
		return "", err
	}
	defer log.Close()
	s.process = exec.CommandContext(
		context.WithoutCancel(ctx),
		binary,
		"api",
		"--likes=direct",
		"--drain=0s",
		"--listen="+s.api,
		"--admin-listen="+free[1],
		"--mysql-dsn="+dsn,
		"--images="+pictures,
	)
	s.process.Env = append(os.Environ(), "GOMEMLIMIT=800MiB") // as in compose.yaml
	s.process.Stdout, s.process.Stderr = log, log
	s.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.process.Start(); err != nil {
		s.process = nil
		return "", fmt.Errorf("start the api: %w", err)
	}
	s.pid = s.process.Process.Pid
	limit := unix.Rlimit{Cur: apiMemory, Max: apiMemory}
	if err := unix.Prlimit(s.pid, unix.RLIMIT_DATA, &limit, nil); err != nil {
		return "", fmt.Errorf("limit the memory of the api: %w", err)
	}
	return dsn, s.await(ctx)
}

// await waits until the API answers.
func (s *site) await(ctx context.Context) error {
	for deadline := time.Now().Add(30 * time.Second); ; {
		_, _, err := get(ctx, http.DefaultClient, "http://"+s.api+"/healthz")
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			log, _ := os.ReadFile(filepath.Join(s.dir, "api.log"))
			return fmt.Errorf("the api does not answer: %w: %s", err, log)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (s *site) close(ctx context.Context) error {
	var errs []error
	if s.store != nil {
		errs = append(errs, s.store.Close())
	}
	if s.process != nil {
		errs = append(errs, s.process.Process.Signal(syscall.SIGTERM))
		_ = s.process.Wait() // its exit status does not matter
	}
	if s.mysql != nil {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		errs = append(errs, s.mysql.Stop(ctx))
	}
	if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}

// resident returns the resident memory of the API's process, in bytes.
func (s *site) resident() (int64, error) { return s.memory("VmRSS:") }

// peak returns the largest resident memory that the process has had, in bytes.
func (s *site) peak() (int64, error) { return s.memory("VmHWM:") }

func (s *site) memory(name string) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("the process has no %s", name)
}

// dial opens a connection to the API from a loopback address.
func (s *site) dial(ctx context.Context, from string) (net.Conn, error) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 10 * time.Second}
	return dialer.DialContext(ctx, "tcp", s.api)
}

func (s *site) dialer(from string) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) { return s.dial(ctx, from) }
}
