package bench

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"likewise/internal/servers"
	"likewise/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// Every part is measured, checked and shown. The sizes are tiny, so the figures mean nothing.
func TestBench_measuresChecksAndRecordsEverything(t *testing.T) {
	t.Parallel()
	o := Options{JSON: true, Program: filepath.Join(t.TempDir(), "likewise"), Settings: Settings{
		Clients: 2, Rounds: 1, Length: 50 * time.Millisecond, Users: 100, Likes: 40, Posts: 20, Sizes: []int{20, 40},
		Loads: []float64{0.5, 1},
		Parts: []string{partScenarios, partLoad, partLag, partClaims, partIDs, partPipeline, partSizes},
	}}
	require.NoError(t, servers.Build(t.Context(), o.Program, "-tags=dev"))
	var printed bytes.Buffer
	require.NoError(t, o.Run(t.Context(), &printed, slog.New(slog.DiscardHandler)))
	var measured report
	require.NoError(t, json.Unmarshal(printed.Bytes(), &measured))

	var names []string
	used := 0.0 // one round is too short for the clock of the kernel
	for _, s := range measured.Scenarios {
		names = append(names, s.Name)
		assert.Positive(t, s.Value, s.Name)
		assert.Positive(t, s.Objects, s.Name)
		assert.Positive(t, s.P50, s.Name)
		assert.Len(t, s.CPU, 6, s.Name)
		used += s.Roles()[6]
		assert.Equal(t, s.Name != bareRoute, s.Ratio > 0, s.Name)
	}
	assert.Positive(t, used)
	var want []string
	table := (&bench{}).scenarios()
	for i, s := range table {
		if slices.Index(table, s) == i {
			want = append(want, s.name)
		}
	}
	assert.Equal(t, want, names)
	assert.Len(t, measured.Loads, 2*len(loadsOf))
	assert.Len(t, measured.Halves, len(halvesOf))
	for _, l := range slices.Concat(measured.Loads, measured.Halves) {
		assert.True(t, l.Queries > 0 || l.Name == bareRoute, l.Name)
	}
	assert.Len(t, measured.Lag, 2)
	assert.Len(t, measured.Claims, 5)
	assert.Len(t, measured.IDs, 2)
	assert.Len(t, measured.Pipeline, 5)
	assert.Len(t, measured.Sizes, 2*9)

	dir := t.TempDir()
	page := filepath.Join(dir, "benchmarks.md")
	require.NoError(t, os.WriteFile(page, []byte("before\n"+figuresBegin+"old\n"+figuresEnd+"after\n"), 0o600))
	require.NoError(t, (&record{Report: &measured, Quick: measured.ratios()}).write(dir))
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Regexp(t, `(?s)^before\n.*`+hotToggled+`.*after\n$`, string(text))
	assert.NotContains(t, string(text), "old\n")
	for _, plot := range []string{"throughput", "latency", "lag", "size"} {
		svg, err := os.ReadFile(filepath.Join(dir, "benchmarks-"+plot+".svg"))
		require.NoError(t, err)
		assert.Contains(t, string(svg), "</svg>")
		assert.NotContains(t, string(svg), "NaN", plot)
	}
	recorded, err := readRecord(filepath.Join(dir, "benchmarks.json"))
	require.NoError(t, err)
	assert.Equal(t, measured.ratios(), recorded.Quick)
	assert.NoError(t, recorded.compare(&measured))
}

// Each attack is measured, and its figures have a bound. The attacks are short, so the figures mean nothing.
func TestBench_attacksASite(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "likewise")
	require.NoError(t, servers.Build(t.Context(), program, "-tags=dev"))
	b := &bench{
		Settings: Settings{
			Parts: []string{partUnread, partUnreadWide, partExpensive, partUploads},
			Only:  []string{"/ancestors", "/feed"}, Sizes: []int{20, minLarge},
		},
		program: program, log: slog.Default(), report: &report{},
		times: attackTimes{
			unread: time.Second, betweenRoutes: 100 * time.Millisecond, expensive: time.Second,
			uploads: time.Second, quietUploads: 100 * time.Millisecond,
		},
	}
	require.NoError(t, b.measureAttacks(t.Context(), t.TempDir()))
	count := map[string]int{}
	for _, f := range b.report.Attacks {
		count[f.Attack]++
		assert.NotEmpty(t, f.Text, f.Name)
	}
	assert.Equal(t, map[string]int{partUnread: 2, partUnreadWide: 2, partExpensive: 3, partUploads: 5}, count)
	expensive := b.report.Attacks[5]
	assert.Equal(t, "expensive requests", expensive.Name)
	assert.Regexp(t, `\d+×`, expensive.Text, "answers are counted; a busy machine refuses none within a second")

	b.report.Attacks = []bounded{{Attack: partUploads, Name: "peak memory", Text: "5 MiB", Within: true}}
	require.NoError(t, b.report.beyond())
	b.report.Attacks[0].Within = false
	assert.EqualError(t, b.report.beyond(), "uploads: peak memory: beyond its bound: 5 MiB")
}

