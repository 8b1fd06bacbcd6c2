package stackexchange

import (
	"encoding/hex"
	"flag"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"likewise/handlers/markdown"
)

// With -dump, the tests below read another dump:
// go test -tags dev ./cmd/likewise/stackexchange -run TestWords_of -v -args -dump=FOLDER.
var dumpFolder = flag.String("dump", extract, "the folder of the dump whose words are compared")

// page is what a reader finds in HTML.
type page struct {
	// text has the letters, marks and digits, in their order. A space is where the imported page may have more: around
	// pictures, and after links.
	text      string
	plain     string          // the text with plain addresses
	addresses map[string]bool // of links and pictures, plain
}

// letters returns the letters, marks and digits of a text.
func letters(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.L, unicode.M, unicode.N) {
			return r
		}
		return -1
	}, text)
}

// readPage reads HTML. An address without a host is one of the site.
func readPage(t *testing.T, source, site string) page {
	t.Helper()
	root, err := html.Parse(strings.NewReader(source))
	require.NoError(t, err)
	base, err := url.Parse(site)
	require.NoError(t, err)
	p := page{addresses: map[string]bool{}}
	var b, plain strings.Builder
	var read func(n *html.Node)
	read = func(n *html.Node) {
		if n.Type == html.TextNode {
			b.WriteString(letters(n.Data))
			plain.WriteString(plainAddress(n.Data))
			return
		}
		for _, name := range []string{"href", "src"} {
			if address := strings.TrimSpace(attribute(n, name)); address != "" {
				if u, err := base.Parse(address); err == nil {
					address = u.String()
				}
				p.addresses[plainAddress(address)] = true
			}
		}
		if n.Data == "img" {
			b.WriteString(" " + letters(attribute(n, "alt")) + " ")
		}
		for child := range n.ChildNodes() {
			read(child)
		}
		if n.Data == "a" {
			b.WriteString(" ")
		}
	}
	read(root)
	p.text, p.plain = b.String(), plain.String()
	return p
}

var percent = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)

// plainAddress returns the letters and digits of an address, however it is escaped.
func plainAddress(address string) string {
	return letters(percent.ReplaceAllStringFunc(address, func(code string) string {
		b, _ := hex.DecodeString(code[1:]) // two digits
		return string(b)
	}))
}

// lost returns what the original has and the imported page does not have.
func lost(original, imported page) (missing []string) {
	text := strings.ReplaceAll(imported.text, " ", "")
	rest := text
	for part := range strings.FieldsSeq(original.text) {
		_, after, found := strings.Cut(rest, part)
		if !found {
			missing = append(missing, fmt.Sprintf("the text %.300q, in %.300q", part, rest))
			break
		}
		rest = after
	}
	for _, address := range slices.Sorted(maps.Keys(original.addresses)) {
		if !imported.addresses[address] && !strings.Contains(imported.plain, address) {
			missing = append(missing, fmt.Sprintf("the address %q", address))
		}
	}
	return missing
}

// shownWords returns what HTML shows: its text, and the values of its attributes.
func shownWords(t *testing.T, source string) string {
	t.Helper()
	root, err := html.Parse(strings.NewReader(source))
	require.NoError(t, err)
	var b strings.Builder
	for n := range root.Descendants() {
		if n.Type == html.TextNode {
			b.WriteString(n.Data)
		}
		if n.Data == "ol" {
			items := 0
			for range n.ChildNodes() {
				fmt.Fprintf(&b, " %d ", items) // the browser numbers the items
				items++
			}
		}
		for _, a := range n.Attr {
			b.WriteString(" " + a.Val + " " + plainAddress(a.Val))
		}
	}
	return b.String()
}

// wordsSite is where the addresses without a host lead that the tests convert.
const wordsSite = "https://quantumcomputing.stackexchange.com"

func newWords(t *testing.T) (*htmlConverter, func(content string) string) {
	t.Helper()
	m, err := markdown.New("")
	require.NoError(t, err)
	return newHTMLConverter("quantumcomputing.stackexchange"), func(content string) string {
		page, err := m.Render(content)
		require.NoError(t, err)
		return page
	}
}

