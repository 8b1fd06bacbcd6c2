package pages

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
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

// Compression. A shorter body than CompressFrom fits in one or two packets anyway.
const (
	CompressFrom = 1 << 10 // bytes
	BrotliLevel  = 3       // smaller than gzip at about its cost: see docs/benchmarks.md
	GzipLevel    = 4
)

// Compress compresses the body of an answer in the coding that the request accepts, if that shrinks it.
var Compress = fasthttp.CompressHandlerBrotliLevel(func(*fasthttp.RequestCtx) {}, BrotliLevel, GzipLevel)

// Identity is the coding without compression.
const Identity = "identity"

// Encoded is a body that many requests are answered with. Its hash and its codings are computed once. It is JSON, which
// always shrinks.
type Encoded struct {
	Body   []byte
	Hash   string
	br, gz func() []byte
}

// NewEncoded returns the body in no coding yet. The caller must not change it.
func NewEncoded(body []byte) *Encoded {
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
	return Negotiate(string(bytes.Join(c.Request().Header.PeekAll(fiber.HeaderAcceptEncoding), []byte(","))))
}

// Negotiate returns the coding with the highest weight in Accept-Encoding (RFC 9110, 12.5.3): "br" or "gzip", or
// identity if neither is accepted. Of equal weights, "br" wins. Unreadable weights count as 0. A client that refuses
// identity, too, is answered with identity all the same.
func Negotiate(accept string) string {
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
	best, most := Identity, weights[Identity]
	for _, coding := range []string{"gzip", "br"} {
		weight, named := weights[coding]
		if !named {
			weight = weights["*"]
		}
		if weight > 0 && weight >= most {
			best, most = coding, weight
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
