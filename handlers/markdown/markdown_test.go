package markdown

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"likewise/internal/testkit"
	"likewise/models"
)

// safeAttributes lists the elements that rendered content may contain, with their attributes.
var safeAttributes = map[string][]string{
	"a": {"href", "rel", "class"}, "abbr": nil, "b": nil, "bdi": nil, "bdo": nil, "blockquote": nil, "br": nil,
	"caption": nil, "cite": nil, "code": {"class"}, "dd": nil, "del": {"datetime"}, "details": {"open"}, "dfn": nil,
	"div": {"align"}, "dl": nil, "dt": nil, "em": nil, "figcaption": nil, "figure": nil,
	"h1": {"align"}, "h2": {"align"}, "h3": {"align"}, "h4": {"align"}, "h5": {"align"}, "h6": {"align"}, "hr": nil,
	"i": nil, "input": {"type", "checked", "disabled"}, "ins": {"datetime"}, "kbd": nil, "li": {"value"}, "mark": nil,
	"ol": {"start", "type", "reversed"}, "p": {"align"}, "pre": nil, "q": nil, "rp": nil, "rt": nil, "ruby": nil,
	"s": nil, "samp": nil, "small": nil, "span": nil, "strike": nil, "strong": nil, "sub": nil, "summary": nil,
	"sup": nil, "table": {"align"}, "tbody": nil, "td": {"align", "valign", "colspan", "rowspan"}, "tfoot": nil,
	"th": {"align", "valign", "colspan", "rowspan"}, "thead": nil, "time": {"datetime"}, "tr": {"valign"}, "tt": nil,
	"u": nil, "ul": nil, "var": nil, "wbr": nil,
}

// safeEverywhere are attributes that each of the elements may have.
var safeEverywhere = []string{"title", "lang", "dir"}

var safeValues = map[string]*regexp.Regexp{
	"start": regexp.MustCompile(`^[0-9]+$`), "class": regexp.MustCompile(`^language-\S+$`),
	"align":   regexp.MustCompile(`^(left|right|center)$`),
	"checked": regexp.MustCompile(`^$`), "disabled": regexp.MustCompile(`^$`),
	"rel": regexp.MustCompile(`^nofollow ugc noopener$`), "title": regexp.MustCompile(``),
	"valign":  regexp.MustCompile(`^(top|middle|bottom|baseline)$`),
	"colspan": regexp.MustCompile(`^[1-9][0-9]?$`), "rowspan": regexp.MustCompile(`^[1-9][0-9]?$`),
	"open": regexp.MustCompile(`^(open)?$`), "reversed": regexp.MustCompile(`^(reversed)?$`),
	"value": regexp.MustCompile(`^[0-9]+$`), "datetime": regexp.MustCompile(`^[0-9A-Za-z:.+ -]+$`),
	"lang": regexp.MustCompile(`^[A-Za-z0-9-]+$`), "dir": regexp.MustCompile(`^(ltr|rtl|auto)$`),
}

// unsafeHTML parses HTML as a browser would. It returns the first part that could run, load, imitate the page or link
// to a forbidden address; "" if there is none.
func unsafeHTML(rendered string) string {
	if strings.ContainsRune(rendered, 0) {
		return "NUL"
	}
	if found := unbalanced(rendered); found != "" {
		return found
	}
	// Twice, with scripting on and off: a noscript is parsed differently. In a div, as in a page.
	for _, scripting := range []bool{true, false} {
		nodes, err := html.ParseFragmentWithOptions(strings.NewReader(rendered),
			&html.Node{Type: html.ElementNode, Data: "div", DataAtom: atom.Div},
			html.ParseOptionEnableScripting(scripting))
		if err != nil {
			return err.Error()
		}
		for _, n := range nodes {
			if found := unsafeNode(n); found != "" {
				return found
			}
		}
	}
	return ""
}

