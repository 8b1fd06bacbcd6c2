package stackexchange

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/JohannesKaufmann/html-to-markdown/v2/converter"
	"github.com/JohannesKaufmann/html-to-markdown/v2/marker"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/base"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/commonmark"
	"github.com/JohannesKaufmann/html-to-markdown/v2/plugin/strikethrough"
	htmltable "github.com/JohannesKaufmann/html-to-markdown/v2/plugin/table"
	"github.com/mozillazg/go-unidecode"
	"golang.org/x/net/html"

	"likewise/models"
)

var (
	notInUsername = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)
	manyHyphens   = regexp.MustCompile(`-{2,}`)
	// Quotes inside a word are removed: O'Hara becomes OHara.
	quotes = strings.NewReplacer("'", "", `"`, "", "`", "")
)

// usernames returns candidates for the username of an imported user, the best first. They depend on the row alone, so
// every run finds the same. All but the first contain the user's id, so they are rarely taken.
func usernames(displayName string, id int64) []string {
	name := notInUsername.ReplaceAllString(quotes.Replace(unidecode.Unidecode(displayName)), "-")
	name = strings.TrimLeft(manyHyphens.ReplaceAllString(name, "-"), "-._")
	number := strconv.FormatInt(id, 10)
	long := strings.TrimRight(truncate(name, models.MaxUsername-len(number)-1), "-.")
	name = strings.TrimRight(truncate(name, models.MaxUsername), "-.")

	var names []string
	if models.ValidUsername(name) {
		names = append(names, name)
	}
	if long != "" {
		names = append(names, long+"-"+number)
	}
	for _, more := range []string{"", "-2", "-3", "-4"} {
		names = append(names, "user-"+number+more)
	}
	return names
}

func truncate(ascii string, n int) string { return ascii[:min(len(ascii), n)] }

// noText replaces a blank text, which the forum does not allow.
const noText = "(no text)"

// title converts s to a title that models.PostText allows.
func title(s string) string {
	s = strings.Join(
		strings.FieldsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f || r == utf8.RuneError }),
		" ",
	)
	if s = models.Seen(s); s == "" {
		return noText
	}
	if utf8.RuneCountInString(s) > models.MaxTitle {
		s = string([]rune(s)[:models.MaxTitle-1]) + "…"
	}
	return s
}

// tags reads names between angle brackets, or between bars as in newer dumps. It returns at most models.MaxTags valid
// ones, and how many are left out.
func tags(s string) (names models.Tags, left int) {
	all := models.NormalTags(strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune("<>|", r) }))
	names = slices.DeleteFunc(slices.Clone(all), func(name string) bool { return !models.ValidTag(name) })
	names = names[:min(len(names), models.MaxTags)]
	return names, len(all) - len(names)
}

// displayName converts a name to one that models.Profile allows; "" if nothing is left.
func displayName(name string) string {
	if name = strings.Join(
		strings.Fields(models.Seen(name)),
		" ",
	); utf8.RuneCountInString(
		name,
	) > models.MaxDisplayName {
		name = strings.TrimSpace(string([]rune(name)[:models.MaxDisplayName-1])) + "…"
	}
	if (models.Profile{DisplayName: name}).Validate() != nil {
		return ""
	}
	return name
}

// plainText returns the text of HTML, with the addresses of links and pictures, in at most limit characters. Addresses
// without a host are those of the site at base. It reports whether the text was cut.
func plainText(page, base string, limit int) (text string, tooLong bool) {
	root, err := html.Parse(strings.NewReader(page))
	if err != nil { // only the reader fails
		return "", false
	}
	var b strings.Builder
	writePlain(&b, root, base)
	var lines []string
	for line := range strings.SplitSeq(b.String(), "\n") {
		line = strings.Join(strings.Fields(line), " ")
		if line != "" || len(lines) > 0 && lines[len(lines)-1] != "" {
			lines = append(lines, line)
		}
	}
	text = strings.TrimSpace(strings.Join(lines, "\n"))
	if utf8.RuneCountInString(text) <= limit {
		return text, false
	}
	return strings.TrimSpace(string([]rune(text)[:limit-1])) + "…", true
}

// endsLine lists the elements that begin and end a line.
var endsLine = map[string]string{
	"p":          "\n\n",
	"ul":         "\n\n",
	"ol":         "\n\n",
	"blockquote": "\n\n",
	"pre":        "\n\n",
	"h1":         "\n\n",
	"h2":         "\n\n",
	"h3":         "\n\n",
	"div":        "\n",
	"li":         "\n",
	"br":         "\n",
	"hr":         "\n",
	"tr":         "\n",
	"dt":         "\n",
	"dd":         "\n",
}

func writePlain(b *strings.Builder, n *html.Node, base string) {
	switch {
	case n.Type == html.TextNode:
		b.WriteString(strings.ReplaceAll(n.Data, "\n", " "))
		return
	case n.Type != html.ElementNode:
	case n.Data == "img":
		b.WriteString(attribute(n, "alt") + " " + absolute(attribute(n, "src"), base))
	case n.Data == "li":
		b.WriteString("\n• ")
	default:
		b.WriteString(endsLine[n.Data])
	}
	for child := range n.ChildNodes() {
		writePlain(b, child, base)
	}
	if n.Type != html.ElementNode {
		return
	}
	if address := attribute(n, "href"); n.Data == "a" && address != nodeText(n) && address != "" {
		b.WriteString(" (" + absolute(address, base) + ")")
	}
	b.WriteString(endsLine[n.Data])
}

