package house

import (
	"bytes"
	_ "embed"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// wording is a line of words.txt.
type wording struct {
	begin   []byte         // its first word
	pattern *regexp.Regexp // matches at the beginning of a text
	instead string         // what to write; OK if it is correct
}

//go:embed words.txt
var wordList string

// wordings returns the lines of words.txt.
var wordings = sync.OnceValue(func() (list []wording) {
	for line := range strings.Lines(wordList) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		pattern, instead, found := strings.Cut(line, " → ")
		if !found {
			panic("no arrow: " + line)
		}
		begin := regexp.MustCompile(`^[a-z]+`).FindString(pattern)
		pattern = `^(?:` + strings.ReplaceAll(pattern, " ", `\s+`) + `)\b`
		list = append(list, wording{[]byte(begin), regexp.MustCompile(pattern), instead})
	}
	return list
})

// find returns the matches in a text in lower case. To search for the first word, and for the pattern only there, takes
// a second for the whole repository under the race detector; to let the pattern search takes a minute.
func (w *wording) find(lower []byte) (found [][2]int) {
	for i := 0; ; i++ {
		next := bytes.Index(lower[i:], w.begin)
		if next < 0 {
			return found
		}
		if i += next; i > 0 && inWord(lower[i-1]) {
			continue
		}
		if at := w.pattern.FindIndex(lower[i:]); at != nil {
			found = append(found, [2]int{i, i + at[1]})
		}
	}
}

// inWord reports whether \b takes a byte, in lower case, for a part of a word.
func inWord(b byte) bool {
	return b == '_' || '0' <= b && b <= '9' || 'a' <= b && b <= 'z'
}

// lowered returns a text with the letters of ASCII in lower case, so that offsets stay.
func lowered(text []byte) []byte {
	lower := slices.Clone(text)
	for i, b := range lower {
		if 'A' <= b && b <= 'Z' {
			lower[i] = b + 'a' - 'A'
		}
	}
	return lower
}

// TestWords_readLikeGo finds the wordings of words.txt in comments and strings of Go, in names of Go that are wordplay,
// and in every other text of the repository.
func TestWords_readLikeGo(t *testing.T) {
	t.Parallel()
	for _, file := range texts(t) {
		text, err := os.ReadFile(filepath.Join(root, file))
		require.NoError(t, err)
		for _, found := range find(file, text) {
			t.Error(found)
		}
	}
}

// The list matches the wordings that it is for, and no similar ones.
func TestWords_areFoundInProseOnly(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"package p\n\n// F gives the number.\nfunc F() {}\n":                              3,
		"package p\n\n// F is refused by\n// whoever holds the lock.\nfunc F() {}\n":      4,
		"package p\n\n// It is\n// no object.\nvar x = 1\n":                               3,
		"package p\n\nvar x = \"Only who asks is answered.\"\n":                           3,
		"package p\n\nvar x = \"It is for him who wrote it and may do this.\"\n":          3,
		"package p\n\nvar x = `\n\tnothing is\n\tthere any more`\n":                       4,
		"package p\n\nvar untold int\n":                                                   3,
		"package p\n\n// F returns the number; there is no other, and it is no longer.\n": 0,
		"package p\n\nvar gives, tells = 1, 2\n":                                          0,
		"package p\n\n// TestX_tellsNothing is a name.\n":                                 0,
	} {
		found := find("p.go", []byte(text))
		if want == 0 {
			assert.Empty(t, found, text)
			continue
		}
		require.Len(t, found, 1, text)
		assert.Contains(t, found[0], fmt.Sprintf("p.go:%d: ", want), text)
	}
	assert.Empty(t, find("p.md", []byte("Use `gives`.\n\n```\ngives\n```\n")))
	assert.Len(t, find("p.md", []byte("It gives `x`.\n")), 1)
	assert.Len(t, find("p.lua", []byte("-- Tells how a shard stands.\nlocal x = 1\n")), 1)
}

const root = "../.."

