package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/servers"
	"likewise/internal/testkit"
	"likewise/models"
)

var prometheusPath = flag.String("prometheus", "",
	"the program of Prometheus, for TestAlerts_fireInTheirOutages; make test-alerts passes it")

// alertWithin is how soon the alerts of an outage must fire, and how long a site is watched for others.
const alertWithin = 2 * time.Minute

// outage is what happens to a site. Several faults come one after the other, and last until the end. They must cause
// their alerts within alertWithin, and no others. judge compares.
type outage struct {
	name   string
	make   func(t *testing.T) *watched
	faults []fault
	may    []string // alerts that may fire: consequences that depend on the order of events
}

type fault struct {
	name  string
	cause func(w *watched) // returns when the fault is there
	fires []string         // alerts that must fire
}

// Every outage is caused on a site of its own, with real roles, traffic, and a Prometheus with production's intervals
// and the rules as they are. All of them at the same time, so that the whole takes as long as the slowest alert.
func TestAlerts_fireInTheirOutages(t *testing.T) {
	// It takes four minutes, root and most of two cores, so `make test` leaves it to `make test-alerts`, which
	// .ci/nightly runs.
	if *prometheusPath == "" {
		t.Skip("make test-alerts runs it, with Prometheus") //nolint:forbidigo // .ci/nightly runs that
	}
	var mu sync.Mutex
	var table []string
	t.Run("all", func(t *testing.T) {
		for _, o := range outages {
			t.Run(strings.ReplaceAll(o.name, " ", "_"), func(t *testing.T) {
				w := o.make(t)
				w.serve()
				w.watch()
				t.Parallel() // from here on, when all sites have started
				w.awaitSilence()
				rows := w.hold(o)
				mu.Lock()
				defer mu.Unlock()
				table = append(table, rows...)
			})
		}
	})
	slices.Sort(table)
	t.Logf("after the fault, these alerts fired:\n%s", strings.Join(table, "\n"))
}

// watched is a site with traffic and a Prometheus.
type watched struct {
	*site
	servers    *servers.All // nil if they are shared
	apiArgs    []string
	workerArgs []string
	more       [][]string // other processes, such as a second worker
	pages      bool       // whether it has pages, which somebody reads
	roles      map[string]*process
	extra      []*process
	users      []account
	url        string
	webURL     string
	post       contentJSON
	drop       int64    // 0: nobody claims
	apart      *relayed // between extra[0] and MySQL; nil if nothing is
	prometheus *servers.Prometheus
}

// serve starts the roles and the traffic.
func (w *watched) serve() {
	w.t.Helper()
	w.users = w.accounts(20)
	w.succeed("user", "promote", "script-1", "admin") // who may make drops
	w.roles = map[string]*process{}
	w.roles["api"], w.url = w.api(w.apiArgs...)
	w.roles["worker"] = w.start(append([]string{"worker"}, w.workerArgs...)...)
	if w.pages {
		w.roles["web"], w.webURL = startWeb(w.t, w.url, "--admin-listen=127.0.0.1:0")
	}
	for _, args := range w.more {
		w.extra = append(w.extra, w.start(args...))
	}
	w.awaitOpen()
	w.roles["cron"] = w.start("cron")
	w.post = newPost(w.t, w.url, w.users[0])
	var drop struct{ ID int64 }
	call(w.t, w.url, w.users[0], "POST", w.post.path()+"/drops", obj{"title": "Stickers", "stock": 10000},
		http.StatusCreated, &drop)
	w.drop = drop.ID
	until := make(chan struct{})
	var running sync.WaitGroup
	w.t.Cleanup(func() { close(until); running.Wait() })
	running.Go(func() { w.use(until) })
}