// absolute returns an address with the scheme and the host of base, if it has none. Others are returned as they are.
func absolute(address, base string) string {
	switch {
	case strings.HasPrefix(address, "//"):
		return "https:" + address
	case strings.HasPrefix(address, "/"):
		return base + address
	}
	return address
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

const wasCut = "\n\n… (cut at import)"

// shortened converts Markdown to a text that models allows, and reports whether it was cut. The cut is at the end of a
// line if the second half of the text has one, and between two characters otherwise.
func shortened(markdown string) (text string, tooLong bool) {
	markdown = strings.TrimSpace(strings.ReplaceAll(markdown, "\r\n", "\n"))
	if models.Seen(markdown) == "" {
		return noText, false
	}
	if len(markdown) <= models.MaxContent {
		return markdown, false
	}
	text = cut(markdown, models.MaxContent-len(wasCut))
	if line := strings.LastIndexByte(text, '\n'); line > len(text)/2 {
		text = text[:line]
	}
	return strings.TrimRight(text, " \n") + wasCut, true
}

// cut returns the first n bytes of s, or fewer if that would split a character.
func cut(s string, n int) string {
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// htmlConverter converts the HTML of a post to Markdown. Links without a host lead to the site of the dump.
type htmlConverter struct {
	conv *converter.Converter
	site string // its address
}

func newHTMLConverter(site string) *htmlConverter {
	conv := converter.NewConverter(converter.WithPlugins(
		base.NewBasePlugin(),
		commonmark.NewCommonmarkPlugin(),
		strikethrough.NewStrikethroughPlugin(),
		htmltable.NewTablePlugin(),
	))
	for _, name := range []string{"sub", "sup", "kbd", "ins", "u", "mark", "small"} {
		conv.Register.RendererFor(name, converter.TagTypeInline, renderInlineTag, converter.PriorityEarly)
	}
	for _, name := range []string{"dl", "dt", "dd", "details", "summary"} {
		conv.Register.RendererFor(name, converter.TagTypeBlock, renderBlockTag, converter.PriorityEarly)
	}
	conv.Register.RendererFor("#comment", converter.TagTypeBlock, renderListEnd, converter.PriorityEarly)
	conv.Register.TextTransformer(escapeReferences, converter.PriorityEarly)
	conv.Register.UnEscaper(beginsLine, converter.PriorityEarly)
	return &htmlConverter{conv, addressOf(site)}
}

// addressOf returns the address of the site of a dump.
func addressOf(site string) string {
	if strings.HasSuffix(site, ".stackexchange") {
		site += ".com" // the folders of dumps are often named without it
	}
	return "https://" + site
}

// entityInText is what Markdown resolves.
var entityInText = regexp.MustCompile(`&(#?[0-9A-Za-z]+;)`)

// escapeReferences escapes text that is a character reference in Markdown, such as "&lt;". The converter does not.
func escapeReferences(_ converter.Context, text string) string {
	return entityInText.ReplaceAllString(text, "&amp;$1")
}

// markers are the markers of quotations and lists at the beginning of a line, and the number of the next item.
var markers = regexp.MustCompile(`^(?:[ \t>]|[-*+] |[0-9]{1,9}[.)] )*[0-9]*$`)

// beginsLine keeps the escape of a character that begins a line of a quotation or a list item, as the converter does in
// a paragraph. It returns the number of characters to escape, or -1 if others decide.
func beginsLine(text []byte, i int) int {
	line := text[bytes.LastIndexByte(text[:i], '\n')+1 : i]
	line = bytes.ReplaceAll(line, marker.BytesMarkerEscaping, nil)
	if !strings.ContainsRune("#.)+->=~|", rune(text[i])) || !markers.Match(line) {
		return -1
	}
	return 1
}

// renderInlineTag keeps an element that Markdown does not have and the forum shows. Its attributes are left out.
func renderInlineTag(ctx converter.Context, w converter.Writer, n *html.Node) converter.RenderStatus {
	_, _ = w.WriteString("<" + n.Data + ">") // it writes to memory
	ctx.RenderChildNodes(ctx, w, n)
	_, _ = w.WriteString("</" + n.Data + ">")
	return converter.RenderSuccess
}

// renderBlockTag keeps an element with blocks. Empty lines are around its tags, because what follows a tag without one
// is not Markdown.
func renderBlockTag(ctx converter.Context, w converter.Writer, n *html.Node) converter.RenderStatus {
	_, _ = w.WriteString("\n\n<" + n.Data + ">\n\n") // it writes to memory
	ctx.RenderChildNodes(ctx, w, n)
	_, _ = w.WriteString("\n\n</" + n.Data + ">\n\n")
	return converter.RenderSuccess
}

// renderListEnd separates two lists that follow one another. The converter puts this comment between them, which the
// forum would show. Other comments are left out.
func renderListEnd(_ converter.Context, w converter.Writer, n *html.Node) converter.RenderStatus {
	if n.Data == "THE END" {
		_, _ = w.WriteString("\n\n<br>\n\n") // it writes to memory
	}
	return converter.RenderSuccess
}

func nodeText(n *html.Node) string {
	if n.Type == html.TextNode {
		return n.Data
	}
	var b strings.Builder
	for child := range n.ChildNodes() {
		b.WriteString(nodeText(child))
	}
	return b.String()
}

func (c *htmlConverter) markdown(body string) (string, error) {
	text, err := c.conv.ConvertString(body, converter.WithDomain(c.site))
	if err != nil {
		return "", fmt.Errorf("convert HTML: %w", err)
	}
	return text, nil
}
