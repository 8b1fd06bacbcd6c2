package testkit

import "strings"

// Unlimited returns a statement of a Store on one line, without the time limit that the Store adds to reads.
func Unlimited(statement string) string {
	if rest, ok := strings.CutPrefix(statement, "SET STATEMENT max_statement_time="); ok { // MariaDB
		_, statement, _ = strings.Cut(rest, " FOR ")
	}
	if before, rest, ok := strings.Cut(statement, "/*+ MAX_EXECUTION_TIME("); ok { // MySQL
		_, after, _ := strings.Cut(rest, ") */")
		statement = before + after
	}
	return strings.Join(strings.Fields(statement), " ")
}
