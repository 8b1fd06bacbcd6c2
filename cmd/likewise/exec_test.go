//go:build !dev

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// writeDevProgram writes a likewise-dev that prints its process id and arguments.
func writeDevProgram(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	script := "#!/bin/sh\necho \"$$ $*\"\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, devName), []byte(script), 0o700))
	return dir
}

func TestProduction_handsDevelopmentCommandsOver(t *testing.T) {
	t.Parallel()
	path := "PATH=" + writeDevProgram(t) + ":" + os.Getenv("PATH")
	for _, args := range []string{
		"dev --data x --listen 127.0.0.1:0", "bench --json", "--log-level debug dev", "dev --help",
	} {
		p := start(t, []string{path}, strings.Fields(args)...)
		require.Zero(t, p.await())
		assert.Equal(t, fmt.Sprintf("%d %s\n", p.Pid(), args), p.stdout.String())
	}
}

func TestProduction_namesTheMissingProgram(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"dev", "bench"} {
		assert.Contains(t, fail(t, 1, []string{"PATH=" + t.TempDir()}, command), "run `make build`")
	}
}

func TestDevProgram_isBesideTheBinaryOrInPath(t *testing.T) {
	beside, inPath := writeDevProgram(t), writeDevProgram(t)
	t.Setenv("PATH", inPath)
	program, err := devProgram(filepath.Join(beside, "likewise"))
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(beside, devName), program)
	program, err = devProgram(filepath.Join(t.TempDir(), "likewise"))
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(inPath, devName), program)
	_, err = devProgram(filepath.Join(beside, devName))
	require.ErrorContains(t, err, "without its servers", "it must not replace itself for ever")
}
