package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"likewise/internal/faults/oracle"
	"likewise/internal/servers"
)

// A clock is a file with the seconds by which the time of day of one process is off. The processes of the product are
// built with a package time that adds them. The product itself is not changed for it. Servers are started with a
// library that does the same. Clocks that only run forward, and the timers that use them, are not changed, as after a
// step of the clock of a machine.
type clock struct{ path string }

// envClock names the file of a process's clock.
const envClock = "LIKEWISE_FAULTS_CLOCK"

//go:embed clock.go.txt
var clockSource []byte

//go:embed clock.c.txt
var clockLibrary []byte

// newClock returns a clock that is right.
func newClock(dir, name string) (clock, error) {
	c := clock{filepath.Join(dir, name+".clock")}
	return c, c.set(0)
}

// set sets by how much the clock is off, in whole seconds.
func (c clock) set(off time.Duration) error {
	var b [8]byte
	binary.NativeEndian.PutUint64(b[:], uint64(int64(off/time.Second)))
	f, err := os.OpenFile(c.path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("set clock: %w", err)
	}
	_, err = f.Write(b[:])
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("set clock: %w", err)
	}
	return nil
}

// env returns the variable that makes a process use the clock.
func (c clock) env() string { return envClock + "=" + c.path }

// timeSources returns the files of package time that differ for processes with clocks that can be set, by their path.
func timeSources(ctx context.Context) (map[string][]byte, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("find the sources of go: %w", err)
	}
	folder := filepath.Join(strings.TrimSpace(string(out)), "src", "time")
	text, err := os.ReadFile(filepath.Join(folder, "time.go"))
	if err != nil {
		return nil, fmt.Errorf("read package time: %w", err)
	}
	const before = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	stepped := bytes.Replace(text, []byte(before), []byte(strings.Replace(before, "runtimeNow", "steppedNow", 1)), 1)
	if bytes.Equal(stepped, text) {
		return nil, errors.New("this version of go reads the time in another way: adapt clock.go")
	}
	return map[string][]byte{
		filepath.Join(folder, "time.go"):         stepped,
		filepath.Join(folder, "faults_clock.go"): clockSource,
	}, nil
}

// build builds the product with clocks that can be set.
func build(ctx context.Context, dir, path string, race bool) error {
	sources, err := timeSources(ctx)
	if err != nil {
		return err
	}
	replaced := map[string]string{}
	for of, content := range sources {
		at := filepath.Join(dir, filepath.Base(of)+".txt")
		replaced[of] = at
		if err := os.WriteFile(at, content, 0o600); err != nil {
			return fmt.Errorf("write package time: %w", err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return fmt.Errorf("describe package time: %w", err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		return fmt.Errorf("describe package time: %w", err)
	}
	flags := []string{"-overlay", list}
	if race {
		flags = append(flags, "-race")
	}
	return servers.Build(ctx, path, flags...)
}

// preload builds the library that adds the offset of a clock to the time of a server.
func preload(ctx context.Context, dir string) (path string, err error) {
	compiler := os.Getenv("CC")
	if compiler == "" {
		compiler = "cc"
	}
	path = filepath.Join(dir, "clock.so")
	cmd := exec.CommandContext(ctx, compiler, "-O2", "-shared", "-fPIC", "-x", "c", "-o", path, "-")
	cmd.Stdin = bytes.NewReader(clockLibrary)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the library with the clock: %w: %s", err, out)
	}
	return path, nil
}

// skew is by how much a clock is off: ahead or behind.
func (x *injection) skew(ahead bool) time.Duration {
	off := []time.Duration{30 * time.Second, 10 * time.Minute, 3 * time.Hour}[x.rng.IntN(3)]
	if !ahead {
		off = -off
	}
	x.notef("%v", off)
	return off
}

// clockOff sets the clock of one process ahead or back for some time.
func clockOff(of func(*injection) []*process, ahead bool) func(context.Context, *injection) error {
	return func(ctx context.Context, x *injection) error {
		p := x.one(of(x))[0]
		x.skewBegins(&x.stepped)
		defer x.skewEnds(&x.stepped)
		err := p.clock.set(x.skew(ahead))
		return errors.Join(err, x.during(ctx, 3*s1, 7*s1, func() error { return p.clock.set(0) }))
	}
}

// serverClockOff does the same to a server.
func serverClockOff(name string, ahead bool) func(context.Context, *injection) error {
	return func(ctx context.Context, x *injection) error {
		c := x.serverClocks[name]
		off := x.skew(ahead)
		x.skewBegins(&x.stepped)
		defer x.skewEnds(&x.stepped)
		if name == "redis" {
			x.redisSkewBegins(off)
			defer x.skewEnds(&x.skewed)
		}
		err := c.set(off)
		return errors.Join(err, x.during(ctx, 3*s1, 7*s1, func() error { return c.set(0) }))
	}
}

// skewBegins and skewEnds note in a list when a clock is off.
func (s *site) skewBegins(list *[]pause) {
	s.skewMu.Lock()
	defer s.skewMu.Unlock()
	*list = append(*list, pause{begin: time.Now()})
}

// redisSkewBegins notes by how much Redis's clock is off from now on.
func (s *site) redisSkewBegins(off time.Duration) {
	s.skewBegins(&s.skewed)
	s.skewMu.Lock()
	defer s.skewMu.Unlock()
	s.skews = append(s.skews, off)
}

func (s *site) skewEnds(list *[]pause) {
	s.skewMu.Lock()
	defer s.skewMu.Unlock()
	endPause(*list)
}

// conditions returns what happened to the processes and clocks so far.
func (s *site) conditions() oracle.Conditions {
	var c oracle.Conditions
	for api := range s.urls {
		c.Held = append(c.Held, s.heldAt(api))
	}
	s.skewMu.Lock()
	defer s.skewMu.Unlock()
	c.Stepped = s.spans(s.stepped)
	for i, p := range s.spans(s.skewed) {
		c.Skewed = append(c.Skewed, oracle.Skew{Span: p, Off: s.skews[i]})
	}
	return c
}
