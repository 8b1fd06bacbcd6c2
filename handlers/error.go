package handlers

import (
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/handlers/admission"
	"likewise/models"
)

// statuses maps error codes to statuses. There is no other such map.
var statuses = map[models.Code]int{
	models.CodeMalformed:    http.StatusBadRequest,
	models.CodeUnauthorized: http.StatusUnauthorized,
	models.CodeForbidden:    http.StatusForbidden,
	models.CodeBanned:       http.StatusForbidden,
	models.CodeBadLink:      http.StatusForbidden,
	models.CodeMailOff:      http.StatusForbidden,
	models.CodeClosed:       http.StatusForbidden,
	models.CodeSecondFactor: http.StatusUnauthorized,
	models.CodeNoFactor:     http.StatusForbidden,
	models.CodeFactorsOff:   http.StatusForbidden,
	models.CodeLocked:       http.StatusForbidden,
	models.CodeNotFound:     http.StatusNotFound,
	models.CodeConflict:     http.StatusConflict,
	models.CodeSuperseded:   http.StatusConflict,
	models.CodeTooLate:      http.StatusConflict,
	models.CodeSoldOut:      http.StatusConflict,
	models.CodeNotStarted:   http.StatusForbidden,
	models.CodeEnded:        http.StatusForbidden,
	models.CodePrecondition: http.StatusPreconditionFailed,
	models.CodeTooLarge:     http.StatusRequestEntityTooLarge,
	models.CodeInvalid:      http.StatusUnprocessableEntity,
	models.CodeIfMatch:      http.StatusPreconditionRequired,
	models.CodeRateLimited:  http.StatusTooManyRequests,
	models.CodeUnavailable:  http.StatusServiceUnavailable,
	models.CodeUnproven:     http.StatusForbidden,
	models.CodeInternal:     http.StatusInternalServerError,
}

// transport describes the refusals of HTTP itself, by status; models has no codes for them.
var transport = map[int]struct {
	code   models.Code
	detail string
}{
	http.StatusNotFound:         {models.CodeNotFound, "There is nothing at this path."},
	http.StatusMethodNotAllowed: {"method_not_allowed", "The path does not support this method; see Allow."},
	http.StatusRequestTimeout:   {"request_timeout", "The request did not arrive in time."},

	http.StatusRequestEntityTooLarge: {models.CodeTooLarge, "The body is larger than 384 KiB, or 10 MiB for an image."},
	http.StatusUnsupportedMediaType: {
		"unsupported_media_type",
		"The body must be JSON, sent as application/json, or multipart/form-data for an image.",
	},
	http.StatusRequestHeaderFieldsTooLarge: {"header_too_large", "The header is larger than 8 KiB."},
}

// problem is an answer of RFC 9457. Its type is always "about:blank": the title is the text of the status, and the code
// identifies the problem.
type problem struct {
	Type      string              `json:"type"`
	Title     string              `json:"title"`
	Status    int                 `json:"status"`
	Detail    string              `json:"detail"`
	Code      models.Code         `json:"code"`
	RequestID string              `json:"request_id"`
	Errors    []models.FieldError `json:"errors,omitempty"`
	Version   *int64              `json:"version,omitempty"` // with 412: the present version
	Ban       *banJSON            `json:"ban,omitempty"`     // with CodeBanned
	// With CodeSecondFactor at login: what POST /v1/auth/challenge takes, and the factors whose codes it takes.
	Challenge string          `json:"challenge,omitempty"`
	Factors   []models.Factor `json:"factors,omitempty"`
}

// banJSON is a ban as its user sees it.
type banJSON struct {
	Until  *time.Time `json:"until"` // null: permanent
	Reason string     `json:"reason"`
}

func newBanJSON(b *models.Ban) *banJSON {
	if b == nil {
		return nil
	}
	if b.Permanent() {
		return &banJSON{nil, b.Reason}
	}
	return &banJSON{&b.Until, b.Reason}
}

const (
	unavailableDetail = "The server cannot do this at the moment; try again."
	internalDetail    = "The server failed; its log has the reason under the request id."
)

// problemOf returns the problem of err. It contains only texts that were written for clients.
func problemOf(err error) problem {
	if refused, ok := errors.AsType[*fiber.Error](err); ok {
		status := refused.Code
		known, ok := transport[status]
		if !ok && status < 500 {
			status = http.StatusBadRequest
			known.code, known.detail = models.CodeMalformed, "The request is not valid HTTP."
		} else if !ok {
			status = http.StatusInternalServerError
			known.code, known.detail = models.CodeInternal, internalDetail
		}
		return problem{Status: status, Code: known.code, Detail: known.detail}
	}
	code := models.ErrorCode(err)
	status, ok := statuses[code]
	if !ok {
		status, code = http.StatusInternalServerError, models.CodeInternal
	}
	p := problem{Status: status, Code: code}
	var e *models.Error
	switch {
	case code == models.CodeInternal:
		p.Detail = internalDetail
	case errors.As(err, &e):
		p.Detail, p.Errors, p.Version, p.Ban = e.Message, clip(e.Fields), e.Version, newBanJSON(e.Ban)
		if e.Challenge != nil {
			p.Challenge, p.Factors = e.Challenge.Token, e.Challenge.Factors
		}
	default:
		p.Detail = unavailableDetail
	}
	return p
}

// Bounds on what a problem repeats of a request.
const (
	maxFieldErrors = 20
	maxFieldName   = 100 // characters
)

// clip returns the first errors of the list, with their field names cut to a bounded length.
func clip(list []models.FieldError) []models.FieldError {
	list = slices.Clone(list[:min(len(list), maxFieldErrors)])
	for i := range list {
		if name := []rune(list[i].Field); len(name) > maxFieldName {
			list[i].Field = string(name[:maxFieldName]) + "…"
		}
	}
	return list
}

const mimeProblem = "application/problem+json"

// newProblem returns the complete problem of err.
func newProblem(err error, request string) problem {
	p := problemOf(err)
	p.Type, p.Title, p.RequestID = "about:blank", http.StatusText(p.Status), request
	return p
}

func writeProblem(c *fiber.Ctx, err error) {
	p := newProblem(err, requestID(c))
	switch p.Status {
	case http.StatusUnauthorized:
		c.Set(fiber.HeaderWWWAuthenticate, "Bearer")
	case http.StatusServiceUnavailable:
		c.Set(fiber.HeaderRetryAfter, "1")
	}
	if e, ok := errors.AsType[*models.Error](err); ok && e.RetryAfter > 0 {
		c.Set(fiber.HeaderRetryAfter, strconv.FormatInt(admission.Seconds(e.RetryAfter), 10))
	}
	if p.Version != nil {
		c.Set(fiber.HeaderETag, etag(*p.Version))
	}
	body, err := json.Marshal(p)
	if err != nil { // impossible: numbers and strings only
		body = nil
	}
	c.Response().ResetBody()
	c.Status(p.Status).Set(fiber.HeaderContentType, mimeProblem)
	c.Response().SetBodyRaw(body)
}

// malformed returns CodeMalformed for input that cannot be read, in fields if they are known.
func malformed(message string, fields ...models.FieldError) error {
	return &models.Error{Code: models.CodeMalformed, Message: message, Fields: fields}
}
