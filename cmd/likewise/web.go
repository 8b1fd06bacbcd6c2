package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"likewise/handlers"
	"likewise/handlers/network"
	"likewise/web"
)

type webCmd struct {
	API       string `name:"api" env:"LIKEWISE_API" required:"" placeholder:"URL" help:"${web_api_help}"`
	PublicURL string `env:"LIKEWISE_PUBLIC_URL" required:"" placeholder:"${origin}" help:"${web_public_help}"`

	siteFlags

	Listen         string   `env:"LIKEWISE_LISTEN" default:":8083" help:"Address to serve on."`
	AdminListen    string   `env:"LIKEWISE_ADMIN_LISTEN" default:"127.0.0.1:9083" help:"${admin_help}"`
	TrustedProxies []string `env:"LIKEWISE_TRUSTED_PROXIES" placeholder:"NETWORK" help:"${web_proxies_help}"`

	Drain time.Duration `env:"LIKEWISE_DRAIN" default:"5s" help:"${drain_help}"`
}

// Validate reports missing and invalid settings.
func (w *webCmd) Validate() error {
	_, err := w.config()
	err = errors.Join(err, w.check())
	if w.Drain < 0 || w.Drain > maxDrain {
		err = errors.Join(err, fmt.Errorf("--drain (or $LIKEWISE_DRAIN) must be from 0s to %s", maxDrain))
	}
	return errors.Join(required(
		setting{flag: "api", env: "LIKEWISE_API", value: w.API},
		setting{flag: "public-url", env: "LIKEWISE_PUBLIC_URL", value: w.PublicURL},
	), err)
}

// config returns the settings of the pages. Those that are missing are nil.
func (w *webCmd) config() (c web.Config, err error) {
	c.SiteName = w.SiteName
	if c.API, err = origin(w.API); err != nil {
		return c, fmt.Errorf("--api (or $LIKEWISE_API): %w", err)
	}
	if c.PublicURL, err = origin(w.PublicURL); err != nil {
		return c, fmt.Errorf("--public-url (or $LIKEWISE_PUBLIC_URL): %w", err)
	}
	if c.TrustedProxies, err = network.ParseProxies(w.TrustedProxies); err != nil {
		return c, fmt.Errorf("--trusted-proxies (or $LIKEWISE_TRUSTED_PROXIES): %w", err)
	}
	return c, nil
}

// origin parses a URL without a path; nil if there is none.
func origin(s string) (*url.URL, error) {
	if s == "" {
		return nil, nil
	}
	if err := handlers.CheckPublicURL(s); err != nil {
		return nil, err
	}
	u, err := url.Parse(s)
	if err == nil && u.Path != "" {
		err = fmt.Errorf("%q is not of the form https://HOST", s)
	}
	return u, err
}

// open returns the pages, whose metrics are in registry. dev answers what is below /dev/; nil: nothing is.
func (w *webCmd) open(log *slog.Logger, registry *prometheus.Registry, dev http.Handler) (*web.Server, error) {
	config, err := w.config()
	if err != nil {
		return nil, err
	}
	config.Log, config.Registry, config.Dev = log, registry, dev
	return web.New(config)
}

// Run serves the pages until ctx ends.
func (w *webCmd) Run(ctx context.Context, out output) error {
	c := &core{log: out.log, registry: newRegistry()}
	pages, err := w.open(c.log, c.registry, nil)
	if err != nil {
		return err
	}
	c.export(roleWeb)
	c.servers = []connected{{"api", pages.Ping, func() error { return nil }}}
	listener, err := network.ListenTCP(ctx, w.Listen)
	if err != nil {
		return fmt.Errorf("--listen (or $LIKEWISE_LISTEN): %w", err)
	}
	admin, err := listenAdmin(w.AdminListen)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	c.log.InfoContext(ctx, "web serves", "address", listener.Addr().String(), "api", w.API)
	return c.withAdmin(ctx, admin, func() error { return pages.Serve(ctx, quietListener{listener}, w.Drain) })
}

// quietListener resets no connection when it is closed.
type quietListener struct{ net.Listener }

// TurnAway lets the pages accept all connections that have begun, and no other.
func (l quietListener) TurnAway(ctx context.Context) error { return network.TurnAway(ctx, l.Listener) }

// local returns the URL of a listener on this machine by the name localhost. Browsers refuse passkeys at an address.
func local(l net.Listener) string {
	host, port, err := net.SplitHostPort(l.Addr().String())
	if ip := net.ParseIP(strings.Trim(host, "[]")); err != nil || ip == nil || !ip.IsLoopback() && !ip.IsUnspecified() {
		return "http://" + l.Addr().String()
	}
	return "http://localhost:" + port
}
