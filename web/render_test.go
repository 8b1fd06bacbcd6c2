package web

import (
	"fmt"
	"io"
	"testing"
	"time"
)

// BenchmarkThread renders a page with 100 comments, as who has signed in sees it.
func BenchmarkThread(b *testing.B) {
	s := newTestServer(b)
	ada := author{ID: 7, Username: "ada"}
	p := &threadPage{Post: &post{ID: 1, Title: "A post", Author: ada}, Mode: "tree", Sort: "old", Seen: -1}
	p.Me = &account{author: ada, Role: "user"}
	for i := range int64(100) {
		p.Comments = append(p.Comments, comment{
			ID: i + 1, PostID: 1, Author: &ada, ContentHTML: fmt.Sprintf("<p>This is comment %d.</p>\n", i),
			Status: "normal", CreatedAt: time.Now().Add(-time.Hour), Depth: 1,
			Can: commentCan{Reply: true, Like: true, Report: true},
		})
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := s.languages[0].pages["thread"].ExecuteTemplate(io.Discard, "page", p); err != nil {
			b.Fatal(err)
		}
	}
}
