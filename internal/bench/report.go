package bench

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"text/template"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"
)

// latency has percentiles in milliseconds.
type latency struct {
	P50  float64 `json:"p50_ms,omitempty"`
	P99  float64 `json:"p99_ms,omitempty"`
	P999 float64 `json:"p999_ms,omitempty"`
	Max  float64 `json:"max_ms,omitempty"`
}

func newLatency(h *hdrhistogram.Histogram) latency {
	return latency{
		P50: inMS(h.ValueAtPercentile(50)), P99: inMS(h.ValueAtPercentile(99)), P999: inMS(h.ValueAtPercentile(99.9)),
		Max: inMS(h.Max()),
	}
}

// inMS returns microseconds in milliseconds.
func inMS(us int64) float64 { return float64(us) / 1000 }

// figure is the median round of a contender. Ratios are comparable between machines, and figures are not.
type figure struct {
	latency

	Name    string  `json:"name"`
	Value   float64 `json:"value"`
	Unit    string  `json:"unit"`
	Settled float64 `json:"until_rows,omitempty"`         // the same rate until the rows are in MySQL
	Objects float64 `json:"objects_per_request,omitzero"` // allocated by the API
	Bytes   float64 `json:"bytes_per_request,omitzero"`
	// CPU is the processor time of a request in microseconds, by role, until its rows are in MySQL.
	CPU     map[string]float64 `json:"cpu_us_per_request,omitempty"`
	Against string             `json:"against,omitempty"`
	Ratio   float64            `json:"ratio,omitempty"`
	Loose   bool               `json:"loose,omitempty"` // --quick does not compare the ratio
}

// Roles returns the processor times of the roles in the order of the page, and their sum.
func (r *figure) Roles() []float64 {
	var list []float64
	sum := 0.0
	for _, role := range []string{roleAPI, roleWorker, roleMySQL, roleRedis, roleKafka, roleClients} {
		list = append(list, r.CPU[role])
		sum += r.CPU[role]
	}
	return append(list, sum)
}

// key names the ratio of the figure.
func (r *figure) key() string { return r.Name + " ÷ " + r.Against }

// loadPoint is an open loop.
type loadPoint struct {
	latency

	Name    string  `json:"name"`
	Offered float64 `json:"offered"` // requests a second
	Reached float64 `json:"reached"`
	Queries float64 `json:"queries"` // statements that MySQL got for a request, until its row was there
}

// lag is the time from answers to rows.
type lag struct {
	latency

	Name        string       `json:"name"`
	Percentiles []percentile `json:"percentiles"`
}

type percentile struct {
	Percent float64 `json:"percent"`
	MS      float64 `json:"ms"`
}

// sizePoint is a figure at a size of the site.
type sizePoint struct {
	figure

	Posts int `json:"posts"`
}

// report is everything that was measured.
type report struct {
	Date     string   `json:"date"`
	Machine  string   `json:"machine"`
	Servers  string   `json:"servers"`
	Revision string   `json:"revision,omitempty"` // empty if the program was built without it
	Settings Settings `json:"settings"`

	Scenarios []figure    `json:"scenarios"`
	Loads     []loadPoint `json:"loads"`
	Halves    []loadPoint `json:"halves"` // more scenarios, at half of what a closed loop reached
	Lag       []lag       `json:"lag"`
	Claims    []figure    `json:"claims"`
	IDs       []figure    `json:"ids"`
	Pipeline  []figure    `json:"pipeline"`
	Sizes     []sizePoint `json:"sizes"`
	Attacks   []bounded   `json:"attacks,omitempty"`
}

// add adds a figure to a list of the report, with its ratio to an earlier one.
func (b *bench) add(list *[]figure, r figure) {
	if r.Against != "" {
		r.Ratio = r.Value / b.values[r.Against]
	}
	b.values[r.Name] = r.Value
	*list = append(*list, r)
}

// Likers returns how many users like and unlike. It is for the page.
func (r *report) Likers() int { return r.Settings.likers() }

