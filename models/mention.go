package models

import (
	"regexp"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

// MaxMentions is how many different names in one text are told that they were mentioned; those after them are not.
const MaxMentions = 10

// mentionPattern finds what may be a mention, with everything that touches it: an "@" in or behind a word, as in an
// e-mail address, behind a backslash, or followed by another one, makes none.
var mentionPattern = regexp.MustCompile(`[A-Za-z0-9_.+\\/@-]*@[A-Za-z0-9_.@-]+`)

// mentionMarkdown reads the dialect that content is rendered in.
var mentionMarkdown = goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser()

// mentions gives the names that a text mentions as @name, in lower case, each once, in the order of the text and no
// more than MaxMentions. Code and links mention nobody. A name reaches as far as the rule for usernames lets it: in
// "@ada." the dot ends the sentence.
func mentions(content string) []string {
	if !strings.Contains(content, "@") || len(namesIn(content, nil)) == 0 {
		return nil // reading Markdown takes up to a second for the worst of texts, and most have no "@"
	}
	source := []byte(content)
	var names []string
	var start, end int // of the text that goes on with the next node
	_ = ast.Walk(mentionMarkdown.Parse(text.NewReader(source)), func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.CodeSpan, *ast.Link, *ast.Image:
			return ast.WalkSkipChildren, nil
		case *ast.Text:
			if n.Segment.Start != end {
				names = namesIn(content[start:end], names)
				start = n.Segment.Start
			}
			end = n.Segment.Stop
		}
		return ast.WalkContinue, nil
	}) // the function gives no error, so neither does the walk
	return namesIn(content[start:end], names)
}

// namesIn adds the names that plain text mentions to names.
func namesIn(plain string, names []string) []string {
	for plain != "" && len(names) < MaxMentions {
		found := mentionPattern.FindStringIndex(plain)
		if found == nil {
			break
		}
		name, whole := strings.CutPrefix(plain[found[0]:found[1]], "@")
		plain = plain[found[1]:]
		name = strings.ToLower(strings.TrimRight(name, ".-"))
		if whole && validUsername(name) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
