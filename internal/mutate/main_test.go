package main

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLuaMutants_changeOneRuleEach(t *testing.T) {
	t.Parallel()
	got := luaMutants("a.lua", "-- if it rains then go\nif a then return 1 elseif b then call('X') end -- if so then\n"+
		"call('SET', KEYS[1], 1)\nlocal x = call('GET', 1)\n")
	var changed []string
	for _, m := range got {
		changed = append(changed, m.what)
		assert.NotContains(t, m.source, m.what+"\n")
	}
	assert.Equal(t, []string{"if a then", "elseif b then", "call('SET', KEYS[1], 1)"}, changed)
	assert.Contains(t, got[1].source, "if a then return 1 elseif false then call('X') end")
	assert.Equal(t, 3, got[2].line)
}

// A module of two rules, of which the test notices one.
func TestMutate_findsTheRuleThatNoTestNotices(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module rules\n\ngo 1.26\n",
		"a.go": "package rules\n\nfunc Sign(n int) int {\n\tif n < 0 {\n\t\treturn -1\n\t}\n" +
			"\tif n == 0 {\n\t\treturn 0\n\t}\n\treturn 1\n}\n",
		"a_test.go": "package rules\n\nimport \"testing\"\n\nfunc TestSign(t *testing.T) {\n" +
			"\tif Sign(-5) != -1 {\n\t\tt.Fail()\n\t}\n}\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	t.Chdir(dir)
	survivors, err := mutate(t.Context(), io.Discard, []string{"a.go"}, []string{"."}, "", 0)
	require.NoError(t, err)
	assert.Equal(t, 1, survivors)
	_, err = mutate(t.Context(), io.Discard, []string{"a.go"}, []string{"."}, "", 2)
	require.ErrorContains(t, err, "there are 2 mutants")
}
