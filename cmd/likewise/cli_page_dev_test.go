//go:build dev

package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// docs/cli.md has the flags of the commands that likewise-dev runs.
func TestCLIPage_hasEveryFlagForDevelopment(t *testing.T) {
	_, development := commandLine(t)
	holdPage(t, map[string]string{"development": commandTable(development) + "\n" + flagTable(development)})
}

// The pages must name flags and variables that exist, and values that the flags take.
func TestPages_nameFlagsThatExist(t *testing.T) {
	t.Parallel()
	foreign := map[string]string{ // flags and variables of other programs
		"single-transaction": "mysqldump", "maxmemory": "redis-server", "appendfsync": "redis-server",
		"bigkeys": "redis-cli", "now": "systemctl", "print-architecture": "dpkg", "bootstrap-server": "Kafka's tools",
		"disk": "internal/faults", "binary": "internal/faults", "list": "internal/faults",
	}
	inDevEnv := []string{"LIKEWISE_ADMIN_URL"} // and nothing reads it
	ofTests := []string{"LIKEWISE_SEARCH_TEXTS", "LIKEWISE_SEARCH_POSTS", "LIKEWISE_SERVERS_KAFKA"}
	flags, variables := map[string]*kong.Flag{"help": {}}, map[string]bool{}
	for _, name := range slices.Concat(inDevEnv, ofTests) {
		variables[name] = true
	}
	product, development := commandLine(t)
	nodes := slices.Concat(product, development, []*kong.Node{product[0].Parent})
	for _, node := range slices.Concat(nodes, leaves(nodes)) {
		for _, f := range node.Flags {
			flags[f.Name] = f
			for _, name := range f.Envs {
				variables[name] = true
			}
		}
	}
	named := regexp.MustCompile("(?:^|[\\s`(\"|])--([a-z][a-z-]+)(?:=([^\\s`)\"|]+))?")
	variable := regexp.MustCompile(`\bLIKEWISE_[A-Z_]+\b`)
	pages, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	pages = append(pages, "../../README.md", "../../CONTRIBUTING.md", "../../CHANGELOG.md",
		"../../docs/systemd/likewise.env", "../../docs/systemd/likewise-web.env")
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, match := range named.FindAllStringSubmatch(string(text), -1) {
			f := flags[match[1]]
			if f == nil {
				assert.NotEmpty(t, foreign[match[1]], "%s names --%s", page, match[1])
				continue
			}
			if value := match[2]; value != "" && f.Value != nil && f.Enum != "" {
				taken, given := strings.Split(f.Enum, ","), strings.Split(value, ",")
				assert.Subset(t, taken, given, "%s: --%s=%s", page, match[1], value)
			}
		}
		for _, name := range variable.FindAllString(string(text), -1) {
			assert.True(t, variables[name], "%s names %s", page, name)
		}
	}
}
