package handlers

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/maypok86/otter/v2"
	"github.com/microcosm-cc/bluemonday"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"likewise/models"
)

// markdown renders content, GitHub's dialect, to HTML that is safe to put into a page: raw HTML is left out by the
// renderer, and what is left passes the sanitiser all the same. Reading it tells nobody: an image becomes a link to it,
// so that nothing is fetched from elsewhere until the reader asks. What was rendered is cached by version, so an edit
// needs no invalidation.
type markdown struct {
	converter goldmark.Markdown
	policy    *bluemonday.Policy
	cache     *otter.Cache[markdownKey, string]
}

type markdownKey struct {
	models.Target
	version int64
}

// maxMarkdown bounds the HTML that is cached, in bytes.
const maxMarkdown = 64 << 20

// markdownLife is how long HTML is cached. A version that was redacted is not asked for again, but its HTML must not stay
// in memory for good.
const markdownLife = time.Hour

func newMarkdown() (*markdown, error) {
	cache, err := otter.New(&otter.Options[markdownKey, string]{
		ExpiryCalculator: otter.ExpiryWriting[markdownKey, string](markdownLife),
		MaximumWeight:    maxMarkdown,
		Weigher:          func(_ markdownKey, html string) uint32 { return uint32(len(html)) + 100 }, // 100 for the entry itself
	})
	if err != nil {
		return nil, fmt.Errorf("markdown cache: %w", err)
	}
	return &markdown{converter: newConverter(), policy: newPolicy(), cache: cache}, nil
}

// html gives the HTML of a target's content in this version. Whoever asks for it while it is made waits for it.
func (m *markdown) html(target models.Target, version int64, content string) (string, error) {
	return m.cache.Get(context.Background(), markdownKey{target, version}, otter.LoaderFunc[markdownKey, string](
		func(context.Context, markdownKey) (string, error) {
			html, err := m.render(content)
			if err != nil {
				return "", fmt.Errorf("render %s: %w", target, err)
			}
			return html, nil
		}))
}

func (m *markdown) render(content string) (string, error) {
	source, doc := m.parse(content)
	var raw bytes.Buffer
	if err := m.converter.Renderer().Render(&raw, source, doc); err != nil {
		return "", err
	}
	return m.policy.SanitizeReader(&raw).String(), nil
}

// parse gives the tree of content, and the source that its nodes refer to.
func (m *markdown) parse(content string) ([]byte, ast.Node) {
	if strings.Count(content, "\n") > maxLines {
		content = blankLines.ReplaceAllString(content, "\n\n\n")
	}
	source := []byte(content)
	return source, m.converter.Parser().Parse(text.NewReader(source))
}

// linkRel tells browsers and search engines that a link is a visitor's.
const linkRel = "nofollow ugc noopener"

// linkSchemes are what a link may lead to, besides places of the site itself.
var linkSchemes = []string{"http", "https", "mailto"}

// newPolicy allows what the converter makes, and nothing else. Neither id nor name is among it: a page's scripts would
// take elements that have them for their own.
func newPolicy() *bluemonday.Policy {
	p := bluemonday.NewPolicy()
	p.AllowElements("p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote", "pre", "code", "em", "strong", "del",
		"ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td")
	p.AllowAttrs("start").Matching(bluemonday.Integer).OnElements("ol")
	p.AllowAttrs("class").Matching(regexp.MustCompile(`^language-[A-Za-z0-9+#._-]{1,40}$`)).OnElements("code")
	p.AllowAttrs("align").Matching(regexp.MustCompile(`^(left|center|right)$`)).OnElements("th", "td")
	p.AllowAttrs("type").Matching(regexp.MustCompile(`^checkbox$`)).OnElements("input")
	p.AllowAttrs("checked", "disabled").Matching(regexp.MustCompile(`^$`)).OnElements("input")
	p.AllowAttrs("href", "title").OnElements("a")
	p.AllowAttrs("rel").Matching(regexp.MustCompile("^" + linkRel + "$")).OnElements("a")
	p.RequireParseableURLs(true)
	p.AllowRelativeURLs(true)
	p.AllowURLSchemes(linkSchemes...)
	return p
}