// ratios returns the ratios that --quick compares.
func (r *report) ratios() map[string]float64 {
	ratios := map[string]float64{}
	for _, results := range [][]figure{r.Scenarios, r.Claims, r.IDs, r.Pipeline} {
		for _, item := range results {
			if item.Against != "" && !item.Loose {
				ratios[item.key()] = item.Ratio
			}
		}
	}
	return ratios
}

// newReport describes the machine.
func newReport(settings *Settings) *report {
	r := &report{
		Date:     time.Now().UTC().Format(time.DateOnly),
		Machine:  machine(),
		Settings: *settings,
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				r.Revision = setting.Value
			}
		}
	}
	return r
}

// describeServers describes the servers of the site.
func (s *site) describeServers(ctx context.Context) (string, error) {
	var version, flush, pool string
	const query = "SELECT VERSION(), @@innodb_flush_log_at_trx_commit, @@innodb_buffer_pool_size DIV 1048576"
	if err := s.store.Pool().QueryRowContext(ctx, query).Scan(&version, &flush, &pool); err != nil {
		return "", fmt.Errorf("read version: %w", err)
	}
	return fmt.Sprintf("%s (`innodb_flush_log_at_trx_commit=%s`, %s MB for InnoDB's pages), "+
		"Redis (`appendfsync everysec`) and Kafka, all on the same machine as the clients", version, flush, pool), nil
}

