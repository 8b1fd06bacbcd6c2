package house

import (
	"bytes"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// rule is a wording that the house style replaces.
type rule struct {
	pattern *wording
	instead string
	allowed *wording // matches that are correct; nil if none is
}

// wording is a pattern of words. To search for it at each of its possible beginnings takes a second for the whole
// repository under the race detector; to let the pattern search takes a minute.
type wording struct {
	*regexp.Regexp // matches at the beginning of a text

	starts []string // in lower case; every match begins with one
}

func words(pattern string) *wording {
	// A space in a pattern also matches a line break.
	pattern = `(?i)^(?:` + strings.ReplaceAll(pattern, " ", `\s+`) + `)\b`
	tree, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		panic(err)
	}
	starts, empty := startsOf(tree)
	if empty {
		panic("a wording without words: " + pattern)
	}
	return &wording{regexp.MustCompile(pattern), starts}
}

// startsOf returns texts in lower case of which every match of the expression begins with one. A match that begins with
// none of them is empty.
func startsOf(tree *syntax.Regexp) (texts []string, empty bool) {
	switch tree.Op {
	case syntax.OpLiteral:
		return []string{strings.ToLower(string(tree.Rune))}, false
	case syntax.OpCharClass:
		for i := 0; i < len(tree.Rune); i += 2 {
			for r := tree.Rune[i]; r <= tree.Rune[i+1]; r++ {
				texts = append(texts, strings.ToLower(string(r)))
			}
		}
		return texts, false
	case syntax.OpBeginText, syntax.OpWordBoundary, syntax.OpEmptyMatch:
		return nil, true
	case syntax.OpCapture, syntax.OpPlus:
		return startsOf(tree.Sub[0])
	case syntax.OpQuest, syntax.OpStar:
		texts, _ = startsOf(tree.Sub[0])
		return texts, true
	case syntax.OpAlternate:
		for _, part := range tree.Sub {
			of, mayBeEmpty := startsOf(part)
			texts, empty = append(texts, of...), empty || mayBeEmpty
		}
		return texts, empty
	case syntax.OpConcat:
		for _, part := range tree.Sub {
			of, mayBeEmpty := startsOf(part)
			if texts = append(texts, of...); !mayBeEmpty {
				return texts, false
			}
		}
		return texts, true
	default:
		panic("a wording begins with " + tree.String())
	}
}

// find returns the matches in a text that begin with a word, given the text in lower case, too. None overlap.
func (w *wording) find(text, lower []byte) (found [][]int) {
	var begins []int
	for _, start := range w.starts {
		for i := 0; ; i++ {
			next := bytes.Index(lower[i:], []byte(start))
			if next < 0 {
				break
			}
			if i += next; i == 0 || !inWord(lower[i-1]) {
				begins = append(begins, i)
			}
		}
	}
	slices.Sort(begins)
	end := 0
	for _, begin := range begins {
		if begin < end {
			continue
		}
		if at := w.FindIndex(text[begin:]); at != nil {
			end = begin + at[1]
			found = append(found, []int{begin, end})
		}
	}
	return found
}

// inWord reports whether \b takes the byte for a part of a word.
func inWord(b byte) bool {
	return b == '_' || '0' <= b && b <= '9' || 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z'
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

var rules = []rule{
	{
		words(`gives(?: up)?|giv(?:es?|ing)(?: it| them)? (?:away|back)`),
		"returns, reports, grants, issues, allows",
		words(`gives up`),
	},
	{words(`tells|tells? of|telling of|told of`), "reports whether, shows, notifies", nil},
	{words(`hears? (?:of|from)|heard of|hearing of`), "is called with, receives, learns", nil},
	{words(`(?:get|gets|got|be|is|are) rid of|rid of`), "remove, evict, disconnect", nil},
	{words(`(?:let|lets|left) be|let alone`), "leave alone, ignore, accept", nil},
	{words(`whoever|whomever`), "name the subject: the caller, the deleting process", nil},
	{
		words(`(?:there |here )?(?:is|are|was|were) no [a-z]+`), "is not a",
		words(`(?:there|here) (?:is|are|was|were) no [a-z]+|` +
			`(?:is|are|was|were) no (?:longer|more|less|fewer|larger|older|greater|later|earlier|one)`),
	},
	{words(`(?:not?|nothing|nobody|none|never|cannot|n't)(?: [^\s.;:,]+){1,8} any ?more`), "no longer", nil},
	{words(`what is (?:not )?an? [a-z]+ is`), "the subject is a noun", nil},
	{words(`is the id of nothing|tells? (?:problems|errors|them) apart by`), "say what the program does", nil},
	{words(`makes? a round|a round after the other`), "the term of the field", nil},
	{words(`believes? to (?:be|own|hold)|believe to be`), "the owner's session, takes itself for", nil},
	{words(`only who|who (?:has|is|does|wrote|made|comes) [^.;,]* (?:may|gets|hears|must)`), "name the subject", nil},
	{words(`you are no`), "you are not a", nil},
	{words(`cries|cried|untold|someUser`), "logs, skipped, authorizeAuthor", nil},
	{words(`dear|dearer|dearest`), "expensive", nil},
	{words(`sheds?|shedding`), "rejects, refuses", nil},
	{words(`lets? (?:them |it |him |her )?in|is let in|are let in`), "admit", nil},
	{words(`an? [a-z]+ that is there(?: already| meanwhile)?`), "existing, present", nil},
	{words(`good for nothing|is the word of|stands? where (?:it|they) stands?`), "the term of the field", nil},
	{words(`be (?:it|they) (?:an? |on |of |in )`), "whether it is", nil},
	{words(`nobody(?: else)? gets to see`), "private", nil},
}

// TestWords_readLikeGo finds wordings that the house style replaces, in comments and strings of Go, in names of Go that
// are wordplay, and in every other text of the repository.
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

// The rules match the wordings that they are for, and no similar ones.
func TestWords_areFoundInProseOnly(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"package p\n\n// F gives the number.\nfunc F() {}\n":                              3,
		"package p\n\n// F is refused by\n// whoever holds the lock.\nfunc F() {}\n":      4,
		"package p\n\n// It is\n// no object.\nvar x = 1\n":                               3,
		"package p\n\nvar x = \"Only who wrote it may do this.\"\n":                       3,
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
		// The rules themselves and generated code are not checked.
		if entry.Type().IsRegular() && plain && file != "internal/house/words_test.go" &&
			file != "clients/typescript/src/schema.ts" {
			files = append(files, file)
		}
		return nil
	}))
	require.NotEmpty(t, files)
	return files
}

// find returns the matches of all rules in the prose of a file, each as "file:line: …".
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
	var found []string
	for _, rule := range rules {
		for _, at := range rule.pattern.find(shown, lower) {
			match := shown[at[0]:at[1]]
			if rule.allowed != nil && rule.allowed.Match(match) {
				continue
			}
			line := 1 + bytes.Count(shown[:at[0]], []byte("\n"))
			quoted := strings.Join(strings.Fields(string(match)), " ")
			found = append(found, fmt.Sprintf("%s:%d: %q: %s", file, line, quoted, rule.instead))
		}
	}
	return found
}

// goProse keeps comments, strings and the names that rules replace. It replaces all other bytes by zeros, so that
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
