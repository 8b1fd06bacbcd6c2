package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A rule on a metric that nobody exports is silent for ever.
func TestAlerts_nameMetricsThatExist(t *testing.T) {
	rules, err := os.ReadFile("../../docs/alerts/likewise.rules.yml")
	require.NoError(t, err)
	var source strings.Builder
	for _, folder := range []string{".", "../../workers", "../../handlers"} {
		files, err := filepath.Glob(folder + "/*.go")
		require.NoError(t, err)
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			code, err := os.ReadFile(file)
			require.NoError(t, err)
			source.Write(code)
		}
	}
	names := regexp.MustCompile(`likewise_[a-z_]+`).FindAllString(string(rules), -1)
	require.NotEmpty(t, names)
	for _, name := range names {
		assert.Contains(t, source.String(), `"`+name+`"`)
	}
}
