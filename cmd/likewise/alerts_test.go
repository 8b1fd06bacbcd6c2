package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"likewise/counters"
)

// rule is an alert of docs/alerts.
type rule struct {
	Alert       string
	Expr        string
	For         string
	Labels      map[string]string
	Annotations map[string]string
}

func readRules(t *testing.T) (rules []rule) {
	t.Helper()
	text, err := os.ReadFile("../../docs/alerts/likewise.rules.yml")
	require.NoError(t, err)
	var file struct{ Groups []struct{ Rules []rule } }
	require.NoError(t, yaml.Unmarshal(text, &file))
	for _, group := range file.Groups {
		rules = append(rules, group.Rules...)
	}
	require.NotEmpty(t, rules)
	return rules
}

// An operator who is woken by an alert finds an entry that answers the four questions, and no entry is of an old alert.
func TestAlerts_haveAnEntryInTheRunbook(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/runbook.md")
	require.NoError(t, err)
	var entries []string
	for _, entry := range strings.Split(string(text), "\n### ")[1:] {
		name, body, _ := strings.Cut(entry, "\n")
		entries = append(entries, name)
		assert.Regexp(
			t,
			`(?s)^\n- \*\*Real\?\*\* .*\n- \*\*First:\*\* .*\n- \*\*Hurt:\*\* .*\n- \*\*Heals:\*\* `,
			body,
			name,
		)
	}
	var alerts []string
	for _, r := range readRules(t) {
		alerts = append(alerts, r.Alert)
		assert.Equal(t, "docs/runbook.md#"+strings.ToLower(r.Alert), r.Annotations["runbook_url"], r.Alert)
		assert.NotEmpty(t, r.Annotations["summary"], r.Alert)
		assert.NotEmpty(t, r.Annotations["description"], r.Alert)
		assert.Contains(t, []string{"page", "warn"}, r.Labels["severity"], r.Alert)
		if r.For != "" {
			wait, err := time.ParseDuration(r.For)
			require.NoError(t, err)
			assert.LessOrEqual(
				t,
				wait,
				time.Minute,
				"%s: two scrapes and two evaluations are left of two minutes",
				r.Alert,
			)
		}
	}
	assert.Equal(t, alerts, entries, "in the same order")
}

// Each alert is caused on a real site by TestAlerts_fireInTheirOutages.
func TestAlerts_haveAnOutage(t *testing.T) {
	t.Parallel()
	var caused []string
	for _, o := range outages {
		for _, f := range o.faults {
			caused = append(caused, f.fires...)
		}
	}
	for _, r := range readRules(t) {
		assert.Contains(t, caused, r.Alert)
	}
}

// An outage fails on an alert that its faults do not explain, and on one that is missing, late or early.
func TestAlerts_outageFailsOnAWrongOne(t *testing.T) {
	t.Parallel()
	begun := time.Unix(1_800_000_000, 0)
	after := func(seconds int) time.Time { return begun.Add(time.Duration(seconds) * time.Second) }
	o := outage{"two faults", nil, []fault{
		{"one", nil, []string{"LikewiseOne"}},
		{"other", nil, []string{"LikewiseOther"}},
	}, []string{"LikewiseConsequence"}}
	for _, c := range []struct {
		name  string
		fired map[string]time.Time
		wrong []string
	}{
		{"those alone", map[string]time.Time{"LikewiseOne": after(60), "LikewiseOther": after(75)}, nil},
		{"a consequence", map[string]time.Time{
			"LikewiseOne": after(60), "LikewiseOther": after(75), "LikewiseConsequence": after(1),
		}, nil},
		{"another", map[string]time.Time{
			"LikewiseOne": after(60), "LikewiseOther": after(75), "LikewiseDrift": after(31),
		}, []string{"two faults: LikewiseDrift fires, too, after 31 s"}},
		{"one is missing", map[string]time.Time{"LikewiseOther": after(75)},
			[]string{"one: LikewiseOne does not fire"}},
		{"one is late", map[string]time.Time{"LikewiseOne": after(121), "LikewiseOther": after(75)},
			[]string{"one: LikewiseOne is late: 2m1s"}},
		{"one is of the other fault", map[string]time.Time{"LikewiseOne": after(20), "LikewiseOther": after(20)},
			[]string{"other: LikewiseOther fires before"}},
	} {
		_, wrong := judge(o, []time.Time{begun, after(30)}, c.fired)
		assert.Equal(t, c.wrong, wrong, c.name)
	}
}

// The alert on refused likes counts each outcome of the gate that is answered with 503, and no other.
func TestAlerts_countEveryRefusal(t *testing.T) {
	t.Parallel()
	fine := []counters.Outcome{
		counters.Changed, counters.Unchanged,
		counters.Cold,                                        // retried when the target is warm
		counters.Gone, counters.Superseded, counters.Refused, // answers to this user
	}
	rules := readRules(t)
	i := slices.IndexFunc(rules, func(r rule) bool { return r.Alert == "LikewiseLikesRefused" })
	require.GreaterOrEqual(t, i, 0)
	match := regexp.MustCompile(`outcome=~"([^"]+)"`).FindStringSubmatch(rules[i].Expr)
	require.NotNil(t, match)
	var counted []counters.Outcome
	for _, o := range strings.Split(match[1], "|") {
		counted = append(counted, counters.Outcome(o))
	}
	for _, o := range counters.Outcomes() {
		assert.NotEqual(t, slices.Contains(fine, o), slices.Contains(counted, o), "%s", o)
	}
}

// A number of a flag in a text would be wrong where the flag is set: the metrics have it.
func TestAlerts_haveNoNumberOfAFlag(t *testing.T) {
	t.Parallel()
	for _, r := range readRules(t) {
		for _, text := range append([]string{r.Expr}, r.Annotations["summary"], r.Annotations["description"]) {
			assert.NotRegexp(t, `\d{4}`, text, r.Alert)
		}
	}
}

// A rule on a metric that nobody exports is silent for ever.
func TestAlerts_nameMetricsThatExist(t *testing.T) {
	rules, err := os.ReadFile("../../docs/alerts/likewise.rules.yml")
	require.NoError(t, err)
	var source strings.Builder
	for _, folder := range []string{".", "../../workers", "../../handlers", "../../web"} {
		files, err := filepath.Glob(folder + "/*.go")
		require.NoError(t, err)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			code, err := os.ReadFile(file)
			require.NoError(t, err)
			source.Write(code)
		}
	}
	names := regexp.MustCompile(`likewise_[a-z_]+`).FindAllString(string(rules), -1)
	require.NotEmpty(t, names)
	for _, name := range names {
		assert.Contains(t, source.String(), `"`+name+`"`)
	}
}
