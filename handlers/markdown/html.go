package markdown

import (
	"bytes"
	"html"
	"regexp"
	"slices"
	"strings"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// Raw HTML loses no words. A tag keeps its meaning if it is on the list below with all of its attributes, stands where
// it may, and has its other half in the same container: the same paragraph, or the same list item or quotation for tags
// that enclose blocks. Every other tag, and every comment, is shown as it was written. So the elements of the output
// are nested as those of the converter are, and no text can close an element of the page around it.

// element is what HTML says about an element that content may have.
type element struct {
	block   bool     // ends the line
	void    bool     // has no end tag
	inside  []string // the elements one of which has to be its parent; nil: any
	endsAt  []string // the elements whose beginning ends it, so that its end tag may be left out
	literal bool     // its text has neither mentions nor addresses
}

var (
	cells     = []string{"td", "th"}
	sections  = []string{"thead", "tbody", "tfoot"}
	ofTable   = []string{"table"}
	newRow    = append([]string{"tr"}, sections...)
	elements  = allElements()
	lineBreak = element{void: true}
)

func allElements() map[string]element {
	all := map[string]element{
		"br": lineBreak, "wbr": lineBreak, "hr": {block: true, void: true}, "img": lineBreak,
		"code": {literal: true}, "kbd": {literal: true}, "samp": {literal: true}, "tt": {literal: true},
		"summary": {block: true, inside: []string{"details"}},
		"caption": {block: true, inside: ofTable},
		"tr":      {block: true, inside: append(ofTable, sections...), endsAt: newRow},
		"td":      {block: true, inside: []string{"tr"}, endsAt: append(cells, newRow...)},
		"th":      {block: true, inside: []string{"tr"}, endsAt: append(cells, newRow...)},
		"li":      {block: true, inside: []string{"ul", "ol"}, endsAt: []string{"li"}},
		"dt":      {block: true, inside: []string{"dl"}, endsAt: []string{"dt", "dd"}},
		"dd":      {block: true, inside: []string{"dl"}, endsAt: []string{"dt", "dd"}},
		"rt":      {inside: []string{"ruby"}, endsAt: []string{"rt", "rp"}},
		"rp":      {inside: []string{"ruby"}, endsAt: []string{"rt", "rp"}},

		"figcaption": {block: true, inside: []string{"figure"}},
	}
	for _, name := range sections {
		all[name] = element{block: true, inside: ofTable, endsAt: sections}
	}
	blocks := []string{"p", "div", "details", "blockquote", "pre", "table", "ul", "ol", "dl", "figure",
		"h1", "h2", "h3", "h4", "h5", "h6"}
	for _, name := range blocks {
		all[name] = element{block: true, literal: name == "pre"}
	}
	all["p"] = element{block: true, endsAt: append(blocks, "hr")}
	for _, name := range []string{"a", "abbr", "b", "bdi", "bdo", "cite", "del", "dfn", "em", "i", "ins", "mark", "q",
		"ruby", "s", "small", "span", "strike", "strong", "sub", "sup", "time", "u", "var"} {
		all[name] = element{}
	}
	return all
}

// attributes are the values that an attribute of raw HTML may have, by its name and its element; "" is any element.
var attributes = map[string]map[string]*regexp.Regexp{
	"title": {"": regexp.MustCompile(`^`)},
	"lang":  {"": regexp.MustCompile(`^[A-Za-z0-9-]{1,35}$`)},
	"dir":   {"": regexp.MustCompile(`^(ltr|rtl|auto)$`)},
	"align": on(`^(left|center|right)$`, "p", "div", "h1", "h2", "h3", "h4", "h5", "h6", "table", "td", "th"),

	"valign":   on(`^(top|middle|bottom|baseline)$`, "td", "th", "tr"),
	"colspan":  on(`^[1-9][0-9]?$`, cells...),
	"rowspan":  on(`^[1-9][0-9]?$`, cells...),
	"open":     on(`^(open)?$`, "details"),
	"reversed": on(`^(reversed)?$`, "ol"),
	"start":    on(`^[0-9]{1,9}$`, "ol"),
	"type":     on(`^[1aAiI]$`, "ol"),
	"value":    on(`^[0-9]{1,9}$`, "li"),
	"datetime": on(`^[0-9A-Za-z:.+ -]{1,40}$`, "time", "ins", "del"),
}

func on(values string, names ...string) map[string]*regexp.Regexp {
	allowed, pattern := map[string]*regexp.Regexp{}, regexp.MustCompile(values)
	for _, name := range names {
		allowed[name] = pattern
	}
	return allowed
}

// rawTag is a tag in content.
type rawTag struct {
	name    string // in lower case
	closing bool
	attrs   []rawAttribute
	length  int // of its source, in bytes
}

type rawAttribute struct{ name, value string }

func (t *rawTag) attr(name string) string {
	for _, a := range t.attrs {
		if a.name == name {
			return a.value
		}
	}
	return ""
}

// maxTag bounds a tag and a comment, in bytes, and so the work on what only begins like one.
const maxTag = 2000

var (
	tagName   = regexp.MustCompile(`^<(/?)([A-Za-z][A-Za-z0-9-]*)`)
	attribute = regexp.MustCompile(
		`^[ \t\r\n]+([A-Za-z_:][A-Za-z0-9:._-]*)` +
			`(?:[ \t\r\n]*=[ \t\r\n]*("[^"]*"|'[^']*'|[^ \t\r\n"'=<>` + "`" + `]+))?`,
	)
	tagEnd = regexp.MustCompile(`^[ \t\r\n]*/?>`)
)

// readTag reads the tag at the beginning of s, by the grammar of CommonMark.
func readTag(s []byte) (*rawTag, bool) {
	s = s[:min(len(s), maxTag)]
	m := tagName.FindSubmatch(s)
	if m == nil {
		return nil, false
	}
	t := &rawTag{name: strings.ToLower(string(m[2])), closing: len(m[1]) > 0, length: len(m[0])}
	for !t.closing {
		m := attribute.FindSubmatch(s[t.length:])
		if m == nil {
			break
		}
		value := m[2]
		if len(value) > 0 && (value[0] == '"' || value[0] == '\'') {
			value = value[1 : len(value)-1]
		}
		t.attrs = append(t.attrs, rawAttribute{strings.ToLower(string(m[1])), html.UnescapeString(string(value))})
		t.length += len(m[0])
	}
	end := tagEnd.Find(s[t.length:])
	t.length += len(end)
	return t, end != nil
}

// allowed reports whether the tag and all of its attributes are on the lists, each once.
func (t *rawTag) allowed() bool {
	if _, ok := elements[t.name]; !ok {
		return false
	}
	seen := map[string]bool{}
	for _, a := range t.attrs {
		if pattern := allowedValue(a.name, t.name); seen[a.name] || pattern == nil || !pattern.MatchString(a.value) {
			return false
		}
		seen[a.name] = true
	}
	switch {
	case t.name == "a" && !t.closing:
		return linkable([]byte(t.attr("href")))
	case t.name == "img":
		return linkable([]byte(t.attr("src")))
	}
	return true
}

// unwritten are attributes about which the site decides, whatever their value.
var unwritten = map[string]map[string]*regexp.Regexp{
	"target": on(`^_(blank|self|top|parent)$`, "a"),
	"rel":    on(`^((nofollow|noopener|noreferrer|ugc|external)( |$))*$`, "a"),
	"width":  on(`^[0-9]{1,5}(px|%)?$`, "img"),
	"height": on(`^[0-9]{1,5}(px|%)?$`, "img"),
	"href":   on(``, "a"), // is checked as an address
	"src":    on(``, "img"),
	"alt":    on(``, "img"),
}

// allowedValue returns the values that the attribute of an element may have; nil if it may not have the attribute.
func allowedValue(attribute, name string) *regexp.Regexp {
	for _, of := range []map[string]*regexp.Regexp{attributes[attribute], unwritten[attribute]} {
		for _, element := range []string{name, ""} {
			if pattern := of[element]; pattern != nil {
				return pattern
			}
		}
	}
	return nil
}

// html returns the tag as it is rendered.
func (t *rawTag) html() string {
	if t.closing {
		return "</" + t.name + ">"
	}
	var b strings.Builder
	b.WriteString("<" + t.name)
	for _, a := range t.attrs {
		switch a.name {
		case "target", "rel":
			continue // the site decides about both
		case "href":
			a.value = string(escapeAddress([]byte(a.value)))
		}
		b.WriteString(" " + a.name + `="` + html.EscapeString(a.value) + `"`)
	}
	if t.name == "a" {
		b.WriteString(` rel="` + linkRel + `"`)
	}
	b.WriteString(">")
	return b.String()
}

// tagNode is a tag of raw HTML that keeps its meaning.
type tagNode struct {
	ast.BaseInline

	name    string
	closing bool
	html    string
}

var kindTag = ast.NewNodeKind("Tag")

func (n *tagNode) Kind() ast.NodeKind { return kindTag }

func (n *tagNode) Dump(source []byte, level int) {
	ast.DumpHelper(n, source, level, map[string]string{"html": n.html}, nil)
}

// tagRenderer renders tagNode.
type tagRenderer struct{}

func (tagRenderer) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(kindTag, func(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		if entering {
			_, _ = w.WriteString(n.(*tagNode).html) // Flush returns the error
		}
		return ast.WalkSkipChildren, nil
	})
}

