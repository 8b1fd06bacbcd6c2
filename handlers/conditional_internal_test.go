package handlers

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valyala/fasthttp"

	"likewise/handlers/pages"
)

// realPage returns the JSON of a page of at most 100 posts of a real forum.
func realPage(b testing.TB) []byte {
	b.Helper()
	text, err := os.ReadFile("../cmd/likewise/stackexchange/testdata/quantumcomputing.stackexchange/Posts.xml")
	require.NoError(b, err)
	var dump struct {
		Rows []struct {
			Title string `xml:"Title,attr"`
			Body  string `xml:"Body,attr"`
		} `xml:"row"`
	}
	require.NoError(b, xml.Unmarshal(text, &dump))
	type whole struct {
		postJSON
		LikesCount int64 `json:"likes_count"`
		viewersPostJSON
	}
	page := make([]whole, min(maxLimit, len(dump.Rows)))
	for i := range page {
		row := dump.Rows[i]
		page[i].postJSON = postJSON{
			postHead: postHead{ID: int64(i + 1), Title: row.Title, Tags: []string{"a-tag"}},
			Content:  row.Body, ContentHTML: row.Body,
		}
		page[i].LikesCount = int64(i)
	}
	body, err := json.Marshal(page)
	require.NoError(b, err)
	return body
}

// A client that accepts Brotli must not get more bytes than one that does not.
func TestCompress_brotliBeatsGzip(t *testing.T) {
	t.Parallel()
	page := realPage(t)
	br := len(fasthttp.AppendBrotliBytesLevel(nil, page, pages.BrotliLevel))
	if gzip := len(fasthttp.AppendGzipBytesLevel(nil, page, pages.GzipLevel)); br >= gzip {
		t.Errorf("Brotli makes %d bytes of %d, and gzip %d", br, len(page), gzip)
	}
}

func BenchmarkCompress(b *testing.B) {
	body := realPage(b)
	for _, coding := range []struct {
		name     string
		compress func(dst, src []byte, level int) []byte
		levels   []int
	}{{"gzip", fasthttp.AppendGzipBytesLevel, []int{1, pages.GzipLevel, 5}},
		{"br", fasthttp.AppendBrotliBytesLevel, []int{1, pages.BrotliLevel, 4}}} {
		for _, level := range coding.levels {
			b.Run(fmt.Sprintf("%s-%d", coding.name, level), func(b *testing.B) {
				var out []byte
				for b.Loop() {
					out = coding.compress(out[:0], body, level)
				}
				b.ReportMetric(float64(len(body)), "B-before")
				b.ReportMetric(float64(len(out)), "B-after")
			})
		}
	}
}
