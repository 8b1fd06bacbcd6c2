package db

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestConditions_makeOneClause(t *testing.T) {
	t.Parallel()
	var none Conditions
	assert.Empty(t, none.Clause())
	assert.Equal(t, "TRUE", none.all())

	c := Matching("a=?", 1)
	c.AddIf(false, "b=?", 2)
	c.AddIf(true, "(c=? OR d=?)", 3, 4)
	c.Add("e IS NULL")
	assert.Equal(t, "WHERE a=?\n\tAND (c=? OR d=?)\n\tAND e IS NULL", c.Clause())
	assert.Equal(t, []any{1, 3, 4}, c.Args)
	assert.Equal(t, []any{0, 1, 3, 4, 9}, c.Between([]any{0}, 9))
}

func TestConditions_cloneLeavesTheOriginal(t *testing.T) {
	t.Parallel()
	c := Matching("a=?", 1)
	d := c.Clone()
	d.Add("b=?", 2)
	d.terms[0] = "x"
	assert.Equal(t, "WHERE a=?", c.Clause())
	assert.Equal(t, []any{1}, c.Args)
}

// TestStatements_nameTheirConstants checks that no statement spells a status, a kind or a role as a number. Their
// values are arguments, or literals that are formatted from the constants.
func TestStatements_nameTheirConstants(t *testing.T) {
	t.Parallel()
	number := regexp.MustCompile(`\b(status|kind|role)(=|<>|<|>|<=|>=| IN \()[0-9]`)
	for _, statement := range []string{"WHERE p.status=1", "n.kind<>4", "role IN (2,3)"} {
		require.Regexp(t, number, statement)
	}
	files, err := filepath.Glob("../*/*.go")
	require.NoError(t, err)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		source, err := os.ReadFile(name)
		require.NoError(t, err)
		for i, line := range strings.Split(string(source), "\n") {
			assert.NotRegexp(t, number, line, "%s:%d", name, i+1)
		}
	}
}
