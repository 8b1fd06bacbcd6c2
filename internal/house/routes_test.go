package house

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"likewise/models"
)

var update = flag.Bool("update", false, "write docs/routes.md")

const (
	contractFile = "../../handlers/openapi.yaml"
	routesPage   = "../../docs/routes.md"
)

// contract has the parts of openapi.yaml that docs/routes.md shows. Tests of handlers compare the contract with the
// routes.
type contract struct {
	Tags       []struct{ Name, Description string }
	Paths      map[string]map[string]yaml.Node
	Components struct {
		Schemas    map[string]schema
		Parameters map[string]parameter
	}
}

type operation struct {
	Permission  string `yaml:"x-permission"` //nolint:tagliatelle // an extension, as OpenAPI spells it
	Tags        []string
	Summary     string
	Parameters  []parameter
	RequestBody struct {
		Content map[string]struct{ Schema schema }
	} `yaml:"requestBody"`
}

type parameter struct {
	Ref      string `yaml:"$ref"`
	Name, In string
	Required bool
}

type schema struct {
	Ref        string `yaml:"$ref"`
	Required   []string
	Properties map[string]yaml.Node
}

// docs/routes.md must list every operation of the contract, with its permission, callers and input.
func TestRoutesPage_listsEveryOperation(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(contractFile)
	require.NoError(t, err)
	var c contract
	require.NoError(t, yaml.Unmarshal(text, &c))
	page, err := os.ReadFile(routesPage)
	require.NoError(t, err)

	const marker = "<!-- written by a test -->\n"
	head, _, found := strings.Cut(string(page), marker)
	require.True(t, found, "docs/routes.md has the marker %s", marker)
	written := head + marker + c.tables(t)
	if *update {
		require.NoError(t, os.WriteFile(routesPage, []byte(written), 0o600))
		return
	}
	assert.Equal(t, written, string(page), "write it: go test ./internal/house -run TestRoutesPage -update")
}

// methods are the methods in the order of the tables.
var methods = []string{"get", "post", "put", "patch", "delete"}

// tables returns a section for each tag, with a row for each operation, sorted by path.
func (c contract) tables(t *testing.T) string {
	t.Helper()
	rows := map[string][]string{} // by tag
	for _, path := range slices.SortedFunc(maps.Keys(c.Paths), func(a, b string) int {
		return cmp.Compare(strings.ReplaceAll(a, "{", "~"), strings.ReplaceAll(b, "{", "~"))
	}) {
		for _, method := range methods {
			node, ok := c.Paths[path][method]
			if !ok {
				continue
			}
			var op operation
			require.NoError(t, node.Decode(&op), path)
			permission, ok := models.ParsePermission(op.Permission)
			require.True(t, ok, "%s %s: %s", method, path, op.Permission)
			rule, _ := permission.Rule()
			require.Len(t, op.Tags, 1, "%s %s", method, path)
			rows[op.Tags[0]] = append(rows[op.Tags[0]], fmt.Sprintf("| `%s %s` | %s | %s | %s | %s |\n",
				strings.ToUpper(method), path, op.Summary, strings.Join(c.input(op), ", "), callers(rule), scope(rule)))
		}
	}
	var b strings.Builder
	for _, tag := range c.Tags {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n", tag.Name, tag.Description)
		b.WriteString("| route | does | takes | for | API token |\n|---|---|---|---|---|\n")
		for _, row := range rows[tag.Name] {
			b.WriteString(row)
		}
	}
	return b.String()
}

// input returns the query parameters and the fields of the body, each as code. Optional ones end with a question mark.
// It omits the parameters that all lists have.
func (c contract) input(op operation) []string {
	var names []string
	add := func(name string, required bool) {
		if !required {
			name += "?"
		}
		names = append(names, "`"+name+"`")
	}
	for _, p := range op.Parameters {
		if p.Ref != "" {
			p = c.Components.Parameters[last(p.Ref)]
		}
		if p.In == "query" && p.Name != "limit" && p.Name != "cursor" {
			add(p.Name, p.Required)
		}
	}
	body := op.RequestBody.Content["application/json"].Schema
	if body.Ref != "" {
		body = c.Components.Schemas[last(body.Ref)]
	}
	for _, name := range slices.Sorted(maps.Keys(body.Properties)) {
		add(name, slices.Contains(body.Required, name))
	}
	return names
}

func last(ref string) string { return ref[strings.LastIndexByte(ref, '/')+1:] }

func callers(rule models.Rule) string {
	who := map[models.Role]string{models.RoleAnonymous: "everybody", models.RoleUser: "users",
		models.RoleModerator: "moderators", models.RoleAdmin: "admins"}[rule.Least]
	switch rule.On {
	case models.Own, models.Hidden:
		return who + ", on their own"
	case models.Kept:
		return who + ", on their own; moderators, on all"
	case models.Others:
		return who + ", not on their own"
	case models.Lower:
		return who + ", on lower roles"
	case models.All:
	}
	return who
}

func scope(rule models.Rule) string {
	switch rule.Scope {
	case models.NoToken:
		return "ignored"
	case models.RecentOnly:
		return "refused; needs a recent proof"
	case models.SessionOnly:
		return "refused"
	default:
		return "`" + rule.Scope.String() + "`"
	}
}
