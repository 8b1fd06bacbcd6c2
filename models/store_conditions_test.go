package models

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestConditions_makeOneClause(t *testing.T) {
	var none conditions
	assert.Empty(t, none.clause())
	assert.Equal(t, "TRUE", none.all())

	c := matching("a=?", 1)
	c.addIf(false, "b=?", 2)
	c.addIf(true, "(c=? OR d=?)", 3, 4)
	c.add("e IS NULL")
	assert.Equal(t, "WHERE a=?\n\tAND (c=? OR d=?)\n\tAND e IS NULL", c.clause())
	assert.Equal(t, []any{1, 3, 4}, c.args)
	assert.Equal(t, []any{0, 1, 3, 4, 9}, c.between([]any{0}, 9))
}

func TestConditions_cloneLeavesTheOriginal(t *testing.T) {
	c := matching("a=?", 1)
	d := c.clone()
	d.add("b=?", 2)
	d.terms[0] = "x"
	assert.Equal(t, "WHERE a=?", c.clause())
	assert.Equal(t, []any{1}, c.args)
}
