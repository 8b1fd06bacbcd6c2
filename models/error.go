// Package models holds the domain without its storage: users, posts, comments, likes and drops, the rules of what users
// write, the errors of the API, and the events of likes with their positions. It contains no statement; models/db does.
package models

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Code is the kind of an error. Handlers map it to an HTTP status.
type Code string

// The codes. They are stable: clients may compare them.
const (
	CodeMalformed    Code = "malformed"              // 400: the request cannot be read
	CodeUnauthorized Code = "unauthorized"           // 401: no valid token
	CodeForbidden    Code = "forbidden"              // 403: the caller may not do this
	CodeBanned       Code = "banned"                 // 403: the account is banned
	CodeBadLink      Code = "bad_link"               // 403: a link from a mail cannot be used any longer
	CodeMailOff      Code = "mail_off"               // 403: it needs mail, and this site sends none
	CodeClosed       Code = "registration_closed"    // 403: nobody can register
	CodeSecondFactor Code = "second_factor_required" // 401: the login needs a code, too
	CodeNoFactor     Code = "second_factor_missing"  // 403: staff must have used a second factor
	CodeFactorsOff   Code = "second_factors_off"     // 403: codes of apps cannot be made or checked
	CodeLocked       Code = "locked"                 // 403: a moderator has locked the content
	CodeNotStarted   Code = "not_started"            // 403: the drop has not begun
	CodeEnded        Code = "ended"                  // 403: the drop has ended
	CodeNotFound     Code = "not_found"              // 404: it was deleted or never existed
	CodeConflict     Code = "conflict"               // 409: the present state does not permit it
	CodeSoldOut      Code = "sold_out"               // 409: no claim to the drop is left
	CodeSuperseded   Code = "superseded"             // 409: a later call of the same user has replaced this one
	CodeTooLate      Code = "too_late"               // 409: the period for it is over
	CodePrecondition Code = "precondition_failed"    // 412: If-Match does not match
	CodeTooLarge     Code = "too_large"              // 413
	CodeInvalid      Code = "invalid"                // 422: a field breaks a rule
	CodeIfMatch      Code = "if_match_required"      // 428
	CodeRateLimited  Code = "rate_limited"           // 429: too many requests in a period
	CodeUnavailable  Code = "unavailable"            // 503: a dependency does not answer or a limit is reached; retry
	CodeInternal     Code = "internal"               // 500

	// CodeUnproven is 403: the password must be entered again (see RecentOnly).
	CodeUnproven Code = "reauthentication_required"
)

// FieldError names one field of the input and the rule that it breaks.
type FieldError struct {
	Field   string    `json:"field"`
	Code    FieldCode `json:"code"`
	Params  Params    `json:"params,omitempty"`
	Message string    `json:"message"`
}

// Error is an error that a caller can act on. Message is for the client and contains no internals. Err, if set, is the
// cause and goes to the log alone.
type Error struct {
	Code    Code
	Message string
	Fields  []FieldError
	Version *int64 // with CodePrecondition: the present version
	Ban     *Ban   // with CodeBanned
	// Challenge, with CodeSecondFactor, is the rest of a login.
	Challenge *Challenge
	// RetryAfter, with CodeRateLimited, is the time before a retry. Clients receive it in whole seconds, rounded up.
	RetryAfter time.Duration
	Err        error
}

func (e *Error) Error() string {
	s := string(e.Code) + ": " + e.Message
	for _, f := range e.Fields {
		s += fmt.Sprintf(" [%s: %s]", f.Field, f.Message)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an Error without a cause.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Invalid returns the error of one invalid field.
func Invalid(field string, fault Fault) *Error {
	fields := []FieldError{fault.In(field)}
	return &Error{Code: CodeInvalid, Message: "The request has an invalid field.", Fields: fields}
}

// Unavailable returns the error of a dependency that failed. The caller may retry.
func Unavailable(message string, err error) *Error {
	return &Error{Code: CodeUnavailable, Message: message, Err: err}
}

// ErrorCode returns the code of err. For an error without a code, it returns CodeUnavailable if a server could not be
// reached, did not answer in time, rejected writes or ended the statement; otherwise CodeInternal.
func ErrorCode(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	var network net.Error // an exceeded deadline is one, too
	if errors.As(err, &network) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn) {
		return CodeUnavailable
	}
	switch MySQLCode(err) {
	case errTooManyConns, errShutdown:
		return CodeUnavailable
	}
	if CannotWrite(err) || OutOfTime(err) {
		return CodeUnavailable
	}
	return CodeInternal
}

// WriteRefusal is the reason for which a server that answers refuses a write.
type WriteRefusal string

// The refusals.
const (
	RefusedFull     WriteRefusal = "full"      // its disk is full
	RefusedReadOnly WriteRefusal = "read_only" // it is read-only, as a replica is
)

// WriteRefusals lists all refusals.
var WriteRefusals = []WriteRefusal{RefusedFull, RefusedReadOnly}

// MySQL error numbers that make an error CodeUnavailable.
const (
	errWriteFile    = 3 // with errDiskFull and errTableFull: a disk is full
	errDiskFull     = 1021
	errTooManyConns = 1040
	errShutdown     = 1053
	errTableFull    = 1114
	errReadOnly     = 1290 // with --read-only; errReadOnlyMode with super_read_only and others
	errInterrupted  = 1317 // by KILL QUERY
	errReadOnlyMode = 1836
	errTimeMariaDB  = 1969 // a statement took longer than its limit
	errTimeMySQL    = 3024
)

// MySQLCode returns the server's error number; 0 for any other error.
func MySQLCode(err error) uint16 {
	if e, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return e.Number
	}
	return 0
}

// CannotWrite reports whether the server answers but rejects writes: its disk is full, or it is read-only.
func CannotWrite(err error) bool { return RefusalOf(err) != "" }

// RefusalOf returns the reason for which the server rejects writes; "" if it does not.
func RefusalOf(err error) WriteRefusal {
	switch MySQLCode(err) {
	case errWriteFile, errDiskFull, errTableFull:
		return RefusedFull
	case errReadOnly, errReadOnlyMode:
		return RefusedReadOnly
	}
	return ""
}

// OutOfTime reports whether the server ended a statement at its time limit.
func OutOfTime(err error) bool {
	switch MySQLCode(err) {
	case errInterrupted, errTimeMariaDB, errTimeMySQL:
		return true
	}
	return false
}

// WholeSeconds returns the time as a TIMESTAMP column keeps it: whole seconds, UTC.
func WholeSeconds(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }
