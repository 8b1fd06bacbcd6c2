// Command faults tries to break the promise of the README. It runs a whole site, with two processes of each role and
// real servers behind proxies. A storm of clients uses the site over HTTP, while faults are injected on a schedule that
// depends on a seed: processes are killed and paused, links are cut, and disks become full. In the end an oracle
// compares MySQL and the API with the answers that the clients received.
//
// The oracle relies on the promise and on the API, and not on the implementation.
//
//	go run ./internal/faults --for 10m --seed 7
//
// Progress goes to standard error, and the report to standard output. The exit status is 1 if the promise was broken,
// and 2 if the harness itself failed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"likewise/internal/faults/oracle"
	"likewise/internal/servers"
)

type options struct {
	length  time.Duration
	seed    uint64
	clients int
	rate    int
	fsync   string
	disk    string
	binary  string
	race    bool
	json    bool
	only    string
	dir     string
	list    bool
	redis   string
	crowd   int
}

func main() {
	servers.Main()
	var o options
	flag.DurationVar(&o.length, "for", 10*time.Minute,
		"duration of the storm; the last fault and its recovery come on top")
	flag.Uint64Var(&o.seed, "seed", 0, "seed of the random choices; 0 chooses one")
	flag.IntVar(&o.clients, "clients", 48, "concurrent clients, with ten users each")
	flag.IntVar(&o.rate, "rate", 800, "most requests a second, of all clients together")
	flag.StringVar(&o.fsync, "appendfsync", "always", "appendfsync of Redis: always or everysec")
	flag.StringVar(&o.disk, "disk", "tmpfs",
		"where the servers' data are: tmpfs for memory that can be filled, real for the disk")
	flag.StringVar(&o.binary, "binary", "",
		"path of the product; if empty, it is built, with clocks that can be set")
	flag.BoolVar(&o.race, "race", false, "build the product with the race detector")
	flag.BoolVar(&o.json, "json", false, "print the report as JSON")
	flag.StringVar(&o.only, "only", "", "parts of names of faults, separated by commas; if empty, all are injected")
	flag.StringVar(&o.dir, "dir", "",
		"folder for logs and data, which is kept; if empty, a temporary one, which is kept after a failure")
	flag.StringVar(&o.redis, "redis", "single",
		"what Redis is: single, or cluster for a Redis Cluster whose slots move")
	flag.IntVar(&o.crowd, "crowd", 0, fmt.Sprintf(
		"instead of the storm, so many users claim a stock of %d in the same second, while servers are killed",
		crowdStock))
	flag.BoolVar(&o.list, "list", false, "list the faults and exit")
	flag.Parse()
	if flag.NArg() > 0 || o.fsync != "always" && o.fsync != "everysec" || o.disk != "tmpfs" && o.disk != "real" ||
		o.redis != "single" && o.redis != "cluster" ||
		o.clients < 1 || o.rate < 1 || o.crowd < 0 || o.crowd > 0 && o.crowd <= crowdStock {
		flag.Usage()
		os.Exit(2)
	}
	if o.list {
		for _, f := range faults() {
			fmt.Fprintln(os.Stdout, f.kind)
		}
		return
	}
	if o.disk == "tmpfs" && os.Getenv(envInside) == "" {
		os.Exit(inside())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	violated, err := run(ctx, o)
	stop()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "faults:", err)
		os.Exit(2)
	case violated:
		os.Exit(1)
	}
}

// envInside marks the child process, which has its own mount namespace if the system permits one.
const envInside = "LIKEWISE_FAULTS_INSIDE"

// inside runs this program as a child with its own mount namespace, so that its mounts always end with it.
func inside() int {
	signal.Ignore(syscall.SIGINT) // Ctrl-C reaches the child, too, which stops all processes in order
	try := func(private bool) (int, error) {
		cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		cmd.Env = append(os.Environ(), envInside+"=shared")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
		if private {
			cmd.Env = append(os.Environ(), envInside+"=private")
			cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS
		}
		if err := cmd.Start(); err != nil {
			return 2, err
		}
		stop := make(chan os.Signal, 1)
		signal.Notify(stop, syscall.SIGTERM)
		go func() {
			for range stop {
				_ = cmd.Process.Signal(syscall.SIGTERM)
			}
		}()
		err := cmd.Wait()
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return exit.ExitCode(), nil
		}
		return 0, err
	}
	code, err := try(true)
	if err != nil {
		code, err = try(false)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
	}
	return code
}

