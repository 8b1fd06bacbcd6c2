// Command mutate switches off one rule of the code after another and runs the tests of a package each time. A rule that
// no test notices needs one, or is spare.
//
//	go run ./internal/mutate --tests ./counters counters/lua/like.lua counters/gate.go
//
// It makes each condition of an if false, and leaves out each statement that is a call. The sources on disk do not
// change: the go command reads the changed file through an overlay. Mutants that do not compile are not counted.
//
// It prints the survivors, and ends with status 1 if there is one. A run takes as long as the tests do, once for each
// survivor, and some seconds for each other mutant.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// mutant is a source with one change.
type mutant struct {
	file   string
	line   int
	what   string // the text that was changed
	source string // of the whole file
}

func main() {
	tests := flag.String("tests", "./counters", "the packages whose tests are run, separated by spaces")
	run := flag.String("run", "", "a pattern of tests, as that of go test; empty means all")
	skip := flag.Int("skip", 0, "how many mutants to skip, to continue an earlier run")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	survivors, err := mutate(ctx, os.Stdout, flag.Args(), strings.Fields(*tests), *run, *skip)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(2)
	}
	if survivors > 0 {
		os.Exit(1)
	}
}

// mutate runs the tests once without a change, which must pass, and once for each mutant of the files.
func mutate(
	ctx context.Context, report io.Writer, files, tests []string, run string, skip int,
) (survivors int, err error) {
	var mutants []mutant
	for _, file := range files {
		found, err := mutantsOf(file)
		if err != nil {
			return 0, err
		}
		mutants = append(mutants, found...)
	}
	if skip < 0 || skip >= len(mutants) {
		return 0, fmt.Errorf("there are %d mutants, and %d are skipped", len(mutants), skip)
	}
	dir, err := os.MkdirTemp("", "likewise-mutate-")
	if err != nil {
		return 0, fmt.Errorf("make folder: %w", err)
	}
	defer os.RemoveAll(dir)
	args := append([]string{"test", "-tags", "dev", "-failfast", "-count=1", "-timeout=10m", "-run", run}, tests...)
	if out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return 0, fmt.Errorf("the tests fail without a change: %w\n%s", err, out)
	}
	for n, m := range mutants[skip:] {
		begin := time.Now()
		overlay, err := m.overlay(dir)
		if err != nil {
			return survivors, err
		}
		args := append([]string{"test", "-overlay", overlay}, args[1:]...)
		out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput()
		if ctx.Err() != nil {
			return survivors, fmt.Errorf("ended at mutant %d: %w", skip+n, context.Cause(ctx))
		}
		verdict := "noticed"
		switch {
		case err == nil:
			verdict = "SURVIVED"
			survivors++
		case strings.Contains(string(out), "[build failed]"):
			verdict = "does not compile"
		}
		if _, err := fmt.Fprintf(report, "%d/%d %s:%d %s, %.0f s: %s\n",
			skip+n+1, len(mutants), m.file, m.line, verdict, time.Since(begin).Seconds(), m.what); err != nil {
			return survivors, fmt.Errorf("write report: %w", err)
		}
	}
	return survivors, nil
}

// overlay writes the mutant and the overlay that puts it in place of its file, and returns the path of the overlay.
func (m mutant) overlay(dir string) (string, error) {
	original, err := filepath.Abs(m.file)
	if err != nil {
		return "", fmt.Errorf("path of %s: %w", m.file, err)
	}
	changed, overlay := filepath.Join(dir, filepath.Base(m.file)), filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		return "", fmt.Errorf("encode overlay: %w", err)
	}
	if err := os.WriteFile(changed, []byte(m.source), 0o600); err != nil {
		return "", fmt.Errorf("write mutant: %w", err)
	}
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		return "", fmt.Errorf("write overlay: %w", err)
	}
	return overlay, nil
}

func mutantsOf(file string) ([]mutant, error) {
	source, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read source: %w", err)
	}
	switch filepath.Ext(file) {
	case ".go":
		return goMutants(file, string(source))
	case ".lua":
		return luaMutants(file, string(source)), nil
	}
	return nil, fmt.Errorf("%s is neither Go nor Lua", file)
}

// goMutants puts "false && " before each condition, so that its variables stay in use, and an empty block in place of
// each call.
func goMutants(file, source string) ([]mutant, error) {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, source, 0)
	if err != nil {
		return nil, fmt.Errorf("parse: %w", err)
	}
	var mutants []mutant
	ast.Inspect(parsed, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.IfStmt:
			from, to := files.Position(n.Cond.Pos()), files.Position(n.Cond.End()).Offset
			cond := source[from.Offset:to]
			mutants = append(mutants, mutant{file, from.Line, "if " + cond,
				source[:from.Offset] + "false && (" + cond + ")" + source[to:]})
		case *ast.ExprStmt:
			from, to := files.Position(n.Pos()), files.Position(n.End()).Offset
			mutants = append(mutants, mutant{file, from.Line, source[from.Offset:to],
				source[:from.Offset] + "{\n}" + source[to:]})
		}
		return true
	})
	return mutants, nil
}

var (
	luaIf   = regexp.MustCompile(`\b(?:else)?if (.+?) then\b`)
	luaCall = regexp.MustCompile(`^\s*(?:p?call|redis\.p?call)\(.*\)$`)
)

// luaMutants puts false in place of each condition that is on one line, and leaves out each call of Redis that has a
// line of its own.
func luaMutants(file, source string) []mutant {
	var mutants []mutant
	lines := strings.SplitAfter(source, "\n")
	change := func(i int, what, line string) {
		mutants = append(mutants, mutant{file, i + 1, strings.TrimSpace(what),
			strings.Join(lines[:i], "") + line + strings.Join(lines[i+1:], "")})
	}
	for i, line := range lines {
		code, _, comment := strings.Cut(line, "--")
		if comment {
			code += "\n"
		}
		for _, at := range luaIf.FindAllStringSubmatchIndex(code, -1) {
			change(i, code[at[0]:at[1]], code[:at[2]]+"false"+code[at[3]:])
		}
		if luaCall.MatchString(strings.TrimRight(code, " \n")) {
			change(i, code, "\n")
		}
	}
	return mutants
}
