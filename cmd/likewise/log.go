package main

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"
)

// logAttr writes times in UTC, whatever the zone of the process, and durations with their unit.
func logAttr(_ []string, a slog.Attr) slog.Attr {
	switch a.Value.Kind() { //nolint:exhaustive // all others are written as they are
	case slog.KindTime:
		a.Value = slog.TimeValue(a.Value.Time().UTC())
	case slog.KindDuration:
		a.Value = slog.StringValue(a.Value.Duration().String())
	default:
	}
	return a
}

// delayedLog writes lines of successful requests at most flushAfter late, many at once: a system call for each would
// cost a busy API several percent of its time. Every other line is written at once, and those before it with it.
type delayedLog struct {
	slog.Handler
	lines *lineBuffer
}

// Handle logs the record.
func (d delayedLog) Handle(ctx context.Context, r slog.Record) error {
	err := d.Handler.Handle(ctx, r)
	if r.Level > slog.LevelInfo || r.Message != "request" {
		d.lines.flush()
	}
	return err
}

// WithAttrs is like that of the Handler within.
func (d delayedLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return delayedLog{d.Handler.WithAttrs(attrs), d.lines}
}

// WithGroup is like that of the Handler within.
func (d delayedLog) WithGroup(name string) slog.Handler {
	return delayedLog{d.Handler.WithGroup(name), d.lines}
}

const (
	flushAfter = 100 * time.Millisecond
	flushAt    = 32 << 10 // bytes
)

// lineBuffer collects what is written to w.
type lineBuffer struct {
	w io.Writer

	mu      sync.Mutex
	lines   []byte
	waiting bool // for the timer that flushes
}

// Write collects a line.
func (b *lineBuffer) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, line...)
	if len(b.lines) >= flushAt {
		b.flushLocked()
	} else if !b.waiting {
		b.waiting = true
		time.AfterFunc(flushAfter, b.flush)
	}
	return len(line), nil
}

func (b *lineBuffer) flush() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = false
	b.flushLocked()
}

func (b *lineBuffer) flushLocked() {
	if len(b.lines) > 0 {
		_, _ = b.w.Write(b.lines) // as slog itself does: the error has no other place
		b.lines = b.lines[:0]
	}
}
