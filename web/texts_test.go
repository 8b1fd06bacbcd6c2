package web

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// dynamic has the expressions that templates translate, with the words of the API that they can be. Those without words
// are texts of the code.
var dynamic = map[string][]string{
	"claims.html: .State":           claimStates,
	"mod_drop.html: .State":         claimStates,
	"list.html: .":                  {"hot", "new", "top", "active", "day", "week", "month", "year"},
	"settings.html: $s":             {"read", "write", "moderate"},
	"revisions.html: .":             {"title", "content", "tags"},
	"mod_content.html: .":           {"title", "content", "tags"},
	"mod_likes.html: .TargetStatus": {"deleted", "gone"},
	"mod_rings.html: .":             {"open", "dismissed", "voided"},
	"mod_rings.html: $r.Status":     {"dismissed", "voided"},
	"mod_user.html: .":              {"user", "moderator", "admin"},
	"mod_user.html: $a.Role":        {"user", "moderator", "admin"},
	"mod_users.html: .":             {"user", "moderator", "admin"},
	"mod_users.html: .Role":         {"user", "moderator", "admin"},
	"op_reconcile.html: $.Kind":     {"post", "comment", "drop"},
	"op_reconcile.html: .Type":      {"post", "comment"},
	"op_webhook.html: .ObjectType":  {"report", "user", "claim", "webhook"},
	"_parts.html: .":                {"must be a whole number", "must be a date with a time"},
	"_parts.html: .Field": {
		"username", "email", "password", "current_password", "new_password", "display_name", "bio", "name", "title",
		"content", "tags", "reason", "detail", "stock", "ends_at", "confirm_within", "drop_id", "code",
	},
	"error.html: .Field": nil,
	"_parts.html: .Message": {
		"is taken", "is reserved, or looks like a name that is", "is not the password of this account",
		"is neither a present code of the app nor an unused recovery code",
		"must be an e-mail address of at most 100 characters", "must have 8 to 128 characters", "must not be empty",
		"must not be one of the most common passwords, nor a single word or name with digits after it",
		"must be 3 to 50 letters (a-z), digits, '_', '.' or '-', not digits alone, beginning with a letter " +
			"or digit and ending with one or '_'",
		`must each have 1 to 30 letters or digits, and among them "+", "#", "." or "-"`, "must be at most 5",
		"must contain a word to search for", "must have 1 to 200 characters",
	},
	"_parts.html: .Detail": {
		"The link cannot be used: it has expired, was used already, or a newer one replaces it. Ask for a new one.",
		"This site sends no mail, so it cannot do this. Ask its administrator.",
		"This site does not accept registrations.",
		"The login or the password is wrong.", "The password is wrong.", "The code is wrong.",
		"The login has expired, or too many codes were wrong; log in again.",
		"Codes of apps cannot be checked on this site at the moment. A recovery code can be used instead.",
		"Moderators and admins need a second factor here. Add one to your account, or log in with it.",
		"An account with this username exists.",
		"The request has an invalid field.", "The request has invalid fields.",
	},
	"_layout.html: .Title": nil,
	"_mod.html: .Text":     nil,
	"_mod.html: .Button":   nil,
	"_op.html: .":          nil,
	"error.html: .Problem.Detail": {
		"There is no such post.", "There is no such comment.", "There is no such user.", "There is no such tag.",
		"There is no such version.", "There is no such claim.", "There is no such draft.",
	},
	"error.html: .Message":         nil,
	"kept.html: .Label":            nil,
	"kept.html: .Button":           {"Preview", "Send it again", "Discard it", "Repair it"},
	"link.html: .Title":            nil,
	"link.html: .Text":             nil,
	"link.html: .Button":           nil,
	"list.html: .Heading":          nil,
	"list.html: .Empty":            nil,
	"people.html: .Heading":        nil,
	"people.html: .Empty":          nil,
	"post_form.html: .Heading":     nil,
	"sure.html: .Question":         nil,
	"sure.html: .Act":              nil,
	"mod_again.html: .Act.Button":  nil,
	"mod_list.html: .Title":        nil,
	"mod_operation.html: .Button":  nil,
	"mod_redactions.html: .Button": nil,
	"mod_rings.html: .Button":      nil,
	"mod_user.html: .Button":       nil,
	"op_like.html: .What":          nil,
}

