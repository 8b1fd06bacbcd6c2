package main

import (
	"errors"
	"io"
	"os"
	"sync"
	"syscall"
)

// checkedWriter keeps the first error of w, so that a command fails if some of its output was not written.
type checkedWriter struct {
	w io.Writer

	mu  sync.Mutex
	err error
}

// Write writes to w.
func (c *checkedWriter) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.w.Write(b)
	if err != nil && c.err == nil {
		c.err = err
	}
	return n, err //nolint:wrapcheck // it stands for w
}

// errNowhere means that a secret would be lost.
var errNowhere = errors.New("the output has the only copy of a secret, and standard output is closed or /dev/null")

// keepsOutput returns errNowhere if nobody can read what is written to w. The runtime of Go opens /dev/null in place of
// a standard output that is closed.
func keepsOutput(w io.Writer) error {
	if c, ok := w.(*checkedWriter); ok {
		w = c.w
	}
	f, ok := w.(*os.File)
	if !ok {
		return nil
	}
	info, err := f.Stat()
	if err != nil {
		return errNowhere
	}
	const null = 1<<8 | 3 // Linux: the memory devices have the major number 1
	if s, ok := info.Sys().(*syscall.Stat_t); ok && info.Mode()&os.ModeCharDevice != 0 && s.Rdev == null {
		return errNowhere
	}
	return nil
}
