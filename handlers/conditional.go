package handlers

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

// hashedTag returns the handler's tag of the answer, if any, with the hash of the body.
func hashedTag(given []byte, hash string) string {
	if version, ok := strings.CutSuffix(string(given), `"`); ok {
		return version + "-" + hash + `"`
	}
	return `"` + hash + `"`
}

// hashOf returns what a tag holds of a body.
func hashOf(body []byte) string {
	sum := sha256.Sum256(body)
	return base64.RawURLEncoding.EncodeToString(sum[:12])
}

// versionOf returns the tag of the version in an entity tag: "v3" of "v3-HASH-br".
func versionOf(tag string) string {
	if version, _, ok := strings.Cut(tag, "-"); ok {
		return version + `"`
	}
	return tag
}

// withCoding returns the tag of the compressed answer.
func withCoding(tag, coding string) string { return strings.TrimSuffix(tag, `"`) + "-" + coding + `"` }

// uncached is the default Cache-Control.
const uncached = "no-store"

// Compression. A shorter body than compressFrom fits in one or two packets anyway.
const (
	compressFrom = 1 << 10 // bytes
	brotliLevel  = 3       // smaller than gzip at about its cost: see docs/benchmarks.md
	gzipLevel    = 4
)

var compress = fasthttp.CompressHandlerBrotliLevel(func(*fasthttp.RequestCtx) {}, brotliLevel, gzipLevel)

const identity = "identity" // no compression

// encoded is a body that many requests are answered with. Its hash and its codings are computed once. It is JSON, which
// always shrinks.
type encoded struct {
	body   []byte
	hash   string
	br, gz func() []byte
}

func newEncoded(body []byte) *encoded {
	return &encoded{
		body: body,
		hash: hashOf(body),
		br:   sync.OnceValue(func() []byte { return fasthttp.AppendBrotliBytesLevel(nil, body, brotliLevel) }),
		gz:   sync.OnceValue(func() []byte { return fasthttp.AppendGzipBytesLevel(nil, body, gzipLevel) }),
	}
}

// in returns the body in a coding that acceptedCoding returns.
func (e *encoded) in(coding string) []byte {
	switch coding {
	case "br":
		return e.br()
	case "gzip":
		return e.gz()
	}
	return e.body
}

// acceptedCoding returns the coding for the answer to a request.
func acceptedCoding(c *fiber.Ctx) string {
	return negotiate(string(bytes.Join(c.Request().Header.PeekAll(fiber.HeaderAcceptEncoding), []byte(","))))
}

// negotiate returns the coding with the highest weight in Accept-Encoding (RFC 9110, 12.5.3): "br" or "gzip", or
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
	best, most := identity, weights[identity]
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

// ifNoneMatch returns the client's tag of the answer with this tag, in any coding. It returns "" if the client does not
// have the answer or the header cannot be read. Weak tags match: a compressing proxy weakens our tags.
func ifNoneMatch(header, tag string) string {
	if strings.TrimSpace(header) == "*" {
		return tag
	}
	tags, ok := parseTags(header, true)
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