// unbalanced returns a tag that has no other half where it has to be, so that the content could close an element of the
// page around it; "" if there is none.
func unbalanced(rendered string) string {
	var open []string
	for tokens := html.NewTokenizer(strings.NewReader(rendered)); ; {
		switch kind := tokens.Next(); kind {
		case html.ErrorToken:
			return strings.Join(open, " ")
		case html.StartTagToken:
			if name := tokens.Token().Data; !slices.Contains([]string{"br", "wbr", "hr", "img", "input"}, name) {
				open = append(open, name)
			}
		case html.EndTagToken:
			name := tokens.Token().Data
			if len(open) == 0 || open[len(open)-1] != name {
				return "/" + name
			}
			open = open[:len(open)-1]
		}
	}
}

// isMention reports whether an element is a link as a mention becomes one, of which its user chose the name alone.
func isMention(n *html.Node) bool {
	text := n.FirstChild
	return n.Data == "a" && len(n.Attr) == 2 && slices.Contains(n.Attr, html.Attribute{Key: "class", Val: "mention"}) &&
		text != nil && text.Type == html.TextNode && text.NextSibling == nil && strings.HasPrefix(text.Data, "@") &&
		slices.Contains(n.Attr, html.Attribute{Key: "href", Val: "/users/" + strings.ToLower(text.Data[1:])})
}

func unsafeNode(n *html.Node) string {
	switch n.Type {
	case html.TextNode:
	case html.ElementNode:
		allowed, ok := safeAttributes[n.Data]
		if !ok || n.Namespace != "" {
			return "element " + n.Namespace + n.Data
		}
		hasRel := isMention(n)
		for _, a := range n.Attr {
			if !slices.Contains(allowed, a.Key) && !slices.Contains(safeEverywhere, a.Key) || a.Namespace != "" {
				return "attribute " + a.Key + " of " + n.Data
			}
			hasRel = hasRel || a.Key == "rel"
			var safe bool
			switch {
			case a.Key == "href":
				safe = safeHref(a.Val)
			case a.Key == "class" && n.Data == "a":
				safe = isMention(n)
			case a.Key == "type" && n.Data == "input":
				safe = a.Val == "checkbox"
			case a.Key == "type":
				safe = slices.Contains([]string{"1", "a", "A", "i", "I"}, a.Val)
			default:
				safe = safeValues[a.Key].MatchString(a.Val)
			}
			if !safe {
				return a.Key + "=" + a.Val
			}
		}
		if n.Data == "a" && !hasRel {
			return "link without rel"
		}
	default:
		return fmt.Sprintf("node of type %d: %s", n.Type, n.Data)
	}
	for c := n.FirstChild; c != nil; c = c.NextSibling {
		if found := unsafeNode(c); found != "" {
			return found
		}
	}
	return ""
}

// safeHref reads a link as a browser does, which trims it and removes tabs and line ends.
func safeHref(href string) bool {
	href = strings.TrimFunc(href, func(r rune) bool { return r <= ' ' })
	href = strings.NewReplacer("\t", "", "\n", "", "\r", "").Replace(href)
	scheme, _, ok := strings.Cut(href, ":")
	if !ok || strings.ContainsAny(scheme, "/?#") {
		return true // relative to the page
	}
	return slices.Contains(linkSchemes, strings.ToLower(scheme))
}