// texts returns all files with prose, relative to the root.
func texts(t *testing.T) []string {
	t.Helper()
	var files []string
	skipped := []string{".git", ".cache", ".data", "bin", "dist", "node_modules", "testdata"}
	kinds := []string{".go", ".lua", ".sql", ".md", ".yaml", ".yml", ".sh", ".ts", ".js", ".html"}
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, file := entry.Name(), filepath.ToSlash(strings.TrimPrefix(path, root+"/"))
		if entry.IsDir() && slices.Contains(skipped, name) {
			return filepath.SkipDir
		}
		plain := slices.Contains(kinds, filepath.Ext(name)) ||
			name == "Makefile" || name == "Dockerfile" || strings.HasPrefix(file, ".ci/")
		// The examples below and generated code are not checked.
		if entry.Type().IsRegular() && plain && file != "internal/house/words_test.go" &&
			file != "clients/typescript/src/schema.ts" {
			files = append(files, file)
		}
		return nil
	}))
	require.NotEmpty(t, files)
	return files
}

// find returns the wordings in the prose of a file, each as "file:line: …".
func find(file string, text []byte) []string {
	var shown []byte
	switch filepath.Ext(file) {
	case ".go":
		shown = goProse(text)
	case ".md":
		shown = markdownProse(text)
	default:
		shown = slices.Clone(text)
	}
	// Comment markers at the start of a line are removed, so that wordings are found across lines.
	shown = regexp.MustCompile(`(?m)^[ \t]*(?://|--|#|\*)+`).ReplaceAllFunc(shown, blank)
	lower := lowered(shown)
	var correct [][2]int
	type match struct {
		at      [2]int
		instead string
	}
	var matches []match
	for _, w := range wordings() {
		for _, at := range w.find(lower) {
			if w.instead == "OK" {
				correct = append(correct, at)
			} else {
				matches = append(matches, match{at, w.instead})
			}
		}
	}
	var found []string
	for _, m := range matches {
		if slices.ContainsFunc(correct, func(ok [2]int) bool { return ok[0] <= m.at[0] && m.at[1] <= ok[1] }) {
			continue
		}
		line := 1 + bytes.Count(shown[:m.at[0]], []byte("\n"))
		quoted := strings.Join(strings.Fields(string(shown[m.at[0]:m.at[1]])), " ")
		found = append(found, fmt.Sprintf("%s:%d: %q: %s", file, line, quoted, m.instead))
	}
	return found
}

// goProse keeps comments, strings and the names that the list replaces. It replaces all other bytes by zeros, so that
// offsets stay the same.
func goProse(text []byte) []byte {
	shown := bytes.Repeat([]byte{0}, len(text))
	for i, b := range text {
		if b == '\n' || b == ' ' || b == '\t' {
			shown[i] = b
		}
	}
	files := token.NewFileSet()
	f := files.AddFile("", files.Base(), len(text))
	var s scanner.Scanner
	s.Init(f, text, nil, scanner.ScanComments)
	for {
		pos, kind, literal := s.Scan()
		at := f.Offset(pos)
		switch {
		case kind == token.EOF:
			return shown
		case kind == token.COMMENT || kind == token.STRING:
			copy(shown[at:], text[at:at+len(literal)])
		case kind == token.IDENT && slices.Contains([]string{"untold", "cried", "someUser"}, literal):
			copy(shown[at:], literal)
		}
	}
}

// markdownProse removes code.
func markdownProse(text []byte) []byte {
	shown := regexp.MustCompile("(?ms)^```.*?^```").ReplaceAllFunc(text, blank)
	return regexp.MustCompile("`[^`\n]*`").ReplaceAllFunc(shown, func(code []byte) []byte {
		return bytes.Repeat([]byte{0}, len(code))
	})
}

// blank replaces all characters except line breaks by spaces.
func blank(text []byte) []byte {
	text = slices.Clone(text)
	for i, b := range text {
		if b != '\n' {
			text[i] = ' '
		}
	}
	return text
}
