package testkit

import "regexp"

// timeLimit is how a read of models.Store carries its time limit, on MariaDB and on MySQL.
var timeLimit = regexp.MustCompile(`^SET STATEMENT max_statement_time=[0-9.]+ FOR |/\*\+ MAX_EXECUTION_TIME\([0-9]+\) \*/ ?`)

// Unlimited returns a statement as models wrote it: without the time limit that a Store adds to each read.
func Unlimited(statement string) string { return timeLimit.ReplaceAllString(statement, "") }
