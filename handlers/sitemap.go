package handlers

import (
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"strconv"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
	"likewise/models/db"
)

// A sitemap (sitemaps.org) is an index of pages. Each page has the posts of a range of ids, so it stays the same while
// posts are written, and is read along the primary key.
const (
	// sitemapIDs is the width of a range. A page with so many links has less than db.PageBytes.
	sitemapIDs = 2500
	// maxSitemaps is the number of pages that an index may have.
	maxSitemaps = 50_000

	sitemapSpace = "http://www.sitemaps.org/schemas/sitemap/0.9"
)

const _ = uint(db.PageBytes - sitemapIDs*(2*maxPublicURL))

// sitemapIndex lists the pages of the sitemap.
func (s *Server) sitemapIndex(c *fiber.Ctx) error {
	return s.replyXML(c, "sitemap", mimeXML, sitemapAge, func(ctx context.Context) ([]byte, error) {
		last, err := s.content.LastPostID(ctx)
		if err != nil {
			return nil, err
		}
		pages := min((last+sitemapIDs-1)/sitemapIDs, maxSitemaps)
		return sitemap("sitemapindex", "sitemap", int(pages), func(i int) (string, time.Time) {
			return string(s.publicURL) + "/v1/sitemap/" + strconv.Itoa(i+1), time.Time{}
		})
	})
}

// sitemapPage lists the posts of a page.
func (s *Server) sitemapPage(c *fiber.Ctx) error {
	page, ok := parseID(c.Params("page"))
	if !ok || page > maxSitemaps {
		return models.Errorf(models.CodeNotFound, "The sitemap has no such page.")
	}
	return s.replyXML(c, fmt.Sprintf("sitemap=%d", page), mimeXML, sitemapAge,
		func(ctx context.Context) ([]byte, error) {
			posts, err := s.content.PostTimes(ctx, (page-1)*sitemapIDs, sitemapIDs)
			if err != nil {
				return nil, err
			}
			return sitemap("urlset", "url", len(posts), func(i int) (string, time.Time) {
				return s.publicURL.post(posts[i].ID), posts[i].ChangedAt
			})
		})
}

// sitemap returns a document with a link for each of n items, and the time of its latest change unless that is zero.
func sitemap(root, item string, n int, at func(i int) (link string, changed time.Time)) ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(xml.Header + "<" + root + ` xmlns="` + sitemapSpace + "\">\n")
	for i := range n {
		link, changed := at(i)
		b.WriteString("<" + item + "><loc>")
		if err := xml.EscapeText(&b, []byte(link)); err != nil {
			return nil, fmt.Errorf("encode a sitemap: %w", err)
		}
		b.WriteString("</loc>")
		if !changed.IsZero() {
			b.WriteString("<lastmod>" + changed.UTC().Format(time.RFC3339) + "</lastmod>")
		}
		b.WriteString("</" + item + ">\n")
	}
	b.WriteString("</" + root + ">\n")
	return b.Bytes(), nil
}
