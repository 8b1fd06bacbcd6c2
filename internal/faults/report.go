package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"likewise/internal/faults/oracle"
)

// injected is a fault that was injected.
type injected struct {
	Number int           `json:"number"`
	Kind   string        `json:"kind"`
	Notes  string        `json:"notes"`
	At     time.Duration `json:"at_ns"`
	Held   time.Duration `json:"held_ns"`
	Likes  time.Duration `json:"likes_ns"`
	Rows   time.Duration `json:"rows_ns"`
	Flush  time.Duration `json:"flush_ns"`
}

// report is the outcome of a run.
type report struct {
	Seed       uint64              `json:"seed"`
	Took       time.Duration       `json:"took_ns"`
	Setup      map[string]string   `json:"setup"`
	Faults     []injected          `json:"faults"`
	Skipped    []string            `json:"skipped"`
	Writes     map[string]int64    `json:"writes"`
	Reads      map[string]int64    `json:"reads"`
	Likes      int64               `json:"acknowledged_likes"`
	Posts      int64               `json:"acknowledged_posts"`
	Comments   int64               `json:"acknowledged_comments"`
	Registers  int                 `json:"registers"`
	Overtaken  int64               `json:"overtaken"`
	Repeated   int64               `json:"repeated_keys"`
	ReadBack   int64               `json:"read_back"`
	Moderation map[string]int64    `json:"moderation"`
	Claims     map[string]int64    `json:"claims"`
	Operations map[string]int64    `json:"operations"`
	Deaths     int                 `json:"product_exits_by_itself"`
	Servers    int64               `json:"server_exits_by_itself"`
	Violations int                 `json:"violations"`
	BySort     map[oracle.Kind]int `json:"violations_by_sort"`
	Told       []oracle.Violation  `json:"violations_told"`
}

func (r *report) fill(st *storm, rec *record) {
	r.Took = st.site.since()
	r.Writes, r.Reads = outcomes(&st.tally, false), outcomes(&st.tally, true)
	r.Likes, r.Posts, r.Comments = st.tally.likes.Load(), st.tally.posts.Load(), st.tally.comments.Load()
	r.Registers, r.Overtaken, r.Servers = len(rec.registers), st.tally.overtaken.Load(), st.site.serverDeaths.Load()
	r.Repeated, r.ReadBack = st.tally.repeated.Load(), st.tally.readBack.Load()
	r.Moderation = map[string]int64{}
	for i, name := range moderationNames {
		r.Moderation[name] = st.tally.moderated[i].Load()
	}
	r.Claims = map[string]int64{}
	for i, name := range claimNames {
		r.Claims[name] = st.tally.claims[i].Load()
	}
	r.Operations = map[string]int64{}
	for i, name := range operationNames {
		r.Operations[name] = st.tally.operated[i].Load()
	}
	for _, p := range st.site.product() {
		r.Deaths += p.deaths()
	}
	r.Violations = st.violations.Total()
	r.BySort, r.Told = st.violations.Count, st.violations.List
}

func outcomes(t *tally, reads bool) map[string]int64 {
	m := map[string]int64{}
	for o := oracle.OK; o <= oracle.Unknown; o++ {
		if reads {
			m[o.String()] = t.reads[o].Load()
		} else {
			m[o.String()] = t.writes[o].Load()
		}
	}
	return m
}

