package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// brands are names of the world outside that look like names of Go.
var brands = map[string]bool{
	"ByteReader": true, "CommonMark": true, "GitHub": true, "JavaScript": true, "MariaDB": true, "OpenAPI": true,
	"TextMarshaler": true, "TextUnmarshaler": true, "TypeScript": true, "sRGB": true,
}

// Names in comments must be identifiers of Go, or words in strings. A name that is gone misleads the reader who looks
// for it.
func TestComments_nameWhatExists(t *testing.T) {
	t.Parallel()
	type mention struct{ name, place string }
	var mentions []mention
	known := map[string]bool{}
	name := regexp.MustCompile(`\b(?:[a-z]+[a-z0-9]*[A-Z]|[A-Z][a-z0-9]+[A-Z])[A-Za-z0-9]*\b`)
	word := regexp.MustCompile(`\w+`)
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != ".." {
			return err
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		for _, group := range file.Comments {
			for _, comment := range group.List {
				if strings.HasPrefix(comment.Text, "//nolint") || strings.HasPrefix(comment.Text, "//go:") {
					continue
				}
				for _, found := range name.FindAllString(comment.Text, -1) {
					mentions = append(mentions, mention{found, files.Position(comment.Pos()).String()})
				}
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch x := n.(type) {
			case *ast.Ident:
				known[x.Name] = true
			case *ast.BasicLit:
				for _, w := range word.FindAllString(x.Value, -1) {
					known[w] = true
				}
			}
			return true
		})
		return nil
	}))
	assert.Greater(t, len(mentions), 1000)
	for _, m := range mentions {
		if !known[m.name] && !brands[m.name] {
			t.Errorf("%s: there is no %s", m.place, m.name)
		}
	}
}
