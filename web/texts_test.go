package web

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// textsOf returns the texts of the templates and of the code: the arguments of t and of text, and the titles, headings
// and such that templates translate.
func textsOf(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	names, err := fs.Glob(files, "templates/*.html")
	require.NoError(t, err)
	call := regexp.MustCompile(`[({ ]t "((?:[^"\\]|\\.)*)"`)
	for _, name := range names {
		raw, err := fs.ReadFile(files, name)
		require.NoError(t, err)
		for _, m := range call.FindAllStringSubmatch(string(raw), -1) {
			found[m[1]] = name
		}
	}
	shown := map[string]bool{
		"Title": true, "Heading": true, "Empty": true, "Question": true, "Act": true, "Detail": true, "Done": true,
		"What": true,
	}
	code, err := filepath.Glob("*.go")
	require.NoError(t, err)
	set := token.NewFileSet()
	for _, name := range code {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			add := func(e ast.Expr) {
				if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					text, err := strconv.Unquote(lit.Value)
					require.NoError(t, err)
					found[text] = name
				}
			}
			switch n := n.(type) {
			case *ast.CallExpr:
				if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "text" && len(n.Args) > 0 {
					add(n.Args[0])
				}
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok && shown[key.Name] {
					add(n.Value)
				}
			case *ast.AssignStmt:
				for i, left := range n.Lhs {
					if f, ok := left.(*ast.SelectorExpr); ok && shown[f.Sel.Name] && i < len(n.Rhs) {
						add(n.Rhs[i])
					}
				}
			}
			return true
		})
	}
	delete(found, "")
	return found
}

func TestTexts_areTranslated(t *testing.T) {
	t.Parallel()
	texts := textsOf(t)
	require.Greater(t, len(texts), 200)
	verb := regexp.MustCompile(`%[a-z]`)
	for text, where := range texts {
		translated, ok := chinese[text]
		if !assert.True(t, ok, "%s: %q is not translated", where, text) {
			continue
		}
		assert.Equal(t, verb.FindAllString(text, -1), verb.FindAllString(translated, -1), text)
	}
	for text := range chinese {
		assert.Contains(t, texts, text, "nothing shows this text")
	}
}
