package handlers

import (
	"bytes"
	"encoding/json"
	"mime"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

type localKey int

const (
	requestIDKey localKey = iota
	viewerKey
	ruleKey       // of the route's permission
	tokenKeyOwner // hash of the token that owns the Idempotency-Key
	answerKey
	editionKey  // of the shared reads of the request
	encodedKey  // of the body, if other requests are answered with it, too
	placeKey    // in the expensiveShare of the route, if it has one
	receivedKey // true: an upload was read to its end
)

// pathID reads the id in the path of an object of a kind, such as "post". It returns CodeNotFound if the path has
// anything but an id.
func pathID[N ~string](c *fiber.Ctx, kind N) (int64, error) {
	if id, ok := parseID(c.Params("id")); ok {
		return id, nil
	}
	return 0, models.Errorf(models.CodeNotFound, "There is no such %s.", kind)
}

// pathText reads a text in the path; "" if its escapes cannot be read.
func pathText(c *fiber.Ctx, name string) string {
	text, err := url.PathUnescape(c.Params(name))
	if err != nil {
		return ""
	}
	return strings.Clone(text)
}

// pathIDAndReason reads the id in the path, as pathID, and a body with a reason and nothing else.
func pathIDAndReason[N ~string](c *fiber.Ctx, kind N) (id int64, reason string, err error) {
	if id, err = pathID(c, kind); err != nil {
		return 0, "", err
	}
	return id, reason, decode(c, fields{"reason": &reason})
}

// pathIDAndValidReason is pathIDAndReason for callers that act before the store validates the reason.
func pathIDAndValidReason[N ~string](c *fiber.Ctx, kind N) (id int64, reason string, err error) {
	if id, reason, err = pathIDAndReason(c, kind); err != nil {
		return 0, "", err
	}
	return id, reason, models.ValidateReason(reason)
}

// parseID reads a positive integer in its canonical form.
func parseID(s string) (int64, bool) {
	id, err := strconv.ParseInt(s, 10, 64)
	return id, err == nil && id > 0 && s[0] != '0' && s[0] != '+'
}

// fields maps the members of a JSON object to pointers to their values.
type fields map[string]any

// decode reads the body, a JSON object of these fields. A null and a missing field leave the value unchanged. It
// returns 415 for another content type, CodeMalformed for invalid JSON or a wrong type, and CodeInvalid for unknown
// fields, all of which it names.
func decode(c *fiber.Ctx, into fields) error {
	kind, _, err := mime.ParseMediaType(c.Get(fiber.HeaderContentType))
	if err != nil || kind != fiber.MIMEApplicationJSON {
		return fiber.ErrUnsupportedMediaType
	}
	body := c.BodyRaw() // never decompressed: a few bytes could expand to gigabytes
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
			unknown = append(unknown, models.Broken(models.FieldUnknown, "is not a field of this request").In(name))
		} else if err := json.Unmarshal(value, target); err != nil {
			kind := jsonType(target)
			wrong = append(wrong, models.Fault{Code: models.FieldWrongType, Params: models.Params{"type": kind.name},
				Message: "must be " + kind.words}.In(name))
		}
	}
	if len(wrong) > 0 {
		return malformed("A field has the wrong type.", sorted(wrong)...)
	}
	if len(unknown) > 0 {
		return &models.Error{
			Code: models.CodeInvalid, Message: "The request has unknown fields.", Fields: sorted(unknown),
		}
	}
	return nil
}

// fieldType is the JSON type of a field: its name for programs, and in words.
type fieldType struct{ name, words string }

// jsonType returns the JSON type that fits target, a pointer to a value or to a pointer to one.
func jsonType(target any) fieldType {
	t := reflect.TypeOf(target).Elem()
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Int64:
		return fieldType{"integer", "an integer"}
	case reflect.Bool:
		return fieldType{"boolean", "true or false"}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Int64 {
			return fieldType{"integers", "a list of integers"}
		}
		return fieldType{"strings", "a list of strings"}
	}
	return fieldType{"string", "a string"}
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

// pageLimit reads ?limit=. It returns CodeInvalid unless it is a number from 1 to 100.
func pageLimit(c *fiber.Ctx) (int, error) {
	return numberOf(c, "limit", defaultLimit, maxLimit)
}

// numberOf reads a number of the query. It returns CodeInvalid unless it is from 1 to most.
func numberOf(c *fiber.Ctx, name string, byDefault, most int) (int, error) {
	if !c.Context().QueryArgs().Has(name) {
		return byDefault, nil
	}
	n, err := strconv.Atoi(c.Query(name))
	if err != nil || n < 1 || n > most {
		return 0, models.Invalid(name, models.OutOfRange(1, int64(most)))
	}
	return n, nil
}

// sortOf reads ?sort=; the first order is the default. It returns CodeInvalid for an unknown order.
func sortOf[S ~string](c *fiber.Ctx, orders ...S) (S, error) { return oneOf(c, "sort", orders...) }

// oneOf reads a parameter that is one of the words; the first is the default. It returns CodeInvalid for other words.
func oneOf[S ~string](c *fiber.Ctx, parameter string, words ...S) (S, error) {
	if !c.Context().QueryArgs().Has(parameter) {
		return words[0], nil
	}
	asked := c.Query(parameter)
	for _, word := range words {
		if string(word) == asked {
			return word, nil
		}
	}
	named := slices.DeleteFunc(slices.Clone(words), func(word S) bool { return word == "" })
	return "", models.Invalid(parameter, models.NotOneOf(named...))
}

// checkIDs returns CodeInvalid unless a field of the body has 1 to most ids of such objects.
func checkIDs(field string, ids []int64, most int, objects string) error {
	var fault models.Fault
	switch {
	case len(ids) == 0 || len(ids) > most:
		fault = models.WrongCount(len(ids), 1, most)
	case slices.ContainsFunc(ids, func(id int64) bool { return id < 1 }):
		fault = models.BadFormat(models.FormatID, "")
	default:
		return nil
	}
	return models.Invalid(field, fault.Saying("must be 1 to %d ids of %s", most, objects))
}

// etag returns the entity tag of a version, without the hash of an answer: the part that If-Match compares.
func etag(version int64) string { return `"v` + strconv.FormatInt(version, 10) + `"` }

// ifMatch reads If-Match and returns a check of the present version against it. A weak tag never matches, and "*"
// matches every version. It returns CodeIfMatch without the header and CodeMalformed if the header cannot be read. The
// check returns CodePrecondition if the client saw another version.
func ifMatch(c *fiber.Ctx) (func(version int64) error, error) {
	header := bytes.TrimSpace(c.Request().Header.Peek(fiber.HeaderIfMatch))
	if len(header) == 0 {
		return nil, models.Errorf(models.CodeIfMatch,
			"The request needs If-Match with the ETag of the version that you edited.")
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

// parseTags reads a list of entity tags (RFC 9110, 8.8.3), quotes included. It skips weak tags unless weakToo is set.
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
