package markdown

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer"
	goldmarkhtml "github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// Bare addresses in a text become links: those with http:// or https://, those that begin with "www.", and e-mail
// addresses, in all scripts. An address ends before white space, quotes, the punctuation of Chinese and Japanese, and a
// bracket that it has not opened. Punctuation after it is not part of it.

// unspaced are the scripts whose words have no spaces between them, so that an address or a name may follow directly.
var unspaced = []*unicode.RangeTable{unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Bopomofo, unicode.Hangul,
	unicode.Yi, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar, unicode.Tibetan, unicode.Javanese,
	unicode.Balinese, unicode.Tai_Le, unicode.New_Tai_Lue, unicode.Tai_Tham}

// isUnspaced reports whether r belongs to a script without spaces between words.
func isUnspaced(r rune) bool {
	return r >= utf8.RuneSelf && (unicode.In(r, unspaced...) || r == 'ー' || r == '々')
}

// inWord reports whether r next to a name or address makes both one word.
func inWord(r rune) bool {
	return (unicode.In(r, unicode.L, unicode.M, unicode.N) || r == '_') && !isUnspaced(r)
}

const (
	// brackets are pairs that may be in an address if both of them are.
	openBrackets  = "([{（［｛「『【《〈〔"
	closeBrackets = ")]}）］｝」』】》〉〕"
	// enders are never part of an address.
	enders = "<>\"`“”„‟«»‹›、。，．；：？！＂＇｡､"
	// trailers are not part of an address that they end.
	trailers = "?!.,:;*_~'|\\’‘…–—" + openBrackets
)

var (
	scheme   = regexp.MustCompile(`(?i)https?$`)
	www      = regexp.MustCompile(`(?i)www$`)
	anywhere = regexp.MustCompile(`(?i)https?://|www\.|@`)
	ipv6     = regexp.MustCompile(`^\[[0-9A-Fa-f:.]+\]`)
	port     = regexp.MustCompile(`^:[0-9]+`)
	entity   = regexp.MustCompile(`&#?[0-9A-Za-z]+;$`)
)

// addressLength returns the length of the address that s begins with, after its prefix: "https://", or "www.". before
// is the byte before the address. It returns 0 if no address begins there.
func addressLength(s []byte, prefix int, before byte) int {
	end := prefix + hostLength(s[prefix:], prefix == len("www."))
	if end == prefix {
		return 0
	}
	if end < len(s) && strings.IndexByte("/?#", s[end]) >= 0 {
		end += pathLength(s[end:], before)
	}
	for {
		address := s[:end]
		if m := entity.Find(address); m != nil {
			end -= len(m)
			continue
		}
		r, size := utf8.DecodeLastRune(address)
		if end <= prefix || !strings.ContainsRune(trailers, r) {
			break
		}
		end -= size
	}
	return max(0, end)
}

// maxHost bounds a host with its user and port, in bytes.
const maxHost = 500

// hostLength returns the length of the host that s begins with, with the user and the port. A host after "www." has a
// dot.
func hostLength(s []byte, dotted bool) int {
	if m := ipv6.Find(s); m != nil {
		return len(m) + len(port.Find(s[len(m):]))
	}
	s = s[:min(len(s), maxHost)]
	end := 0
	for end < len(s) {
		r, size := utf8.DecodeRune(s[end:])
		if !unicode.In(r, unicode.L, unicode.M, unicode.N) && !strings.ContainsRune("-._~%@:+", r) {
			break
		}
		end += size
	}
	user := bytes.LastIndexByte(s[:end], '@') + 1
	if colon := bytes.IndexByte(s[user:end], ':'); colon >= 0 {
		end = user + colon
	}
	end = user + len(trimTop(bytes.TrimRight(s[user:end], ".-_~%+")))
	host := s[user:end]
	first, _ := utf8.DecodeRune(host)
	if !unicode.In(first, unicode.L, unicode.N) || dotted && bytes.IndexByte(host, '.') < 0 {
		return 0
	}
	return end + len(port.Find(s[end:]))
}

// trimTop cuts a host after a top-level domain in ASCII that is followed by a script without spaces.
func trimTop(host []byte) []byte {
	top := bytes.LastIndexByte(host, '.') + 1
	end := top
	for end < len(host) && host[end] < utf8.RuneSelf {
		end++
	}
	if end >= top+2 && end < len(host) {
		if r, _ := utf8.DecodeRune(host[end:]); isUnspaced(r) {
			return host[:end]
		}
	}
	return host
}

