package handlers

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
)

// An entity tag names an answer byte by byte: "v3-HASH" where what is shown has a version, else "HASH", with "-br" or
// "-gzip" at the end when it is compressed, because a strong tag may not stand for two codings (RFC 9110, 8.8.3.3).
// The hash is there for If-None-Match: likes and comments change an answer without changing the version. If-Match looks
// at the version alone, since an edit is of the content; "v3" will do.

// hashedTag completes the tag that the handler gave the answer, if any, with the hash of the body.
func hashedTag(given, body []byte) string {
	sum := sha256.Sum256(body)
	hash := base64.RawURLEncoding.EncodeToString(sum[:12])
	if version, ok := strings.CutSuffix(string(given), `"`); ok {
		return version + "-" + hash + `"`
	}
	return `"` + hash + `"`
}

// versionOf gives the tag of the version in an entity tag: "v3" of "v3-HASH-br".
func versionOf(tag string) string {
	if version, _, ok := strings.Cut(tag, "-"); ok {
		return version + `"`
	}
	return tag
}

// withCoding gives the tag of the compressed form.
func withCoding(tag, coding string) string { return strings.TrimSuffix(tag, `"`) + "-" + coding + `"` }

// uncached is the Cache-Control of what nobody said anything else about.
const uncached = "no-store"

// Compression. A body shorter than compressFrom fits in one or two packets anyway.
const (
	compressFrom = 1 << 10 // bytes
	brotliLevel  = 1       // as small as gzip at half its cost: see docs/measurements.md
	gzipLevel    = 5
)

var compress = fasthttp.CompressHandlerBrotliLevel(func(*fasthttp.RequestCtx) {}, brotliLevel, gzipLevel)

const identity = "identity" // no compression

// acceptedCoding returns the coding for the answer to a request.
func acceptedCoding(c *fiber.Ctx) string {
	return negotiate(string(bytes.Join(c.Request().Header.PeekAll(fiber.HeaderAcceptEncoding), []byte(","))))
}

// negotiate gives the coding of ours that the client weighs the most in Accept-Encoding (RFC 9110, 12.5.3): "br" or
// "gzip", or else identity. Of codings that weigh the same the best for us comes first. What cannot be read counts for
// nothing; that a client refuses identity too is no reason to answer nothing.
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
		if name == "x-gzip" { // the same, by RFC 9110, 8.4.1.3
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

// ifNoneMatch gives the tag of the client's copy if that is the answer with this tag; "" if the client has none or the
// header cannot be read. Weak tags count: a proxy that compresses makes weak ones of ours.
func ifNoneMatch(header, tag string) string {
	if strings.TrimSpace(header) == "*" {
		return tag
	}
	tags, ok := parseTags(header, true)
	if !ok {
		return ""
	}
	for _, known := range tags { // in whatever coding
		if known == tag || strings.HasPrefix(known, strings.TrimSuffix(tag, `"`)+"-") {
			return known
		}
	}
	return ""
}
