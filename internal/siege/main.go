// Command siege measures what clients who mean harm can do to those who do not. It runs the API as a process of its own
// on a private MariaDB, fills it with the worst content that an account may write, lets clients on many loopback
// addresses attack it, and measures the process's memory and how long another client waits.
//
//	go run ./internal/siege
//	go run ./internal/siege --only unread --addresses 200
//	go run ./internal/siege --only expensive --posts 100000
//
// To attack a server that runs already, name it; its database is filled, so it must be one to throw away:
//
//	go run ./internal/siege --api 127.0.0.1:8080 --pid PID --mysql-dsn DSN
//
// Everything stays on this machine, and is bounded in requests and time. Progress goes to standard error, the figures
// to standard output. The exit status is 1 when a figure is beyond its bound, 2 when the siege itself failed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"likewise/internal/servers"
)

type options struct {
	api       string
	pid       int
	dsn       string
	binary    string
	only      string
	addresses int
	paths     string
	posts     int
	list      bool
}

// scenario is one way to attack. A file of this package has each.
type scenario struct {
	name string
	help string
	run  func(ctx context.Context, s *site, o options) ([]figure, error)
}

var scenarios = []scenario{unread, expensive}

// figure is one measurement, and the bound that it is held to.
type figure struct {
	name   string
	text   string
	within bool
}

func main() {
	servers.Main()
	var o options
	flag.StringVar(&o.api, "api", "", "address of an API that runs already; empty: one is started")
	flag.IntVar(&o.pid, "pid", 0, "its process")
	flag.StringVar(&o.dsn, "mysql-dsn", "", "its database, which is filled")
	flag.StringVar(&o.binary, "binary", "", "the product; empty: it is built")
	flag.StringVar(&o.only, "only", "", "scenarios to run, by name, separated by commas; empty: all")
	flag.IntVar(&o.addresses, "addresses", 1, "loopback addresses that each attack of unread comes from, 1 to 200")
	flag.StringVar(&o.paths, "paths", "", "a part of the paths that unread asks for; empty: all")
	flag.IntVar(&o.posts, "posts", 300_000, "posts of the site that expensive attacks, 10,000 to 1,000,000")
	flag.BoolVar(&o.list, "list", false, "list the scenarios and end")
	flag.Parse()
	attached := o.api != ""
	if flag.NArg() > 0 || o.addresses < 1 || o.addresses > 200 || o.posts < minPosts || o.posts > maxPosts ||
		attached != (o.pid > 0) ||
		attached != (o.dsn != "") {
		flag.Usage()
		os.Exit(2)
	}
	if o.list {
		for _, s := range scenarios {
			fmt.Fprintf(os.Stdout, "%s\t%s\n", s.name, s.help)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	held, err := run(ctx, o)
	stop()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "siege:", err)
		os.Exit(2)
	case !held:
		os.Exit(1)
	}
}

// run reports whether every figure is within its bound.
func run(ctx context.Context, o options) (held bool, err error) {
	s, err := open(ctx, o)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, s.close(context.WithoutCancel(ctx))) }()
	held = true
	for _, one := range scenarios {
		if o.only != "" && !slices.Contains(strings.Split(o.only, ","), one.name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s: %s\n", one.name, one.help)
		figures, err := one.run(ctx, s, o)
		if err != nil {
			return false, fmt.Errorf("%s: %w", one.name, err)
		}
		for _, f := range figures {
			verdict := "ok"
			if !f.within {
				verdict, held = "TOO MUCH", false
			}
			fmt.Fprintf(os.Stdout, "%-8s %-55s %-8s %s\n", one.name, f.name, verdict, f.text)
		}
	}
	return held, nil
}
