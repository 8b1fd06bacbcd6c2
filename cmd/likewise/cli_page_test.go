package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/workers"
)

var update = flag.Bool("update", false, "write the tables of docs/cli.md")

const cliPage = "../../docs/cli.md"

// The tables of docs/cli.md have every command, flag, variable and default, in the words of --help.
func TestCLIPage_hasEveryCommandAndFlag(t *testing.T) {
	commands, development := commandLine(t)
	holdPage(t, map[string]string{"commands": commandTable(commands), "flags": flagTable(commands)})
	require.Len(t, development, 2, "dev and bench")
}

// commandLine returns the commands of the product, and those that likewise-dev runs.
func commandLine(t *testing.T) (product, development []*kong.Node) {
	t.Helper()
	parser, err := kong.New(&cli{}, kong.Name("likewise"), commandTexts())
	require.NoError(t, err)
	for _, node := range parser.Model.Children {
		if node.Name == "dev" || node.Name == "bench" {
			development = append(development, node)
		} else {
			product = append(product, node)
		}
	}
	return product, development
}

// holdPage compares tables with docs/cli.md or, with -update, writes them.
func holdPage(t *testing.T, tables map[string]string) {
	t.Helper()
	page, err := os.ReadFile(cliPage)
	require.NoError(t, err)
	written := string(page)
	for name, table := range tables {
		written = replaceTable(t, written, name, table)
	}
	if *update {
		require.NoError(t, os.WriteFile(cliPage, []byte(written), 0o600))
		return
	}
	assert.Equal(
		t,
		written,
		string(page),
		"write it: go test ./cmd/likewise -run TestCLIPage -update, also with -tags dev",
	)
}

// replaceTable puts table between the markers of this name.
func replaceTable(t *testing.T, page, name, table string) string {
	t.Helper()
	begin, end := fmt.Sprintf("<!-- %s: written by a test -->\n", name), "<!-- end -->\n"
	before, rest, found := strings.Cut(page, begin)
	require.True(t, found, "docs/cli.md has the marker %s", begin)
	_, after, found := strings.Cut(rest, end)
	require.True(t, found, "docs/cli.md ends the table %s", name)
	return before + begin + table + end + after
}

func commandTable(commands []*kong.Node) string {
	var b strings.Builder
	b.WriteString("| command | does |\n|---|---|\n")
	for _, leaf := range leaves(commands) {
		name := strings.TrimSuffix(leaf.Path(), " serve")
		for _, arg := range leaf.Positional {
			name += " " + capitalNames(arg.Summary())
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", cell(name), cell(leaf.Help))
	}
	return b.String()
}

// flagTable has one row for each flag, whatever the number of commands that take it.
func flagTable(nodes []*kong.Node) string {
	type row struct {
		name, env, help string
		commands        map[string][]string // by default value
	}
	rows := map[string]*row{}
	add := func(command string, f *kong.Flag) {
		if f.Name == "help" || f.Name == "version" {
			return
		}
		env := strings.Join(f.Envs, ", ")
		key := f.Name + " " + env // bench has a --likes of its own
		r := rows[key]
		if r == nil {
			r = &row{name: f.Name, env: env, help: f.Help, commands: map[string][]string{}}
			rows[key] = r
		}
		value := "none"
		switch {
		case f.Required:
			value = "required"
		case f.HasDefault:
			value = "`" + f.Default + "`"
		case f.IsBool():
			value = "`false`"
		}
		r.commands[value] = append(r.commands[value], command)
	}
	if nodes[0].Name == "api" {
		for _, f := range nodes[0].Parent.Flags {
			add("all", f)
		}
	}
	for _, leaf := range leaves(nodes) {
		for _, f := range leaf.Flags {
			add(strings.TrimSuffix(leaf.Path(), " serve"), f)
		}
	}
	var b strings.Builder
	b.WriteString("| flag | variable | default | of | for |\n|---|---|---|---|---|\n")
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		r := rows[key]
		var values, commands []string
		for _, value := range slices.Sorted(maps.Keys(r.commands)) {
			commands = append(commands, r.commands[value]...)
			if len(r.commands) > 1 {
				value += " (" + strings.Join(wholeCommands(nodes, r.commands[value]), ", ") + ")"
			}
			values = append(values, value)
		}
		variable := ""
		if r.env != "" {
			variable = "`" + r.env + "`"
		}
		fmt.Fprintf(&b, "| `--%s` | %s | %s | %s | %s |\n", r.name, variable, strings.Join(values, "; "),
			strings.Join(wholeCommands(nodes, commands), ", "), cell(r.help))
	}
	return b.String()
}

// wholeCommands returns names with "user" in place of all commands of user, sorted.
func wholeCommands(nodes []*kong.Node, names []string) []string {
	for _, child := range nodes {
		var below []string
		for _, leaf := range leaves([]*kong.Node{child}) {
			below = append(below, strings.TrimSuffix(leaf.Path(), " serve"))
		}
		if len(below) > 1 &&
			!slices.ContainsFunc(below, func(name string) bool { return !slices.Contains(names, name) }) {
			names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(below, name) })
			names = append(names, child.Name)
		}
	}
	return slices.Sorted(slices.Values(names))
}

// leaves returns the commands below nodes, and nodes that are commands themselves.
func leaves(nodes []*kong.Node) []*kong.Node {
	var all []*kong.Node
	for _, node := range nodes {
		if len(node.Children) == 0 {
			all = append(all, node)
		}
		all = append(all, leaves(node.Children)...)
	}
	return all
}

// cell escapes what would end a cell of a table.
func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }

// docs/cli.md has every job of the schedule, in the words of --help.
func TestCLIPage_hasEveryJob(t *testing.T) {
	var b strings.Builder
	b.WriteString("| job | every | limit | without Redis | does |\n|---|---|---|---|---|\n")
	for _, job := range workers.Schedule() {
		direct := "yes"
		if job.Gated {
			direct = "no"
		}
		short := strings.NewReplacer("h0m0s", "h", "m0s", "m")
		every, limit := short.Replace(job.Every.String()), short.Replace(job.Limit.String())
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", job.Name, every, limit, direct, cell(job.Purpose))
	}
	holdPage(t, map[string]string{"jobs": b.String()})
}
