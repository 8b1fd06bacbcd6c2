package stackexchange

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/JohannesKaufmann/html-to-markdown/v2/converter"
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
	// Marks inside a word fall away without a trace: O'Hara is OHara.
	quotes = strings.NewReplacer("'", "", `"`, "", "`", "")
)

// usernames returns the names that a user of the dump may have here, the best first. They follow from the row alone, so
// they are the same at every run. All but the first hold the user's id, so they are rarely taken.
func usernames(displayName string, id int64) []string {
	name := notInUsername.ReplaceAllString(quotes.Replace(unidecode.Unidecode(displayName)), "-")
	name = strings.TrimLeft(manyHyphens.ReplaceAllString(name, "-"), "-._")
	number := strconv.FormatInt(id, 10)
	long := strings.TrimRight(truncate(name, models.MaxUsername-len(number)-1), "-.")
	name = strings.TrimRight(truncate(name, models.MaxUsername), "-.")

	var names []string
	if len(name) >= models.MinUsername {
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

// noText stands where a text is blank: here, none may be.
const noText = "(no text)"

// title makes a title that models.PostText allows.
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

// tags reads the names between angle brackets, or between bars in newer dumps. Names that are not valid tags are left out,
// and all beyond the number that a post may have.
func tags(s string) models.Tags {
	names := models.NormalTags(strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune("<>|", r) }))
	names = slices.DeleteFunc(names, func(name string) bool { return !models.ValidTag(name) })
	return names[:min(len(names), models.MaxTags)]
}

const wasCut = "\n\n… (cut at import)"

// content makes a content that models allows, and reports whether it was cut. It is cut between two lines if there
// is one in reach, or else between two characters.
func content(markdown string) (text string, tooLong bool) {
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

// htmlConverter turns the HTML of a post into Markdown. Links without a host mean the site that the dump is of.
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
	conv.Register.RendererFor("sup", converter.TagTypeInline, renderSuperscript, converter.PriorityStandard)
	if strings.HasSuffix(site, ".stackexchange") {
		site += ".com" // folders of dumps are often named without it
	}
	return &htmlConverter{conv, "https://" + site}
}

// renderSuperscript keeps 2<sup>10</sup> apart from 210: Markdown has no superscript. Longer texts are set that way only
// to be small.
func renderSuperscript(ctx converter.Context, w converter.Writer, n *html.Node) converter.RenderStatus {
	if !strings.ContainsAny(nodeText(n), " \n") {
		_, _ = w.WriteString("^") // it writes to memory
	}
	ctx.RenderChildNodes(ctx, w, n)
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