// asWritten returns a node that shows s as it is.
func asWritten(s string) ast.Node {
	n := ast.NewString([]byte(s))
	n.SetRaw(true)
	return n
}

// piece is a part of the raw HTML of a container: a tag, or what is between tags.
type piece struct {
	of     ast.Node       // the node that has it
	source []byte         // as it was written
	lines  []text.Segment // of text, in the document
	tag    *rawTag        // nil: text, or a comment
	parent *piece         // of an opening tag: the one around it
	other  *piece         // of a tag: its other half; for an end tag that was left out, the piece after it
	ended  []*piece       // opening tags whose end tag was left out before this piece, innermost first
	keeps  bool           // its meaning
}

// maxRawDepth bounds the elements of raw HTML within one another, for each container.
const maxRawDepth = 12

// pair finds the tags of a container that keep their meaning. Elements that end lines are among them if blocks is set.
func pair(pieces []*piece, blocks bool) {
	var open []*piece
	for _, p := range pieces {
		for len(open) > 0 && open[len(open)-1].endsBefore(p) {
			last := open[len(open)-1]
			open = open[:len(open)-1]
			last.other, p.ended = p, append(p.ended, last)
		}
		switch {
		case p.tag == nil, !p.tag.allowed(), elements[p.tag.name].block && !blocks:
		case p.tag.closing:
			open = closeTag(open, p)
		default:
			if len(open) > 0 {
				p.parent = open[len(open)-1]
			}
			if elements[p.tag.name].void {
				p.other = p
			} else if len(open) < maxRawDepth {
				open = append(open, p)
			}
		}
	}
	for _, p := range open {
		p.endWithBlock(pieces)
	}
	for _, p := range pieces { // an opening tag comes before its children and its end tag
		if p.tag != nil && p.other != nil {
			p.keeps = p.tag.closing && p.other.keeps || !p.tag.closing && p.isPlaced()
		}
	}
}