// Bounds on what content can make the parser do. It is quadratic in each, and worse than that in the depth of lists.
// What is beyond them stays text.
const (
	maxNesting    = 20   // blocks within blocks; a list counts twice, for itself and its item
	maxBrackets   = 400  // that may open a link, in one paragraph
	maxDelimiters = 1500 // runs of *, _ or ~, in one paragraph
	maxCells      = 4000 // of all tables together, those included that rows leave out
	maxLines      = 5000 // with more than that, two empty lines in a row are enough
)

// Each list that is open looks at each empty line.
var blankLines = regexp.MustCompile(`\n[ \t\r]*\n[ \t\r]*\n(?:[ \t\r]*\n)+`)

var (
	bracketsKey   = parser.NewContextKey()
	delimitersKey = parser.NewContextKey()
	cellsKey      = parser.NewContextKey()
)

func newConverter() goldmark.Markdown {
	blocks := parser.DefaultBlockParsers()
	for i, p := range blocks {
		switch p.Value {
		case parser.NewBlockquoteParser(), parser.NewListParser():
			blocks[i].Value = shallow{p.Value.(parser.BlockParser)}
		}
	}
	inlines := parser.DefaultInlineParsers()
	for i, p := range inlines {
		switch p.Value {
		case parser.NewLinkParser():
			inlines[i].Value = fewLinks{p.Value.(linkParser)}
		case parser.NewEmphasisParser():
			inlines[i].Value = fewDelimiters{p.Value.(parser.InlineParser)}
		}
	}
	paragraphs := append(parser.DefaultParagraphTransformers(), util.Prioritized(fewCells{extension.NewTableParagraphTransformer()}, 200))
	inlines = append(inlines, util.Prioritized(fewDelimiters{extension.NewStrikethroughParser()}, 500))
	return goldmark.New(
		goldmark.WithParser(parser.NewParser(
			parser.WithBlockParsers(blocks...),
			parser.WithInlineParsers(inlines...),
			parser.WithParagraphTransformers(paragraphs...),
			parser.WithASTTransformers(util.Prioritized(extension.NewTableASTTransformer(), 0), util.Prioritized(visitorsLinks{}, 1000)),
		)),
		goldmark.WithRendererOptions(renderer.WithNodeRenderers(
			util.Prioritized(extension.NewStrikethroughHTMLRenderer(), 500),
			// A style would be one more language to keep safe.
			util.Prioritized(extension.NewTableHTMLRenderer(extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)), 500),
		)),
		goldmark.WithExtensions(extension.Linkify, extension.TaskList),
	)
}

// shallow opens no block deeper than maxNesting.
type shallow struct{ parser.BlockParser }

func (p shallow) Open(parent ast.Node, reader text.Reader, pc parser.Context) (ast.Node, parser.State) {
	depth := 0
	for n := parent; n != nil; n = n.Parent() {
		depth++
	}
	line, segment := reader.Position()
	node, state := p.BlockParser.Open(parent, reader, pc) // always: the parser of lists keeps notes in pc
	if node != nil && depth > maxNesting {
		reader.SetPosition(line, segment)
		return nil, parser.NoChildren
	}
	return node, state
}

// linkParser is what goldmark's own parser of links can do.
type linkParser interface {
	parser.InlineParser
	parser.CloseBlocker
}

// fewLinks opens at most maxBrackets links in a paragraph.
type fewLinks struct{ linkParser }

func (p fewLinks) Parse(parent ast.Node, block text.Reader, pc parser.Context) ast.Node {
	if block.Peek() != ']' && !countTo(maxBrackets, bracketsKey, pc) {
		return nil
	}
	return p.linkParser.Parse(parent, block, pc)
}

func (p fewLinks) CloseBlock(parent ast.Node, block text.Reader, pc parser.Context) {
	p.linkParser.CloseBlock(parent, block, pc)
	pc.Set(bracketsKey, nil)
	pc.Set(delimitersKey, nil)
}

