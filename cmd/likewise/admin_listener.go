package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"likewise/handlers"
)

// listenAdmin opens the listener of /healthz, /readyz and /metrics. The routes below /v1/admin are not on it.
func listenAdmin(address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--admin-listen (or $LIKEWISE_ADMIN_LISTEN): %w", err)
	}
	return listener, nil
}

// withAdmin serves /healthz, /readyz and /metrics on listener while body runs, and returns body's error. It closes
// listener. After the end of ctx, while body finishes the work in progress, /readyz answers 503.
func (c *core) withAdmin(ctx context.Context, listener net.Listener, body func() error) error {
	dependencies := map[string]func(context.Context) error{}
	for _, server := range c.servers {
		dependencies[server.name] = server.ping
	}
	handler := handlers.Admin(handlers.AdminConfig{
		Registry: c.registry, Dependencies: dependencies, Stopping: ctx.Done(), Logger: c.log,
	})
	if c.local {
		handler = handlers.LocalAlone(handler)
	}
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		WriteTimeout:      10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    8 << 10,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	c.log.InfoContext(ctx, "admin listens", "address", listener.Addr().String())
	err := body()
	if closeErr := server.Close(); closeErr != nil {
		err = errors.Join(err, fmt.Errorf("stop the admin listener: %w", closeErr))
	}
	if serveErr := <-served; !errors.Is(serveErr, http.ErrServerClosed) {
		err = errors.Join(err, fmt.Errorf("serve the admin listener: %w", serveErr))
	}
	return err
}
