// Package markdown renders the Markdown of posts and comments to safe HTML, makes excerpts of it, and finds whom it
// mentions.
//
// No words of the content are lost. Tags of raw HTML that do no harm keep their meaning, and the others are shown as
// they were written. The sanitizer checks the rendered HTML again. An image that was uploaded to the site is shown. Any
// other becomes a link to it, so that a reader's browser loads nothing from other hosts unless the reader follows the
// link. A link that is not allowed is shown as its text and its address. Content beyond the bounds on nesting, links,
// emphasis and tables stays text.
//
// The Renderer owns a cache of rendered HTML, by target and version. An edit needs no invalidation, and losing an entry
// costs one rendering.
package markdown

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/maypok86/otter/v2"
	"github.com/microcosm-cc/bluemonday"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	tables "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	goldmarkhtml "github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"

	"likewise/models"
)

// Parser parses GitHub's dialect of Markdown. It is safe for concurrent use.
type Parser struct{ converter goldmark.Markdown }

// NewParser returns a Parser.
func NewParser() *Parser { return &Parser{newConverter("")} }

// Renderer renders what a Parser parses. It is safe for concurrent use.
type Renderer struct {
	*Parser

	policy *bluemonday.Policy
	cache  *otter.Cache[cacheKey, string]
}

type cacheKey struct {
	models.Target
	version int64
}

// maxCached bounds the cached HTML, in bytes.
const maxCached = 64 << 20

// cacheLife is how long HTML is cached. A redacted version is not rendered again, but its HTML must not stay in memory.
const cacheLife = time.Hour

// New returns a Renderer with an empty cache. site is the URL of the site, to which absolute addresses of its images
// begin; "" for none.
func New(site string) (*Renderer, error) {
	const entrySize = 100 // bytes of an entry besides its HTML
	cache, err := otter.New(&otter.Options[cacheKey, string]{
		ExpiryCalculator: otter.ExpiryWriting[cacheKey, string](cacheLife),
		MaximumWeight:    maxCached,
		Weigher:          func(_ cacheKey, html string) uint32 { return uint32(len(html)) + entrySize },
	})
	if err != nil {
		return nil, fmt.Errorf("markdown cache: %w", err)
	}
	return &Renderer{Parser: &Parser{newConverter(site)}, policy: newPolicy(), cache: cache}, nil
}

// HTML returns the HTML of a version of a target's content. Concurrent calls for the same version render it once.
func (m *Renderer) HTML(target models.Target, version int64, content string) (string, error) {
	return m.cache.Get(context.Background(), cacheKey{target, version}, otter.LoaderFunc[cacheKey, string](
		func(context.Context, cacheKey) (string, error) {
			html, err := m.Render(content)
			if err != nil {
				return "", fmt.Errorf("render %s: %w", target, err)
			}
			return html, nil
		}))
}

// Render returns the HTML of content, and caches nothing.
func (m *Renderer) Render(content string) (string, error) {
	source, doc := m.parse(content)
	if strings.Contains(content, "@") {
		linkMentions(doc, source)
	}
	var raw bytes.Buffer
	if err := m.converter.Renderer().Render(&raw, source, doc); err != nil {
		return "", err
	}
	return m.policy.SanitizeReader(&raw).String(), nil
}

// parse returns the syntax tree of content, and the source that its nodes refer to.
func (m *Parser) parse(content string) ([]byte, ast.Node) {
	if strings.Count(content, "\n") > maxLines {
		content = blankLines.ReplaceAllString(content, "\n\n\n")
	}
	source := []byte(content)
	return source, m.converter.Parser().Parse(text.NewReader(source))
}

// linkRel marks a link as written by a user, for browsers and search engines.
const linkRel = "nofollow ugc noopener"

// linkSchemes are the schemes of absolute links. Relative links are allowed, too.
var linkSchemes = []string{"http", "https", "mailto"}

// language is the pattern of the languages of code that are marked.
const language = "[A-Za-z0-9+#._-]{1,40}"

var languageOnly = regexp.MustCompile("^" + language + "$")

