package main

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// sink counts its writes. Its lock is for the race detector, which does not know that a timer of a synctest bubble
// fires after what the bubble did before.
type sink struct {
	mu    sync.Mutex
	text  strings.Builder
	count int
}

func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	return s.text.Write(p)
}

func (s *sink) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

func (s *sink) writes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}

func TestLog_writesTimesInUTCAndDurationsWithTheirUnit(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 7, 1, 12, 0, 0, 0, time.FixedZone("", 2*60*60))
	for _, format := range []string{"json", "text"} {
		var out sink
		handler := (&cli{LogFormat: format, LogLevel: "info"}).logHandler(&out, false)
		r := slog.NewRecord(at, slog.LevelInfo, "m", 0)
		r.AddAttrs(slog.Time("other", at), slog.Duration("wait", 1500*time.Millisecond))
		assert.NoError(t, handler.Handle(t.Context(), r))
		assert.Equal(t, 2, strings.Count(out.String(), "2026-07-01T10:00:00"), out.String())
		assert.Regexp(t, `"?wait"?[=:]"?1\.5s`, out.String())
	}
}

func TestLog_onlyLinesOfSuccessfulRequestsAreDelayed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out sink
		lines := &lineBuffer{w: &out}
		log := slog.New(delayedLog{slog.NewTextHandler(lines, nil), lines}).With("pid", 1)
		for range 100 {
			log.Info("request", "status", 200)
		}
		assert.Zero(t, out.writes())
		<-time.After(flushAfter)
		synctest.Wait()
		assert.Equal(t, 1, out.writes())
		assert.Equal(t, 100, strings.Count(out.String(), "status=200"))
		for i, say := range []func(){
			func() { log.Error("request", "status", 500) },
			func() { log.Info("api serves") },
			func() { log.Warn("request", "status", 409) },
		} {
			log.Info("request", "status", 201)
			say()
			assert.Equal(t, i+2, out.writes(), "not written at once, with the line before it")
		}
		assert.Less(t, strings.Index(out.String(), "status=201"), strings.Index(out.String(), "status=500"))
		log.Info("request", "status", 202)
		lines.flush()
		assert.Contains(t, out.String(), "status=202")
	})
}

func TestLog_losesNoLineOfManyWriters(t *testing.T) {
	t.Parallel()
	const writers, each = 8, 2000
	var out sink
	lines := &lineBuffer{w: &out}
	log := slog.New(delayedLog{slog.NewTextHandler(lines, nil), lines})
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			for range each {
				log.Info("request", "status", 200)
			}
		})
	}
	all.Wait()
	lines.flush()
	assert.Equal(t, writers*each, strings.Count(out.String(), "status=200\n"))
	assert.Less(t, out.writes(), writers*each/10)
}
