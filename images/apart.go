package images

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	"likewise/models"
)

const (
	// apartName is the name, argv[0], of a process that MakeApart starts.
	apartName = "likewise-image"
	// niceness is how much such a process yields: one that competes with it gets three times its share of a core. With
	// a higher one, a photo would not be decoded in time where one other process keeps each core busy.
	niceness = 5
	// MaxProcessor is the processor time of a process that MakeApart starts, in whole seconds. The worst files take 2.4
	// s.
	MaxProcessor = 4 * time.Second
	// apartLimit ends a process whose parent was killed.
	apartLimit = 30 * time.Second
	// apartOutput bounds what a process returns, in bytes: an image and its thumbnail.
	apartOutput = 2 * MaxStored
)

// The exit statuses of a process that MakeApart starts.
const (
	statusFailed  = 1
	statusDamaged = 3
)

// MakeApart is Make in another process: the program of this one, which calls ServeApart first. That process has one
// core at most, and a lower priority, so that requests do not wait for it. It is killed when ctx ends or
// it has used MaxProcessor, and all of its memory is free when MakeApart returns. A file that ends the decoder ends no
// other request.
func MakeApart(ctx context.Context, field string, file []byte) (*Made, error) {
	if _, _, err := inspect(field, file); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe")   // its file may have been replaced since it started
	cmd.Args, cmd.Env = []string{apartName}, []string{} // it needs no secret of this process
	var out, said capped
	out.limit, said.limit = apartOutput, 4<<10
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(file), &out, &said
	cmd.WaitDelay = time.Second
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == statusDamaged {
		return nil, fault(field, errDamaged)
	}
	made := &Made{}
	if err == nil {
		err = gob.NewDecoder(&out.b).Decode(made)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, models.Unavailable("The image cannot be decoded now; try again.",
			fmt.Errorf("decode an image apart: %w: %s", err, said.b.Bytes()))
	}
	return made, nil
}

// capped is a buffer that refuses more than most bytes.
type capped struct {
	b     bytes.Buffer
	limit int
}

func (c *capped) Write(p []byte) (int, error) {
	if c.b.Len()+len(p) > c.limit {
		return 0, io.ErrShortWrite
	}
	return c.b.Write(p)
}

// ServeApart makes an image and ends the process, if MakeApart has started it. Otherwise it does nothing.
func ServeApart() {
	if len(os.Args) == 0 || os.Args[0] != apartName {
		return
	}
	runtime.GOMAXPROCS(1)
	if err := errors.Join(yieldToOthers(), limitProcessor(MaxProcessor)); err != nil {
		fmt.Fprintln(os.Stderr, err) // it can work all the same
	}
	debug.SetMemoryLimit(MaxMemory + largeMemory)
	os.Exit(serveApart(os.Stdin, os.Stdout, os.Stderr))
}

// serveApart reads a file, writes what Make makes of it, and returns the status to exit with.
func serveApart(in io.Reader, out, errs io.Writer) (status int) {
	ctx, cancel := context.WithTimeout(context.Background(), apartLimit)
	defer cancel()
	file, err := io.ReadAll(io.LimitReader(in, MaxBytes+1))
	var made *Made
	if err == nil {
		made, err = Make(ctx, "", file)
	}
	if models.ErrorCode(err) == models.CodeInvalid {
		return statusDamaged // its header was checked before
	}
	if err == nil {
		err = gob.NewEncoder(out).Encode(made)
	}
	if err != nil {
		fmt.Fprintln(errs, err)
		return statusFailed
	}
	return 0
}

// limitProcessor makes the system kill this process when it has used a time of processors, in whole seconds. Time that
// it waits for a processor does not count: a bound on the time alone would refuse photos where others keep each core
// busy.
func limitProcessor(limit time.Duration) error {
	seconds := uint64(limit / time.Second)
	if err := syscall.Setrlimit(syscall.RLIMIT_CPU, &syscall.Rlimit{Cur: seconds, Max: seconds}); err != nil {
		return fmt.Errorf("limit the processor time: %w", err)
	}
	return nil
}

// yieldToOthers lowers the priority of all threads of this process. On Linux each thread has its own, and passes it on
// to those that it starts. So it looks twice: one may have started another before it was its turn.
func yieldToOthers() error {
	for range 2 {
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("list threads: %w", err)
		}
		for _, thread := range threads {
			id, err := strconv.Atoi(thread.Name())
			if err == nil {
				err = syscall.Setpriority(syscall.PRIO_PROCESS, id, niceness)
			}
			if err != nil && !errors.Is(err, syscall.ESRCH) { // it may have ended
				return fmt.Errorf("lower the priority: %w", err)
			}
		}
	}
	return nil
}