// newPolicy allows the elements and attributes that the converter writes, and nothing else. It allows neither id nor
// name: the scripts of a page could mistake such elements for their own.
func newPolicy() *bluemonday.Policy {
	p := bluemonday.NewPolicy()
	for name := range elements {
		if name != "a" && name != "img" {
			p.AllowElements(name)
		}
	}
	for name, of := range attributes {
		for element, values := range of {
			if element == "" {
				p.AllowAttrs(name).Matching(values).Globally()
			} else {
				p.AllowAttrs(name).Matching(values).OnElements(element)
			}
		}
	}
	p.AllowAttrs("class").Matching(regexp.MustCompile(`^language-` + language + `$`)).OnElements("code")
	p.AllowAttrs("type").Matching(regexp.MustCompile(`^checkbox$`)).OnElements("input")
	p.AllowAttrs("checked", "disabled").Matching(regexp.MustCompile(`^$`)).OnElements("input")
	p.AllowAttrs("src").Matching(regexp.MustCompile("^" + models.ImagePath + "[A-Za-z0-9_-]+$")).OnElements("img")
	p.AllowAttrs("alt").OnElements("img")
	p.AllowAttrs("width", "height").Matching(bluemonday.Integer).OnElements("img")
	p.AllowAttrs("loading").Matching(regexp.MustCompile("^lazy$")).OnElements("img")
	p.AllowAttrs("href").OnElements("a")
	p.AllowAttrs("class").Matching(regexp.MustCompile("^" + mentionClass + "$")).OnElements("a")
	p.AllowAttrs("rel").Matching(regexp.MustCompile("^" + linkRel + "$")).OnElements("a")
	p.RequireParseableURLs(true)
	p.AllowRelativeURLs(true)
	p.AllowURLSchemes(linkSchemes...)
	return p
}

// Bounds on the work of the parser, which is quadratic in each of them, and worse in the depth of lists. Content beyond
// them stays text.
const (
	maxNesting    = 20   // blocks within blocks; a list counts twice, for itself and its item
	maxBrackets   = 400  // that may open a link, in one paragraph
	maxDelimiters = 1500 // runs of *, _ or ~, in one paragraph
	maxCells      = 4000 // of all tables together, including cells that rows omit
	maxLines      = 5000 // beyond, longer runs of empty lines are shortened to two
)

// Every open list examines every empty line.
var blankLines = regexp.MustCompile(`\n[ \t\r]*\n[ \t\r]*\n(?:[ \t\r]*\n)+`)

var (
	bracketsKey   = parser.NewContextKey()
	delimitersKey = parser.NewContextKey()
	cellsKey      = parser.NewContextKey()
)

func newConverter(site string) goldmark.Markdown {
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
	table := util.Prioritized(fewCells{extension.NewTableParagraphTransformer()}, 200)
	paragraphs := append(parser.DefaultParagraphTransformers(), table)
	inlines = append(inlines, util.Prioritized(fewDelimiters{extension.NewStrikethroughParser()}, 500),
		util.Prioritized(webAddresses{}, 150)) // before links and emphasis
	return goldmark.New(
		goldmark.WithParser(parser.NewParser(
			parser.WithBlockParsers(blocks...),
			parser.WithInlineParsers(inlines...),
			parser.WithParagraphTransformers(paragraphs...),
			parser.WithASTTransformers(
				util.Prioritized(extension.NewTableASTTransformer(), 0),
				util.Prioritized(visible{}, 800),
				util.Prioritized(rawHTML{}, 900),
				util.Prioritized(bareAddresses{}, 950),
				util.Prioritized(userLinks{site}, 1000),
			),
		)),
		goldmark.WithRendererOptions(goldmarkhtml.WithHardWraps(), renderer.WithNodeRenderers(
			util.Prioritized(tagRenderer{}, 500),
			util.Prioritized(linkRenderer{}, 500),
			util.Prioritized(extension.NewStrikethroughHTMLRenderer(), 500),
			// An attribute, because a style would have to be sanitized, too.
			util.Prioritized(extension.NewTableHTMLRenderer(
				extension.WithTableCellAlignMethod(extension.TableCellAlignAttribute)), 500),
		)),
		goldmark.WithExtensions(extension.TaskList),
	)
}

