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

	"likewise/handlers/pages"
	"likewise/models"
)

type localKey int

const (
	requestIDKey localKey = iota
	viewerKey
	addressKey    // the name of the client's address
	ruleKey       // of the route's permission
	tokenKeyOwner // hash of the token that owns the Idempotency-Key
	answerKey
	editionKey  // of the shared reads of the request
	encodedKey  // of the body, if other requests are answered with it, too
	placeKey    // in the admission.Share of the route, if it has one
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
	return id, reason, decode(c, fields{"reason": lineOf{&reason}})
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
	members, twice, ok := membersOf(body)
	if !ok {
		return malformed("The body is not a JSON object.")
	}
	if len(twice) > 0 {
		return malformed("A field is there more than once.", sorted(twice)...)
	}
	var wrong, unknown []models.FieldError
	for name, value := range members {
		target, ok := into[name]
		if !ok {
			unknown = append(unknown, models.Broken(models.FieldUnknown, "is not a field of this request").In(name))
		} else if err := decodeValue(value, target); err != nil {
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

// membersOf returns the members of a JSON object, and those whose name comes more than once: of two values, programs
// would disagree about which one counts.
func membersOf(body []byte) (members map[string]json.RawMessage, twice []models.FieldError, ok bool) {
	if err := json.Unmarshal(body, &members); err != nil || members == nil {
		return nil, nil, false
	}
	seen := map[string]bool{}
	tokens := json.NewDecoder(bytes.NewReader(body))
	_, _ = tokens.Token() // the body is valid
	for tokens.More() {
		token, _ := tokens.Token()
		name, _ := token.(string)
		var value json.RawMessage
		if err := tokens.Decode(&value); err != nil {
			return nil, nil, false
		}
		if seen[name] {
			twice = append(twice, models.Broken(models.FieldRepeated, "must be there once").In(name))
		}
		seen[name] = true
	}
	return members, twice, true
}

// decodeValue decodes a value into target. An integer can be written with a fraction of zeros or an exponent, such as
// 1.0 and 1e2: JSON Schema has one type of numbers.
func decodeValue(value json.RawMessage, target any) error {
	switch target := target.(type) {
	case json.Unmarshaler: // lineOf, linesOf
		return target.UnmarshalJSON(value)
	case *int64, **int64:
		return json.Unmarshal(integerForm(value), target)
	case *[]int64:
		var numbers []json.RawMessage
		if err := json.Unmarshal(value, &numbers); err != nil || numbers == nil {
			return err
		}
		*target = make([]int64, len(numbers))
		for i, number := range numbers {
			if string(number) == "null" {
				return json.Unmarshal(value, new([]bool)) // no list of integers
			}
			if err := json.Unmarshal(integerForm(number), &(*target)[i]); err != nil {
				return err
			}
		}
		return nil
	}
	return json.Unmarshal(value, target)
}

// integerForm returns a JSON number that is an integer of at most 19 digits in its digits alone, and every other value
// as it is.
func integerForm(value []byte) []byte {
	const digits = 19
	mantissa, exponent, _ := strings.Cut(strings.ToLower(string(bytes.TrimSpace(value))), "e")
	whole, fraction, dotted := strings.Cut(mantissa, ".")
	if !dotted && exponent == "" || whole == "" || whole[0] != '-' && (whole[0] < '0' || whole[0] > '9') {
		return value
	}
	shift := 0
	if exponent != "" {
		var err error
		if shift, err = strconv.Atoi(exponent); err != nil {
			return value
		}
	}
	fraction = strings.TrimRight(fraction, "0")
	sign := ""
	if whole[0] == '-' {
		sign, whole = "-", whole[1:]
	}
	all := strings.TrimLeft(whole+fraction, "0")
	if all == "" {
		return []byte("0")
	}
	for shift -= len(fraction); shift < 0 && strings.HasSuffix(all, "0"); shift++ {
		all = all[:len(all)-1]
	}
	if shift < 0 || shift > digits || len(all)+shift > digits {
		return value
	}
	return []byte(sign + all + strings.Repeat("0", shift))
}

// lineOf and linesOf are fields of the body with texts of one line and of several, which are cleaned.
type (
	lineOf  struct{ text *string }
	linesOf struct{ text *string }
)

func (l lineOf) UnmarshalJSON(value []byte) error { return cleaned(value, l.text, models.CleanLine) }

func (l linesOf) UnmarshalJSON(value []byte) error { return cleaned(value, l.text, models.CleanLines) }

func cleaned(value []byte, text *string, clean func(string) string) error {
	var raw *string
	if err := json.Unmarshal(value, &raw); err != nil || raw == nil {
		return err
	}
	*text = clean(*raw)
	return nil
}

// cleanOptional cleans the texts that are there.
func cleanOptional(clean func(string) string, texts ...*string) {
	for _, text := range texts {
		if text != nil {
			*text = clean(*text)
		}
	}
}

// fieldType is the JSON type of a field: its name for programs, and in words.
type fieldType struct{ name, words string }

// jsonType returns the JSON type that fits target, a pointer to a value or to a pointer to one.
func jsonType(target any) fieldType {
	t := reflect.TypeOf(target)
	if t.Kind() != reflect.Pointer {
		return fieldType{"string", "a string"} // lineOf, linesOf
	}
	t = t.Elem()
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
func numberOf(c *fiber.Ctx, name string, byDefault, limit int) (int, error) {
	if !c.Context().QueryArgs().Has(name) {
		return byDefault, nil
	}
	n, err := strconv.Atoi(c.Query(name))
	if err != nil || n < 1 || n > limit {
		return 0, models.Invalid(name, models.OutOfRange(1, int64(limit)))
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
func checkIDs(field string, ids []int64, limit int, objects string) error {
	var fault models.Fault
	switch {
	case len(ids) == 0 || len(ids) > limit:
		fault = models.WrongCount(len(ids), 1, limit)
	case slices.ContainsFunc(ids, func(id int64) bool { return id < 1 }):
		fault = models.BadFormat(models.FormatID, "")
	default:
		return nil
	}
	return models.Invalid(field, fault.Saying("must be 1 to %d ids of %s", limit, objects))
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
	tags, ok := pages.ParseTags(string(header), false)
	if !ok {
		return nil, malformed(`If-Match is not "*" or a list of entity tags such as "v3".`)
	}
	return func(version int64) error {
		if slices.ContainsFunc(tags, func(tag string) bool { return pages.VersionOf(tag) == etag(version) }) {
			return nil
		}
		return models.VersionMismatch(version)
	}, nil
}
