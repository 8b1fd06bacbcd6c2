package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The production binary contains no development servers, whatever its environment says.
func TestProduction_containsNoServers(t *testing.T) {
	t.Parallel()
	packages := func(tags string) []string {
		out, err := exec.Command("go", "list", "-deps", "-tags="+tags, ".").Output()
		require.NoError(t, err)
		return slices.DeleteFunc(strings.Fields(string(out)), func(name string) bool {
			return !strings.HasPrefix(name, "likewise/internal/") && !strings.Contains(name, "kfake")
		})
	}
	assert.Empty(t, packages(""))
	assert.Contains(t, packages("dev"), "likewise/internal/servers", "the development binary has them")
}