// shallow opens blocks down to maxNesting.
type shallow struct{ parser.BlockParser }

func (p shallow) Open(parent ast.Node, reader text.Reader, pc parser.Context) (ast.Node, parser.State) {
	depth := 0
	for n := parent; n != nil; n = n.Parent() {
		depth++
	}
	line, segment := reader.Position()
	node, state := p.BlockParser.Open(parent, reader, pc) // even if too deep: the list parser stores state in pc
	if node != nil && depth > maxNesting {
		reader.SetPosition(line, segment)
		return nil, parser.NoChildren
	}
	return node, state
}

// linkParser is the interface of goldmark's parser of links.
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

// fewDelimiters parses at most maxDelimiters runs of characters in a paragraph as emphasis. Only two "~" strike text
// out, because "3~5" is a range.
type fewDelimiters struct{ parser.InlineParser }

func (p fewDelimiters) Parse(parent ast.Node, block text.Reader, pc parser.Context) ast.Node {
	line, _ := block.PeekLine()
	run := len(line) - len(bytes.TrimLeft(line, string(line[:1])))
	if line[0] == '~' && run != 2 || !countTo(maxDelimiters, delimitersKey, pc) {
		return nil
	}
	before := block.PrecendingCharacter()
	node := p.InlineParser.Parse(parent, block, pc)
	if d, ok := node.(*parser.Delimiter); ok {
		after, _ := utf8.DecodeRune(line[run:])
		besideUnspaced(d, before, after)
	}
	return node
}

// besideUnspaced lets a delimiter between punctuation and a letter of a script without spaces begin or end emphasis. In
// CommonMark, the space that other scripts have there decides: "**“a”**b" has no emphasis.
func besideUnspaced(d *parser.Delimiter, before, after rune) {
	if d.Char == '_' {
		return // is part of words
	}
	switch {
	case util.IsPunctRune(before) && isUnspaced(after):
		d.CanClose = true
	case isUnspaced(before) && util.IsPunctRune(after):
		d.CanOpen = true
	}
}

// fewCells parses tables of at most maxCells together. Each row has as many cells as the table has columns, so a few
// characters can produce thousands.
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
	parent, previous, lines := node.Parent(), node.PreviousSibling(), node.Lines().Sliced(0, node.Lines().Len())
	lines = slices.Clone(lines)
	p.ParagraphTransformer.Transform(node, reader, pc)
	table := node.NextSibling()
	if node.Parent() == nil {
		if table = parent.FirstChild(); previous != nil {
			table = previous.NextSibling()
		}
	}
	if table, ok := table.(*tables.Table); ok {
		keepCells(table, lines[len(lines)-table.ChildCount()+1:], reader.Source())
	}
}

// keepCells appends what a row has beyond the columns of its table to its last cell. lines are those of the rows after
// the header.
func keepCells(table *tables.Table, lines []text.Segment, source []byte) {
	row := table.FirstChild()
	for _, line := range lines {
		row = row.NextSibling()
		last := row.LastChild()
		if row.ChildCount() < len(table.Alignments) || last == nil || last.Lines().Len() == 0 {
			continue
		}
		cell := last.Lines().At(0)
		rest := source[cell.Stop:line.Stop]
		if bytes.IndexFunc(rest, func(r rune) bool { return r != '|' && !unicode.IsSpace(r) }) >= 0 {
			last.Lines().Set(0, cell.WithStop(cell.Stop+len(bytes.TrimRight(rest, "| \t\r\n"))))
		}
	}
}

// countTo increments the counter of key and reports whether it was below most.
func countTo(limit int, key parser.ContextKey, pc parser.Context) bool {
	n, _ := pc.Get(key).(int)
	pc.Set(key, n+1)
	return n < limit
}

// visible shows what CommonMark drops: definitions of links that nothing refers to, and what the opening line of a code
// block has besides the name of a language.
type visible struct{}