// endWithBlock ends a paragraph without an end tag at the end of the block of raw HTML that begins it.
func (p *piece) endWithBlock(pieces []*piece) {
	if p.tag.name != "p" || p.of.Kind() != ast.KindHTMLBlock {
		return
	}
	rest := pieces[slices.Index(pieces, p)+1:]
	for _, q := range rest {
		if q.other != nil && q.other.of != p.of {
			return // ends in a later block
		}
		if q.isEnd() {
			p.other, q.ended = q, append(q.ended, p)
			return
		}
	}
}

// isEnd reports whether p is the end of a block of raw HTML.
func (p *piece) isEnd() bool { return p.source == nil }

// endsBefore reports whether the element that p opens ends before next, although it has no end tag there.
func (p *piece) endsBefore(next *piece) bool {
	if p.tag.name == "p" && p.of.Kind() == ast.KindRawHTML {
		return false // as the parameter in "Array<P>"
	}
	return next.tag != nil && !next.tag.closing && slices.Contains(elements[p.tag.name].endsAt, next.tag.name)
}

// closeTag closes the innermost open element of the end tag's name, and returns the elements that stay open.
func closeTag(open []*piece, end *piece) []*piece {
	at := len(open) - 1
	for at >= 0 && open[at].tag.name != end.tag.name {
		at--
	}
	if at < 0 {
		return open
	}
	for _, p := range slices.Backward(open[at+1:]) {
		if elements[p.tag.name].endsAt != nil {
			p.other, end.ended = end, append(end.ended, p)
		}
	}
	open[at].other, end.other = end, open[at]
	return open[:at]
}

