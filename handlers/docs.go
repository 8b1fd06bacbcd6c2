package handlers

import (
	_ "embed"
	"fmt"
	"net/http"
	"sync"

	"github.com/gofiber/fiber/v2"
	"github.com/swaggest/swgui/v5/static"
	"github.com/valyala/fasthttp"
)

//go:embed openapi.yaml
var contract []byte

//go:embed docs.html
var docsPage []byte

//go:embed docs.js
var docsScript []byte

// docsPolicy lets the page load from and call this server alone, whatever the files of Swagger UI contain. They set
// styles in attributes, hence unsafe-inline, and have icons in data URLs.
const docsPolicy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; " +
	"img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// docsAge is how long a browser may cache the page's files, which change only with a release.
const docsAge = "public, max-age=3600"

// file is a static file in every coding, compressed when the process starts.
type file struct {
	contentType string
	cache       string // Cache-Control
	policy      string // Content-Security-Policy; "" for that of all answers
	tag         string
	coded       map[string][]byte // by coding; always has identity
}

// The levels are higher than those of answers, because files are compressed once.
const (
	fileBrotliLevel = 6
	fileGzipLevel   = 9
)

func newFile(contentType, cache, policy string, body []byte) file {
	f := file{
		contentType: contentType, cache: cache, policy: policy, tag: hashedTag(nil, body),
		coded: map[string][]byte{identity: body},
	}
	for coding, small := range map[string][]byte{
		"br":   fasthttp.AppendBrotliBytesLevel(nil, body, fileBrotliLevel),
		"gzip": fasthttp.AppendGzipBytesLevel(nil, body, fileGzipLevel),
	} {
		if len(small) < len(body) {
			f.coded[coding] = small
		}
	}
	return f
}

// send answers with the file in the client's preferred coding, without copying it.
func (f file) send(c *fiber.Ctx) error {
	c.Set(fiber.HeaderContentType, f.contentType)
	c.Set(fiber.HeaderCacheControl, f.cache)
	if f.policy != "" {
		c.Set(fiber.HeaderContentSecurityPolicy, f.policy)
	}
	c.Vary(fiber.HeaderAcceptEncoding)
	c.Set(fiber.HeaderETag, f.tag)
	if header := c.Get(fiber.HeaderIfNoneMatch); header != "" {
		if known := ifNoneMatch(header, f.tag); known != "" {
			c.Set(fiber.HeaderETag, known)
			c.Status(http.StatusNotModified)
			return nil
		}
	}
	coding := acceptedCoding(c)
	body, ok := f.coded[coding]
	if !ok {
		coding, body = identity, f.coded[identity]
	}
	if coding != identity {
		c.Set(fiber.HeaderContentEncoding, coding)
		c.Set(fiber.HeaderETag, withCoding(f.tag, coding))
	}
	c.Response().SetBodyRaw(body)
	return nil
}

// files returns all files by name. It compresses them once for the process, which takes some 0.2 s of one core.
var files = sync.OnceValues(func() (map[string]file, error) {
	// A cached contract or page is revalidated each time: they change with a release.
	const revalidated = "public, no-cache"
	all := map[string]file{
		"openapi.yaml": newFile("application/yaml", revalidated, "", contract), // RFC 9512
		"docs.html":    newFile(fiber.MIMETextHTMLCharsetUTF8, revalidated, docsPolicy, docsPage),
		"docs.js":      newFile("text/javascript; charset=utf-8", docsAge, "", docsScript),
	}
	icon, err := static.FS.ReadFile("favicon-32x32.png")
	if err != nil {
		return nil, fmt.Errorf("docs: %w", err)
	}
	all["favicon-32x32.png"] = newFile("image/png", docsAge, "", icon)
	for name, contentType := range map[string]string{
		"swagger-ui.css":       "text/css; charset=utf-8",
		"swagger-ui-bundle.js": "text/javascript; charset=utf-8",
	} {
		zipped, err := static.FS.ReadFile(name + ".gz") // its module has no uncompressed ones
		if err != nil {
			return nil, fmt.Errorf("docs: %w", err)
		}
		body, err := fasthttp.AppendGunzipBytes(nil, zipped)
		if err != nil {
			return nil, fmt.Errorf("docs: %s: %w", name, err)
		}
		all[name] = newFile(contentType, docsAge, "", body)
	}
	return all, nil
})

// sendFile returns the handler of one file.
func sendFile(name string) fiber.Handler {
	return func(c *fiber.Ctx) error {
		all, err := files()
		if err != nil {
			return err
		}
		return all[name].send(c)
	}
}

// sendDocsFile serves the files of the page at /docs: our script, and those of Swagger UI's module.
func sendDocsFile(c *fiber.Ctx) error {
	name := c.Params("file")
	switch name {
	case "docs.js", "favicon-32x32.png", "swagger-ui.css", "swagger-ui-bundle.js":
		return sendFile(name)(c)
	}
	return fiber.ErrNotFound
}