func (visible) Transform(doc *ast.Document, reader text.Reader, _ parser.Context) {
	used := map[string]bool{}
	var definitions []*ast.LinkReferenceDefinition
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // it never fails
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Link:
			if n.Reference != nil {
				used[util.ToLinkReference(n.Reference.Value)] = true
			}
		case *ast.Image:
			if n.Reference != nil {
				used[util.ToLinkReference(n.Reference.Value)] = true
			}
		case *ast.LinkReferenceDefinition:
			definitions = append(definitions, n)
		case *ast.FencedCodeBlock:
			showInfo(n, reader.Source())
		}
		return ast.WalkContinue, nil
	})
	for _, n := range definitions {
		label := util.ToLinkReference(n.Label)
		if used[label] {
			used[label] = false // a second definition has no effect
			continue
		}
		p := ast.NewParagraph()
		p.SetBlankPreviousLines(n.HasBlankPreviousLines())
		p.AppendChild(p, asWritten("["+string(n.Label)+"]: "))
		link := ast.NewLink()
		link.Destination = n.Destination
		link.AppendChild(link, asWritten(string(n.Destination)))
		p.AppendChild(p, link)
		if len(n.Title) > 0 {
			p.AppendChild(p, asWritten(` "`+string(n.Title)+`"`))
		}
		n.Parent().ReplaceChild(n.Parent(), n, p)
	}
}

// showInfo makes the info string of a code block its first line, unless it is the name of a language.
func showInfo(n *ast.FencedCodeBlock, source []byte) {
	if n.Info == nil || languageOnly.Match(n.Info.Segment.Value(source)) {
		return
	}
	line := n.Info.Segment
	end := line.Stop
	for end < len(source) && source[end] != '\n' {
		end++
	}
	if end < len(source) {
		line.Stop = end + 1
	}
	rest := n.Lines().Sliced(0, n.Lines().Len())
	all := text.NewSegments()
	all.Append(line)
	all.AppendAll(rest)
	n.SetLines(all)
	n.Info = nil
}

// userLinks sets linkRel on every link, replaces images of other sites by links to them, and replaces links that are
// not allowed by their text and their address.
type userLinks struct{ site string }

func (l userLinks) Transform(doc *ast.Document, reader text.Reader, _ parser.Context) {
	for _, n := range linksOf(doc, reader.Source()) {
		switch n := n.(type) {
		case *ast.Link:
			if !linkable(n.Destination) {
				unlink(n, n.Destination, n.Title)
			}
		case *ast.Image:
			if !l.show(n) {
				linkImage(n)
			}
			continue
		case *ast.AutoLink:
			if !linkable(n.URL(reader.Source())) || inLink(n) {
				n.Parent().ReplaceChild(n.Parent(), n, asWritten(string(n.Label(reader.Source()))))
			}
		}
		n.SetAttributeString("rel", []byte(linkRel))
	}
}

// linksOf returns the links and images of a document, in its order. Those of Markdown in a link of raw HTML become text
// and their address, and so do bare addresses in its code.
func linksOf(doc *ast.Document, source []byte) (found []ast.Node) {
	var within []ast.Node
	open := map[string]int{} // tags of raw HTML
	literal := 0             // of them, those whose text has no addresses
	// Walk never fails.
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *tagNode:
			step := 1
			if n.closing {
				step = -1
			}
			open[n.name] += step
			if elements[n.name].literal {
				literal += step
			}
		case *ast.Link, *ast.Image, *ast.AutoLink:
			if open["a"] > 0 || n.Kind() == ast.KindAutoLink && literal > 0 {
				within = append(within, n)
			} else {
				found = append(found, n)
			}
		}
		return ast.WalkContinue, nil
	})
	for _, n := range within {
		switch n := n.(type) {
		case *ast.Link:
			unlink(n, n.Destination, n.Title)
		case *ast.Image:
			unlink(n, n.Destination, n.Title)
		case *ast.AutoLink:
			n.Parent().ReplaceChild(n.Parent(), n, asWritten(string(n.Label(source))))
		}
	}
	return found
}