// pathLength returns the length of the path, query and fragment that s begins with. If before is a delimiter of
// emphasis or an apostrophe, the first one that ends a word ends them.
func pathLength(s []byte, before byte) int {
	var open []int
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRune(s[i:])
		next, _ := utf8.DecodeRune(s[i+size:])
		switch {
		case unicode.IsSpace(r), unicode.IsControl(r), strings.ContainsRune(enders, r), isMark(r):
			return i
		case strings.IndexByte("*_~'", before) >= 0 && r == rune(before) && !inWord(next) &&
			!strings.ContainsRune(openBrackets, next):
			return i
		case (r == '*' || r == '~') && bytes.HasPrefix(s[i+size:], s[i:i+size]) && endsBefore(s[i+size:], isUnspaced):
			return i
		}
		if kind := strings.IndexRune(openBrackets, r); kind >= 0 {
			open = append(open, utf8.RuneCountInString(openBrackets[:kind]))
		} else if kind := strings.IndexRune(closeBrackets, r); kind >= 0 {
			if len(open) == 0 || open[len(open)-1] != utf8.RuneCountInString(closeBrackets[:kind]) {
				return i
			}
			open = open[:len(open)-1]
		}
		i += size
	}
	return len(s)
}

// isMark reports whether r is invisible and no part of a word.
func isMark(r rune) bool {
	return unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) && r != '\u200c' && r != '\u200d'
}

// endsBefore reports whether what follows the second of two delimiters is a character of the kind.
func endsBefore(s []byte, kind func(rune) bool) bool {
	r, _ := utf8.DecodeRune(s[1:])
	return kind(r)
}

// webAddresses parses bare addresses of the web within Markdown, whose characters could otherwise begin markup. The
// parser calls it at punctuation only: at the ":" after a scheme, and at the "." after "www".
type webAddresses struct{}

func (webAddresses) Trigger() []byte { return []byte{':', '.'} }

func (webAddresses) Parse(parent ast.Node, block text.Reader, pc parser.Context) ast.Node {
	line, segment := block.PeekLine()
	last, ok := parent.LastChild().(*ast.Text)
	if !ok || last.Segment.Stop != segment.Start || pc.IsInLinkLabel() {
		return nil
	}
	begin, mark := scheme, []byte("://")
	if line[0] == '.' {
		begin, mark = www, []byte(".")
	}
	if !bytes.HasPrefix(line, mark) {
		return nil
	}
	before := last.Segment.Value(block.Source())
	found := begin.Find(before[max(0, len(before)-len("https")):])
	if found == nil {
		return nil
	}
	start := segment.Start - len(found)
	if !canPrecede(block.Source()[:start]) {
		return nil
	}
	prefix := len(found) + len(mark)
	whole := block.Source()[start : segment.Start+len(line)]
	length := addressLength(whole, prefix, lastByte(block.Source()[:start]))
	if length == 0 {
		return nil
	}
	block.Advance(length - len(found))
	last.Segment = last.Segment.WithStop(start)
	if start == last.Segment.Start {
		parent.RemoveChild(parent, last)
	}
	return addressLink(whole[:length], text.NewSegment(start, start+length), line[0] == '.')
}

func lastByte(s []byte) byte {
	if len(s) == 0 {
		return ' '
	}
	return s[len(s)-1]
}

// canPrecede reports whether an address can begin after text: not within a word of letters that need spaces.
func canPrecede(text []byte) bool {
	r, _ := utf8.DecodeLastRune(text)
	return len(text) == 0 || r == '_' || !inWord(r) && !strings.ContainsRune("@/+\\", r)
}

// addressLink returns the link of a bare address at a place of the source.
func addressLink(address []byte, at text.Segment, bare bool) ast.Node {
	if bytes.IndexByte(address, '&') < 0 || bytes.IndexByte(address, ';') < 0 {
		link := ast.NewAutoLink(ast.AutoLinkURL, ast.NewTextSegment(at))
		if bare {
			link.Protocol = []byte("http")
		}
		return link
	}
	address = util.ResolveEntityNames(util.ResolveNumericReferences(address))
	link := ast.NewLink()
	link.Destination = address
	if bare {
		link.Destination = append([]byte("http://"), address...)
	}
	link.AppendChild(link, asWritten(string(address)))
	return link
}

// bareAddresses links the addresses in the text of a document that webAddresses does not parse: those of e-mail, and
// those in raw HTML and in brackets that are not a link.
type bareAddresses struct{}

func (bareAddresses) Transform(doc *ast.Document, reader text.Reader, _ parser.Context) {
	source := reader.Source()
	if !anywhere.Match(source) {
		return
	}
	for _, t := range textsOf(doc, source) {
		if t.IsRaw() {
			continue
		}
		for {
			plain := t.Segment.Value(source)
			start, end, link := findAddress(plain, t.Segment.Start)
			if link == nil {
				break
			}
			replace(t.Text, t.Segment.Start+start, t.Segment.Start+end, link)
		}
	}
}

