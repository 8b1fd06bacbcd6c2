package markdown

import (
	"iter"
	"regexp"
	"slices"
	"strings"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"

	"likewise/models"
)

// mentionPattern matches a possible mention with all characters adjacent to it. An "@" inside or after a word, as in an
// e-mail address, after a backslash or before another "@" is not a mention.
var mentionPattern = regexp.MustCompile(`[A-Za-z0-9_.+\\/@-]*@[A-Za-z0-9_.@-]+`)

// Mentions returns the usernames that content mentions as @name: in lower case, each once, in the order of the text,
// and at most models.MaxMentions. It ignores code and links. A trailing dot or dash does not belong to the name: in
// "@ada." the dot ends the sentence.
func (m *Parser) Mentions(content string) []string {
	if !strings.Contains(content, "@") || len(namesIn(content, nil)) == 0 {
		return nil // most texts have no "@" and need not be parsed
	}
	source, doc := m.parse(content)
	var names []string
	var start, end int // of the text that the next node may continue
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.CodeSpan, *ast.Link, *ast.Image:
			return ast.WalkSkipChildren, nil
		case *ast.Text:
			if n.Segment.Start != end {
				names = namesIn(string(source[start:end]), names)
				start = n.Segment.Start
			}
			end = n.Segment.Stop
		}
		return ast.WalkContinue, nil
	}) // returns an error only if the function does
	return namesIn(string(source[start:end]), names)
}

// namesIn appends the names that plain text mentions to names.
func namesIn(plain string, names []string) []string {
	for _, name := range mentionsIn(plain) {
		if len(names) == models.MaxMentions {
			break
		}
		if name = strings.ToLower(name); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// mentionsIn yields the mentions in plain text: the index of the "@", and the name as it is spelled.
func mentionsIn(plain string) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		for from := 0; from < len(plain); {
			found := mentionPattern.FindStringIndex(plain[from:])
			if found == nil {
				return
			}
			at := from + found[0]
			from += found[1]
			name, whole := strings.CutPrefix(plain[at:from], "@")
			name = strings.TrimRight(name, ".-")
			if whole && models.ValidUsername(name) && !yield(at, name) {
				return
			}
		}
	}
}

// maxMentionLinks bounds the mentions of a text that become links: a few characters become a long link.
const maxMentionLinks = 200

// mentionClass marks links that linkMentions makes. Users cannot write links with a class.
const mentionClass = "mention"

// linkMentions replaces the mentions in a document by links to the profiles at m.profiles. It does not look whether
// accounts have the names, so that HTML depends on its text alone and can be cached.
func (m *Renderer) linkMentions(doc ast.Node, source []byte) {
	left := maxMentionLinks
	for _, t := range textsOf(doc, source) {
		begin := t.Segment.Start
		for at, name := range mentionsIn(string(t.Segment.Value(source))) {
			if left--; left < 0 {
				return
			}
			at += begin
			end := at + len("@") + len(name)
			link := ast.NewLink()
			link.Destination = []byte(m.profiles + strings.ToLower(name))
			link.SetAttributeString("class", []byte(mentionClass))
			link.AppendChild(link, ast.NewTextSegment(text.NewSegment(at, end)))
			if at > t.Segment.Start {
				t.Parent().InsertBefore(t.Parent(), t, ast.NewTextSegment(text.NewSegment(t.Segment.Start, at)))
			}
			t.Parent().InsertBefore(t.Parent(), t, link)
			t.Segment = text.NewSegment(end, t.Segment.Stop) // keeps the line break after it
		}
	}
}

// textsOf returns the texts of a document outside code and links. Adjacent ones are merged: the parser divides a text
// at each character that could begin markup.
func textsOf(doc ast.Node, source []byte) (texts []*ast.Text) {
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // it never fails
		switch n := n.(type) {
		case *ast.CodeSpan, *ast.Link, *ast.Image:
			return ast.WalkSkipChildren, nil
		case *ast.Text:
			if entering {
				for next := n.NextSibling(); next != nil && n.Merge(next, source); next = n.NextSibling() {
					n.Parent().RemoveChild(n.Parent(), next)
				}
				texts = append(texts, n)
			}
		}
		return ast.WalkContinue, nil
	})
	return texts
}
