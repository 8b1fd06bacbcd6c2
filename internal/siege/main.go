// Command siege measures how much malicious clients can disturb other clients. It runs the API as a separate process on
// a private MariaDB, and fills it with the worst content that an account may write. Then clients on many loopback
// addresses attack it. The command measures the memory of the process and the latency of another client.
//
//	go run ./internal/siege
//	go run ./internal/siege --only unread --addresses 200
//	go run ./internal/siege --only expensive --posts 100000
//
// To attack a running server, name its address, process and database. The command writes to the database, so use a
// disposable one:
//
//	go run ./internal/siege --api 127.0.0.1:8080 --pid PID --mysql-dsn DSN
//
// All requests stay on this machine, and their number and time are bounded. Progress goes to standard error, and the
// figures to standard output. The exit status is 1 if a figure is beyond its bound, and 2 if the siege itself failed.
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

// scenario is one kind of attack. Each is in its own file.
type scenario struct {
	name string
	help string
	run  func(ctx context.Context, s *site, o options) ([]figure, error)
}

var scenarios = []scenario{unread, expensive, uploads}

// figure is one measurement. within reports whether it is within its bound.
type figure struct {
	name   string
	text   string
	within bool
}

func main() {
	servers.Main()
	var o options
	flag.StringVar(&o.api, "api", "", "address of a running API; if empty, one is started")
	flag.IntVar(&o.pid, "pid", 0, "process id of the running API")
	flag.StringVar(&o.dsn, "mysql-dsn", "", "database of the running API, which the siege fills")
	flag.StringVar(&o.binary, "binary", "", "path of the product; if empty, it is built")
	flag.StringVar(&o.only, "only", "", "names of scenarios, separated by commas; if empty, all run")
	flag.IntVar(&o.addresses, "addresses", 1, "loopback addresses of the clients of unread, 1 to 200")
	flag.StringVar(&o.paths, "paths", "", "part of the paths that unread requests; if empty, it requests all")
	flag.IntVar(&o.posts, "posts", 300_000, "posts of the site that expensive attacks, 10,000 to 1,000,000")
	flag.BoolVar(&o.list, "list", false, "list the scenarios and exit")
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

// run runs the scenarios, and reports whether every figure is within its bound.
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