// moduleDir returns the directory of a required module.
func moduleDir(t *testing.T, path string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", path).Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

// published returns published attacks: those of the sanitizer's own tests, which include OWASP's list of filter
// evasions, and the test inputs of HTML parsers.
func published(t *testing.T) []string {
	t.Helper()
	var all []string
	file, err := parser.ParseFile(token.NewFileSet(),
		filepath.Join(moduleDir(t, "github.com/microcosm-cc/bluemonday"), "sanitize_test.go"), nil, 0)
	require.NoError(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if s, err := strconv.Unquote(literal.Value); err == nil {
				all = append(all, s)
			}
		}
		return true
	})
	trees := filepath.Join(moduleDir(t, "golang.org/x/net"), "html/testdata/html5lib-tests")
	cases, err := filepath.Glob(filepath.Join(trees, "tree-construction", "*.dat"))
	require.NoError(t, err)
	for _, name := range cases {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		for _, part := range strings.Split("\n"+string(text), "\n#data\n")[1:] {
			data, _, _ := strings.Cut(part, "\n#errors")
			all = append(all, data)
		}
	}
	tokens, err := filepath.Glob(filepath.Join(trees, "tokenizer", "*.test"))
	require.NoError(t, err)
	for _, name := range tokens {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		var file struct{ Tests []struct{ Input string } }
		if err := json.Unmarshal(text, &file); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, test := range file.Tests {
			all = append(all, test.Input)
		}
	}
	if len(all) < 5000 {
		t.Fatalf("only %d published attacks were found", len(all))
	}
	return all
}

// schemes are spellings of addresses that links must not have.
func schemes() []string {
	var all []string
	for _, s := range []string{"javascript:alert(1)", "vbscript:msgbox(1)", "data:text/html,<script>alert(1)</script>",
		"data:text/html;base64,PHNjcmlwdD4=",
		"data:image/svg+xml,<svg onload=alert(1)>", "file:///etc/passwd", "blob:https://a.example/1",
		"filesystem:https://a.example/x", "view-source:x", "jar:x", "about:blank",
		"livescript:x", "mocha:x", "feed:javascript:alert(1)", "intent://x#Intent;end", "ms-word:ofe|u|x", "tel:1",
		"ftp://a.example"} {
		scheme, rest, _ := strings.Cut(s, ":")
		all = append(all, s, strings.ToUpper(s), strings.ToUpper(s[:1])+s[1:],
			" "+s, "\x01"+s, "\u00a0"+s, "\ufeff"+s, scheme+" :"+rest, scheme+"&colon;"+rest, scheme+"&#58;"+rest,
			scheme+"&#x3a;"+rest, scheme+"%3a"+rest, scheme+"\uff1a"+rest,
			scheme[:2]+"\t"+scheme[2:]+":"+rest, scheme[:2]+"&Tab;"+scheme[2:]+":"+rest,
			scheme[:2]+"&NewLine;"+scheme[2:]+":"+rest, scheme[:2]+"&#10;"+scheme[2:]+":"+rest,
			scheme[:2]+"\x00"+scheme[2:]+":"+rest, scheme[:2]+"&#0;"+scheme[2:]+":"+rest,
			scheme[:2]+"\\"+scheme[2:]+":"+rest, scheme[:2]+"\u200b"+scheme[2:]+":"+rest,
			"&#"+strconv.Itoa(int(scheme[0]))+";"+s[1:], "&#x"+strconv.FormatInt(int64(scheme[0]), 16)+";"+s[1:],
			"&#000000"+strconv.Itoa(int(scheme[0]))+s[1:], "%6a"+s[1:],
			"//"+s, "/"+s, "./"+s, "?"+s, "#"+s, "x:"+s, "http:"+s, s+"//http://a.example", "\\"+s)
	}
	return all
}

// inMarkdown are the constructs of Markdown that contain an address.
var inMarkdown = []string{"[a](%s)", "[a](<%s>)", "![a](%s)", "![a](<%s>)", "<%s>", "[a]: %s\n\n[a]",
	"[a]: <%s>\n\n![a]", "[a](%s \"t\")", "[![a](%s)](%s)", "%s", "<a href=\"%s\">a</a>",
	"<a href=%s>a</a>", "<img src='%s'>", "> [a](%s)", "- [a](%s)", "|a|\n|-|\n|[a](%s)|",
	"[a](http://b.example \"%s\")", "```%s\nx\n```", "**[a](%s)**", "~~[a](%s)~~", "[a\\](%s)", "[a](\n%s\n)"}

