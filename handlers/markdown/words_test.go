package markdown

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"
	"pgregory.net/rapid"
)

// shownText returns what a reader of the HTML can find: its text, and the values of its attributes.
func shownText(rendered string) string {
	var b, values strings.Builder
	for tokens := html.NewTokenizer(strings.NewReader(rendered)); ; {
		kind := tokens.Next()
		if kind == html.ErrorToken {
			return b.String() + values.String()
		}
		token := tokens.Token()
		if kind == html.TextToken {
			b.WriteString(token.Data)
			continue
		}
		for _, a := range token.Attr {
			values.WriteString(" " + a.Val)
			if plain, err := url.PathUnescape(a.Val); err == nil {
				values.WriteString(" " + plain)
			}
		}
	}
}

// around are constructs of Markdown and HTML, plain, wrong and hostile, each with places for words.
var around = []string{
	"%s",
	"*%s*",
	"**%s** %s",
	"~~%s~~",
	"%s~%s and %s~%s",
	"`%s`",
	"[%s](https://a.example/%s)",
	"[%s](https://a.example/%s \"%s\")",
	"[%s](javascript:%s)",
	"[%s](javascript:%s '%s')",
	"[](data:%s)",
	"![%s](%s)",
	"![%s](javascript:%s)",
	"![](javascript:%s)",
	"[![%s](https://b.example/%s)](https://a.example/%s)",
	"[![](%s)](%s)",
	"<javascript:%s>",
	"<https://a.example/%s>",
	"[%s]: %s",
	"[%s]: <%s> '%s'",
	"[%s]:%s\n[%s]:%s",
	"<b>%s</b>",
	"<b>%s",
	"%s</b>",
	"<b onclick=%s>%s</b>",
	"Vec<%s>",
	"%s<y and z>%s",
	"<%s>",
	"</%s>",
	"<%s %s='%s'>",
	"a<br>%s",
	"<p>%s</p>",
	"<p>%s",
	"<!-- %s --> %s",
	"<!--%s",
	"<![CDATA[%s]]>",
	"<?%s?>",
	"<!X %s>",
	"<table><tr><td>%s<td>%s</table>",
	"<table><tr><td>%s</tr>",
	"<td>%s</td>",
	"<ul><li>%s<li>%s</ul>",
	"<details><summary>%s</summary>%s</details>",
	"<details>\n\n%s\n\n</details>",
	"<div>%s\n\n%s",
	"<script>%s</script>",
	"<style>%s",
	"<textarea>%s</textarea>",
	"<title>%s</title>",
	"<iframe src='%s'>%s</iframe>",
	"<svg><g>%s</g></svg>",
	"<a href='https://a.example/%s'>%s</a>",
	"<a href='javascript:%s'>%s</a>",
	"<a name='%s'>%s</a>",
	"<a href='/%s'>%s <a href='/%s'>%s</a></a>",
	"<a href='/x'>https://a.example/%s [%s](/%s)</a>",
	"<img src='/%s' alt='%s' title='%s'>",
	"<img src='data:%s'>",
	"<abbr title='%s'>%s</abbr>",
	"<p style='%s'>%s</p>",
	"<div class=%s>%s</div>",
	"<ruby>%s<rt>%s</ruby>",
	"<kbd>%s</kbd><sub>%s</sub>",
	"<b>%s*a</b>%s*",
	"<ins>\n\n%s\n\n</ins>",
	"```%s\n%s\n```",
	"```%s %s\n%s\n```",
	"~~~\n%s",
	"    %s",
	"|%s|%s|\n|-|-|\n|%s|%s|%s|\n|%s|",
	"|%s|\n|-|\n|`%s`|%s|%s",
	"# %s",
	"%s\n===",
	"- %s\n  - %s",
	"1986. %s",
	"> %s\n%s",
	"- [ ] %s",
	"&amp;%s;",
	"\\%s \\<%s>",
	"https://a.example/%s",
	"https://a.example/%s*%s|%s=%s",
	"http://%s.example/?%s=%s#%s",
	"www.%s.example/%s",
	"%s@a.example",
	"“https://%s.example”",
	"(https://a.example/%s_(%s))",
	"中文https://a.example/%s。%s",
	"@%s",
	"[%s][%s",
	"![%s",
	"[%s](%s",
	"<a href='%s",
	"%s\\\n%s",
	"[%s<b>%s</b>](/%s)",
	"![%s<b>%s</b>](/%s)",
	"<h1>%s</h1>\n%s",
	"*<div>%s</div>*",
	"# <div>%s</div>",
}

