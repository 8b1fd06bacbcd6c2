// Package testkit provides tests with real servers. Each test has its own empty, migrated MySQL database, its own
// logical Redis database and its own Kafka topic. The servers start when the first test of a package needs them, and
// stop after its last.
//
// A package that uses testkit declares
//
//	func TestMain(m *testing.M) { testkit.Main(m) }
package testkit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"likewise/internal/servers"
)

// Main runs the package's tests, and exits. If the tests pass but leave processes behind, it fails.
func Main(m *testing.M) {
	servers.Main()
	code := m.Run()
	if err := shared.stop(); err != nil {
		fmt.Fprintln(os.Stderr, "testkit:", err)
		code = 1
	}
	if left := children(); len(left) > 0 {
		fmt.Fprintln(os.Stderr, "testkit: the tests left processes running:", strings.Join(left, ", "))
		code = 1
	}
	os.Exit(code)
}

// Servers starts a set of servers for one test, which may kill, pause and restart them. They keep what they
// acknowledged.
func Servers(t testing.TB) *servers.All {
	t.Helper()
	dir, err := shared.folder()
	if err != nil {
		t.Fatal(err)
	}
	dir, err = os.MkdirTemp(dir, "private-")
	if err != nil {
		t.Fatalf("make folder for servers: %v", err)
	}
	all, err := servers.StartAll(t.Context(), dir, "--appendfsync", "always")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := all.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("end of the MySQL log:\n%s\nend of the Redis log:\n%s\nend of the Kafka log:\n%s",
				all.MySQL.LogTail(), all.Redis.LogTail(), all.Kafka.LogTail())
		}
		os.RemoveAll(dir)
	})
	return all
}

// Eventually calls condition every few milliseconds until it reports true. After timeout, the test fails with the last
// reason that condition returned.
func Eventually(t testing.TB, timeout time.Duration, condition func() (ok bool, why string)) {
	t.Helper()
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for {
		ok, why := condition()
		if ok {
			return
		}
		select {
		case <-deadline.C:
			t.Fatalf("not within %v: %s", timeout, why)
		case <-poll.C:
		}
	}
}

// shared has the servers that all tests of the process share.
var shared = &state{}

type state struct {
	mu    sync.Mutex // held while a server starts
	dir   string
	lock  *os.File
	mysql *servers.MySQL
	redis *servers.Redis
	kafka *servers.Kafka
}

const folderPattern = "likewise-test-"

// memoryFolder is a folder in memory. Copying the schema takes 50 ms there, and up to two seconds on a busy disk.
const memoryFolder = "/dev/shm"

// memoryWanted is how many bytes must be free in memoryFolder. Two packages at a time take less than half of it.
const memoryWanted = 4 << 30

// parentFolder returns the parent of the folders of test processes. It is TMPDIR if set, memoryFolder if it has enough
// space, and the default folder of temporary files otherwise.
func parentFolder() string {
	if os.Getenv("TMPDIR") == "" {
		var fs syscall.Statfs_t
		if err := syscall.Statfs(memoryFolder, &fs); err == nil && fs.Bavail*uint64(fs.Bsize) >= memoryWanted {
			return memoryFolder
		}
	}
	return os.TempDir()
}

// folder returns the folder of the servers of this process. The folder is locked while the process runs.
func (s *state) folder() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dir != "" {
		return s.dir, nil
	}
	removeAbandoned()
	dir, err := os.MkdirTemp(parentFolder(), folderPattern)
	if err != nil {
		return "", fmt.Errorf("make folder for servers: %w", err)
	}
	lock, err := lockOwner(dir)
	if err != nil {
		return "", err
	}
	s.dir, s.lock = dir, lock
	return dir, nil
}

func lockOwner(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "owner"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open owner lock: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock folder of servers: %w", err)
	}
	return f, nil
}

// removeAbandoned removes the folders of test processes that were killed. It keeps folders younger than a minute, which
// may not be locked yet.
func removeAbandoned() {
	dirs, _ := filepath.Glob(filepath.Join(os.TempDir(), folderPattern+"*"))
	inMemory, _ := filepath.Glob(filepath.Join(memoryFolder, folderPattern+"*"))
	for _, dir := range append(dirs, inMemory...) {
		info, err := os.Stat(dir)
		if err != nil || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		if lock, err := lockOwner(dir); err == nil {
			os.RemoveAll(dir)
			lock.Close()
		}
	}
}

// stop stops the shared servers, and removes their data.
func (s *state) stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := servers.All{MySQL: s.mysql, Redis: s.redis, Kafka: s.kafka}
	err := all.Stop(context.Background())
	if s.dir != "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
		s.lock.Close()
	}
	return err
}

// children lists the running child processes of this one, as "id (name)".
func children() []string {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	var list []string
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the process has ended
		}
		end := bytes.LastIndexByte(text, ')')
		fields := strings.Fields(string(text[end+1:]))
		if end > 0 && len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid()) {
			list = append(list, string(text[:end+1]))
		}
	}
	return list
}