// markup are attacks by HTML, including one for every event attribute.
func markup() []string {
	all := []string{
		`<script>alert(1)</script>`, `<script src=//a.example></script>`, `<scr<script>ipt>alert(1)</script>`,
		`<ScRiPt/x>alert(1)`, `<script`, `<svg><script>alert(1)`,
		`<svg><animate onbegin=alert(1)>`, `<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>`,
		`<iframe srcdoc="<script>alert(1)</script>">`, `<object data=x>`, `<embed src=x>`,
		`<base href=//a.example>`, `<link rel=stylesheet href=//a.example>`,
		`<meta http-equiv=refresh content="0;url=javascript:alert(1)">`,
		`<form action=//a.example><input name=password>`,
		`<button formaction=javascript:alert(1)>`, `<style>@import '//a.example'</style>`,
		`<div style="background:url(//a.example)">`, `<img src=//a.example/pixel.gif>`, `<video poster=//a.example>`,
		`<audio src=//a.example>`, `<picture><source srcset=//a.example>`, `<a ping=//a.example href=/>`,
		`<noscript><p title="</noscript><img src=x onerror=alert(1)>">`,
		`<xmp><p title="</xmp><img src=x onerror=alert(1)>">`,
		`<template><script>alert(1)</script></template>`, `<isindex action=javascript:alert(1)>`,
		`<!--><img src=x onerror=alert(1)>-->`, `<!--[if IE]><script>alert(1)</script><![endif]-->`,
		`<?xml-stylesheet href="javascript:alert(1)"?>`,
		`<![CDATA[<img src=x onerror=alert(1)>]]>`, `<!DOCTYPE html><html><body onload=alert(1)>`,
		`</p><img src=x onerror=alert(1)>`, `<p id=x name=y class=z>`, `<form id=attributes><input name=children>`,
		`<textarea><img src=x onerror=alert(1)>`, `<title><img src=x onerror=alert(1)>`, `<plaintext>`,
		`<select><option><img src=x onerror=alert(1)>`, `<details open ontoggle=alert(1)>`, `<slot>`,
		`<custom-element>`,
		`\<img src=x onerror=alert(1)\>`, "`<img src=x onerror=alert(1)>`",
		"```html\n<img src=x onerror=alert(1)>\n```", "    <img src=x onerror=alert(1)>",
		"&lt;img src=x onerror=alert(1)&gt;", "&#60;script&#62;alert(1)",
		"[<img src=x onerror=alert(1)>](http://a.example)", `![" onerror="alert(1)](http://a.example/x.png)`,
		`![a](http://a.example/x.png" onerror="alert(1))`, `[a](http://a.example/" onclick="alert(1))`,
		`[a](http://a.example "x\" onclick=\"alert(1)")`,
		"[a](http://a.example 'x\" onclick=alert(1) y=\"')", "```\"><script>alert(1)</script>\nx\n```",
		"```js onclick=alert(1)\nx\n```", "|<script>|\n|:-:|\n|<img src=x onerror=alert(1)>|",
		"http://a.example/<script>alert(1)</script>",
		"www.a.example/\"onmouseover=alert(1)", "<http://a.example/\"onclick=alert(1)>",
		"<a@b.example\"onclick=alert(1)>", "a@b.example?body=<script>", "- [ ] <input autofocus onfocus=alert(1)>",
		"{{constructor.constructor('alert(1)')()}}", "${alert(1)}",
		"\u202e<script>alert(1)</script>", "\xe2\x80\xa8<script>", "<\x00script>alert(1)</script>",
		"<img\x00src=x onerror=alert(1)>", "<img src=x\fonerror=alert(1)>", "+ADw-script+AD4-alert(1)+ADw-/script+AD4-",
		"\u00bcscript\u00bealert(1)\u00bc/script\u00be",
	}
	for a := atom.Atom(1); a < 0x100000; a++ {
		if event := a.String(); strings.HasPrefix(event, "on") && atom.Lookup([]byte(event)) == a {
			all = append(all, "<img src=x "+event+"=alert(1)>", "<svg/"+event+"=\"alert(1)\">",
				"text <b "+event+"='alert(1)'>x</b>", "<a href=\"http://a.example\" "+event+"=alert(1)>x</a>",
				"[a](http://a.example){"+event+"=alert(1)}",
				"# a {"+event+"=alert(1)}", "![a](x \"y\" "+event+"=alert(1))")
		}
	}
	return all
}