// words are letters of many scripts. The generator numbers them, so that each is there once.
var words = []string{"word", "straße", "日本語", "слово", "مرحبا", "کتاب\u200cها", "ไทย", "हिन्दी", "éa", "Ünï"}

// TestRender_keepsEveryWord puts numbered words into constructs, in any order and in one another, and looks for each in
// what is shown.
func TestRender_keepsEveryWord(t *testing.T) {
	t.Parallel()
	m := markdownOf(t)
	rapid.Check(t, func(t *rapid.T) {
		var placed []string
		fill := func(form string) string {
			for strings.Contains(form, "%s") {
				word := fmt.Sprintf("%sq%dq", rapid.SampledFrom(words).Draw(t, "word"), len(placed))
				placed = append(placed, word)
				form = strings.Replace(form, "%s", word, 1)
			}
			return form
		}
		var content strings.Builder
		for range rapid.IntRange(1, 6).Draw(t, "constructs") {
			form := rapid.SampledFrom(around).Draw(t, "construct")
			if rapid.Bool().Draw(t, "nested") {
				form = strings.Replace(form, "%s", rapid.SampledFrom(around).Draw(t, "inner"), 1)
			}
			content.WriteString(fill(form) + rapid.SampledFrom([]string{"\n\n", "\n", " ", ""}).Draw(t, "after"))
		}
		rendered, err := m.Render(content.String())
		require.NoError(t, err)
		shown := shownText(rendered)
		for _, word := range placed {
			if !strings.Contains(shown, word) {
				t.Fatalf("%q is lost: %q becomes %q", word, content.String(), rendered)
			}
		}
		if found := unsafeHTML(rendered); found != "" {
			t.Fatalf("%q becomes %q: %s", content.String(), rendered, found)
		}
	})
}

// markupWord reports whether a word of content can be markup that keeps its meaning.
func markupWord(word string) bool {
	word = strings.ToLower(word)
	_, element := elements[word]
	return element || attributes[word] != nil || unwritten[word] != nil ||
		slices.Contains([]string{"nofollow", "noopener",
			"noreferrer", "ugc", "external", "blank", "self", "top", "parent", "px"}, word)
}

var (
	wordPattern = regexp.MustCompile(`[\p{L}]{2,}`)
	// outside is what has words that Markdown resolves: entities, references, and definitions.
	outside = regexp.MustCompile(`&#?[0-9A-Za-z]+;|\]\[|\]:`)
)

// checkWords checks that what is shown has the words of content.
func checkWords(t testing.TB, m *Renderer, content string) {
	t.Helper()
	if outside.MatchString(content) || !isContent(content) {
		return
	}
	rendered, err := m.Render(content)
	require.NoError(t, err)
	shown := shownText(rendered)
	for _, word := range wordPattern.FindAllString(content, -1) {
		if !strings.Contains(shown, word) && !markupWord(word) {
			t.Errorf("%q is lost: %.2000q becomes %.2000q", word, content, rendered)
		}
	}
}

func TestRender_keepsTheWordsOfAttacks(t *testing.T) {
	t.Parallel()
	m := markdownOf(t)
	for _, content := range append(published(t), markup()...) {
		checkWords(t, m, content)
		checkWords(t, m, "> - **a "+content+" b**")
	}
}

func FuzzWords(f *testing.F) {
	m := markdownOf(f)
	for _, form := range around {
		f.Add(strings.ReplaceAll(form, "%s", "word"))
	}
	f.Fuzz(func(t *testing.T, content string) { checkWords(t, m, content) })
}

