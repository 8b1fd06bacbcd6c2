package house

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The suite runs twice before a change lands: with the full volumes, and with the race detector.
func TestMakefile_runsTheSuiteWithAndWithoutTheDetector(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	require.NoError(t, err)
	run, err := os.ReadFile(filepath.Join(root, ".ci", "run"))
	require.NoError(t, err)
	for target, commands := range map[string][]string{
		"test": {"CGO_ENABLED=0 go test $(SUITE)", "CGO_ENABLED=0 go test $(UNTAGGED)"},
		"test-race": {"CGO_ENABLED=1 go test -race $(NO_RACE) $(SUITE)",
			"CGO_ENABLED=1 go test -race $(NO_RACE) $(UNTAGGED)"},
	} {
		recipe := regexp.MustCompile(`(?m)^` + target + `:.*##.*\n((?:\t.*\n)+)`).FindSubmatch(makefile)
		require.NotNil(t, recipe, target)
		for _, command := range commands {
			assert.Contains(t, string(recipe[1]), "\t"+command+"\n", target)
		}
		assert.Contains(t, string(run), "\ntests "+target+" make "+target+"\n")
	}
	assert.Regexp(t, `(?m)^SUITE := .* \./\.\.\.$`, string(makefile))
}

// The race detector must watch every package in which one goroutine can publish data to another without a lock, that
// is, with an atomic, a sync.Once or a sync.Map. Otherwise it reports races that are none.
func TestMakefile_unwatchedPackagesPublishNothing(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	require.NoError(t, err)
	found := regexp.MustCompile(`(?m)^NO_RACE_PACKAGES := ((?:.*\\\n)*.*)$`).FindSubmatch(makefile)
	require.NotNil(t, found, "the Makefile has NO_RACE_PACKAGES")
	patterns := strings.Fields(strings.ReplaceAll(string(found[1]), "\\\n", " "))
	const format = `{{$dir := .Dir}}{{range .GoFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}`
	args := append([]string{"list", "-tags", "dev", "-f", format}, patterns...)
	list := exec.CommandContext(t.Context(), "go", args...)
	list.Dir = root
	var complaints bytes.Buffer
	list.Stderr = &complaints
	out, err := list.Output()
	require.NoError(t, err, complaints.String())
	files := strings.Fields(string(out))
	assert.Greater(t, len(files), len(patterns))
	publishes := regexp.MustCompile(`"sync/atomic"|\bsync\.(Once|Map)|\batomic\.`)
	for _, file := range files {
		if strings.HasSuffix(file, "/compress/flate/inflate.go") {
			continue // its sync.Once makes a table that only this package reads
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Empty(t, publishes.FindString(string(text)), file)
	}
}
