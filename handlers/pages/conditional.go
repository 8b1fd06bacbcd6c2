package pages

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
)

// A strong entity tag names an answer byte by byte. It is "v3-HASH" if the content has a version, and "HASH" otherwise.
// A compressed answer has "-br" or "-gzip" appended, because a strong tag must not name two codings (RFC 9110,
// 8.8.3.3). If-None-Match needs the hash, because likes and comments change an answer without its version. If-Match
// compares the version alone, because an edit changes the content; "v3" suffices.

// HashedTag returns the handler's tag of the answer, if any, with the hash of the body.
func HashedTag(given []byte, hash string) string {
	if version, ok := strings.CutSuffix(string(given), `"`); ok {
		return version + "-" + hash + `"`
	}
	return `"` + hash + `"`
}

// HashOf returns what a tag holds of a body.
func HashOf(body []byte) string {
	sum := sha256.Sum256(body)
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

// VersionOf returns the tag of the version in an entity tag: "v3" of "v3-HASH-br".
func VersionOf(tag string) string {
	if version, _, ok := strings.Cut(tag, "-"); ok {
		return version + `"`
	}
	return tag
}

// WithCoding returns the tag of the compressed answer.
func WithCoding(tag, coding string) string { return strings.TrimSuffix(tag, `"`) + "-" + coding + `"` }

// Uncached is the default Cache-Control.
const Uncached = "no-store"

// Compression. A shorter body than compressFrom fits in one or two packets anyway.
const (
	compressFrom = 1 << 10 // bytes
	BrotliLevel  = 3       // smaller than gzip at about its cost: see docs/benchmarks.md
	GzipLevel    = 4
)

// Compress compresses the body of an answer in the coding that the request accepts, if that shrinks it.
var compress = fasthttp.CompressHandlerBrotliLevel(func(*fasthttp.RequestCtx) {}, BrotliLevel, GzipLevel)

// Identity is the coding without compression.
const Identity = "identity"

// Encoded is a body that many requests are answered with. Its hash and its codings are computed once. It is JSON, which
// always shrinks.
type Encoded struct {
	Body   []byte
	Hash   string
	br, gz func() []byte
}

// newEncoded returns the body in no coding yet. The caller must not change it.
func newEncoded(body []byte) *Encoded {
	return &Encoded{
		Body: body,
		Hash: HashOf(body),
		br:   sync.OnceValue(func() []byte { return fasthttp.AppendBrotliBytesLevel(nil, body, BrotliLevel) }),
		gz:   sync.OnceValue(func() []byte { return fasthttp.AppendGzipBytesLevel(nil, body, GzipLevel) }),
	}
}

// In returns the body in a coding that AcceptedCoding returns.
func (e *Encoded) In(coding string) []byte {
	switch coding {
	case "br":
		return e.br()
	case "gzip":
		return e.gz()
	}
	return e.Body
}

// AcceptedCoding returns the coding for the answer to a request.
func AcceptedCoding(c *fiber.Ctx) string {
	return negotiate(string(bytes.Join(c.Request().Header.PeekAll(fiber.HeaderAcceptEncoding), []byte(","))))
}

// Negotiate returns the coding with the highest weight in Accept-Encoding (RFC 9110, 12.5.3): "br" or "gzip", or
// identity if neither is accepted. Of equal weights, "br" wins. Unreadable weights count as 0. A client that refuses
// identity, too, is answered with identity all the same.
func negotiate(accept string) string {
	weights := map[string]float64{}
	for item := range strings.SplitSeq(accept, ",") {
		name, parameters, _ := strings.Cut(item, ";")
		name, weight := strings.ToLower(strings.TrimSpace(name)), 1.0
		if key, value, ok := strings.Cut(parameters, "="); ok && strings.EqualFold(strings.TrimSpace(key), "q") {
			q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil || !(q >= 0 && q <= 1) {
				q = 0
			}
			weight = q
		}
		if name == "x-gzip" { // an alias (RFC 9110, 8.4.1.3)
			name = "gzip"
		}
		weights[name] = max(weights[name], weight)
	}
	best, highest := Identity, weights[Identity]
	for _, coding := range []string{"gzip", "br"} {
		weight, named := weights[coding]
		if !named {
			weight = weights["*"]
		}
		if weight > 0 && weight >= highest {
			best, highest = coding, weight
		}
	}
	return best
}

// IfNoneMatch returns the client's tag of the answer with this tag, in any coding. It returns "" if the client does not
// have the answer or the header cannot be read. Weak tags match: a compressing proxy weakens our tags.
func IfNoneMatch(header, tag string) string {
	if strings.TrimSpace(header) == "*" {
		return tag
	}
	tags, ok := ParseTags(header, true)
	if !ok {
		return ""
	}
	for _, known := range tags {
		if known == tag || strings.HasPrefix(known, strings.TrimSuffix(tag, `"`)+"-") {
			return known
		}
	}
	return ""
}

// ParseTags reads a list of entity tags (RFC 9110, 8.8.3), quotes included. It skips weak tags unless weakToo is set.
func ParseTags(s string, weakToo bool) (tags []string, ok bool) {
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

// Represent sets the entity tag of a successful answer, answers 304 to a client that holds the answer already, and
// compresses answers to GET. Shared is its body if other requests get the same, and nil otherwise. Answers to other
// methods are not compressed: some hold a secret beside the client's own input, and the length of the compressed answer
// would leak it (BREACH).
func Represent(c *fiber.Ctx, shared *Encoded) {
	status, reads := c.Response().StatusCode(), c.Method() == fiber.MethodGet || c.Method() == fiber.MethodHead
	given := c.Response().Header.Peek(fiber.HeaderETag)
	if status < 200 || status >= 300 || !reads && len(given) == 0 {
		return
	}
	var hash string
	if shared != nil {
		hash = shared.Hash
	} else {
		hash = HashOf(c.Response().Body())
	}
	tag := HashedTag(given, hash)
	c.Set(fiber.HeaderETag, tag)
	if !reads {
		return
	}
	if string(c.Response().Header.Peek(fiber.HeaderCacheControl)) == Uncached {
		c.Set(fiber.HeaderCacheControl, "private, no-cache") // may be stored, and is revalidated each time
		c.Vary(fiber.HeaderAuthorization)
	}
	c.Vary(fiber.HeaderAcceptEncoding)
	if header := c.Get(fiber.HeaderIfNoneMatch); header != "" && status == http.StatusOK {
		if known := IfNoneMatch(header, tag); known != "" {
			c.Set(fiber.HeaderETag, known)
			c.Response().ResetBody()
			c.Status(http.StatusNotModified)
			return
		}
	}
	if len(c.Response().Body()) < compressFrom {
		return
	}
	coding := AcceptedCoding(c)
	if coding == Identity {
		return
	}
	if shared != nil {
		c.Response().SetBodyRaw(shared.In(coding))
		c.Set(fiber.HeaderContentEncoding, coding)
	} else {
		c.Request().Header.Set(fiber.HeaderAcceptEncoding, coding) // fasthttp would not understand the client's
		compress(c.Context())
	}
	if len(c.Response().Header.ContentEncoding()) > 0 { // empty if compressing would not shrink the body
		c.Set(fiber.HeaderETag, WithCoding(tag, coding))
	}
}
