package db

import (
	"slices"
	"strconv"
	"strings"

	"likewise/models"
)

// conditions collects the conditions of a WHERE clause that come and go, with the arguments of their placeholders. All
// of them hold for a row of the result. A condition that contains OR stands in parentheses of its own. The zero value
// has no conditions.
type conditions struct {
	terms []string
	args  []any
}

// matching returns conditions that begin with this one.
func matching(condition string, args ...any) conditions {
	var c conditions
	c.add(condition, args...)
	return c
}

// add appends a condition.
func (c *conditions) add(condition string, args ...any) {
	c.terms = append(c.terms, condition)
	c.args = append(c.args, args...)
}

// addIf appends a condition if on is set.
func (c *conditions) addIf(on bool, condition string, args ...any) {
	if on {
		c.add(condition, args...)
	}
}

// clone returns a copy to which conditions can be added while c stays as it is.
func (c *conditions) clone() conditions {
	return conditions{slices.Clone(c.terms), slices.Clone(c.args)}
}

// clause returns the WHERE clause, one condition a line; "" without conditions.
func (c *conditions) clause() string {
	if len(c.terms) == 0 {
		return ""
	}
	return "WHERE " + c.all()
}

// all returns the conditions joined by AND, one a line; "TRUE" without conditions.
func (c *conditions) all() string {
	if len(c.terms) == 0 {
		return "TRUE"
	}
	return strings.Join(c.terms, "\n\tAND ")
}

// between returns the arguments of a statement whose placeholders stand before, in and after the conditions.
func (c *conditions) between(before []any, after ...any) []any {
	return slices.Concat(before, c.args, after)
}

// Literals of constants, for SQL that several statements share and that therefore takes no arguments.
var (
	sqlNormal  = literal(models.StatusNormal)
	sqlDeleted = literal(models.StatusDeleted)
)

// literal formats a named constant as a literal of SQL.
func literal[T ~int8](constant T) string { return strconv.Itoa(int(constant)) }