// No letter and no address of a post or answer is lost when its HTML becomes Markdown and that becomes the page of the
// forum.
func TestWords_ofPosts(t *testing.T) {
	t.Parallel()
	d := openWords(t)
	conv, render := newWords(t)
	texts, addresses := 0, 0
	for _, list := range []table{d.questions, d.answers} {
		for _, e := range list.rows {
			r, err := list.read(e)
			require.NoError(t, err)
			p, err := decodePost(r)
			require.NoError(t, err)
			converted, err := conv.markdown(p.body)
			require.NoError(t, err)
			stored, tooLong := shortened(converted)
			require.False(t, tooLong, "post %d is cut", p.id)
			original := readPage(t, p.body, wordsSite)
			for _, missing := range lost(original, readPage(t, render(stored), wordsSite)) {
				t.Errorf("post %d lost %s: %q becomes %q", p.id, missing, p.body, stored)
			}
			if p.title != "" && letters(title(p.title)) != letters(p.title) { // answers have none
				t.Errorf("post %d has the title %q, and got %q", p.id, p.title, title(p.title))
			}
			texts++
			addresses += len(original.addresses)
		}
	}
	t.Logf("%d posts and answers with %d addresses", texts, addresses)
}

// Comments of a dump are Markdown. Their words are shown, or are values of attributes.
func TestWords_ofComments(t *testing.T) {
	t.Parallel()
	d := openWords(t)
	_, render := newWords(t)
	comments, words := 0, 0
	for _, e := range d.comments.rows {
		r, err := d.comments.read(e)
		require.NoError(t, err)
		c, err := decodeComment(r)
		require.NoError(t, err)
		stored, tooLong := shortened(c.text)
		require.False(t, tooLong, "comment %d is cut", c.id)
		shown := shownWords(t, render(stored))
		between := func(r rune) bool { return letters(string(r)) == "" }
		for _, word := range strings.FieldsFunc(html.UnescapeString(c.text), between) {
			if words++; !strings.Contains(shown, word) {
				t.Errorf("comment %d lost %q: %q becomes %q", c.id, word, c.text, shown)
			}
		}
		comments++
	}
	t.Logf("%d comments with %d words", comments, words)
}

// A user keeps the name and the text of the profile, with its addresses.
func TestWords_ofUsers(t *testing.T) {
	t.Parallel()
	d := openWords(t)
	names, bios := 0, 0
	for _, e := range d.users.rows {
		r, err := d.users.read(e)
		require.NoError(t, err)
		u, err := decodeUser(r)
		require.NoError(t, err)
		if got := displayName(u.displayName); got != strings.Join(strings.Fields(u.displayName), " ") {
			t.Errorf("user %d has the name %q, and got %q", u.id, u.displayName, got)
		}
		names++
		if u.about == "" {
			continue
		}
		bios++
		text, _ := plainText(u.about, wordsSite, len(u.about)*3)
		imported := page{text: letters(text), plain: plainAddress(text)}
		for _, missing := range lost(readPage(t, u.about, wordsSite), imported) {
			t.Errorf("user %d lost %s: %q becomes %q", u.id, missing, u.about, text)
		}
	}
	t.Logf("%d names and %d profiles", names, bios)
}