// isPlaced reports whether the element that p opens may stand where it does.
func (p *piece) isPlaced() bool {
	if inside := elements[p.tag.name].inside; inside != nil &&
		(p.parent == nil || !p.parent.keeps || !slices.Contains(inside, p.parent.tag.name)) {
		return false
	}
	if p.tag.name == "a" || p.tag.name == "img" {
		for q := p.parent; q != nil; q = q.parent {
			if q.keeps && q.tag.name == "a" {
				return false
			}
		}
	}
	return true
}

// nodes returns what shows the piece.
func (p *piece) nodes(source []byte) (shown []ast.Node) {
	for _, ended := range p.ended {
		if ended.keeps {
			shown = append(shown, (&rawTag{name: ended.tag.name, closing: true}).node())
		}
	}
	switch {
	case p.keeps:
		return append(shown, p.tag.node())
	case p.lines == nil && len(p.source) > 0:
		return append(shown, asWritten(string(p.source)))
	}
	for _, line := range p.lines {
		shown = append(shown, plain(line, source)...)
	}
	return shown
}

// node returns the node of a tag that keeps its meaning. An image is one of Markdown from then on.
func (t *rawTag) node() ast.Node {
	if t.name != "img" {
		return &tagNode{name: t.name, closing: t.closing, html: t.html()}
	}
	link := ast.NewLink()
	link.Destination = []byte(t.attr("src"))
	if title := t.attr("title"); title != "" {
		link.Title = []byte(markdownEscaper.Replace(title))
	}
	image := ast.NewImage(link)
	if alt := t.attr("alt"); alt != "" {
		image.AppendChild(image, asWritten(alt))
	}
	return image
}

