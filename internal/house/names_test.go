package house

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The tests and files that pages name must exist, and so must the log messages that they quote. A control without its
// test proves nothing.
func TestPages_nameTestsAndFilesThatExist(t *testing.T) {
	t.Parallel()
	tests, code := testNames(t)
	named := regexp.MustCompile("`(Test[A-Za-z0-9_]+)(…?)`")
	file := regexp.MustCompile("`?\\b((?:cmd|counters|handlers|internal|migrations|models|scripts|workers)" +
		"/[a-z_/]+\\.(?:go|lua|sql|sh|yaml))`?")
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, match := range named.FindAllStringSubmatch(string(text), -1) {
			exists := slices.ContainsFunc(tests, func(name string) bool {
				return name == match[1] || match[2] != "" && strings.HasPrefix(name, match[1])
			})
			assert.True(t, exists, "%s names %s", page, match[0])
		}
		for _, match := range file.FindAllStringSubmatch(string(text), -1) {
			assert.FileExists(t, filepath.Join(root, match[1]), page)
		}
		for _, match := range regexp.MustCompile(`log: "([^"]+)"`).FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(code, match[1]) {
				t.Errorf("%s quotes the log: %s", page, match[1])
			}
		}
	}
}

// testNames returns the names of all tests, and the code of all other files.
func testNames(t *testing.T) (names []string, code string) {
	t.Helper()
	var product strings.Builder
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(t `)
	require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		text, err := os.ReadFile(path)
		if !strings.HasSuffix(path, "_test.go") {
			product.Write(text)
			return err
		}
		for _, match := range declared.FindAllStringSubmatch(string(text), -1) {
			names = append(names, match[1])
		}
		return err
	}))
	require.NotEmpty(t, names)
	return names, product.String()
}

// The Makefile must run tests where they are: `go test` succeeds if no name matches.
func TestMakefile_namesTestsOfItsPackages(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "Makefile"))
	require.NoError(t, err)
	command, named := regexp.MustCompile(`-run '?((?:Test)\w+(?:\|Test\w+)*)'?`), 0
	for line := range strings.Lines(string(text)) {
		run := command.FindStringSubmatch(line)
		if run == nil {
			continue
		}
		dir := regexp.MustCompile(` \./([\w/]+)`).FindStringSubmatch(line)
		require.NotNil(t, dir, line)
		files, err := filepath.Glob(filepath.Join(root, dir[1], "*_test.go"))
		require.NoError(t, err)
		var tests strings.Builder
		for _, file := range files {
			source, err := os.ReadFile(file)
			require.NoError(t, err)
			tests.Write(source)
		}
		for name := range strings.SplitSeq(run[1], "|") {
			if named++; !strings.Contains(tests.String(), "func "+name) {
				t.Errorf("%s has no test %s", dir[1], name)
			}
		}
	}
	assert.Positive(t, named)
}
