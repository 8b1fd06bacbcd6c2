package markdown

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/models"
)

func TestExcerpt_isTheTextWithoutMarkdown(t *testing.T) {
	t.Parallel()
	parser := NewParser()
	for _, test := range []struct{ name, content, want string }{
		{"empty", "", ""},
		{"white space", " \n\n\t\u00a0\r\n ", ""},
		{"paragraphs", "One\ntwo\n\n\nthree  \nfour\\\nfive", "One two three four five"},
		{"emphasis", "a*b*c **d** ~~e~~ _f_", "abc d e f"},
		{"headings", "# One\nTwo\n===\ntext", "One Two text"},
		{"lists", "- a\n- b\n  1. c\n\n> d\n> > e\n\n- [x] done", "a b c d e done"},
		{"a rule", "a\n\n---\n\nb", "a b"},
		{"code", "Run `go  test *x*`:\n\n```go\nfunc  main() {\n\t_ = a &amp; \\*b\n}\n```\n\n    indented\n",
			`Run go test *x*: func main() { _ = a &amp; \*b } indented`},
		{"links", "See [the *docs*](https://example.com/a_b \"title\"), <https://example.com>, www.example.com.",
			"See the docs, https://example.com, www.example.com."},
		{"references", "[a][1] and [b]\n\n[1]: https://example.com\n[b]: https://example.org", "a and b"},
		{"forbidden links", "[x](javascript:alert(1)) <javascript:alert(2)>",
			"x (javascript:alert(1)) javascript:alert(2)"},
		{"images", "![a *cat*](cat.png) ![](https://example.com/x.png) [![logo](l.png)](/home)", "a cat logo"},
		{"tables", "| a | b |\n|---|---|\n| c | `d` |\n| e |", "a b c d e"},
		{"entities", "&lt;b&gt; &amp;amp; &copy; &#x41;&#66; &nbsp; &unknown; 1 &lt 2",
			"<b> &amp; © AB &unknown; 1 &lt 2"},
		{"escapes", `\*a\* \\ \<b\> \&lt; 1\. c`, `*a* \ <b> &lt; 1. c`},
		{"raw HTML", "a <b onclick=x>c</b><!-- d --> e\n\n<script>\nalert(1)\n</script>\n\n<div>f</div>\n\ng",
			"a <b onclick=x>c</b><!-- d --> e <script> alert(1) </script> f g"},
		{"tags", "x<sub>2</sub> a<br>b <details><summary>c</summary> d</details>\n\n- <p>e</p>", "x2 a b c d e"},
		{"badges", "[![build](https://a.example/b.svg)](https://a.example/ci)", "build"},
		{"text like HTML", "a < b > c & d \"e\" 'f'", "a < b > c & d \"e\" 'f'"},
		{"NUL and controls", "a\x00b\x01c\x7fd\u0085e", "a\ufffdb c d e"},
		{"scripts", "**你好**，世界\n\nПривет, *мир*\n\n<b>שלום</b> عالم", "你好，世界 Привет, мир שלום عالم"},
		{"brackets", strings.Repeat("[", 300), cutOf(strings.Repeat("[", 300))},
	} {
		assert.Equal(t, test.want, parser.Excerpt(test.content), test.name)
	}
}

// cutOf returns text as Excerpt cuts it where no word can be kept whole.
func cutOf(text string) string { return string([]rune(text)[:models.MaxExcerpt-1]) + "…" }

func TestExcerpt_isCutBetweenWords(t *testing.T) {
	t.Parallel()
	parser := NewParser()
	exact := strings.Repeat("word ", models.MaxExcerpt/5-1) + "words"
	require.Equal(t, models.MaxExcerpt, utf8.RuneCountInString(exact))
	family := "👨‍👩‍👧‍👦"
	e := "e\u0301" // é as two characters
	for _, test := range []struct{ name, content, want string }{
		{"the limit", exact, exact},
		{"one more character", exact + "x", strings.TrimSuffix(exact, " words") + "…"},
		{"a word after the limit", exact + "\n\n- x", strings.TrimSuffix(exact, " words") + "…"},
		{"only white space after the limit", exact + " \n\n  ", exact},
		{"Chinese", strings.Repeat("世界和平", 100), cutOf(strings.Repeat("世界和平", 100))},
		{"one word", strings.Repeat("x", 400), cutOf(strings.Repeat("x", 400))},
		{"a long word after a short one", "Hi " + strings.Repeat("x", 400), cutOf("Hi " + strings.Repeat("x", 400))},
		{"families", strings.Repeat(family, 50), strings.Repeat(family, (models.MaxExcerpt-1)/7) + "…"},
		{"flags", "x" + strings.Repeat("🇨🇭", 200), "x" + strings.Repeat("🇨🇭", (models.MaxExcerpt-2)/2) + "…"},
		{"accents", "x " + strings.Repeat(e, 300), "x " + strings.Repeat(e, (models.MaxExcerpt-3)/2) + "…"},
		{"one character", "x" + strings.Repeat("\u0301", 400), cutOf("x" + strings.Repeat("\u0301", 400))},
		{"an apostrophe", strings.Repeat("x", 275) + " don't go", strings.Repeat("x", 275) + "…"},
	} {
		assert.Equal(t, test.want, parser.Excerpt(test.content), test.name)
	}
}

func checkExcerpt(t *testing.T, parser *Parser, content string) {
	t.Helper()
	got := parser.Excerpt(content)
	if n := utf8.RuneCountInString(got); n > models.MaxExcerpt {
		t.Errorf("%.60q: %d characters", content, n)
	}
	if !utf8.ValidString(got) || strings.ContainsFunc(got, unicode.IsControl) ||
		got != strings.Join(strings.Fields(got), " ") {
		t.Errorf("%.60q: the excerpt is %q", content, got)
	}
}

func TestExcerpt_ofPublishedAttacksIsOneLineOfPlainText(t *testing.T) {
	t.Parallel()
	parser := NewParser()
	for _, content := range published(t) {
		checkExcerpt(t, parser, strings.ToValidUTF8(content, "?"))
	}
}

func FuzzExcerpt(f *testing.F) {
	parser := NewParser()
	f.Add("a *b*\n\n![c](d)\n\n`e`")
	f.Add(strings.Repeat("👨‍👩‍👧‍👦", 50))
	f.Fuzz(func(t *testing.T, content string) {
		if utf8.ValidString(content) {
			checkExcerpt(t, parser, content)
		}
	})
}
