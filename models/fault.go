package models

import (
	"fmt"
	"strings"
	"time"
)

// FieldCode identifies a rule that a field of the input can break. The codes are stable: clients may compare them.
// docs/errors.md describes each, and a test compares the two.
type FieldCode string

// The codes, with the parameters of each.
const (
	FieldRequired      FieldCode = "required"
	FieldTooShort      FieldCode = "too_short"      // min, max, unit
	FieldTooLong       FieldCode = "too_long"       // max, unit
	FieldTooLarge      FieldCode = "too_large"      // max, unit: of a file
	FieldNoRoom        FieldCode = "no_room"        // max: bytes of all files of an account, or of the site
	FieldTooFew        FieldCode = "too_few"        // min, max
	FieldTooMany       FieldCode = "too_many"       // max
	FieldOutOfRange    FieldCode = "out_of_range"   // min, max
	FieldNotOneOf      FieldCode = "not_one_of"     // allowed
	FieldWrongType     FieldCode = "wrong_type"     // type
	FieldUnknown       FieldCode = "unknown_field"  // the request has no such field
	FieldRepeated      FieldCode = "repeated_field" // the request has it more than once
	FieldBadFormat     FieldCode = "bad_format"     // format
	FieldBadCharacters FieldCode = "bad_characters" // of a text of several lines, or of a word
	FieldNotALine      FieldCode = "not_a_line"     // line ends, control characters, or space around it
	FieldTaken         FieldCode = "taken"
	FieldReserved      FieldCode = "reserved"
	FieldTooCommon     FieldCode = "too_common" // a new password
	FieldPersonal      FieldCode = "personal"   // a new password is a name of the account
	FieldWrongPassword FieldCode = "wrong_password"
	FieldWrongCode     FieldCode = "wrong_code"
	FieldNotPast       FieldCode = "not_past"
	FieldNotFuture     FieldCode = "not_future"
	FieldNotBefore     FieldCode = "not_before" // before
	FieldBadOrder      FieldCode = "bad_order"  // field: the other time
	FieldExclusive     FieldCode = "exclusive"  // field: the other one of the two
	FieldNeeds         FieldCode = "needs"      // field: what is missing
	FieldNotPermitted  FieldCode = "not_permitted"
	FieldBadHost       FieldCode = "bad_host"     // allowed
	FieldWrongCursor   FieldCode = "wrong_cursor" // the cursor is not of this list
	FieldKeyReused     FieldCode = "key_reused"
	FieldKeyInUse      FieldCode = "key_in_use"
	FieldTooDeep       FieldCode = "too_deep" // max
	FieldOtherPost     FieldCode = "other_post"
	FieldNoWord        FieldCode = "no_word"
	FieldTooSoon       FieldCode = "too_soon" // at: from when on it can be changed
)

// Format is what the text of a field must be.
type Format string

// The formats.
const (
	FormatDraft    Format = "draft_key"
	FormatEmail    Format = "email"
	FormatID       Format = "id"
	FormatIDs      Format = "ids" // separated by commas
	FormatImage    Format = "image"
	FormatIP       Format = "ip"
	FormatKey      Format = "idempotency_key"
	FormatTag      Format = "tag"
	FormatTarget   Format = "target" // such as post:1
	FormatTime     Format = "time"   // RFC 3339
	FormatURL      Format = "url"    // https
	FormatUsername Format = "username"
	FormatWord     Format = "word" // of the log, such as post.delete
)

// Units of lengths.
const (
	unitCharacters = "characters"
	unitBytes      = "bytes"
)

// Params are the parameters of a field error by name: numbers, texts and lists of texts.
type Params map[string]any

// Fault is a rule that a field breaks, and the sentence about it: what follows the name of the field.
type Fault struct {
	Code    FieldCode
	Params  Params
	Message string
}

// In returns the error of a field with the fault.
func (f Fault) In(field string) FieldError {
	return FieldError{Field: field, Code: f.Code, Params: f.Params, Message: f.Message}
}

// Saying returns the fault with another sentence.
func (f Fault) Saying(format string, args ...any) Fault {
	f.Message = fmt.Sprintf(format, args...)
	return f
}

// Broken returns a fault without parameters.
func Broken(code FieldCode, message string) Fault { return Fault{Code: code, Message: message} }

// Missing returns the fault of a field that is empty or left out.
func Missing() Fault { return Broken(FieldRequired, "must not be empty") }

// TooLong returns the fault of a text with more characters than limit.
func TooLong(limit int) Fault {
	return Fault{FieldTooLong, Params{"max": limit, "unit": unitCharacters},
		fmt.Sprintf("must have at most %d characters", limit)}
}

// tooLarge returns the fault of a text with more bytes than limit.
func tooLarge(limit int) Fault {
	return Fault{FieldTooLong, Params{"max": limit, "unit": unitBytes},
		fmt.Sprintf("must have at most %d bytes", limit)}
}

// TooLarge returns the fault of a file with more of a unit, "bytes" or "pixels", than limit.
func TooLarge(limit int64, unit string) Fault {
	return Fault{FieldTooLarge, Params{"max": limit, "unit": unit},
		fmt.Sprintf("must have at most %d %s", limit, unit)}
}

// WrongLength returns the fault of a text with length characters, which must have least to most.
func WrongLength(length, low, high int) Fault {
	f := TooLong(high)
	if length < low {
		f = Fault{Code: FieldTooShort, Params: Params{"min": low, "max": high, "unit": unitCharacters}}
	}
	return f.Saying("must have %d to %d characters", low, high)
}

// WrongCount returns the fault of a list with n items, which must have least to most.
func WrongCount(n, low, high int) Fault {
	if n < low {
		return Fault{FieldTooFew, Params{"min": low, "max": high}, fmt.Sprintf("must be %d to %d", low, high)}
	}
	return Fault{FieldTooMany, Params{"max": high}, fmt.Sprintf("must be at most %d", high)}
}

// OutOfRange returns the fault of a number that is not between least and most.
func OutOfRange(low, high int64) Fault {
	return Fault{FieldOutOfRange, Params{"min": low, "max": high},
		fmt.Sprintf("must be a number from %d to %d", low, high)}
}

// NotOneOf returns the fault of a word that is none of those that are allowed.
func NotOneOf[S ~string](allowed ...S) Fault {
	words := make([]string, len(allowed))
	for i, word := range allowed {
		words[i] = string(word)
	}
	return Fault{FieldNotOneOf, Params{"allowed": words}, "must be one of " + strings.Join(words, ", ")}
}

// BadFormat returns the fault of a text that does not have the format.
func BadFormat(format Format, message string) Fault {
	return Fault{FieldBadFormat, Params{"format": format}, message}
}

// BadTime returns the fault of a text that is not a time.
func BadTime() Fault { return BadFormat(FormatTime, "must be a time such as 2026-12-01T00:00:00Z") }

// TooSoon returns the fault of a field that can be changed again from a time on.
func TooSoon(at time.Time) Fault {
	text := at.UTC().Format(time.RFC3339)
	return Fault{FieldTooSoon, Params{"at": text}, "can be changed again from " + text + " on"}
}

// NotALine returns the fault of a text that is not a single line.
func NotALine() Fault {
	return Broken(FieldNotALine, "must be a single line")
}

// About returns a fault that concerns another field, too: FieldBadOrder, FieldExclusive or FieldNeeds.
func About(code FieldCode, other, message string) Fault {
	return Fault{code, Params{"field": other}, message}
}