func openWords(t *testing.T) *dump {
	t.Helper()
	d, err := openDump(t.Context(), *dumpFolder, func(int64, int64) {})
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// allowedHTML has every element that the sites of dumps allow, alone and in one another.
var allowedHTML = []string{
	`<h1>One <em>a</em></h1><h2>Two</h2><h3>Three</h3><hr><p>a<br>b</p>`,
	`<p>H<sub>2</sub>O, 2<sup>10</sup>, x<sup>a b</sup>, <sup>` +
		`<a href="/n">[1]</a></sup> <kbd>Ctrl</kbd>+<kbd>*</kbd></p>`,
	`<p><b>b</b><strong>s</strong><i>i</i><em>e</em>` +
		`<s>s</s><strike>st</strike><del>d</del><code>a` + "`" + `b</code></p>`,
	`<p>in<b>side</b>words, 日<b>「本」</b>語, <b>a </b>b, <em>(</em>c, a<em>*</em>b</p>`,
	`<ul><li>one<ul><li>two</li></ul></li><li><p>three</p><pre><code>four
</code></pre></li></ul>`,
	`<ol start="1986"><li>a</li></ol><ol><li>b</li></ol><ul><li>c</li></ul><ul><li>d</li></ul>`,
	`<blockquote class="spoiler"><p>a</p><blockquote><p>b</p></blockquote></blockquote>`,
	`<dl><dt>Term *a*</dt><dd>Text <b>b</b> x_y_z</dd><dd><p>c</p><ul><li>d</li></ul></dd></dl>`,
	`<details><summary>Sum <b>a</b></summary><p>b</p><p>c</p></details>`,
	`<table><thead><tr><th>a</th><th>b|c</th></tr></thead><tbody>` +
		`<tr><td>d</td><td><code>e|f</code></td></tr></tbody></table>`,
	`<pre class="lang-go prettyprint-override"><code>a &lt; b &amp;&amp; ` + "```" + ` *c*
</code></pre>`,
	`<p>Vec&lt;String&gt; &lt;b&gt; &amp;lt; &lt;!-- c --&gt; \ \* [a](b) $a_1 * b_2 * c$ # d</p>` +
		`<p># e</p><p>1. f</p><p>- g</p>`,
	`<p><a href="/q/1" title="the &quot;title&quot;">see</a>` +
		` <a href="https://a.example/x_(y)">x_y</a> <a href="#d">e</a></p>`,
	`<p><a href="https://a.example/a b?q=[c]&amp;d=%e6%97%a5">f</a>` +
		` <a href="mailto:ada@a.example">m</a> <a href="ftp://a.example/g">g</a></p>`,
	`<p><a href="https://a.example/ö">https://a.example/ö</a>` +
		` <a href="//b.example/h">h</a> <a href="https://c.example/"></a></p>`,
	`<p><img src="https://i.example/a.png" alt="a [b]" title="c">` +
		` <img src="/d.png"> <a href="/e"><img src="//i.example/f.png" alt="g"></a></p>`,
	`<p><a href="/h"><img src="https://i.example/i.png"></a>` +
		` <a href="/j"><b>k</b> <code>l</code></a><br><sup>m</sup></p>`,
	`<p><sup><br>a *b*</sup></p><p>c<br><sub>d</sub></p><p><kbd><code>e</code></kbd></p>`,
	`<p>line
of text</p><div>block</div>text<p>@name https://a.example/b.</p>`,
}

func TestWords_ofEveryElement(t *testing.T) {
	t.Parallel()
	conv, render := newWords(t)
	for _, body := range allowedHTML {
		for _, around := range []string{"%s", "<blockquote>%s</blockquote>", "<ul><li>%s</li><li>%[1]s</li></ul>"} {
			source := fmt.Sprintf(around, body)
			converted, err := conv.markdown(source)
			require.NoError(t, err)
			shown := render(converted)
			for _, missing := range lost(readPage(t, source, wordsSite), readPage(t, shown, wordsSite)) {
				t.Errorf("%q becomes %q, %q, and lost %s", source, converted, shown, missing)
			}
		}
	}
	for body, want := range map[string]string{
		"<p>H<sub>2</sub>O <kbd>a_b</kbd></p>": "<p>H<sub>2</sub>O <kbd>a_b</kbd></p>",
		"<dl><dt>a</dt><dd>b *c*</dd></dl>": "<dl>\n<dt>\n<p>a</p>\n</dt>\n" +
			"<dd>\n<p>b *c*</p>\n</dd>\n</dl>",
		"<ul><li>a</li></ul><ul><li>b</li></ul>": "<ul>\n<li>a</li>\n</ul>\n<p><br></p>\n" +
			"<ul>\n<li>b</li>\n</ul>",
		"<p>a</p><!-- b --><p>c</p>": "<p>a</p>\n<p>c</p>",
		"<details><summary>a</summary><p>b</p></details>": "<details>\n<summary>\n<p>a</p>\n</summary>\n" +
			"<p>b</p>\n</details>",
	} {
		converted, err := conv.markdown(body)
		require.NoError(t, err)
		require.Equal(t, want, strings.TrimSpace(render(converted)), converted)
	}
}
