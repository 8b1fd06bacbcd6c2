package web

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// Bounds on a connection. Only answers that the proxy passes on may take longer: streams, pictures and archives.
const (
	headerTimeout = 5 * time.Second
	bodyTimeout   = 2 * time.Minute // of an image on a slow line
	writeTimeout  = 3 * time.Minute // from the end of the header of a request
	idleTimeout   = 2 * time.Minute
	maxHeader     = 16 << 10
	stopTimeout   = 9 * time.Second
)

// turner is a listener that accepts what has begun, and no other, so that closing it resets no connection.
type turner interface {
	TurnAway(ctx context.Context) error
}

// Serve answers requests on the listener until ctx ends, drain has passed and the requests in progress are answered.
// Meanwhile it closes each connection with its next answer, so that a proxy has none left when the listener is closed.
func (s *Server) Serve(ctx context.Context, listener net.Listener, drain time.Duration) error {
	var draining atomic.Bool
	// A stream lasts until its reader leaves. The context of all requests ends it.
	requests, end := context.WithCancelCause(context.WithoutCancel(ctx))
	endStreams := func() { end(errStopping) }
	defer endStreams()
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if draining.Load() {
				w.Header().Set("Connection", "close")
			}
			s.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: headerTimeout, ReadTimeout: bodyTimeout, WriteTimeout: writeTimeout,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return requests },
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve pages: %w", err)
	case <-ctx.Done():
	}
	draining.Store(true)
	s.config.Log.InfoContext(ctx, "web drains: accepting requests until proxies have noticed", "for", drain)
	select {
	case err := <-failed:
		return fmt.Errorf("serve pages: %w", err)
	case <-time.After(drain):
	}
	s.config.Log.InfoContext(ctx, "web stops: answering the requests in progress")
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if l, ok := listener.(turner); ok {
		if err := l.TurnAway(stopping); err != nil {
			s.config.Log.WarnContext(ctx, "connections that nobody has accepted yet are reset", "error", err)
		}
	}
	server.RegisterOnShutdown(func() { time.AfterFunc(time.Second, endStreams) })
	if err := server.Shutdown(stopping); err != nil {
		return errors.Join(fmt.Errorf("stop serving pages: %w", err), server.Close())
	}
	if err := s.Wait(stopping); err != nil {
		s.config.Log.WarnContext(ctx, "some posts are not marked as read", "error", err)
	}
	s.config.Log.InfoContext(ctx, "web stopped")
	return nil
}