// run runs the storm, judges its results and prints the report. It reports whether the promise was violated.
func run(ctx context.Context, o options) (violated bool, err error) {
	for o.seed == 0 {
		o.seed = uint64(rand.Uint32())
	}
	s := &site{dir: o.dir, binary: o.binary, began: time.Now(), clustered: o.redis == "cluster"}
	if s.dir == "" {
		if s.dir, err = os.MkdirTemp("", "likewise-faults-"); err != nil {
			return false, fmt.Errorf("make folder: %w", err)
		}
	}
	if err := os.MkdirAll(filepath.Join(s.dir, "logs"), 0o700); err != nil {
		return false, fmt.Errorf("make folder: %w", err)
	}
	say := func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "%8.3f s  %s\n", s.since().Seconds(), fmt.Sprintf(format, args...))
	}
	say("seed %d; logs in %s", o.seed, s.dir)
	keep := o.dir != ""
	defer func() {
		if violated || err != nil || keep {
			say("logs and data are in %s", s.dir)
			return
		}
		os.RemoveAll(s.dir)
	}()
	if s.binary == "" {
		s.binary = filepath.Join(s.dir, "likewise")
		if err := build(ctx, s.dir, s.binary, o.race); err != nil {
			return false, err
		}
	} else {
		s.noClocks = "the product was not built by the harness"
	}
	if s.library, err = preload(ctx, s.dir); err != nil {
		s.noServerClocks = err.Error()
	}
	disk, err := s.mount(o.disk)
	if err != nil {
		return false, err
	}
	if s.noFull != "" {
		say("disks are not filled: %s", s.noFull)
	}
	defer func() {
		err = errors.Join(err, s.stop(context.WithoutCancel(ctx)))
		if violated || err != nil || keep {
			err = errors.Join(err, s.save(disk))
		}
	}()
	if err := s.startServers(ctx, disk, o.fsync); err != nil {
		return false, err
	}
	if err := s.startProduct(ctx); err != nil {
		return false, err
	}
	st := newStorm(s)
	st.violations.Log = func(v oracle.Violation) { say("VIOLATION, %s: %s", v.Sort, v.Text) }
	if o.crowd > 0 {
		r, err := st.rush(ctx, o, say)
		if err != nil {
			return st.violations.Total() > 0, err
		}
		if o.json {
			return r.Violations > 0, writeJSON(os.Stdout, r)
		}
		r.write(os.Stdout)
		return r.Violations > 0, nil
	}
	r := &report{
		Seed: o.seed,
		Setup: map[string]string{
			"appendfsync":            o.fsync,
			"disk":                   o.disk,
			"redis":                  o.redis,
			"clients":                fmt.Sprint(o.clients),
			"most requests a second": fmt.Sprint(o.rate),
		},
	}
	rec, err := st.rage(ctx, o, r, say)
	if err != nil {
		return st.violations.Total() > 0, err
	}
	say("judging %d likes and %d creations", len(rec.registers), len(rec.creations))
	if err := st.judgeAll(ctx, rec); err != nil {
		return st.violations.Total() > 0, err
	}
	if err := st.judgeLogs(); err != nil {
		return st.violations.Total() > 0, err
	}
	r.fill(st, rec)
	if o.json {
		err = writeJSON(os.Stdout, r)
	} else {
		r.write(os.Stdout)
	}
	return r.Violations > 0, err
}

// sizes are the sizes of the small disks, in MiB. They suffice for the longest run.
var sizes = map[string]int{"mysql": 768, "redis": 384, "kafka": 512}

// mount returns the folder of the servers' folders. If the system permits it, mount mounts a small disk for each
// server.
func (s *site) mount(kind string) (disk string, err error) {
	disk = filepath.Join(s.dir, "data")
	for name := range sizes {
		if err := os.MkdirAll(filepath.Join(disk, name), 0o700); err != nil {
			return "", fmt.Errorf("make folder: %w", err)
		}
	}
	switch {
	case kind != "tmpfs":
		s.noFull = "the data are on a real disk, as --disk=" + kind + " asks"
		return disk, nil
	case os.Getenv(envInside) != "private":
		s.noFull = "mounting needs root and a mount namespace; the data are on a real disk"
		return disk, nil
	}
	for name, size := range sizes {
		if err := syscall.Mount(
			"tmpfs", filepath.Join(disk, name), "tmpfs", 0, fmt.Sprintf("size=%dm,mode=700", size),
		); err != nil {
			s.noFull = fmt.Sprintf("cannot mount a tmpfs: %v; the data are on a real disk", err)
			return disk, nil
		}
	}
	return disk, nil
}

// save copies the data on the small disks to the run's folder.
func (s *site) save(disk string) error {
	if s.noFull != "" {
		return nil
	}
	out, err := exec.Command("cp", "-a", disk, filepath.Join(s.dir, "saved")).CombinedOutput()
	if err != nil {
		return fmt.Errorf("save data: %w: %s", err, out)
	}
	return nil
}

