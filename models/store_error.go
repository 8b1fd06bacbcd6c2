package models

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Code says what kind of error it is; handlers map it to an HTTP status and nothing else decides the status.
type Code string

// The codes. Each is stable: clients may compare them.
const (
	CodeMalformed    Code = "malformed"           // 400: the request cannot be read
	CodeUnauthorized Code = "unauthorized"        // 401: no valid token
	CodeForbidden    Code = "forbidden"           // 403: the caller may not do this
	CodeBanned       Code = "banned"              // 403: the account is banned
	CodeLocked       Code = "locked"              // 403: a moderator keeps everybody from it
	CodeNotFound     Code = "not_found"           // 404: deleted or never there
	CodeConflict     Code = "conflict"            // 409: somebody else has it
	CodeTooLate      Code = "too_late"            // 409: the time for it is over
	CodePrecondition Code = "precondition_failed" // 412: If-Match does not hold
	CodeTooLarge     Code = "too_large"           // 413
	CodeInvalid      Code = "invalid"             // 422: a field breaks a rule
	CodeIfMatch      Code = "if_match_required"   // 428
	CodeRateLimited  Code = "rate_limited"        // 429: too much in too short a time
	CodeUnavailable  Code = "unavailable"         // 503: a dependency is away or a limit is reached; try again
	CodeInternal     Code = "internal"            // 500
)

// FieldError names one field of the input and what is wrong with it.
type FieldError struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

// Error is an error that a caller can act on. Message is written for the client and never holds internals; Err, when
// set, is the cause and goes to the log alone.
type Error struct {
	Code    Code
	Message string
	Fields  []FieldError
	Version *int64 // with CodePrecondition: the version that is there now
	Ban     *Ban   // with CodeBanned
	// RetryAfter, with CodeRateLimited, is when to come back; it is told in whole seconds, rounded up.
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

// Errorf makes an Error without a cause.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Invalid makes the error of one bad field.
func Invalid(field, message string) *Error {
	return &Error{Code: CodeInvalid, Message: "The request has an invalid field.", Fields: []FieldError{{field, message}}}
}

// Unavailable says that a dependency did not do its part; the caller may try again.
func Unavailable(message string, err error) *Error {
	return &Error{Code: CodeUnavailable, Message: message, Err: err}
}

// ErrorCode gives the code of err. An error that carries none is CodeUnavailable when a server could not be reached,
// did not answer in time or takes no writes, or ended the statement, else CodeInternal.
func ErrorCode(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	var network net.Error // a deadline that passed is one too
	if errors.As(err, &network) || errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn) {
		return CodeUnavailable
	}
	switch mysqlCode(err) {
	case errTooManyConns, errShutdown:
		return CodeUnavailable
	}
	if cannotWrite(err) || outOfTime(err) {
		return CodeUnavailable
	}
	return CodeInternal
}

// fieldErrors collects what Validate finds, so that a client hears of every bad field at once.
type fieldErrors []FieldError

func (f *fieldErrors) check(ok bool, field, message string) {
	if !ok {
		*f = append(*f, FieldError{field, message})
	}
}

func (f fieldErrors) err() error {
	if len(f) == 0 {
		return nil
	}
	return &Error{Code: CodeInvalid, Message: "The request has invalid fields.", Fields: f}
}