// use sends requests as users do: they do not wait for each other.
func (w *watched) use(until <-chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var running sync.WaitGroup
	defer running.Wait()
	request := func(n int, method, path string, body any) {
		running.Go(func() { _, _ = send(w.t, w.url, w.users[n%len(w.users)], method, path, body) })
	}
	for n := 0; ; n++ {
		select {
		case <-until:
			return
		case <-tick.C:
		}
		request(n, likeMethod(n/len(w.users)%2 == 0), w.post.path()+"/like", nil)
		request(n, "GET", "/v1/posts", nil)
		if w.pages {
			running.Go(func() { w.read() })
		}
		if n%2 == 0 {
			request(n/2, "POST", w.post.path()+"/comments", obj{"content": "A comment."})
			running.Go(func() { w.claim(w.users[n/2%len(w.users)]) })
		}
	}
}

// read opens a page.
func (w *watched) read() {
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.webURL+"/", nil)
	if err != nil {
		return
	}
	if answer, err := http.DefaultClient.Do(r); err == nil {
		answer.Body.Close()
	}
}

// claim claims from the drop, and returns the claim.
func (w *watched) claim(as account) {
	var made struct{ ID models.ID }
	r, err := send(w.t, w.url, as, "POST", fmt.Sprintf("/v1/drops/%d/claims", w.drop), nil)
	if err == nil && r.status < 300 && json.Unmarshal([]byte(r.body), &made) == nil {
		_, _ = send(w.t, w.url, as, "DELETE", fmt.Sprintf("/v1/claims/%d", made.ID), nil)
	}
}

// watch starts a Prometheus that scrapes the roles, with the intervals and the job label of the rules.
func (w *watched) watch() {
	w.t.Helper()
	rules, err := filepath.Abs("../../docs/alerts/likewise.rules.yml")
	require.NoError(w.t, err)
	var targets []string
	for _, p := range w.processes() {
		targets = append(targets, strings.TrimPrefix(p.admin(), "http://"))
	}
	config := fmt.Sprintf(`{
		global: {scrape_interval: 15s, evaluation_interval: 15s},
		rule_files: [%q],
		scrape_configs: [{job_name: likewise, static_configs: [{targets: ["%s"]}]}]
	}`, rules, strings.Join(targets, `", "`))
	w.prometheus, err = servers.StartPrometheus(w.t.Context(), *prometheusPath,
		filepath.Join(w.t.TempDir(), "prometheus"), strings.ReplaceAll(config, "\t", " "))
	require.NoError(w.t, err)
	w.t.Cleanup(func() {
		assert.NoError(w.t, w.prometheus.Stop(context.Background()))
	})
}

func (w *watched) processes() []*process {
	return slices.AppendSeq(slices.Clone(w.extra), maps.Values(w.roles))
}

// awaitSilence waits until every process was scraped three times, and no alert is pending or firing.
func (w *watched) awaitSilence() {
	w.t.Helper()
	testkit.Eventually(w.t, patience, func() (bool, string) {
		var scraped struct {
			Data struct {
				Result []struct{ Value [2]any }
			}
		}
		w.ask("/api/v1/query?query=sum_over_time(up[10m])>=3", &scraped)
		if n := len(scraped.Data.Result); n < len(w.processes()) {
			return false, fmt.Sprintf("%d processes were scraped three times", n)
		}
		active := w.alerts()
		return len(active) == 0, fmt.Sprintf("alerts of a healthy site: %v", active)
	})
}

// hold causes the faults, watches the site, and checks which alerts fire. It returns a row of the table for each fault.
func (w *watched) hold(o outage) (rows []string) {
	w.t.Helper()
	begun := make([]time.Time, len(o.faults))
	for i, f := range o.faults {
		begun[i] = time.Now()
		f.cause(w)
	}
	<-time.After(time.Until(begun[len(begun)-1].Add(alertWithin))) // whatever else fires does so by then
	rows, wrong := judge(o, begun, w.fired(begun[0]))
	for _, text := range wrong {
		w.t.Error(text)
	}
	return rows
}

// judge compares the alerts that fired, each with its first time, with those of an outage whose faults began at these
// times. It returns a row of the table for each fault, and what is wrong: an alert that no fault explains, one that
// fired before its fault, and one that is missing or late.
func judge(o outage, begun []time.Time, fired map[string]time.Time) (rows, wrong []string) {
	explained := slices.Clone(o.may)
	for i, f := range o.faults {
		var times []string
		for _, name := range f.fires {
			explained = append(explained, name)
			at, ok := fired[name]
			after := at.Sub(begun[i])
			switch {
			case !ok:
				wrong = append(wrong, fmt.Sprintf("%s: %s does not fire", f.name, name))
				continue
			case after < 0:
				wrong = append(wrong, fmt.Sprintf("%s: %s fires before", f.name, name))
			case after > alertWithin:
				wrong = append(wrong, fmt.Sprintf("%s: %s is late: %v", f.name, name, after))
			}
			times = append(times, fmt.Sprintf("%s %.0f s", strings.TrimPrefix(name, "Likewise"), after.Seconds()))
		}
		rows = append(rows, fmt.Sprintf("| %s | %s |", f.name, strings.Join(times, ", ")))
	}
	for _, name := range slices.Sorted(maps.Keys(fired)) {
		if !slices.Contains(explained, name) {
			wrong = append(wrong, fmt.Sprintf("%s: %s fires, too, after %.0f s", o.name, name,
				fired[name].Sub(begun[0]).Seconds()))
		} else if slices.Contains(o.may, name) {
			rows = append(rows, fmt.Sprintf("| (%s) | %s %.0f s |", o.name, strings.TrimPrefix(name, "Likewise"),
				fired[name].Sub(begun[0]).Seconds()))
		}
	}
	return rows, wrong
}

// fired returns the alerts that have fired since a time, each with its first time. Prometheus records them at every
// evaluation, so that an alert is found however short it was.
func (w *watched) fired(since time.Time) map[string]time.Time {
	w.t.Helper()
	var recorded struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Values [][2]any
			}
		}
	}
	query := fmt.Sprintf(`ALERTS{alertstate="firing"}[%ds]`, int(time.Since(since).Seconds())+1)
	w.ask("/api/v1/query?query="+url.QueryEscape(query), &recorded)
	first := map[string]time.Time{}
	for _, series := range recorded.Data.Result {
		name := series.Metric["alertname"]
		for _, sample := range series.Values {
			seconds, ok := sample[0].(float64)
			require.True(w.t, ok, "%v", sample)
			at := time.UnixMilli(int64(seconds * 1000))
			if known, ok := first[name]; !ok || at.Before(known) {
				first[name] = at
			}
		}
	}
	return first
}

// alerts returns the names of the alerts that are pending or firing.
func (w *watched) alerts() (names []string) {
	w.t.Helper()
	var answer struct {
		Data struct {
			Alerts []struct{ Labels map[string]string }
		}
	}
	w.ask("/api/v1/alerts", &answer)
	for _, a := range answer.Data.Alerts {
		names = append(names, a.Labels["alertname"])
	}
	return names
}

func (w *watched) ask(path string, out any) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.prometheus.URL()+path, nil)
	require.NoError(w.t, err)
	answer, err := http.DefaultClient.Do(r)
	require.NoError(w.t, err)
	defer answer.Body.Close()
	var text bytes.Buffer
	_, err = text.ReadFrom(answer.Body)
	require.NoError(w.t, err)
	require.NoError(w.t, json.Unmarshal(text.Bytes(), out), "%s", text.String())
}

// raw returns a connection to the Redis of the site.
func (w *watched) raw() *redis.Client {
	w.t.Helper()
	options, err := redis.ParseURL(w.site.url)
	require.NoError(w.t, err)
	client := redis.NewClient(options)
	w.t.Cleanup(func() { client.Close() })
	return client
}