// machine describes the processor, the memory, the kernel and the load of this machine.
func machine() string {
	model := "unknown processor"
	if file, err := os.Open("/proc/cpuinfo"); err == nil {
		defer file.Close()
		for lines := bufio.NewScanner(file); lines.Scan(); {
			if name, value, found := strings.Cut(lines.Text(), ":"); found && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	var info unix.Sysinfo_t
	var system unix.Utsname
	_, _ = unix.Sysinfo(&info), unix.Uname(&system) // zero if they fail
	return fmt.Sprintf("%d × %s, %d GB of memory, Linux %s, %s; load average %.1f at the start",
		runtime.NumCPU(), model, info.Totalram*uint64(info.Unit)>>30, unix.ByteSliceToString(system.Release[:]),
		runtime.Version(), float64(info.Loads[0])/(1<<16))
}

// print writes the report as text.
func (r *report) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, results := range [][]figure{r.Scenarios, r.Claims, r.IDs, r.Pipeline} {
		for _, item := range results {
			fmt.Fprintf(w, "%s\t%s %s\t%s\t%s\n", item.Name, number(item.Value), item.Unit, item.latency,
				item.compared())
		}
	}
	for _, item := range r.Scenarios {
		fmt.Fprintf(w, "processor time, %s\t", item.Name)
		for i, name := range []string{"api", "worker", "mysql", "redis", "kafka", "clients", "all"} {
			fmt.Fprintf(w, "%s %.1f ", name, item.Roles()[i])
		}
		fmt.Fprintf(w, "µs\t\t\n")
	}
	for _, item := range slices.Concat(r.Loads, r.Halves) {
		fmt.Fprintf(w, "%s, offered %s/s\t%s requests/s\t%s\t%.3f queries a request\n", item.Name, number(item.Offered),
			number(item.Reached), item.latency, item.Queries)
	}
	for _, item := range r.Lag {
		fmt.Fprintf(w, "from answer to row, %s\t\t%s\t\n", item.Name, item.latency)
	}
	for _, item := range r.Sizes {
		fmt.Fprintf(w, "%s posts: %s\t%s %s\t%s\t%s\n", number(float64(item.Posts)), item.Name, number(item.Value),
			item.Unit, item.latency, item.compared())
	}
	for _, item := range r.Attacks {
		verdict := "ok"
		if !item.Within {
			verdict = "TOO MUCH"
		}
		fmt.Fprintf(w, "%s: %s\t%s\t%s\t\n", item.Attack, item.Name, verdict, item.Text)
	}
	return w.Flush()
}

func (l latency) String() string {
	if l == (latency{}) {
		return ""
	}
	return fmt.Sprintf("p50 %.2f ms, p99 %.2f ms, p99.9 %.2f ms", l.P50, l.P99, l.P999)
}

// compared returns the ratio in words; "" if there is none.
func (r *figure) compared() string {
	if r.Against == "" {
		return ""
	}
	return fmt.Sprintf("%.2g × %s", r.Ratio, r.Against)
}

// number writes a number with commas, and small ones with a digit after the point.
func number(f float64) string {
	if f < 100 {
		return strings.TrimSuffix(strconv.FormatFloat(f, 'f', 1, 64), ".0")
	}
	s := strconv.FormatFloat(f, 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// record is a report with the ratios of a short one, which later short ones are compared with. It is written to
// benchmarks.json.
type record struct {
	Report *report            `json:"report"`
	Quick  map[string]float64 `json:"quick"`
}

func readRecord(path string) (*record, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read recorded ratios: %w", err)
	}
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("read recorded ratios: %s: %w", path, err)
	}
	if len(r.Quick) == 0 {
		return nil, fmt.Errorf("read recorded ratios: %s has none", path)
	}
	return &r, nil
}

// compare returns an error for each ratio that is below half of the recorded one, or that was not measured.
func (r *record) compare(now *report) error {
	var err error
	measured := now.ratios()
	for _, name := range slices.Sorted(maps.Keys(r.Quick)) {
		got, ok := measured[name]
		switch {
		case !ok:
			err = errors.Join(err, fmt.Errorf("%s was recorded and not measured: record again with `make bench`", name))
		case !(got >= r.Quick[name]/2):
			const format = "%s is %.3g, less than half of the recorded %.3g"
			err = errors.Join(err, fmt.Errorf(format, name, got, r.Quick[name]))
		}
	}
	return err
}

// beyond returns an error for each figure that is beyond its bound.
func (r *report) beyond() error {
	var err error
	for _, item := range r.Attacks {
		if !item.Within {
			err = errors.Join(err, fmt.Errorf("%s: %s: beyond its bound: %s", item.Attack, item.Name, item.Text))
		}
	}
	return err
}

const recordName = "benchmarks"

// write writes the figures into the page benchmarks.md of a folder, and benchmarks.json and the plots beside it.
func (r *record) write(dir string) error {
	path := filepath.Join(dir, recordName+".md")
	page, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read page: %w", err)
	}
	if page, err = r.Report.fill(page); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	plots, err := r.Report.plots()
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encode report: %w", err)
	}
	files := map[string][]byte{recordName + ".md": page, recordName + ".json": append(text, '\n')}
	for name, plot := range plots {
		files[recordName+"-"+name+".svg"] = plot
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return fmt.Errorf("write figures: %w", err)
		}
	}
	return nil
}

//go:embed page.tmpl
var pageText string

// The figures of the page are between these lines.
const (
	figuresBegin = "<!-- figures: written by `make bench` -->\n"
	figuresEnd   = "<!-- end -->\n"
)

// fill replaces the figures of a page.
func (r *report) fill(page []byte) ([]byte, error) {
	before, rest, found := bytes.Cut(page, []byte(figuresBegin))
	_, after, ended := bytes.Cut(rest, []byte(figuresEnd))
	if !found || !ended {
		return nil, errors.New("the page has no place for figures")
	}
	tmpl, err := template.New("page").Funcs(template.FuncMap{
		"number": number,
		"count":  func(n int) string { return number(float64(n)) },
		"ms":     func(f float64) string { return strconv.FormatFloat(f, 'f', 2, 64) },
		"ratio":  func(f float64) string { return fmt.Sprintf("%.2g", f) },
	}).Parse(pageText)
	if err != nil {
		return nil, fmt.Errorf("parse template: %w", err)
	}
	var b bytes.Buffer
	b.Write(before)
	b.WriteString(figuresBegin)
	if err := tmpl.Execute(&b, r); err != nil {
		return nil, fmt.Errorf("write figures: %w", err)
	}
	b.WriteString(figuresEnd)
	b.Write(after)
	return b.Bytes(), nil
}
