package house

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Every Lua script must start with a description, its KEYS, its ARGV and its reply, and Go code must run it by its
// name.
func TestScripts_haveAHeaderAndACaller(t *testing.T) {
	t.Parallel()
	scripts, err := filepath.Glob("../../counters/lua/*.lua")
	require.NoError(t, err)
	require.NotEmpty(t, scripts)
	sources, err := filepath.Glob("../../counters/*.go")
	require.NoError(t, err)
	var code strings.Builder
	for _, file := range sources {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		code.Write(text)
	}
	for _, file := range scripts {
		name := strings.TrimSuffix(filepath.Base(file), ".lua")
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		header := regexp.MustCompile(`\A(?:--.*\n)+`).FindString(string(text))
		body := string(text)[len(header):]
		assert.Regexp(t, `\A-- [A-Z].*[.:,a-z]\n`, header, "%s: the first line is a sentence", name)
		for _, word := range []string{"KEYS", "ARGV"} {
			if strings.Contains(body, word) {
				assert.Regexp(t, `(?m)^-- `+word+` +`, header, "%s: the header describes %s", name, word)
			}
		}
		assert.Regexp(t, `(?m)^-- reply `, header, "%s: the header describes the reply", name)
		run := strings.Contains(code.String(), `"`+name+`"`) || strings.Contains(code.String(), `"lua/`+name+`.lua"`)
		assert.True(t, run, "%s: a method of counters runs it", name)
	}
}
