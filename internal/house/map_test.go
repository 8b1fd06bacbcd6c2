package house

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const designPage = "../../docs/design.md"

// docs/design.md must draw every package and its imports. For clarity, the picture omits an import if the package is
// also imported through another one.
func TestMap_drawsTheImportsOfThePackages(t *testing.T) {
	t.Parallel()
	imports := imports(t)
	page, err := os.ReadFile(designPage)
	require.NoError(t, err)
	const begin, end = "```mermaid\nflowchart TD\n", "```\n"
	before, rest, found := strings.Cut(string(page), begin)
	require.True(t, found, "docs/design.md has the picture")
	_, after, found := strings.Cut(rest, end)
	require.True(t, found)
	drawn := before + begin + draw(imports) + end + after
	if *update {
		require.NoError(t, os.WriteFile(designPage, []byte(drawn), 0o600))
		return
	}
	assert.Equal(t, drawn, string(page), "draw it: go test ./internal/house -run TestMap -update")
}

// imports returns the imports of each package among the packages of the repository, without those of tests, in the
// development build.
func imports(t *testing.T) map[string][]string {
	t.Helper()
	const module = "likewise/"
	const format = `{{.ImportPath}} {{join .Imports " "}}`
	list := exec.CommandContext(t.Context(), "go", "list", "-tags", "dev", "-f", format, "./...")
	list.Dir = root
	var complaints bytes.Buffer
	list.Stderr = &complaints
	out, err := list.Output()
	require.NoError(t, err, complaints.String())
	imports := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		name := strings.TrimPrefix(fields[0], module)
		imports[name] = nil
		for _, path := range fields[1:] {
			if imported, ours := strings.CutPrefix(path, module); ours {
				imports[name] = append(imports[name], imported)
			}
		}
	}
	return imports
}

// The pages must know the JSON API alone, as any front end does. So they import no other package of the product,
// neither themselves nor through another module.
func TestMap_pagesKnowTheAPIAlone(t *testing.T) {
	t.Parallel()
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "./web")
	list.Dir = root
	out, err := list.Output()
	require.NoError(t, err)
	var ours []string
	for path := range strings.Lines(string(out)) {
		if path = strings.TrimSpace(path); strings.HasPrefix(path, "likewise/") {
			ours = append(ours, path)
		}
	}
	assert.Equal(t, []string{"likewise/web"}, ours)
}

// draw returns the lines of the picture. The product is in one frame, and the packages for development in another.
func draw(imports map[string][]string) string {
	var product, development []string
	for _, name := range slices.Sorted(maps.Keys(imports)) {
		if strings.HasPrefix(name, "internal/") {
			development = append(development, name)
		} else {
			product = append(product, name)
		}
	}
	var b strings.Builder
	frame := func(title string, names []string) {
		fmt.Fprintf(&b, "  subgraph %s\n", title)
		for _, name := range names {
			fmt.Fprintf(&b, "    %s[%q]\n", node(name), name)
		}
		b.WriteString("  end\n")
	}
	frame("product", product)
	frame("development", development)
	for _, name := range slices.Concat(product, development) {
		for _, imported := range slices.Sorted(slices.Values(imports[name])) {
			if follows(imports, name, imported) {
				continue
			}
			arrow := "-->"
			if slices.Contains(product, name) && slices.Contains(development, imported) {
				arrow = "-. likewise-dev .->"
			}
			fmt.Fprintf(&b, "  %s %s %s\n", node(name), arrow, node(imported))
		}
	}
	return b.String()
}

// node returns the id of a package in the picture.
func node(name string) string { return strings.ReplaceAll(name, "/", "_") }

// follows reports whether name also imports imported through another package.
func follows(imports map[string][]string, name, imported string) bool {
	return slices.ContainsFunc(imports[name], func(other string) bool {
		return other != imported && reaches(imports, other, imported)
	})
}

func reaches(imports map[string][]string, from, to string) bool {
	return from == to || slices.ContainsFunc(imports[from], func(next string) bool {
		return reaches(imports, next, to)
	})
}
