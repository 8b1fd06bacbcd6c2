package handlers

import "time"

// SetStreamPace makes streams quicker than clients need them. It is called before the first stream is opened.
func (s *Server) SetStreamPace(round, heartbeat, write time.Duration) {
	s.hub.pace = streamPace{round, heartbeat, write}
}
