package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"

	"likewise/handlers"
	"likewise/handlers/network"
	"likewise/web"
)

type webCmd struct {
	API            string   `name:"api" env:"LIKEWISE_API" required:"" placeholder:"URL" help:"${web_api_help}"`
	PublicURL      string   `env:"LIKEWISE_PUBLIC_URL" required:"" placeholder:"${origin}" help:"${web_public_url_help}"`
	Listen         string   `env:"LIKEWISE_LISTEN" default:":8083" help:"Address to serve on."`
	TrustedProxies []string `env:"LIKEWISE_TRUSTED_PROXIES" placeholder:"NETWORK" help:"${web_proxies_help}"`

	Drain time.Duration `env:"LIKEWISE_DRAIN" default:"5s" help:"${drain_help}"`
}

// Validate reports invalid settings.
func (w *webCmd) Validate() error {
	_, err := w.config(nil)
	if w.Drain < 0 || w.Drain > maxDrain {
		err = errors.Join(err, fmt.Errorf("--drain (or $LIKEWISE_DRAIN) must be from 0s to %s", maxDrain))
	}
	return err
}

// config returns the settings of the pages.
func (w *webCmd) config(log *slog.Logger) (c web.Config, err error) {
	c.Log = log
	if c.API, err = origin(w.API); err != nil {
		return c, fmt.Errorf("--api (or $LIKEWISE_API): %w", err)
	}
	if c.PublicURL, err = origin(w.PublicURL); err != nil {
		return c, fmt.Errorf("--public-url (or $LIKEWISE_PUBLIC_URL): %w", err)
	}
	proxies, err := network.ParseProxies(w.TrustedProxies)
	if err != nil {
		return c, fmt.Errorf("--trusted-proxies (or $LIKEWISE_TRUSTED_PROXIES): %w", err)
	}
	c.TrustedProxies = proxies
	return c, nil
}

// origin parses a URL without a path.
func origin(s string) (*url.URL, error) {
	if err := handlers.CheckPublicURL(s); err != nil {
		return nil, err
	}
	u, err := url.Parse(s)
	if err == nil && (s == "" || u.Path != "") {
		err = fmt.Errorf("%q is not of the form https://HOST", s)
	}
	return u, err
}

// open returns the pages.
func (w *webCmd) open(log *slog.Logger) (*web.Server, error) {
	config, err := w.config(log)
	if err != nil {
		return nil, err
	}
	return web.New(config)
}

// Run serves the pages until ctx ends.
func (w *webCmd) Run(ctx context.Context, out output) error {
	pages, err := w.open(out.log)
	if err != nil {
		return err
	}
	listener, err := network.ListenTCP(ctx, w.Listen)
	if err != nil {
		return err
	}
	out.log.InfoContext(ctx, "web serves", "address", listener.Addr().String(), "api", w.API)
	return pages.Serve(ctx, listener, w.Drain)
}

// local returns the URL of a listener on this machine by the name localhost. Browsers refuse passkeys at an address.
func local(l net.Listener) string {
	host, port, err := net.SplitHostPort(l.Addr().String())
	if ip := net.ParseIP(strings.Trim(host, "[]")); err != nil || ip == nil || !ip.IsLoopback() && !ip.IsUnspecified() {
		return "http://" + l.Addr().String()
	}
	return "http://localhost:" + port
}
