package handlers

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"os"
	"testing"

	"github.com/valyala/fasthttp"
)

// BenchmarkCompress compresses a page of at most 100 posts of a real forum.
func BenchmarkCompress(b *testing.B) {
	text, err := os.ReadFile("../cmd/likewise/stackexchange/testdata/quantumcomputing.stackexchange/Posts.xml")
	if err != nil {
		b.Fatal(err)
	}
	var dump struct {
		Rows []struct {
			Title string `xml:"Title,attr"`
			Body  string `xml:"Body,attr"`
		} `xml:"row"`
	}
	if err := xml.Unmarshal(text, &dump); err != nil {
		b.Fatal(err)
	}
	page := list[postJSON]{Items: make([]postJSON, min(maxLimit, len(dump.Rows)))}
	for i := range page.Items {
		row := dump.Rows[i]
		page.Items[i] = postJSON{ID: int64(i + 1), Title: row.Title, Content: row.Body, ContentHTML: row.Body,
			Tags: []string{"a-tag"}, LikesCount: int64(i)}
	}
	body, err := json.Marshal(page)
	if err != nil {
		b.Fatal(err)
	}
	for _, coding := range []struct {
		name     string
		compress func(dst, src []byte, level int) []byte
		levels   []int
	}{{"gzip", fasthttp.AppendGzipBytesLevel, []int{1, gzipLevel, 6}},
		{"br", fasthttp.AppendBrotliBytesLevel, []int{0, brotliLevel, 2, 4}}} {
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
