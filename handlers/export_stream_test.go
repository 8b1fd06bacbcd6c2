package handlers

import (
	"time"

	"likewise/handlers/live"
)

// SetStreamPace makes streams faster than in production. Call it before the first stream is opened.
func (s *Server) SetStreamPace(round, heartbeat, write time.Duration) {
	s.hub.Pace = live.Pace{Round: round, Heartbeat: heartbeat, Write: write, Read: 5 * time.Second, Blocks: round}
}

// SetMaxWatched bounds the targets of all streams. Call it before the first stream is opened.
func (s *Server) SetMaxWatched(targets int) { s.hub.Limits.Targets = targets }