// addresses are bare addresses that have to be linked whole, in all the places below.
var addresses = []string{
	"https://ja.wikipedia.org/wiki/日本語",
	"https://fr.wikipedia.org/wiki/Wikipédia:Accueil",
	"http://xn--e1afmkfd.xn--80akhbyknj4f/",
	"https://a.example/x*y|z=1",
	"https://bücher.example/x",
	"HTTPS://a.example/X",
	"https://EXAMPLE.COM/x",
	"http://127.0.0.1:8080/x",
	"http://[2001:db8::1]:80/a",
	"http://localhost:3000",
	"https://en.wikipedia.org/wiki/A_(b)",
	"https://a.example/?q=a&b=c#d",
	"https://ja.wikipedia.org/wiki/東京（曖昧）",
	"https://президент.рф/",
	"http://例え.テスト/パス",
	"https://user@a.example/~b",
	"https://a.example/a_b_c",
	"http://a",
	"https://a.example/[x]/{y}",
	"https://hi.wikipedia.org/wiki/हिन्दी",
	"https://fa.wikipedia.org/wiki/می\u200cخواهم",
	"https://a.example/l’été",
	"https://ja.wikipedia.org/wiki/レオナルド・ダ・ヴィンチ",
	"https://a.example/%E6%97%A5",
	"https://a.example/",
}

func TestRender_linksWholeAddresses(t *testing.T) {
	t.Parallel()
	m := markdownOf(t)
	places := []string{
		"%s",
		"(%s)",
		"“%s”",
		"\"%s\"",
		"'%s'",
		"「%s」",
		"（%s）",
		"[%s]",
		"{%s}",
		"«%s»",
		"请看%s。",
		"%s、%s",
		"x=%s",
		"%s.",
		"%s!",
		"%s?",
		"%s, b",
		"%s: b",
		"%s; b",
		"%s…",
		"**%s**",
		"*%s*",
		"_%s_",
		"~~%s~~",
		"**%s**然后",
		"> %s",
		"- %s\nb",
		"<p>%s</p>",
		"<div>“%s”</div>",
		"|a|\n|-|\n| %s |",
		"a\t%s\u00a0b",
		"a\u200b%s\u200bb",
		"，%s，",
		"[x %s",
		"见:%s）",
	}
	for _, address := range addresses {
		for _, place := range places {
			if strings.Contains(address, "|") && strings.Contains(place, "|") ||
				strings.ContainsAny(address, "*") && strings.HasPrefix(place, "[") {
				continue // markup of the place
			}
			content := strings.ReplaceAll(place, "%s", address)
			rendered, err := m.Render(content)
			if err != nil || strings.Count(rendered, "</a>") != strings.Count(place, "%s") ||
				strings.Count(rendered, ">"+html.EscapeString(address)+"</a>") != strings.Count(place, "%s") {
				t.Errorf("%q becomes %q, %v", content, rendered, err)
			}
		}
	}
	for content, want := range map[string]string{
		"https://example.com谢谢":      "https://example.com",
		"联系ada@example.com中文":        "ada@example.com",
		"josé@a.example":             "josé@a.example",
		"“ada@a.example”":            "ada@a.example",
		"mailto:ada@a.example":       "mailto:ada@a.example",
		"www.例え.jp/日本、":              "www.例え.jp/日本",
		"https://a.example/a&gt;":    "https://a.example/a",
		"https://a.example/?a&amp;b": "https://a.example/?a&amp;b",
		"xhttp://a.example":          "",
		"éhttps://a.example":         "", "@ada@a.example": "", "https://": "", "http://.": "",
		"www.a": "", "`https://a.example`": "", "<code>https://a.example</code>": "", "\\https://a.example": "",
	} {
		rendered, err := m.Render(content)
		if err != nil || strings.Count(rendered, "</a>") != min(1, len(want)) ||
			want != "" && !strings.Contains(rendered, ">"+want+"</a>") {
			t.Errorf("%q becomes %q, %v", content, rendered, err)
		}
	}
}