func TestMarkdown_stopsAttacks(t *testing.T) {
	t.Parallel()
	m, err := New("")
	require.NoError(t, err)
	tried := 0
	try := func(content string) {
		t.Helper()
		if !isContent(content) {
			return // refused before it is rendered
		}
		tried++
		rendered, err := m.Render(content)
		require.NoError(t, err)
		if found := unsafeHTML(rendered); found != "" {
			t.Errorf("%q becomes %q: %s", content, rendered, found)
		}
	}
	put := func(attack, place string) string {
		return strings.ReplaceAll(place, "%s", attack)
	}
	// Under the race detector, which cannot find anything in a function of one goroutine, attacks share the places.
	step := testkit.Volume(1, 5)
	for i, address := range schemes() {
		for j := i % step; j < len(inMarkdown); j += step {
			try(put(address, inMarkdown[j]))
		}
	}
	places := []string{"%s", "> - **a %s b**", "[%s](http://a.example) ![%s](/x.png)", "[x](%s) <%s>", "|a|\n|-|\n|%s|"}
	for i, attack := range append(published(t), markup()...) {
		for j := i % step; j < len(places); j += step {
			try(put(attack, places[j]))
		}
	}
	t.Logf("%d attacks", tried)
}

func isContent(s string) bool { return models.PostText{Title: "x", Content: s}.Validate() == nil }

// The oracle itself must find what is wrong.
func TestUnsafeHTML_findsWhatIsUnsafe(t *testing.T) {
	t.Parallel()
	for _, wrong := range []string{"<script>x</script>", "<p onclick=x>",
		"<a href='javascript:x' rel='nofollow ugc noopener'>x</a>",
		"<a href='\x01java\nscript:x' rel='nofollow ugc noopener'>x</a>", "<img src=x>",
		"<a href=/x>x</a>", "<!--x-->", "<svg><p></svg>", "<code class=x>", "<p id=x>", "<input type=text>",
		"<noscript><img src=x>", "<p\x00>", "</div>", "<b>x", "<b><i></b></i>",
		"<table><tr><td width=1>x</td></tr></table>",
		"<p align=x></p>", "<details open=x></details>"} {
		if unsafeHTML(wrong) == "" {
			t.Errorf("%q is called safe", wrong)
		}
	}
}