var claimStates = []string{"reserved", "confirmed", "returned", "expired", "rejected", "voided"}

// textsOf returns the texts of the templates and of the code: the arguments of t and of text, and the titles, headings
// and such that templates translate.
func textsOf(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	names, err := fs.Glob(files, "templates/*.html")
	require.NoError(t, err)
	call := regexp.MustCompile(`[({ ]t "((?:[^"\\]|\\.)*)"`)
	for _, name := range names {
		raw, err := fs.ReadFile(files, name)
		require.NoError(t, err)
		for _, m := range call.FindAllStringSubmatch(string(raw), -1) {
			found[m[1]] = name
		}
	}
	set := token.NewFileSet()
	sources, err := filepath.Glob("*.go")
	require.NoError(t, err)
	shown := map[string]bool{
		"Title": true, "Heading": true, "Empty": true, "Question": true, "Act": true, "Detail": true, "Done": true,
		"What": true, "Button": true, "Message": true, "Label": true, "Text": true,
	}
	lists := map[string]bool{"ownList": true, "people": true} // their last arguments are a heading and a sentence
	for _, name := range sources {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			add := func(e ast.Expr) {
				if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					text, err := strconv.Unquote(lit.Value)
					require.NoError(t, err)
					found[text] = name
				}
			}
			switch n := n.(type) {
			case *ast.CallExpr:
				f, ok := n.Fun.(*ast.SelectorExpr)
				switch {
				case ok && f.Sel.Name == "text" && len(n.Args) > 0:
					add(n.Args[0])
				case ok && lists[f.Sel.Name]:
					add(n.Args[1])
					add(n.Args[2])
				case ok && f.Sel.Name == "ask":
					add(n.Args[0])
					add(n.Args[1])
				}
			case *ast.KeyValueExpr:
				if key, ok := n.Key.(*ast.Ident); ok && shown[key.Name] {
					add(n.Value)
				}
			case *ast.AssignStmt:
				for i, left := range n.Lhs {
					if f, ok := left.(*ast.SelectorExpr); ok && shown[f.Sel.Name] && i < len(n.Rhs) {
						add(n.Rhs[i])
					}
				}
			}
			return true
		})
	}
	for text := range plurals {
		found[text] = "lang.go"
	}
	for expression, words := range dynamic {
		for _, word := range words {
			found[word] = expression
		}
	}
	delete(found, "")
	return found
}

func TestTexts_ofVariablesAreKnown(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	names, err := fs.Glob(files, "templates/*.html")
	require.NoError(t, err)
	call := regexp.MustCompile(`[({ ]t ([$.][\w.]*)`)
	for _, name := range names {
		raw, err := fs.ReadFile(files, name)
		require.NoError(t, err)
		for _, m := range call.FindAllStringSubmatch(string(raw), -1) {
			found[path.Base(name)+": "+m[1]] = true
		}
	}
	for expression := range found {
		assert.Contains(t, dynamic, expression, "list the words that it can be")
	}
	for expression := range dynamic {
		assert.Contains(t, found, expression, "no template has it")
	}
}

func TestTexts_areTranslated(t *testing.T) {
	t.Parallel()
	texts := textsOf(t)
	require.Greater(t, len(texts), 200)
	verb := regexp.MustCompile(`%[a-z]`)
	for text, where := range texts {
		translated, ok := chinese[text]
		if !assert.True(t, ok, "%s: %q is not translated", where, text) {
			continue
		}
		assert.Equal(t, verb.FindAllString(text, -1), verb.FindAllString(translated, -1), text)
	}
	for text := range chinese {
		assert.Contains(t, texts, text, "nothing shows this text")
		assert.NotContains(t, strings.ToLower(text), "please")
	}
}
