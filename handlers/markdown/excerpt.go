package markdown

import (
	"bufio"
	"html"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rivo/uniseg"
	"github.com/yuin/goldmark/ast"
	goldmarkhtml "github.com/yuin/goldmark/renderer/html"

	"likewise/models"
)

// Excerpt returns the beginning of content as one line of plain text, of at most models.MaxExcerpt characters. Links,
// images, code and raw HTML are replaced by their text. If the text is longer, it is cut after a word
// and ends in "…". The text may contain "<" and "&". Increment models.ExcerptVersion with every change of the results.
func (m *Parser) Excerpt(content string) string {
	source, doc := m.parse(content)
	e := excerpt{source: source}
	_ = ast.Walk(doc, e.visit) // returns an error only if the function does
	return cut(e.text.String(), models.MaxExcerpt)
}

// excerpt collects the text of a document, with one space between words, until it is longer than models.MaxExcerpt.
type excerpt struct {
	source []byte
	text   strings.Builder
	length int  // of text, in characters
	space  bool // comes before the next character
}

func (e *excerpt) visit(n ast.Node, entering bool) (ast.WalkStatus, error) {
	if n.Type() == ast.TypeBlock {
		e.space = true
	}
	if !entering {
		return ast.WalkContinue, nil
	}
	next := ast.WalkContinue
	switch n := n.(type) {
	case *ast.Text:
		if n.IsRaw() || n.Parent().Kind() == ast.KindCodeSpan {
			e.write(string(n.Value(e.source)))
		} else {
			e.write(unescape(n.Value(e.source)))
		}
		e.space = e.space || n.SoftLineBreak() || n.HardLineBreak()
	case *ast.String:
		e.write(string(n.Value))
	case *ast.AutoLink:
		e.write(string(n.Label(e.source)))
	case *ast.Link:
		if _, picture := n.AttributeString(pictureKey); picture {
			next = ast.WalkSkipChildren
		}
	case *tagNode:
		e.space = e.space || elements[n.name].block || n.name == "br"
	case *ast.CodeBlock, *ast.FencedCodeBlock:
		for _, line := range n.Lines().Sliced(0, n.Lines().Len()) {
			e.write(string(line.Value(e.source)))
		}
	}
	if e.length > models.MaxExcerpt {
		next = ast.WalkStop
	}
	return next, nil
}

// write appends text, whose white space and control characters become single spaces.
func (e *excerpt) write(text string) {
	for _, r := range text {
		if unicode.IsSpace(r) || unicode.IsControl(r) {
			e.space = true
			continue
		}
		if e.space && e.length > 0 {
			e.text.WriteByte(' ')
			e.length++
		}
		e.space = false
		e.text.WriteRune(r)
		if e.length++; e.length > models.MaxExcerpt {
			return
		}
	}
}

// unescape returns the text that a browser shows for Markdown without markup: with its backslashes and entities
// resolved.
func unescape(source []byte) string {
	var b strings.Builder
	w := bufio.NewWriter(&b)
	goldmarkhtml.DefaultWriter.Write(w, source)
	_ = w.Flush() // a strings.Builder returns no errors
	return html.UnescapeString(b.String())
}

// cut returns text if it has at most limit characters, and otherwise its beginning with "…", limit characters in all.
// It cuts between words as Unicode divides them (UAX #29), or within a word that takes more than half of the room, but
// not within what readers see as one character.
func cut(text string, limit int) string {
	if utf8.RuneCountInString(text) <= limit {
		return text
	}
	room := limit - utf8.RuneCountInString("…")
	fits := string([]rune(text)[:room])
	words, state := 0, -1 // the length of the words that fit, in bytes
	for rest := text; ; {
		var word string
		if word, rest, state = uniseg.FirstWordInString(rest, state); words+len(word) > len(fits) {
			break
		}
		words += len(word)
	}
	end := words
	if utf8.RuneCountInString(fits[:words]) < room/2 {
		state = -1
		for rest := text[words:]; ; {
			var cluster string
			cluster, rest, _, state = uniseg.FirstGraphemeClusterInString(rest, state)
			if end+len(cluster) > len(fits) {
				break
			}
			end += len(cluster)
		}
	}
	if end == 0 { // one character with hundreds of combining marks
		end = len(fits)
	}
	return strings.TrimRightFunc(text[:end], unicode.IsSpace) + "…"
}
