//go:build dev

package main

import "testing"

// docs/cli.md has the flags of the commands that likewise-dev runs.
func TestCLIPage_hasEveryFlagForDevelopment(t *testing.T) {
	_, development := commandLine(t)
	holdPage(t, map[string]string{"development": commandTable(development) + "\n" + flagTable(development)})
}
