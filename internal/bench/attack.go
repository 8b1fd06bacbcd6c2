package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"likewise/internal/servers"
	"likewise/models/db"
)

// attacked is a site under attack by clients on many loopback addresses: an API with the limits of production, whose
// MySQL nothing else uses. It has the worst content that an account may write.
type attacked struct {
	*servers.Product
	attackTimes

	log    *slog.Logger
	mysql  *servers.MySQL
	store  *db.DB
	data   worst
	probes []*http.Client // by address
	walked int            // pages read to find cursors
}

// attackTimes are how long attacks last, and how long the API is measured without them.
type attackTimes struct {
	unread                time.Duration // of one route; less than the server's write timeout
	betweenRoutes         time.Duration
	expensive             time.Duration
	uploads, quietUploads time.Duration
}

// fullTimes are those of a measurement. Tests have shorter ones.
func fullTimes() attackTimes {
	return attackTimes{
		unread: 5 * time.Second, betweenRoutes: 3 * time.Second, expensive: 15 * time.Second,
		uploads: time.Minute, quietUploads: 15 * time.Second,
	}
}

// bounded is a figure that has a bound.
type bounded struct {
	Attack string `json:"attack"` // a part
	Name   string `json:"name"`
	Text   string `json:"text"`
	Within bool   `json:"within_bound"`
}

// attacks are the parts that attack a site, in their order.
var attacks = []struct {
	part string
	run  func(*attacked, context.Context, *Settings) ([]bounded, error)
}{
	{partUnread, func(a *attacked, ctx context.Context, s *Settings) ([]bounded, error) {
		return a.measureUnread(ctx, s, 1)
	}},
	{partUnreadWide, func(a *attacked, ctx context.Context, s *Settings) ([]bounded, error) {
		return a.measureUnread(ctx, s, unreadConnections)
	}},
	{partExpensive, (*attacked).measureExpensive},
	{partUploads, (*attacked).measureUploads},
}

// isAttack reports whether a part attacks a site.
func isAttack(part string) bool {
	for _, attack := range attacks {
		if attack.part == part {
			return true
		}
	}
	return false
}

// measureAttacks attacks a site of its own in each way that is chosen.
func (b *bench) measureAttacks(ctx context.Context, dir string) (err error) {
	a := &attacked{attackTimes: b.times, log: b.log}
	defer func() { err = errors.Join(err, a.close(context.WithoutCancel(ctx))) }()
	if err := a.open(ctx, b.program, filepath.Join(dir, "attacked")); err != nil {
		return err
	}
	for _, attack := range attacks {
		if !slices.Contains(b.Parts, attack.part) {
			continue
		}
		b.log.InfoContext(ctx, "bench begins", "part", attack.part)
		list, err := attack.run(a, ctx, &b.Settings)
		if err != nil {
			return fmt.Errorf("%s: %w", attack.part, err)
		}
		for _, f := range list {
			f.Attack = attack.part
			b.report.Attacks = append(b.report.Attacks, f)
		}
	}
	return nil
}

// apiMemory bounds the memory of the API, as in compose.yaml.
const apiMemory = 1 << 30 // bytes

// open starts the servers, and fills the site.
func (a *attacked) open(ctx context.Context, program, dir string) (err error) {
	pictures := filepath.Join(dir, "images")
	if err := os.MkdirAll(pictures, 0o750); err != nil {
		return err
	}
	if a.mysql, err = servers.StartMySQL(ctx, filepath.Join(dir, "mysql")); err != nil {
		return err
	}
	dsn, err := a.mysql.Migrate(ctx, "likewise")
	if err != nil {
		return err
	}
	a.Product, err = servers.StartProduct(ctx, "api-attacked", program, filepath.Join(dir, "api.log"),
		[]string{"LIKEWISE_MYSQL_DSN=" + dsn, "GOMEMLIMIT=800MiB"}, // the memory as in compose.yaml
		"api", "--likes=direct", "--drain=0s", "--images="+pictures)
	if err != nil {
		return err
	}
	limit := unix.Rlimit{Cur: apiMemory, Max: apiMemory}
	if err := unix.Prlimit(a.Pid(), unix.RLIMIT_DATA, &limit, nil); err != nil {
		return fmt.Errorf("limit the memory of the api: %w", err)
	}
	if a.store, err = db.Open(ctx, dsn, db.Options{MaxConns: 4}); err != nil {
		return err
	}
	for i := range probeAddresses {
		client := a.client(fmt.Sprintf("127.0.9.%d", i+1))
		a.probes = append(a.probes, client)
	}
	a.data, err = fill(ctx, a.store)
	return err
}