func writeJSON(w io.Writer, r any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// kindFigures has the recoveries of one kind of fault.
type kindFigures struct {
	kind               string
	likes, rows, flush []time.Duration
}

func (r *report) byKind() []kindFigures {
	var list []kindFigures
	for _, f := range r.Faults {
		i := slices.IndexFunc(list, func(k kindFigures) bool { return k.kind == f.Kind })
		if i < 0 {
			i = len(list)
			list = append(list, kindFigures{kind: f.Kind})
		}
		list[i].likes = append(list[i].likes, f.Likes)
		list[i].rows = append(list[i].rows, f.Rows)
		list[i].flush = append(list[i].flush, f.Flush)
	}
	slices.SortFunc(list, func(a, b kindFigures) int { return strings.Compare(a.kind, b.kind) })
	return list
}

func median(list []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(list))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

func figure(list []time.Duration) string {
	return fmt.Sprintf("%.2f | %.2f", median(list).Seconds(), slices.Max(list).Seconds())
}

func writeCounts(w io.Writer, of string, names []string, counts map[string]int64) {
	fmt.Fprint(w, of+":")
	for i, name := range names {
		fmt.Fprintf(w, "%s %d %s", [2]string{"", ","}[min(i, 1)], counts[name], name)
	}
	fmt.Fprintln(w)
}

// write prints the report as text. The table is Markdown, so that documents can include it.
func (r *report) write(w io.Writer) {
	fmt.Fprintf(w, "\nSeed %d, %.0f s.", r.Seed, r.Took.Seconds())
	for _, k := range slices.Sorted(maps.Keys(r.Setup)) {
		fmt.Fprintf(w, " %s: %s.", k, r.Setup[k])
	}
	fmt.Fprintln(w)
	kinds := r.byKind()
	fmt.Fprintf(
		w,
		"\n%d faults of %d kinds. Seconds from the end of a fault until each API acknowledged a like,\n"+
			"until MySQL had new likes, and until a flush succeeded:\n\n",
		len(r.Faults),
		len(kinds),
	)
	fmt.Fprintln(w, "| fault | times | likes, median | worst | rows, median | worst | flush, median | worst |")
	fmt.Fprintln(w, "|---|--:|--:|--:|--:|--:|--:|--:|")
	all := kindFigures{kind: "all"}
	for _, k := range kinds {
		fmt.Fprintf(w, "| %s | %d | %s | %s | %s |\n", k.kind, len(k.likes), figure(k.likes), figure(k.rows),
			figure(k.flush))
		all.likes = append(all.likes, k.likes...)
		all.rows = append(all.rows, k.rows...)
		all.flush = append(all.flush, k.flush...)
	}
	if len(all.likes) > 0 {
		fmt.Fprintf(w, "| **all** | %d | %s | %s | %s |\n", len(all.likes), figure(all.likes), figure(all.rows),
			figure(all.flush))
	}
	for _, s := range r.Skipped {
		fmt.Fprintf(w, "\nskipped: %s", s)
	}
	fmt.Fprintf(
		w,
		"\nwrites: %d acknowledged (%d likes and unlikes, %d posts, %d comments), %d refused or not sent, %d unknown\n",
		r.Writes["ok"],
		r.Likes,
		r.Posts,
		r.Comments,
		r.Writes["failed"],
		r.Writes["unknown"],
	)
	fmt.Fprintf(w, "reads: %d answered, %d refused or not sent, %d unknown\n", r.Reads["ok"], r.Reads["failed"],
		r.Reads["unknown"])
	fmt.Fprintf(
		w,
		"judged: %d pairs of user and target; operations sent while an opposite one could still take effect: %d\n",
		r.Registers,
		r.Overtaken,
	)
	fmt.Fprintf(w, "requests repeated with their Idempotency-Key: %d; likes read back at once: %d\n",
		r.Repeated, r.ReadBack)
	writeCounts(w, "moderation", moderationNames[:], r.Moderation)
	writeCounts(w, "claims", claimNames[:], r.Claims)
	writeCounts(w, "operator", operationNames[:], r.Operations)
	fmt.Fprintf(w, "restarted after ending by itself: product %d times, servers %d times\n", r.Deaths, r.Servers)
	if r.Violations == 0 {
		fmt.Fprintf(w, "violations: none\n")
		return
	}
	fmt.Fprintf(w, "VIOLATIONS: %d\n", r.Violations)
	for _, sort := range slices.Sorted(maps.Keys(r.BySort)) {
		fmt.Fprintf(w, "  %s: %d\n", sort, r.BySort[sort])
	}
	for _, v := range r.Told {
		fmt.Fprintf(w, "\n%s, at %.3f s: %s\n", v.Sort, v.At.Seconds(), v.Text)
	}
}