// fewDelimiters takes at most maxDelimiters runs of characters in a paragraph for emphasis.
type fewDelimiters struct{ parser.InlineParser }

func (p fewDelimiters) Parse(parent ast.Node, block text.Reader, pc parser.Context) ast.Node {
	if !countTo(maxDelimiters, delimitersKey, pc) {
		return nil
	}
	return p.InlineParser.Parse(parent, block, pc)
}

// fewCells makes tables of at most maxCells together. A row gets as many cells as the table has columns, so a few
// characters can ask for thousands.
type fewCells struct{ parser.ParagraphTransformer }

func (p fewCells) Transform(node *ast.Paragraph, reader text.Reader, pc parser.Context) {
	columns := 0
	for _, line := range node.Lines().Sliced(0, node.Lines().Len()) {
		if row := line.Value(reader.Source()); len(bytes.Trim(row, "-:| \t\r\n")) == 0 {
			columns = max(columns, bytes.Count(row, []byte("|"))+1)
		}
	}
	if columns > 0 {
		cells, _ := pc.Get(cellsKey).(int)
		cells += columns * node.Lines().Len()
		pc.Set(cellsKey, cells)
		if cells > maxCells {
			return
		}
	}
	p.ParagraphTransformer.Transform(node, reader, pc)
}

// countTo counts one more of what key stands for, and reports whether that is not too many.
func countTo(most int, key parser.ContextKey, pc parser.Context) bool {
	n, _ := pc.Get(key).(int)
	pc.Set(key, n+1)
	return n < most
}

// visitorsLinks makes every link one that says whose it is, images links to what they would show, and text of links
// that lead nowhere good.
type visitorsLinks struct{}

func (visitorsLinks) Transform(doc *ast.Document, reader text.Reader, _ parser.Context) {
	var found []ast.Node
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // it never fails
		switch n.(type) {
		case *ast.Link, *ast.Image, *ast.AutoLink:
			if entering {
				found = append(found, n)
			}
		}
		return ast.WalkContinue, nil
	})
	for _, n := range found {
		switch n := n.(type) {
		case *ast.Link:
			if !linkable(n.Destination) {
				unwrap(n)
			}
		case *ast.Image:
			link := ast.NewLink()
			link.Destination, link.Title = n.Destination, n.Title
			if linkable(n.Destination) && !inLink(n) {
				n.Parent().ReplaceChild(n.Parent(), n, link)
				adopt(link, n)
				if !link.HasChildren() {
					link.AppendChild(link, ast.NewString(n.Destination))
				}
				link.SetAttributeString("rel", []byte(linkRel))
			} else {
				unwrap(n)
			}
			continue
		case *ast.AutoLink:
			if !linkable(n.URL(reader.Source())) {
				n.Parent().ReplaceChild(n.Parent(), n, ast.NewString(n.Label(reader.Source())))
			}
		}
		n.SetAttributeString("rel", []byte(linkRel))
	}
}

// linkable reports whether a link may lead there.
func linkable(destination []byte) bool {
	u, err := url.Parse(string(destination))
	return err == nil && len(destination) > 0 && (u.Scheme == "" || slices.Contains(linkSchemes, u.Scheme)) // Parse makes it lower-case
}

func inLink(n ast.Node) bool {
	for p := n.Parent(); p != nil; p = p.Parent() {
		if p.Kind() == ast.KindLink {
			return true
		}
	}
	return false
}

// adopt makes the children of one node those of another.
func adopt(to, from ast.Node) {
	for c := from.FirstChild(); c != nil; c = from.FirstChild() {
		to.AppendChild(to, c) // which takes it away from its parent
	}
}

// unwrap puts the children of a node in its place.
func unwrap(n ast.Node) {
	parent := n.Parent()
	for c := n.FirstChild(); c != nil; c = n.FirstChild() {
		parent.InsertBefore(parent, n, c)
	}
	parent.RemoveChild(parent, n)
}