func TestMarkdown_rendersGitHubsDialect(t *testing.T) {
	t.Parallel()
	m, err := New("")
	require.NoError(t, err)
	const rel = ` rel="nofollow ugc noopener"`
	for content, want := range map[string]string{
		"a *b* **c** ~~d~~ `e`": "<p>a <em>b</em> <strong>c</strong> <del>d</del> <code>e</code></p>",
		"[a](https://b.example/c?d=e&f=g \"t\")": `<p><a href="https://b.example/c?d=e&amp;f=g" title="t"` + rel +
			`>a</a></p>`,
		"https://b.example www.c.example d@e.example": `<p><a href="https://b.example"` + rel +
			`>https://b.example</a> <a href="http://www.c.example"` + rel +
			`>www.c.example</a> <a href="mailto:d@e.example"` + rel + `>d@e.example</a></p>`,
		"[a](/users/1) [b](#c)": `<p><a href="/users/1"` + rel + `>a</a> <a href="#c"` + rel +
			`>b</a></p>`,
		"![a cat](https://b.example/cat.png \"t\")": `<p><a href="https://b.example/cat.png" title="t"` + rel +
			`>a cat</a></p>`,
		"![](https://b.example/cat.png)": `<p><a href="https://b.example/cat.png"` + rel +
			`>https://b.example/cat.png</a></p>`,
		"[![a](https://b.example)](https://c.example)": `<p><a href="https://c.example"` + rel + `>a</a> ` +
			`<a href="https://b.example"` + rel + `>(https://b.example)</a></p>`,
		"[![](https://b.example)](https://c.example)": "" +
			`<p><a href="https://c.example"` + rel + `>https://b.example</a></p>`,
		"[a](javascript:b) ![c](javascript:d)": "<p>a (javascript:b) c (javascript:d)</p>",
		"<javascript:a>":                       "<p>javascript:a</p>",
		"```go\na < b\n```":                    "<pre><code class=\"language-go\">a &lt; b\n</code></pre>",
		"3. a\n4. b":                           "<ol start=\"3\">\n<li>a</li>\n<li>b</li>\n</ol>",
		"- [x] a\n- [ ] b": "<ul>\n<li><input checked=\"\" disabled=\"\" type=\"checkbox\"> a</li>\n" +
			"<li><input disabled=\"\" type=\"checkbox\"> b</li>\n</ul>",
		"|a|b|\n|:-:|-|\n|c|`d\\|e`|": "<table>\n<thead>\n" +
			"<tr>\n<th align=\"center\">a</th>\n<th>b</th>\n</tr>\n</thead>\n<tbody>\n" +
			"<tr>\n<td align=\"center\">c</td>\n<td><code>d|e</code></td>\n</tr>\n</tbody>\n</table>",
		"a\nb": "<p>a<br>\nb</p>",
		"> a\n> > b\n>\n> - c\n>   - d": "<blockquote>\n<p>a</p>\n<blockquote>\n<p>b</p>\n</blockquote>\n" +
			"<ul>\n<li>c\n<ul>\n<li>d</li>\n</ul>\n</li>\n</ul>\n</blockquote>",
	} {
		if got, err := m.Render(content); err != nil || strings.TrimSpace(got) != want {
			t.Errorf("%q becomes\n%s, %v, want\n%s", content, got, err, want)
		}
	}
}

