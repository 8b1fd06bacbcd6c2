package handlers

import (
	"time"

	"likewise/handlers/live"
)

// SetStreamPace makes streams quicker than clients need them. It is called before the first stream is opened.
func (s *Server) SetStreamPace(round, heartbeat, write time.Duration) {
	s.hub.Pace = live.Pace{Round: round, Heartbeat: heartbeat, Write: write, Read: 5 * time.Second}
}

// SetMaxWatched makes streams watch together no more than that. It is called before the first stream is opened.
func (s *Server) SetMaxWatched(targets int) { s.hub.Limits.Targets = targets }
