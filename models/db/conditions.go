package db

import (
	"slices"
	"strconv"
	"strings"

	"likewise/models"
)

// Conditions collects the conditions of a WHERE clause that come and go, with the arguments of their placeholders. All
// of them hold for a row of the result. A condition that contains OR stands in parentheses of its own. The zero value
// has no conditions.
type Conditions struct {
	terms []string
	Args  []any
}

// Matching returns conditions that begin with this one.
func Matching(condition string, args ...any) Conditions {
	var c Conditions
	c.Add(condition, args...)
	return c
}

// Add appends a condition.
func (c *Conditions) Add(condition string, args ...any) {
	c.terms = append(c.terms, condition)
	c.Args = append(c.Args, args...)
}

// AddIf appends a condition if on is set.
func (c *Conditions) AddIf(on bool, condition string, args ...any) {
	if on {
		c.Add(condition, args...)
	}
}

// Clone returns a copy to which conditions can be added while c stays as it is.
func (c *Conditions) Clone() Conditions {
	return Conditions{slices.Clone(c.terms), slices.Clone(c.Args)}
}

// Clause returns the WHERE clause, one condition a line; "" without conditions.
func (c *Conditions) Clause() string {
	if len(c.terms) == 0 {
		return ""
	}
	return "WHERE " + c.all()
}

// all returns the conditions joined by AND, one a line; "TRUE" without conditions.
func (c *Conditions) all() string {
	if len(c.terms) == 0 {
		return "TRUE"
	}
	return strings.Join(c.terms, "\n\tAND ")
}

// Between returns the arguments of a statement whose placeholders stand before, in and after the conditions.
func (c *Conditions) Between(before []any, after ...any) []any {
	return slices.Concat(before, c.Args, after)
}

// Literals of constants, for SQL that several statements share and that therefore takes no arguments.
var (
	SQLNormal  = Literal(models.StatusNormal)
	SQLDeleted = Literal(models.StatusDeleted)
)

// Literal formats a named constant as a literal of SQL.
func Literal[T ~int8](constant T) string { return strconv.Itoa(int(constant)) }

// NotBlocked returns the condition that the viewer does not block the author in column. It has one placeholder: the
// viewer's id. It holds for the anonymous, whose id is 0.
func NotBlocked(column string) string { return blockOf(column) + " IS NULL" }

// IsBlocked returns the opposite of NotBlocked.
func IsBlocked(column string) string { return blockOf(column) + " IS NOT NULL" }

// blockOf looks up one block. As a plain EXISTS, MariaDB would read all blocks that the viewer has made.
func blockOf(column string) string {
	return "(SELECT 1 FROM blocks b WHERE b.user_id=? AND b.blocked_id=" + column + " LIMIT 1)"
}