// Content decides how much work rendering is. Before the bounds, each of these took the renderer from a quarter of a
// second to minutes and all memory; now some 50 ms. Quadratic work would show on a machine of any speed.
func TestMarkdown_boundsItsWork(t *testing.T) {
	t.Parallel()
	m, err := New("")
	require.NoError(t, err)
	size := models.MaxContent / testkit.Volume(1, 4)
	fill := func(unit string) string { return strings.Repeat(unit, size/len(unit)) }
	tableHead := func(columns int) string {
		return strings.Repeat("a|", columns) + "\n" + strings.Repeat("-|", columns) + "\n"
	}
	contents := map[string]string{
		"empty lines in a deep list":  strings.Repeat("- ", size/4) + "a\n" + strings.Repeat("\n", size/2-2),
		"empty lines in a list":       strings.Repeat("- ", 100) + "a\n" + strings.Repeat("\n", size-202),
		"empty lines in a fence":      strings.Repeat("- ", 10) + "```\n" + strings.Repeat("\n", size-24),
		"lines after deep quotes":     strings.Repeat(">", size/2-1) + "\n" + strings.Repeat("a\n", size/4),
		"rows that leave cells out":   tableHead(1000) + strings.Repeat("a\n", size*9/20-2000),
		"many tables that leave out":  fill(tableHead(100) + strings.Repeat("a\n", 100) + "\n"),
		"cells with escapes":          "a|b\n-|-\n" + fill("`\\|`|\n")[:size-8],
		"nested emphasis":             strings.Repeat("*a ", size/6) + strings.Repeat("b* ", size/6),
		"nested links and emphasis":   strings.Repeat("*[", size/4) + strings.Repeat("](a)*", size/10),
		"nested images":               strings.Repeat("![", size/5) + "a" + strings.Repeat("](b)", size/8),
		"a link's text":               strings.Repeat("[", size/2) + strings.Repeat("]", size/2),
		"a link's address":            strings.Repeat("[a](", size/8) + strings.Repeat("]", size/2),
		"title of a definition":       "[a]: b \"" + strings.Repeat("a\n", size/2-4),
		"lists, each a little deeper": "",
	}
	for depth := 0; len(contents["lists, each a little deeper"]) < size-400; depth++ {
		contents["lists, each a little deeper"] += strings.Repeat(" ", depth) + "- a\n"
	}
	for _, unit := range []string{">", "> ", "[", "![", "*", "**a", "_", "`", "``x", "<", "(", "[a](", "- ", "1. ", "&",
		"a\n", "|", "|a", "~", "~~a", "\\", "<a ", "[]", "[x]: ", "www.", "a@b.c ", "http://a.b/(", "*a_ ", "\t- ",
		"[](", "[a](<", "[a]: b\n",
		"[a][", "![[", "- > ", "1) ", ">\n- ", "- \n\n", "*a **b ", "<!--", "<?", "&#", "a|b\n-|-\n", "www.a.b ", "a@",
		"[*", "- [x] a\n", "<a b='c' ", "http://"} {
		contents[unit+" over and over"] = fill(unit)
		contents[unit+" in lines"] = fill(strings.Repeat(unit, 100) + "\n")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var slowest time.Duration
	for name, content := range contents {
		if len(content) > size {
			t.Fatalf("%s is longer than content may be: %d", name, len(content))
		}
		start := processorTime(t)
		if _, err := m.Render(content); err != nil {
			t.Fatal(err)
		}
		took := processorTime(t) - start
		slowest = max(slowest, took)
		if took > 5*time.Second {
			t.Errorf("%s takes %v", name, took)
		}
	}
	t.Logf("the slowest took %v", slowest)
}

// processorTime returns how long this thread has run. On a busy machine, a clock also measures other processes.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	const rusageThread = 1
	var used syscall.Rusage
	require.NoError(t, syscall.Getrusage(rusageThread, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func FuzzMarkdown(f *testing.F) {
	m, err := New("")
	if err != nil {
		f.Fatal(err)
	}
	for _, s := range append(markup(),
		"# a\n\n- b\n- [x] c\n\n1. d\n\n> e\n\n```go\nf\n```\n\n|g|h|\n|-|:-:|\n|i|j|\n\n"+
			"![k](https://l.example) <https://m.example> ~~n~~ **o** _p_") {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, content string) {
		if !isContent(content) {
			return
		}
		start := time.Now()
		rendered, err := m.Render(content)
		require.NoError(t, err)
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%d bytes take %v", len(content), took)
		}
		if found := unsafeHTML(rendered); found != "" {
			t.Errorf("%q becomes %q: %s", content, rendered, found)
		}
		if again := m.policy.Sanitize(rendered); unsafeHTML(again) != "" {
			t.Errorf("%q becomes unsafe when it is sanitised again: %q", rendered, again)
		}
	})
}

func TestMarkdown_cachesByVersion(t *testing.T) {
	t.Parallel()
	post, comment := models.Target{Kind: models.KindPost, ID: 1}, models.Target{Kind: models.KindComment, ID: 1}
	m, err := New("")
	require.NoError(t, err)
	render := func(target models.Target, version int64, content string) string {
		html, err := m.HTML(target, version, content)
		require.NoError(t, err)
		return strings.TrimSpace(html)
	}
	for _, step := range []struct {
		target  models.Target
		version int64
		content string
		want    string
	}{
		{post, 0, "one", "<p>one</p>"},
		{post, 0, "not looked at", "<p>one</p>"},
		{post, 1, "two", "<p>two</p>"},
		{comment, 0, "three", "<p>three</p>"},
	} {
		if got := render(step.target, step.version, step.content); got != step.want {
			t.Errorf("%s version %d: %s, want %s", step.target, step.version, got, step.want)
		}
	}
	if n := fmt.Sprint(m.cache.EstimatedSize()); n != "3" {
		t.Errorf("%s entries, want 3", n)
	}
}