// unlink replaces a link or an image by its text, with the address and the title in brackets.
func unlink(n ast.Node, address, title []byte) {
	if note := noteOn(n, address, title); note != "" {
		n.Parent().InsertAfter(n.Parent(), n, asWritten(note))
	}
	unwrap(n)
}

// noteOn returns the address and the title of a link as text after its own; "" if that shows them.
func noteOn(n ast.Node, address, title []byte) string {
	note := string(address)
	if only, ok := n.FirstChild().(*ast.String); ok && n.ChildCount() == 1 && string(only.Value) == note {
		note = ""
	}
	if len(title) > 0 {
		note = strings.TrimLeft(note+` "`+string(title)+`"`, " ")
	}
	switch {
	case note == "":
		return ""
	case n.HasChildren():
		return " (" + note + ")"
	}
	return note
}

// pictureKey marks the link that an image became which has no text but its address.
const pictureKey = "picture"

// linkImage replaces an image by a link to it. Within a link, it is replaced by its text, and the link to it follows.
func linkImage(n *ast.Image) {
	if !linkable(n.Destination) {
		unlink(n, n.Destination, n.Title)
		return
	}
	link := ast.NewLink()
	link.Destination, link.Title = n.Destination, n.Title
	link.SetAttributeString("rel", []byte(linkRel))
	around := linkAround(n)
	if around == nil {
		n.Parent().ReplaceChild(n.Parent(), n, link)
		adopt(link, n)
		if !link.HasChildren() {
			link.AppendChild(link, asWritten(string(n.Destination)))
			link.SetAttributeString(pictureKey, true)
		}
		return
	}
	if !n.HasChildren() {
		n.AppendChild(n, asWritten(string(n.Destination)))
		unwrap(n)
		return
	}
	link.AppendChild(link, asWritten("("+string(n.Destination)+")"))
	link.SetAttributeString(pictureKey, true)
	parent := around.Parent()
	parent.InsertAfter(parent, around, link)
	parent.InsertAfter(parent, around, asWritten(" "))
	unwrap(n)
}

// show reports whether an image was uploaded to the site, and sets its attributes if so. The name of the image holds
// its size, so that pages do not move when it has loaded.
func (l userLinks) show(n *ast.Image) bool {
	name := models.ImageAt(string(n.Destination), l.site)
	width, height, ok := models.ImageSize(name)
	if !ok {
		return false
	}
	n.Destination = []byte(models.ImagePath + name)
	n.SetAttributeString("width", []byte(strconv.Itoa(width)))
	n.SetAttributeString("height", []byte(strconv.Itoa(height)))
	n.SetAttributeString("loading", []byte("lazy"))
	return true
}

// linkable reports whether links to the destination are allowed, and the sanitizer keeps them.
func linkable(destination []byte) bool {
	escaped := strings.TrimSpace(string(escapeAddress(destination))) // as the renderer writes it
	u, err := url.Parse(escaped)                                     // makes the scheme lower-case
	return err == nil && u.String() != "" && !strings.ContainsAny(escaped, " \t\n") &&
		(u.Scheme == "" || slices.Contains(linkSchemes, u.Scheme))
}

func inLink(n ast.Node) bool { return linkAround(n) != nil }

// linkAround returns the link that a node is part of; nil if it is in none.
func linkAround(n ast.Node) ast.Node {
	for p := n.Parent(); p != nil; p = p.Parent() {
		if p.Kind() == ast.KindLink {
			return p
		}
	}
	return nil
}

// adopt moves the children of one node to another.
func adopt(to, from ast.Node) {
	for c := from.FirstChild(); c != nil; c = from.FirstChild() {
		to.AppendChild(to, c) // removes it from its parent
	}
}

// unwrap replaces a node by its children.
func unwrap(n ast.Node) {
	parent := n.Parent()
	for c := n.FirstChild(); c != nil; c = n.FirstChild() {
		parent.InsertBefore(parent, n, c)
	}
	parent.RemoveChild(parent, n)
}
