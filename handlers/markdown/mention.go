package markdown

import (
	"iter"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/text"

	"likewise/models"
)

// mentionPattern matches a possible mention with all characters adjacent to it. An "@" inside or after a word, as in an
// e-mail address, after a backslash or before another "@" is not a mention.
var mentionPattern = regexp.MustCompile(`[A-Za-z0-9_.+\\/@-]*@[A-Za-z0-9_.@-]+`)

// Mentions returns the usernames that content mentions as @name: in lower case, each once, in the order of the text,
// and at most models.MaxMentions. It ignores code, links and quotations: a quotation repeats what somebody was notified
// of. A trailing dot or dash does not belong to the name: in "@ada." the dot ends the sentence.
func (m *Parser) Mentions(content string) []string {
	if !strings.Contains(content, "@") || len(namesIn(content, nil)) == 0 {
		return nil // most texts have no "@" and need not be parsed
	}
	source, doc := m.parse(content)
	var names []string
	for _, t := range textsOf(doc, source) {
		if !t.quoted {
			names = namesIn(string(t.Segment.Value(source)), names)
		}
	}
	return names
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
			if whole && isApart(plain, at, at+len("@")+len(name)) && models.ValidUsername(name) && !yield(at, name) {
				return
			}
		}
	}
}

// isApart reports whether the words before start and after end are others: "josé@ada" and "@adaé" mention nobody, but
// "你好@ada你好" does.
func isApart(plain string, start, end int) bool {
	before, _ := utf8.DecodeLastRuneInString(plain[:start])
	after, _ := utf8.DecodeRuneInString(plain[end:])
	return !inWord(before) && !inWord(after)
}

// maxMentionLinks bounds the mentions of a text that become links: a few characters become a long link.
const maxMentionLinks = 200

// mentionClass marks links that linkMentions makes. Users cannot write links with a class.
const mentionClass = "mention"

// profiles is where a front end shows users: mentions link to it, followed by the name in lower case.
const profiles = "/users/"

// linkMentions replaces the mentions in a document by links to profiles. It does not look whether accounts have the
// names, so that HTML depends on its text alone and can be cached.
func linkMentions(doc ast.Node, source []byte) {
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
			link.Destination = []byte(profiles + strings.ToLower(name))
			link.SetAttributeString("class", []byte(mentionClass))
			link.AppendChild(link, ast.NewTextSegment(text.NewSegment(at, end)))
			replace(t.Text, at, end, link)
		}
	}
}

// plainText is a text outside code and links.
type plainText struct {
	*ast.Text

	quoted bool // is in a quotation
}

// textsOf returns the texts of a document outside code and links. Adjacent ones are merged: the parser divides a text
// at each character that could begin markup.
func textsOf(doc ast.Node, source []byte) (texts []plainText) {
	literal, quotations := 0, 0                                                 // that the text is in
	_ = ast.Walk(doc, func(n ast.Node, entering bool) (ast.WalkStatus, error) { // it never fails
		step := 1
		if !entering {
			step = -1
		}
		switch n := n.(type) {
		case *ast.CodeSpan, *ast.Link, *ast.Image, *ast.AutoLink:
			return ast.WalkSkipChildren, nil
		case *ast.Blockquote:
			quotations += step
		case *tagNode:
			if n.closing == entering {
				break // of the two visits, one counts
			}
			if n.closing {
				step = -1
			}
			switch {
			case n.name == "a" || elements[n.name].literal:
				literal += step
			case n.name == "blockquote":
				quotations += step
			}
		case *ast.Text:
			if entering && literal == 0 {
				for next := n.NextSibling(); next != nil && n.Merge(next, source); next = n.NextSibling() {
					n.Parent().RemoveChild(n.Parent(), next)
				}
				texts = append(texts, plainText{n, quotations > 0})
			}
		}
		return ast.WalkContinue, nil
	})
	return texts
}