// --only keeps what the chosen scenarios are compared with.
func TestBench_measuresChosenScenarios(t *testing.T) {
	t.Parallel()
	names := func(only ...string) (list []string) {
		for _, s := range (&Settings{Only: only}).chosen((&bench{}).scenarios()) {
			if s.prepare != nil && !slices.Contains(list, s.name) {
				list = append(list, s.name)
			}
		}
		return list
	}
	assert.Equal(t, []string{bareRoute, spreadOnce}, names("1,000 posts"))
	assert.Equal(t, []string{bareRoute, hotToggled, "claims of a sold-out drop"}, names("sold-out"))
	assert.Equal(t, []string{bareRoute, coldOnce, onePost, onePostOnce}, names("cold posts", "one post"))
	assert.Len(t, names(), 20)
}

// The comparison fails when a ratio is below half of the recorded one, and when it is missing.
func TestBench_quickFailsBelowHalfOfARecordedRatio(t *testing.T) {
	t.Parallel()
	measured := func(ratio float64) *report {
		return &report{
			Scenarios: []figure{
				{Name: bareRoute, Value: 1000},
				{Name: "like", Against: bareRoute, Ratio: ratio},
				{Name: "crowd", Against: "like", Ratio: ratio, Loose: true},
			},
			IDs: []figure{{Name: "ids", Against: "INCR", Ratio: 7}},
		}
	}
	recorded := &record{Quick: measured(0.8).ratios()}
	assert.Equal(t, map[string]float64{"like ÷ " + bareRoute: 0.8, "ids ÷ INCR": 7}, recorded.Quick)
	assert.NoError(t, recorded.compare(measured(0.8)))
	assert.NoError(t, recorded.compare(measured(0.4)))
	assert.EqualError(t, recorded.compare(measured(0.39)),
		"like ÷ "+bareRoute+" is 0.39, less than half of the recorded 0.8")
	assert.ErrorContains(t, recorded.compare(&report{}), "was recorded and not measured")
}

// stallingServer answers at once, except that it answers nothing for a while when it has answered some requests.
func stallingServer(t *testing.T, after int64, stall time.Duration) *servers.Product {
	t.Helper()
	var served atomic.Int64
	var until atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if served.Add(1) == after {
			until.Store(time.Now().Add(stall).UnixNano())
		}
		if left := time.Until(time.Unix(0, until.Load())); left > 0 {
			<-time.After(left)
		}
	}))
	t.Cleanup(server.Close)
	return &servers.Product{Address: strings.TrimPrefix(server.URL, "http://")}
}

// An open loop charges a stall to all requests that were due meanwhile, although only a few could be sent. A closed
// loop shows one for each client: coordinated omission.
func TestLoad_chargesAStallToAllRequestsThatItDelays(t *testing.T) {
	t.Parallel()
	const clients, total, perSecond, stall = 2, 600, 400, 500 * time.Millisecond
	slow := func(due func() schedule) int64 {
		j := &job{
			api: stallingServer(t, 100, stall), clients: clients,
			request: func(_ turn, r *fasthttp.Request) { r.SetRequestURI("/") },
		}
		l, err := j.run(t.Context(), due())
		require.NoError(t, err)
		require.Equal(t, total, l.requests)
		require.EqualValues(t, total, l.latencies.TotalCount())
		assert.Greater(t, l.latencies.Max(), (stall - 50*time.Millisecond).Microseconds())
		n := int64(0)
		for _, bar := range l.latencies.Distribution() {
			if bar.From >= (stall / 2).Microseconds() {
				n += bar.Count
			}
		}
		return n
	}
	assert.LessOrEqual(t, slow(func() schedule { return closedLoop(total, 0) }), int64(total/10), "one for each client")
	// Half of the requests that were due during the stall waited for at least half of it.
	assert.GreaterOrEqual(t, slow(func() schedule { return openLoop(total, perSecond) }), int64(90))
}

func TestLoad_endsAtTheFirstUnexpectedAnswer(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	j := &job{
		api: &servers.Product{Address: strings.TrimPrefix(server.URL, "http://")}, clients: 2,
		request: func(_ turn, r *fasthttp.Request) { r.SetRequestURI("/missing") },
	}
	_, err := j.run(t.Context(), closedLoop(1000, 0))
	assert.ErrorContains(t, err, "/missing: 404, not 200")
}
