package testkit

import (
	"regexp"
	"strings"
)

// timeLimit matches the time limit in the reads of models.Store, on MariaDB and on MySQL.
var timeLimit = regexp.MustCompile(
	`^SET STATEMENT max_statement_time=[0-9.]+ FOR |/\*\+ MAX_EXECUTION_TIME\([0-9]+\) \*/ ?`,
)

// Unlimited returns a statement of a Store on one line, without the time limit that the Store adds to reads.
func Unlimited(statement string) string {
	return strings.Join(strings.Fields(timeLimit.ReplaceAllString(statement, "")), " ")
}
