package handlers

import (
	_ "embed"
	"fmt"
	"net/http"
	"path"
	"sync"

	"github.com/gofiber/fiber/v2"
	"github.com/swaggest/swgui/v5/static"
	"github.com/valyala/fasthttp"

	"likewise/handlers/pages"
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

// docsRevalidated is for the contract and the page. A browser revalidates them each time: they change with a release.
const docsRevalidated = "public, no-cache"

// file is a static file.
type file struct {
	contentType string
	cache       string // Cache-Control
	policy      string // Content-Security-Policy; "" for that of all answers
	tag         string
	body        []byte
	// coded returns the compressed body, by coding; nil if that is not smaller. The first call compresses it.
	coded map[string]func() []byte
}

// The levels are higher than those of answers, because files are compressed once.
const (
	fileBrotliLevel = 6
	fileGzipLevel   = 9
)

func newFile(contentType, cache, policy string, body []byte) file {
	once := func(compress func(dst, src []byte, level int) []byte, level int) func() []byte {
		return sync.OnceValue(func() []byte {
			if small := compress(nil, body, level); len(small) < len(body) {
				return small
			}
			return nil
		})
	}
	return file{
		contentType: contentType, cache: cache, policy: policy, body: body,
		tag: pages.HashedTag(nil, pages.HashOf(body)),
		coded: map[string]func() []byte{
			"br":   once(fasthttp.AppendBrotliBytesLevel, fileBrotliLevel),
			"gzip": once(fasthttp.AppendGzipBytesLevel, fileGzipLevel),
		},
	}
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
		if known := pages.IfNoneMatch(header, f.tag); known != "" {
			c.Set(fiber.HeaderETag, known)
			c.Status(http.StatusNotModified)
			return nil
		}
	}
	body := f.body
	if coding := pages.AcceptedCoding(c); coding != pages.Identity {
		if small := f.coded[coding](); small != nil {
			c.Set(fiber.HeaderContentEncoding, coding)
			c.Set(fiber.HeaderETag, pages.WithCoding(f.tag, coding))
			body = small
		}
	}
	c.Response().SetBodyRaw(body)
	return nil
}

// files returns each file by its name. A file is read on its first request: compressing all of them takes some 0.2 s of
// one core, which no process should spend on its start.
var files = map[string]func() (file, error){
	"openapi.yaml":         ownFile("application/yaml", docsRevalidated, "", contract), // RFC 9512
	"docs.html":            ownFile(fiber.MIMETextHTMLCharsetUTF8, docsRevalidated, docsPolicy, docsPage),
	"docs.js":              ownFile("text/javascript; charset=utf-8", docsAge, "", docsScript),
	"favicon-32x32.png":    swaggerFile("image/png", "favicon-32x32.png"),
	"swagger-ui.css":       swaggerFile("text/css; charset=utf-8", "swagger-ui.css.gz"),
	"swagger-ui-bundle.js": swaggerFile("text/javascript; charset=utf-8", "swagger-ui-bundle.js.gz"),
}

func ownFile(contentType, cache, policy string, body []byte) func() (file, error) {
	return sync.OnceValues(func() (file, error) { return newFile(contentType, cache, policy, body), nil })
}

// swaggerFile returns a file of Swagger UI's module, which has its larger ones in gzip only.
func swaggerFile(contentType, name string) func() (file, error) {
	return sync.OnceValues(func() (file, error) {
		body, err := static.FS.ReadFile(name)
		if err == nil && path.Ext(name) == ".gz" {
			body, err = fasthttp.AppendGunzipBytes(nil, body)
		}
		if err != nil {
			return file{}, fmt.Errorf("docs: %s: %w", name, err)
		}
		return newFile(contentType, docsAge, "", body), nil
	})
}

// sendFile returns the handler of one file.
func sendFile(name string) fiber.Handler {
	return func(c *fiber.Ctx) error {
		f, err := files[name]()
		if err != nil {
			return err
		}
		return f.send(c)
	}
}

// rootJSON names where to begin.
type rootJSON struct {
	Docs     string `json:"docs"`
	Contract string `json:"contract"`
	Posts    string `json:"posts"`
}

// readRoot answers where people look first: it leads browsers to the front end, or to the documentation if there is no
// front end on another host, and names the paths to other clients. The redirection to the documentation is relative,
// for servers below another path.
func (s *Server) readRoot(c *fiber.Ctx) error {
	c.Vary(fiber.HeaderAccept)
	if c.Accepts(fiber.MIMEApplicationJSON, fiber.MIMETextHTML) == fiber.MIMETextHTML {
		if s.publicURL != "" && !s.publicURL.isOn(string(c.Request().Host())) {
			return c.Redirect(s.publicURL.home(), http.StatusFound)
		}
		return c.Redirect("docs", http.StatusFound)
	}
	return c.JSON(rootJSON{Docs: "/docs", Contract: "/openapi.yaml", Posts: "/v1/posts"})
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