// markdownEscaper escapes what Markdown resolves in the title of an image.
var markdownEscaper = strings.NewReplacer(`\`, `\\`, "&", "&amp;")

// plain returns the nodes of text that has entities, but no Markdown.
func plain(line text.Segment, source []byte) (nodes []ast.Node) {
	for line.Start < line.Stop {
		n := bytes.IndexByte(source[line.Start:line.Stop], '\\')
		switch n {
		case 0:
			nodes = append(nodes, ast.NewRawTextSegment(line.WithStop(line.Start+1)))
			line.Start++
		case -1:
			return append(nodes, ast.NewTextSegment(line))
		default:
			nodes = append(nodes, ast.NewTextSegment(line.WithStop(line.Start+n)))
			line.Start += n
		}
	}
	return nodes
}

// rawHTML replaces the nodes of raw HTML by a tagNode for each tag, and text.
type rawHTML struct{}

func (rawHTML) Transform(doc *ast.Document, reader text.Reader, _ parser.Context) {
	containers := map[ast.Node][]*piece{}
	var order []ast.Node
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // it never fails
		if !entering {
			return ast.WalkContinue, nil
		}
		var found []*piece
		switch n := n.(type) {
		case *ast.RawHTML:
			found = []*piece{inlinePiece(n, reader.Source())}
		case *ast.HTMLBlock:
			found = blockPieces(n, reader.Source())
		default:
			return ast.WalkContinue, nil
		}
		if containers[n.Parent()] == nil {
			order = append(order, n.Parent())
		}
		containers[n.Parent()] = append(containers[n.Parent()], found...)
		return ast.WalkContinue, nil
	})
	for _, parent := range order {
		pieces := containers[parent]
		pair(pieces, parent.Type() != ast.TypeInline && parent.Kind() != ast.KindHeading)
		for len(pieces) > 0 {
			n := 1
			for n < len(pieces) && pieces[n].of == pieces[0].of {
				n++
			}
			show(pieces[:n], reader.Source())
			pieces = pieces[n:]
		}
	}
}

// show replaces the node of the pieces.
func show(pieces []*piece, source []byte) {
	of := pieces[0].of
	parent := of.Parent()
	if of.Kind() == ast.KindRawHTML {
		for _, n := range pieces[0].nodes(source) {
			parent.InsertBefore(parent, of, n)
		}
		parent.RemoveChild(parent, of)
		if pieces[0].keeps && elements[pieces[0].tag.name].block && parent.Kind() == ast.KindParagraph {
			block := ast.NewTextBlock() // a paragraph would end at the element
			block.SetBlankPreviousLines(parent.HasBlankPreviousLines())
			adopt(block, parent)
			parent.Parent().ReplaceChild(parent.Parent(), parent, block)
		}
		return
	}
	var block ast.Node = ast.NewParagraph()
	for _, p := range pieces {
		if p.keeps && (elements[p.tag.name].block || p.other.of != of) || len(p.ended) > 0 {
			block = ast.NewTextBlock()
			break
		}
	}
	block.SetBlankPreviousLines(of.HasBlankPreviousLines())
	for _, p := range pieces {
		for _, n := range p.nodes(source) {
			if t, ok := n.(*ast.Text); ok && ast.IsParagraph(block) && !t.IsRaw() {
				end := t.Segment.TrimRightSpace(source)
				t.SetSoftLineBreak(bytes.HasSuffix(t.Segment.Value(source), []byte("\n")))
				t.Segment = end
			}
			block.AppendChild(block, n)
		}
	}
	parent.ReplaceChild(parent, of, block)
}

// inlinePiece returns the piece of raw HTML within a line of Markdown. In the text of an image it is not a tag.
func inlinePiece(n *ast.RawHTML, source []byte) *piece {
	p := &piece{of: n, source: n.Segments.Value(source)}
	if tag, ok := readTag(p.source); ok && tag.length == len(p.source) && !inImage(n) {
		p.tag = tag
	}
	return p
}

func inImage(n ast.Node) bool {
	for p := n.Parent(); p != nil; p = p.Parent() {
		if p.Kind() == ast.KindImage {
			return true
		}
	}
	return false
}

// blockPieces divides a block of raw HTML into pieces, and ends it with an empty one.
func blockPieces(n *ast.HTMLBlock, source []byte) (pieces []*piece) {
	var all []byte
	lines := slices.Clone(n.Lines().Sliced(0, n.Lines().Len()))
	if n.HasClosure() {
		lines = append(lines, n.ClosureLine)
	}
	for _, line := range lines {
		all = append(all, source[line.Start:line.Stop]...)
	}
	all = bytes.TrimRight(all, "\r\n")
	from := 0 // where the text before at begins
	addText := func(to int) {
		if from < to {
			pieces = append(pieces, &piece{of: n, source: all[from:to], lines: within(lines, from, to)})
		}
	}
	for at := 0; at < len(all); {
		next := bytes.IndexByte(all[at:], '<')
		if next < 0 {
			break
		}
		at += next
		tag, length := readTagOrComment(all[at:])
		if length == 0 {
			at++
			continue
		}
		addText(at)
		pieces = append(pieces, &piece{of: n, source: all[at : at+length], tag: tag})
		at += length
		from = at
	}
	addText(len(all))
	return append(pieces, &piece{of: n})
}

// readTagOrComment returns the length of the tag or comment at the beginning of s; 0 if there is none.
func readTagOrComment(s []byte) (*rawTag, int) {
	if tag, ok := readTag(s); ok {
		return tag, tag.length
	}
	const begin, end = "<!--", "-->"
	if bytes.HasPrefix(s, []byte(begin)) {
		if n := bytes.Index(s[:min(len(s), maxTag)], []byte(end)); n >= 0 {
			return nil, n + len(end)
		}
	}
	return nil, 0
}

// within returns the part of lines from one offset in them to another.
func within(lines []text.Segment, from, to int) (part []text.Segment) {
	for _, line := range lines {
		length := line.Stop - line.Start
		if begin, end := max(from, 0), min(to, length); begin < end {
			part = append(part, text.NewSegment(line.Start+begin, line.Start+end))
		}
		from, to = from-length, to-length
	}
	return part
}