func (a *attacked) close(ctx context.Context) error {
	var err error
	if a.store != nil {
		err = a.store.Close()
	}
	if a.Product != nil {
		_ = a.Terminate(stopLimit) // its exit status does not matter
	}
	if a.mysql != nil {
		err = errors.Join(err, a.mysql.Stop(ctx))
	}
	return err
}

// process returns the API's process in /proc.
func (a *attacked) process() (procfs.Proc, error) { return procfs.NewProc(a.Pid()) }

// resident returns the resident memory of the API's process, in bytes.
func (a *attacked) resident() (int64, error) {
	process, err := a.process()
	if err != nil {
		return 0, err
	}
	stat, err := process.Stat()
	return int64(stat.ResidentMemory()), err
}

// client returns a client that connects from a loopback address.
func (a *attacked) client(from string) *http.Client {
	return &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: attackers, DialContext: func(
			ctx context.Context, _, _ string,
		) (net.Conn, error) {
			return a.dial(ctx, from)
		}},
		Timeout: 30 * time.Second,
	}
}

// dial opens a connection to the API from a loopback address.
func (a *attacked) dial(ctx context.Context, from string) (net.Conn, error) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}, Timeout: 10 * time.Second}
	return dialer.DialContext(ctx, "tcp", a.Address)
}

// get requests a path of the API.
func (a *attacked) get(ctx context.Context, client *http.Client, path string) (status int, body []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+a.Address+path, nil)
	if err != nil {
		return 0, nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, body, err
}

// Probes are the requests of a well-behaved client, one at a time on a persistent connection. They come from many
// addresses in turn, so that they stay within the rate limits. All requests count, and the last is not cancelled.
const (
	probeAddresses = 20
	probePause     = 10 * time.Millisecond
)

// probed is what the client of the probes has noticed.
type probed struct {
	latency

	requests, refused int
}

// probe reads a post of ordinary size repeatedly until ctx ends.
func (a *attacked) probe(ctx context.Context) (p probed, err error) {
	took := newLatencies()
	for ctx.Err() == nil {
		client := a.probes[p.requests%len(a.probes)]
		began := time.Now()
		status, body, err := a.get(context.WithoutCancel(ctx), client, postPath(a.data.small))
		if err != nil {
			return p, fmt.Errorf("probe: %w", err)
		}
		p.requests++
		if status != http.StatusOK {
			a.log.WarnContext(ctx, "bench was refused", "status", status, "body", string(body))
			p.refused++
		}
		if err := took.RecordValue(max(1, time.Since(began).Microseconds())); err != nil {
			return p, fmt.Errorf("probe: %w", err)
		}
		pause(ctx, probePause)
	}
	p.latency = newLatency(took)
	return p, nil
}

// probeAlone is probe for a time in which nobody attacks.
func (a *attacked) probeAlone(ctx context.Context, length time.Duration) (probed, error) {
	probing, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	p, err := a.probe(probing)
	if err == nil {
		err = ctx.Err()
	}
	if err == nil && p.refused > 0 {
		err = fmt.Errorf("%d requests were refused although no other client was active", p.refused)
	}
	return p, err
}

// pause waits until d has passed or ctx has ended.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// tally counts answers by what they were. It is safe for concurrent use.
type tally struct {
	mu     sync.Mutex
	counts map[string]int
}

func (t *tally) add(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = map[string]int{}
	}
	t.counts[name]++
}

// String returns, for example, "9×200 191×429".
func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var words []string
	for _, name := range slices.Sorted(maps.Keys(t.counts)) {
		words = append(words, fmt.Sprintf("%d×%s", t.counts[name], name))
	}
	return strings.Join(words, " ")
}
