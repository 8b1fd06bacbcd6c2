package markdown

import (
	"regexp"
	"slices"
	"strings"

	"github.com/yuin/goldmark/ast"

	"likewise/models"
)

// mentionPattern matches a possible mention with all characters adjacent to it. An "@" inside or after a word, as in an
// e-mail address, after a backslash or before another "@" is not a mention.
var mentionPattern = regexp.MustCompile(`[A-Za-z0-9_.+\\/@-]*@[A-Za-z0-9_.@-]+`)

// Mentions returns the usernames that content mentions as @name: in lower case, each once, in the order of the text,
// and at most models.MaxMentions. It ignores code and links. A trailing dot or dash does not belong to the name: in
// "@ada." the dot ends the sentence.
func (m *Renderer) Mentions(content string) []string {
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