func TestRender_keepsHarmlessHTML(t *testing.T) {
	t.Parallel()
	m := markdownOf(t)
	for content, want := range map[string]string{
		"Use Vec<String>":         "<p>Use Vec&lt;String&gt;</p>",
		"if x<y and z>w":          "<p>if x&lt;y and z&gt;w</p>",
		"Array<P> and Map<P>":     "<p>Array&lt;P&gt; and Map&lt;P&gt;</p>",
		"a<br>b<BR/>c":            "<p>a<br>b<br>c</p>",
		"<p>text</p>":             "<p>text</p>",
		"<!-- c --> visible":      "<p>&lt;!-- c --&gt; visible</p>",
		"H<sub>2</sub>O <u>x</u>": "<p>H<sub>2</sub>O <u>x</u></p>",
		"<b>a *c</b> d*":          "<p>&lt;b&gt;a <em>c&lt;/b&gt; d</em></p>",
		"</div></p><b>x":          "<p>&lt;/div&gt;&lt;/p&gt;&lt;b&gt;x</p>",
		"<details open>\n<summary>s</summary>\n\n**t**\n\n</details>": "<details open=\"\">\n<summary>s</summary>\n" +
			"<p><strong>t</strong></p>\n</details>",
		"<table><tr><td>a<td colspan=2>b</table>": `<table><tr><td>a</td><td colspan="2">b</td></tr></table>`,
		"<table><tr><td>a":                        "<p>&lt;table&gt;&lt;tr&gt;&lt;td&gt;a</p>",
		"<p align=center>\n\nx\n\n</p>":           "<p align=\"center\">\n<p>x</p>\n</p>",
		"text <h2>x</h2> more":                    "text <h2>x</h2> more",
		"<script>\na(1)\n</script>":               "<p>&lt;script&gt;<br>\na(1)<br>\n&lt;/script&gt;</p>",
		"`<b>`":                                   "<p><code>&lt;b&gt;</code></p>",
		"- <b>x\n- y</b>":                         "<ul>\n<li>&lt;b&gt;x</li>\n<li>y&lt;/b&gt;</li>\n</ul>",
	} {
		if got, err := m.Render(content); err != nil || strings.TrimSpace(got) != want {
			t.Errorf("%q becomes\n%s, %v, want\n%s", content, got, err, want)
		}
	}
}

func TestRender_emphasis(t *testing.T) {
	t.Parallel()
	m := markdownOf(t)
	for content, want := range map[string]string{
		"3~5 euros and 10~20 minutes": "3~5 euros and 10~20 minutes",
		"~a~ ~~b~~ ~~~c~~~":           "~a~ <del>b</del> ~~~c~~~",
		"**「强调」**文字":                  "<strong>「强调」</strong>文字",
		"这是**“强调”**吗":                 "这是<strong>“强调”</strong>吗",
		"**注意：**请":                    "<strong>注意：</strong>请",
		"**テスト。**テスト":                 "<strong>テスト。</strong>テスト",
		"a * b * c 2*3*4":             "a * b * c 2<em>3</em>4",
		"snake_case_名前_です":            "snake_case_名前_です",
	} {
		if got, err := m.Render(content); err != nil || strings.TrimSpace(got) != "<p>"+want+"</p>" {
			t.Errorf("%q becomes\n%s, %v, want\n%s", content, got, err, want)
		}
	}
}

// An address and a mention know where a word ends in every script.
func TestInWord_knowsScriptsWithoutSpaces(t *testing.T) {
	t.Parallel()
	for _, r := range "aé9пअع_\u0301" {
		if !inWord(r) {
			t.Errorf("%q is not in a word", r)
		}
	}
	for _, r := range "日あアー가ไ។ .,。“" {
		if inWord(r) && !unicode.IsSpace(r) {
			t.Errorf("%q is in a word", r)
		}
	}
}