const (
	usersOfClient = 10
	hotPosts      = 4
	probed        = 16 // cold posts that the prober likes
	coldPosts     = 300
	discussions   = 16
	earlyComments = 100
)

// rage runs the storm: it creates users and the first posts, runs clients and faults, and returns the clients' records.
func (st *storm) rage(ctx context.Context, o options, r *report, say func(string, ...any)) (*record, error) {
	s := st.site
	extra := len(s.urls) + 1 // of the prober
	out, err := s.command(ctx, "user", "token", "--count", fmt.Sprint(o.clients*usersOfClient+extra+outcasts-leavers))
	if err != nil {
		return nil, fmt.Errorf("make users: %w: %s", err, out)
	}
	users, err := readTokens(out)
	if err != nil {
		return nil, err
	}
	if err := st.readNames(ctx, users); err != nil {
		return nil, err
	}
	st.outcasts, users = slices.Clip(users[:outcasts-leavers]), users[outcasts-leavers:]
	admin, err := st.admit(ctx)
	if err != nil {
		return nil, err
	}
	var clients []*client
	for i := range o.clients {
		clients = append(clients, newClient(st, i, o.seed, users[extra+i*usersOfClient:][:usersOfClient]))
	}
	for part := range slices.Chunk(st.outcasts, usersOfClient) {
		clients = append(clients, newClient(st, len(clients), o.seed, part))
	}
	st.clients = clients
	first := newClient(st, len(clients), o.seed, users[:extra])
	first.route = route{0, patientLimit}
	for i := range moderators {
		st.moderators = append(st.moderators, &moderator{
			route: route{i % 2, patientLimit}, st: st, account: admin,
			rng: rand.New(rand.NewPCG(o.seed, uint64(len(clients)+1+i))),
		})
	}
	for i := range keepers {
		st.keepers = append(st.keepers, &keeper{
			route: route{i % 2, patientLimit}, st: st, n: i,
			rng: rand.New(rand.NewPCG(o.seed, uint64(len(clients)+1+moderators+i))),
		})
	}
	if err := st.sow(ctx, first); err != nil {
		return nil, err
	}
	probes := newProber(st, users[:extra], st.targets.hot[0], st.targets.cold[:probed])
	begun, err := probes.measure(ctx, "the start")
	if err != nil {
		return nil, err
	}
	say("the site is up: likes after %v, flush after %v", begun.likes.Round(time.Millisecond),
		begun.flush.Round(time.Millisecond))

	storming, calm := context.WithCancel(ctx)
	var raging sync.WaitGroup
	for _, c := range clients {
		raging.Go(func() { c.run(storming, time.Duration(o.clients)*time.Second/time.Duration(o.rate)) })
	}
	for _, m := range st.moderators {
		raging.Go(func() { m.run(storming) })
	}
	for _, k := range st.keepers {
		raging.Go(func() { k.run(storming) })
	}
	raging.Go(func() { st.watch(storming) })
	hand := &operator{st, rand.New(rand.NewPCG(o.seed, uint64(len(clients)+1+moderators+keepers)))}
	raging.Go(func() { hand.run(storming) })
	err = st.hurt(ctx, o, r, probes, say)
	calm()
	raging.Wait()

	rec := &record{creations: first.made, viewer: users[0], users: users}
	rec.registers = append(append(rec.registers, probes.hot...), probes.spread...)
	for _, c := range clients {
		rec.registers = append(rec.registers, c.order...)
		rec.creations = append(rec.creations, c.made...)
	}
	return rec, err
}

// readNames reads the usernames of accounts.
func (st *storm) readNames(ctx context.Context, users []*oracle.Account) error {
	rows, err := st.site.db.QueryContext(ctx, "SELECT id, username FROM "+database+".users")
	if err != nil {
		return fmt.Errorf("read users: %w", err)
	}
	defer rows.Close()
	names := map[int64]string{}
	for rows.Next() {
		var id int64
		var name string
		if err := rows.Scan(&id, &name); err != nil {
			return fmt.Errorf("read users: %w", err)
		}
		names[id] = name
	}
	for _, u := range users {
		u.Name = names[u.ID]
	}
	return rows.Err()
}

