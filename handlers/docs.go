package handlers

import (
	_ "embed"
	"fmt"
	"path"

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

// docsPolicy lets the page load and call nothing but this server, whatever is in the files of Swagger UI. Those set
// styles in attributes, hence unsafe-inline, and have their icons in data URLs.
const docsPolicy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self';" +
	" base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// docsAge is how long a browser may keep the page's files: they change with the release only.
const docsAge = "public, max-age=3600"

func readContract(c *fiber.Ctx) error {
	c.Set(fiber.HeaderContentType, "application/yaml") // RFC 9512
	return c.Send(contract)
}

// readDocs is the page that shows the contract and calls what it describes.
func readDocs(c *fiber.Ctx) error {
	c.Set(fiber.HeaderContentSecurityPolicy, docsPolicy)
	c.Set(fiber.HeaderContentType, fiber.MIMETextHTMLCharsetUTF8)
	return c.Send(docsPage)
}

// readDocsFile serves what the page consists of: our script, and Swagger UI out of its module, which has it compressed.
func readDocsFile(c *fiber.Ctx) error {
	name := c.Params("file")
	c.Set(fiber.HeaderCacheControl, docsAge)
	switch name {
	case "docs.js":
		c.Type("js", "utf-8")
		return c.Send(docsScript)
	case "favicon-32x32.png":
		icon, err := static.FS.ReadFile(name)
		if err != nil {
			return fmt.Errorf("docs: %w", err)
		}
		c.Type("png")
		return c.Send(icon)
	case "swagger-ui.css", "swagger-ui-bundle.js":
		zipped, err := static.FS.ReadFile(name + ".gz")
		if err != nil {
			return fmt.Errorf("docs: %w", err)
		}
		c.Type(path.Ext(name), "utf-8")
		c.Vary(fiber.HeaderAcceptEncoding)
		if c.Request().Header.HasAcceptEncoding("gzip") {
			c.Set(fiber.HeaderContentEncoding, "gzip")
			return c.Send(zipped)
		}
		if _, err := fasthttp.WriteGunzip(c.Response().BodyWriter(), zipped); err != nil {
			return fmt.Errorf("docs: %s: %w", name, err)
		}
		return nil
	}
	return fiber.ErrNotFound
}
