package handlers

import (
	"regexp"
	"slices"
	"strings"

	"github.com/yuin/goldmark/ast"

	"likewise/models"
)

// mentionPattern finds what may be a mention, with everything that touches it: an "@" in or behind a word, as in an
// e-mail address, behind a backslash, or followed by another one, makes none.
var mentionPattern = regexp.MustCompile(`[A-Za-z0-9_.+\\/@-]*@[A-Za-z0-9_.@-]+`)

// mentions gives the names that content mentions as @name, in lower case, each once, in the order of the text and no more
// than models.MaxMentions. Code and links mention nobody. A name reaches as far as the rule for usernames lets it: in
// "@ada." the dot ends the sentence.
func (m *markdown) mentions(content string) []string {
	if !strings.Contains(content, "@") || len(namesIn(content, nil)) == 0 {
		return nil // most texts have no "@", and need not be parsed for it
	}
	source, doc := m.parse(content)
	var names []string
	var start, end int // of the text that goes on with the next node
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
	}) // the function gives no error, so neither does the walk
	return namesIn(string(source[start:end]), names)
}

// namesIn adds the names that plain text mentions to names.
func namesIn(plain string, names []string) []string {
	for plain != "" && len(names) < models.MaxMentions {
		found := mentionPattern.FindStringIndex(plain)
		if found == nil {
			break
		}
		name, whole := strings.CutPrefix(plain[found[0]:found[1]], "@")
		plain = plain[found[1]:]
		name = strings.ToLower(strings.TrimRight(name, ".-"))
		if whole && models.ValidUsername(name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
