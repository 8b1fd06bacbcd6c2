package handlers

import (
	"bytes"
	"encoding/json"
	"mime"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"
	"github.com/google/uuid"

	"likewise/models"
)

type localKey int

const (
	requestIDKey localKey = iota
	viewerKey
	ruleKey       // of the route's permission
	tokenKeyOwner // hash of the token that an Idempotency-Key belongs to
	answerKey
)

const maxRequestID = 64

// nameRequest takes the client's X-Request-Id if it can stand in a log line as it is, else makes one.
func nameRequest(c *fiber.Ctx) {
	id := strings.Clone(c.Get(fiber.HeaderXRequestID))
	if !sane(id) {
		id = uuid.NewString()
	}
	c.Locals(requestIDKey, id)
	c.Set(fiber.HeaderXRequestID, id)
}

func sane(id string) bool {
	return id != "" && len(id) <= maxRequestID && !strings.ContainsFunc(id, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	})
}

func requestID(c *fiber.Ctx) string {
	id, _ := c.Locals(requestIDKey).(string)
	return id
}

// pathID reads the id in the path. What is not an id is the id of nothing: CodeNotFound.
func pathID(c *fiber.Ctx, kind models.TargetKind) (int64, error) {
	if id, ok := parseID(c.Params("id")); ok {
		return id, nil
	}
	return 0, models.Errorf(models.CodeNotFound, "There is no such %s.", kind)
}

// parseID reads a positive integer in the one form that is written.
func parseID(s string) (int64, bool) {
	id, err := strconv.ParseInt(s, 10, 64)
	return id, err == nil && id > 0 && s[0] != '0' && s[0] != '+'
}

// fields names where each member of a JSON object goes.
type fields map[string]any

// decode reads the body, which must be a JSON object of these fields. null and a missing field leave the value as it
// is. 415 for another content type; CodeMalformed for what is not JSON or has the wrong type; CodeInvalid for fields
// that do not exist, each of them named.
func decode(c *fiber.Ctx, into fields) error {
	if kind, _, err := mime.ParseMediaType(c.Get(fiber.HeaderContentType)); err != nil || kind != fiber.MIMEApplicationJSON {
		return fiber.ErrUnsupportedMediaType
	}
	body := c.BodyRaw() // never decompressed: a few bytes could become gigabytes
	if !utf8.Valid(body) {
		return malformed("The body is not UTF-8.")
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil || members == nil {
		return malformed("The body is not a JSON object.")
	}
	var wrong, unknown []models.FieldError
	for name, value := range members {
		target, ok := into[name]
		if !ok {
			unknown = append(unknown, models.FieldError{Field: name, Message: "is not a field of this request"})
		} else if err := json.Unmarshal(value, target); err != nil {
			wrong = append(wrong, models.FieldError{Field: name, Message: "must be " + jsonType(target)})
		}
	}
	if len(wrong) > 0 {
		return malformed("A field has the wrong type.", sorted(wrong)...)
	}
	if len(unknown) > 0 {
		return &models.Error{Code: models.CodeInvalid, Message: "The request has unknown fields.", Fields: sorted(unknown)}
	}
	return nil
}

// jsonType says what fits a pointer to a value, or to a pointer to one.
func jsonType(target any) string {
	t := reflect.TypeOf(target).Elem()
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Int64:
		return "an integer"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Int64 {
			return "a list of integers"
		}
		return "a list of strings"
	}
	return "a string"
}

func sorted(list []models.FieldError) []models.FieldError {
	slices.SortFunc(list, func(a, b models.FieldError) int { return strings.Compare(a.Field, b.Field) })
	return list
}

// Page sizes.
const (
	defaultLimit = 20
	maxLimit     = 100
)

// limit reads ?limit=; CodeInvalid when it is not a number from 1 to 100.
func limit(c *fiber.Ctx) (int, error) {
	return numberOf(c, "limit", defaultLimit, maxLimit)
}

// numberOf reads a number of the query; CodeInvalid when it is not one from 1 to most.
func numberOf(c *fiber.Ctx, name string, byDefault, most int) (int, error) {
	if !c.Context().QueryArgs().Has(name) {
		return byDefault, nil
	}
	n, err := strconv.Atoi(c.Query(name))
	if err != nil || n < 1 || n > most {
		return 0, models.Invalid(name, "must be a number from 1 to "+strconv.Itoa(most))
	}
	return n, nil
}

// sortOf reads ?sort=, whose default is the first of the orders; CodeInvalid for an unknown one.
func sortOf[S ~string](c *fiber.Ctx, orders ...S) (S, error) { return oneOf(c, "sort", orders...) }

// oneOf reads a parameter that is one of some words, and by default the first; CodeInvalid for any other.
func oneOf[S ~string](c *fiber.Ctx, parameter string, words ...S) (S, error) {
	if !c.Context().QueryArgs().Has(parameter) {
		return words[0], nil
	}
	asked, names := c.Query(parameter), make([]string, len(words))
	for i, word := range words {
		if string(word) == asked {
			return word, nil
		}
		names[i] = string(word)
	}
	return "", models.Invalid(parameter, "must be one of "+strings.Join(names, ", "))
}

// etag is the part of an entity tag that an edit is held to.
func etag(version int64) string { return `"v` + strconv.FormatInt(version, 10) + `"` }

// ifMatch holds the edit of something that has this version to what the client saw. CodeIfMatch when it does not say,
// CodePrecondition when it saw another version, CodeMalformed when the header cannot be read. A weak tag never matches;
// "*" takes the version as it is found.
func ifMatch(c *fiber.Ctx) (func(version int64) error, error) {
	header := bytes.TrimSpace(c.Request().Header.Peek(fiber.HeaderIfMatch))
	if len(header) == 0 {
		return nil, models.Errorf(models.CodeIfMatch, "An edit needs If-Match with the ETag of the version that was edited.")
	}
	if string(header) == "*" {
		return func(int64) error { return nil }, nil
	}
	tags, ok := parseTags(string(header), false)
	if !ok {
		return nil, malformed(`If-Match is not "*" or a list of entity tags such as "v3".`)
	}
	return func(version int64) error {
		if slices.ContainsFunc(tags, func(tag string) bool { return versionOf(tag) == etag(version) }) {
			return nil
		}
		return models.VersionMismatch(version)
	}, nil
}

// parseTags reads a list of entity tags (RFC 9110, 8.8.3) and keeps the strong ones, and the weak ones if asked to,
// quotes included.
func parseTags(s string, weakToo bool) (tags []string, ok bool) {
	for {
		s = strings.TrimLeft(s, " \t,")
		if s == "" {
			return tags, true
		}
		tag, weak := strings.CutPrefix(s, "W/")
		if tag == "" || tag[0] != '"' {
			return nil, false
		}
		end := strings.IndexByte(tag[1:], '"')
		if end < 0 {
			return nil, false
		}
		if !weak || weakToo {
			tags = append(tags, tag[:end+2])
		}
		s = strings.TrimLeft(tag[end+2:], " \t")
		if s != "" && s[0] != ',' {
			return nil, false
		}
	}
}