// findAddress returns the first address in plain text, which begins at an offset of the source, and its link.
func findAddress(plain []byte, offset int) (start, end int, link ast.Node) {
	for from := 0; from < len(plain); {
		m := anywhere.FindIndex(plain[from:])
		if m == nil {
			break
		}
		start, end := from+m[0], from+m[1]
		if plain[start] == '@' {
			if from, to := mailAround(plain, start); from < start {
				label := ast.NewTextSegment(text.NewSegment(offset+from, offset+to))
				return from, to, ast.NewAutoLink(ast.AutoLinkEmail, label)
			}
		} else if canPrecede(plain[:start]) {
			bare := plain[end-1] == '.'
			length := addressLength(plain[start:], end-start, lastByte(plain[:start]))
			if to := start + length; length > 0 {
				return start, to, addressLink(plain[start:to], text.NewSegment(offset+start, offset+to), bare)
			}
		}
		from = end
	}
	return 0, 0, nil
}

// mailAround returns the e-mail address around the "@" at an offset; from is at if there is none.
func mailAround(plain []byte, at int) (from, to int) {
	from = at
	for from > 0 {
		r, size := utf8.DecodeLastRune(plain[:from])
		if !inWord(r) && !strings.ContainsRune(".+-%", r) {
			break
		}
		from -= size
	}
	for from < at && strings.IndexByte(".+-%", plain[from]) >= 0 {
		from++
	}
	if before, _ := utf8.DecodeLastRune(plain[:from]); from > 0 && strings.ContainsRune("@/\\", before) {
		return at, at
	}
	to = at + 1
	for to < len(plain) {
		r, size := utf8.DecodeRune(plain[to:])
		if !unicode.In(r, unicode.L, unicode.M, unicode.N) && r != '.' && r != '-' {
			break
		}
		to += size
	}
	if to < len(plain) && (plain[to] == '_' || plain[to] == '@') {
		return at, at
	}
	domain := trimTop(bytes.TrimRight(plain[at+1:to], ".-"))
	first, _ := utf8.DecodeRune(domain)
	if dot := bytes.IndexByte(domain, '.'); dot < 1 || !unicode.In(first, unicode.L, unicode.N) {
		return at, at
	}
	const scheme = "mailto:"
	if before := plain[:from]; len(before) >= len(scheme) &&
		bytes.EqualFold(before[len(before)-len(scheme):], []byte(scheme)) {
		from -= len(scheme)
	}
	return from, at + 1 + len(domain)
}

// replace replaces a part of a text by a node, and leaves in t what comes after it, with its line break.
func replace(t *ast.Text, start, end int, by ast.Node) {
	if start > t.Segment.Start {
		t.Parent().InsertBefore(t.Parent(), t, ast.NewTextSegment(text.NewSegment(t.Segment.Start, start)))
	}
	t.Parent().InsertBefore(t.Parent(), t, by)
	t.Segment = text.NewSegment(end, t.Segment.Stop)
}

// ipHost is the beginning of an address whose host is in brackets, which are escaped elsewhere in an address.
var ipHost = regexp.MustCompile(`^(?i:https?)://\[[0-9A-Fa-f:.]+\]`)

// escapeAddress escapes the characters that an address cannot have.
func escapeAddress(address []byte) []byte {
	host := ipHost.Find(address)
	return append(slices.Clip(host), util.URLEscape(address[len(host):], true)...)
}

// linkRenderer renders links, also to hosts in brackets.
type linkRenderer struct{}

func (linkRenderer) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindLink, func(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
		if link := n.(*ast.Link); entering {
			openLink(w, link, link.Destination, link.Title)
		} else {
			_, _ = w.WriteString("</a>") // Flush returns the error
		}
		return ast.WalkContinue, nil
	})
	r.Register(
		ast.KindAutoLink,
		func(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
			if link := n.(*ast.AutoLink); entering {
				address := link.URL(source)
				if link.AutoLinkType == ast.AutoLinkEmail &&
					!bytes.HasPrefix(bytes.ToLower(address), []byte("mailto:")) {
					address = append([]byte("mailto:"), address...)
				}
				openLink(w, link, address, nil)
				_, _ = w.Write(util.EscapeHTML(link.Label(source)))
				_, _ = w.WriteString("</a>")
			}
			return ast.WalkContinue, nil
		},
	)
}

func openLink(w util.BufWriter, n ast.Node, address, title []byte) {
	_, _ = w.WriteString(`<a href="`)
	_, _ = w.Write(util.EscapeHTML(escapeAddress(address)))
	_ = w.WriteByte('"')
	if title != nil {
		_, _ = w.WriteString(` title="`)
		goldmarkhtml.DefaultWriter.Write(w, title)
		_ = w.WriteByte('"')
	}
	goldmarkhtml.RenderAttributes(w, n, goldmarkhtml.LinkAttributeFilter)
	_ = w.WriteByte('>')
}