// sow creates the posts and comments that the clients start with.
func (st *storm) sow(ctx context.Context, c *client) error {
	make1 := func(made *oracle.Creation) (*oracle.Target, error) {
		for {
			if m := c.create(ctx, made); m.Outcome == oracle.OK {
				return st.born(m), nil
			}
			if st.site.since() > 2*patience {
				return nil, fmt.Errorf("the site did not start: %s", made.Story())
			}
			if err := wait(ctx, 100*time.Millisecond); err != nil {
				return nil, err
			}
			c.route = c.other()
			made = &oracle.Creation{Kind: made.Kind, Parent: made.Parent}
		}
	}
	var err error
	if st.targets.disputed, err = make1(&oracle.Creation{Kind: "posts"}); err != nil {
		return err
	}
	for i := range hotPosts + coldPosts {
		t, err := make1(&oracle.Creation{Kind: "posts"})
		if err != nil {
			return err
		}
		if i < hotPosts {
			st.targets.hot = append(st.targets.hot, t)
		} else {
			st.targets.add(t)
		}
	}
	st.targets.discussed = slices.Concat(
		[]*oracle.Target{st.targets.disputed}, st.targets.hot, st.targets.cold[:discussions-hotPosts-1])
	for i := range earlyComments {
		t, err := make1(&oracle.Creation{Kind: "comments", Parent: st.targets.discussed[i%discussions].ID})
		if err != nil {
			return err
		}
		st.targets.add(t)
	}
	return nil
}

// hurt injects faults for the given time.
func (st *storm) hurt(ctx context.Context, o options, r *report, probes *prober, say func(string, ...any)) error {
	s := st.site
	deck, skipped := st.deck(o.only)
	r.Skipped = skipped
	if len(deck) == 0 {
		return errors.New("no such fault")
	}
	shuffle := rand.New(rand.NewPCG(o.seed, 0))
	end := time.Now().Add(o.length)
	var order []int
	for number := 1; time.Now().Before(end); number++ {
		if len(order) == 0 {
			order = shuffle.Perm(len(deck)) // each round has every fault once
		}
		f := deck[order[0]]
		order = order[1:]
		x := newInjection(st, o.seed, number)
		if err := wait(ctx, time.Duration(500+x.rng.IntN(1500))*time.Millisecond); err != nil {
			return err
		}
		at := s.since()
		say("fault %d: %s", number, f.kind)
		s.trouble.Add(1)
		healed, err := st.inject(ctx, f, x)
		if err != nil {
			return fmt.Errorf("fault %d, %s: %w", number, f.kind, err)
		}
		held := s.since() - at
		rec, err := probes.measure(ctx, f.kind)
		if err != nil {
			st.violations.Addf("no recovery", s.since(), "%v", err)
			r.fill(st, &record{})
			r.write(os.Stderr)
			return err
		}
		if x.afterwards != nil {
			if err := x.afterwards(); err != nil {
				return fmt.Errorf("fault %d, %s: %w", number, f.kind, err)
			}
		}
		s.trouble.Add(1)
		r.Faults = append(r.Faults,
			injected{number, f.kind, strings.Join(x.notes, ", "), at, held, rec.likes, rec.rows, rec.flush})
		say(
			"          %s%s; recovered after %.2f s (likes), %.2f s (rows), %.2f s (flush); "+
				"%d writes acknowledged, %d unknown, %d violations",
			strings.Join(x.notes, ", "),
			healed,
			rec.likes.Seconds(),
			rec.rows.Seconds(),
			rec.flush.Seconds(),
			st.tally.writes[oracle.OK].Load(),
			st.tally.writes[oracle.Unknown].Load(),
			st.violations.Total(),
		)
	}
	return nil
}

// inject injects one fault, and restarts servers that ended because of it.
func (st *storm) inject(ctx context.Context, f fault, x *injection) (note string, err error) {
	if f.rest {
		st.quiet.Lock()
		defer st.quiet.Unlock()
		if out, err := x.command(ctx, "cron", "run", "flush", "--timeout=60s"); err != nil {
			return "", fmt.Errorf("flush before it: %w: %s", err, out)
		}
	}
	before := x.serverDeaths.Load()
	err = f.do(ctx, x)
	err = errors.Join(err, x.revive(ctx))
	if x.serverDeaths.Load() > before {
		note = " (the server ended by itself and was started again)"
	}
	return note, err
}

// deck returns the faults that can be injected on this machine.
func (st *storm) deck(only string) (deck []fault, skipped []string) {
	for _, f := range faults() {
		wanted := only == ""
		for part := range strings.SplitSeq(only, ",") {
			wanted = wanted || part != "" && strings.Contains(f.kind, part)
		}
		switch {
		case !wanted, f.cluster && !st.site.clustered:
		case f.single && st.site.clustered:
			skipped = append(skipped, f.kind+": Redis is a cluster")
		case f.disk && st.site.noFull != "":
			skipped = append(skipped, f.kind+": "+st.site.noFull)
		case f.clock && st.site.noClocks != "":
			skipped = append(skipped, f.kind+": "+st.site.noClocks)
		case f.serverClock && st.site.noServerClocks != "":
			skipped = append(skipped, f.kind+": "+st.site.noServerClocks)
		default:
			deck = append(deck, f)
		}
	}
	return deck, skipped
}
