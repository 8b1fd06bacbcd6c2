package markdown

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"likewise/models"
)

func markdownOf(t testing.TB) *Renderer {
	t.Helper()
	m, err := New("")
	require.NoError(t, err)
	return m
}

func TestMentions(t *testing.T) {
	t.Parallel()
	m := markdownOf(t)
	for _, c := range []struct {
		content string
		want    string // the names, with spaces between
	}{
		{"@ada", "ada"},
		{"Hello @Ada, @bob.", "ada bob"},
		{"@ada @ADA @Ada", "ada"},
		{"(@ada) \"@bob\" [@cyd] **@dan** _@eve_ ~~@fay~~ > @gus", "ada bob cyd dan eve fay gus"},
		{"# @ada\n\n- @bob\n\n| a |\n|---|\n| @dan |\n", "ada bob dan"},
		{"> @ada wrote\n> > @bob\n\n@cyd: no", "cyd"},
		{"<blockquote>\n@ada\n</blockquote>", ""},
		{"josé@ada.example é@ada @adaé @ada\u0301 \u043f@ada @ada\u043f", ""},
		{"感谢@ada，@bobは @cyd가 ขอบคุณ@dan", "ada bob cyd dan"},
		{"`x` <code>@ada</code> <a href=\"/x\">@bob</a> @cyd", "cyd"},
		{"你好@ada你好", "ada"},
		{"@user_name_x and @a.b-c_", "user_name_x a.b-c_"},
		{"@ada... @bob-- @cyd-.", "ada bob cyd"},
		{"*foo*@ada, `x`@bob", "ada bob"},
		{"@ab @a @ @-ada @.ada", ""},
		{"@" + strings.Repeat("a", 50) + " @" + strings.Repeat("b", 51), strings.Repeat("a", 50)},
		{"ada@example.org, mail:ada@bob x.ada@bob me+ada@bob", ""},
		{"<ada@example.org> @ada@example.org @@ada", ""},
		{`\@ada and \\@bob`, ""},
		{"`@ada` ``x @bob`` and\n\n    @cyd\n\n```\n@dan\n```\n\n~~~@eve\n~~~", ""},
		{"[@ada](https://example.org) ![@bob](x) [@cyd][1] https://example.org/@dan www.example.org/@eve\n\n" +
			"[1]: https://x/@fay", ""},
		{"<div>\n@ada\n</div>\n\n<a title=\"@bob\">x</a> <!-- @cyd -->", "ada"},
		{"`unclosed @ada", "ada"},
		{"@ada\n@bob\\\n@cyd  \n@dan", "ada bob cyd dan"},
		{"@media @import @n01 @n02 @n03 @n04 @n05 @n06 @n07 @n08 @n09", "media import n01 n02 n03 n04 n05 n06 n07 n08"},
		{"", ""},
	} {
		if got := strings.Join(m.Mentions(c.content), " "); got != c.want {
			t.Errorf("%q mentions %q, want %q", c.content, got, c.want)
		}
	}
}

func TestMentions_becomeLinks(t *testing.T) {
	t.Parallel()
	m := markdownOf(t)
	const ada = `<a href="/users/ada" class="mention">@Ada</a>`
	const bob = `<a href="/users/bob_b_c" class="mention">@bob_b_c</a>`
	for _, c := range []struct{ content, want string }{
		{"@Ada, @bob_b_c.", "<p>" + ada + ", " + bob + ".</p>\n"},
		{"*@Ada* **(@bob_b_c)** &amp;", "<p><em>" + ada + "</em> <strong>(" + bob + ")</strong> &amp;</p>\n"},
		{"one @Ada\ntwo @bob_b_c  \n3", "<p>one " + ada + "<br>\ntwo " + bob + "<br>\n3</p>\n"},
		{"|@Ada|\n|-|\n", "<table>\n<thead>\n<tr>\n<th>" + ada + "</th>\n</tr>\n</thead>\n</table>\n"},
		{"`@Ada` \\@Ada x@Ada @a", "<p><code>@Ada</code> @Ada x@Ada @a</p>\n"},
		{"<a class=\"mention\" href=\"/users/bob\">@Ada</a>",
			"<p>&lt;a class=&#34;mention&#34; href=&#34;/users/bob&#34;&gt;" + ada + "&lt;/a&gt;</p>\n"},
		{"[@Ada](/x)", "<p><a href=\"/x\" rel=\"nofollow ugc noopener\">@Ada</a></p>\n"},
	} {
		got, err := m.Render(c.content)
		if err != nil || got != c.want {
			t.Errorf("%q becomes %q, %v; want %q", c.content, got, err, c.want)
		}
	}
	many, err := m.Render(strings.Repeat("@ada ", models.MaxContent/5))
	if err != nil || strings.Count(many, "<a ") != maxMentionLinks {
		t.Errorf("%d links, %v", strings.Count(many, "<a "), err)
	}
}

// FuzzMentions checks that every found name follows the rules of usernames and occurs in the text.
func FuzzMentions(f *testing.F) {
	f.Add("Hello @ada, `@bob` and x@y.zz \\@cyd [@dan](x) _@eve_\n\n    @fay")
	f.Add("> > @ada\n- *@bob_c*\n<b>@dan</b>&amp;@eve")
	m := markdownOf(f)
	f.Fuzz(func(t *testing.T, content string) {
		names := m.Mentions(content)
		rendered, err := m.Render(content)
		require.NoError(t, err)
		for _, name := range names { // those that are notified
			if !strings.Contains(rendered, `<a href="/users/`+name+`" class="mention">`) {
				t.Fatalf("%q becomes %q, without a link to %s", content, rendered, name)
			}
		}
		if len(names) > models.MaxMentions {
			t.Fatalf("%d names", len(names))
		}
		for i, name := range names {
			if !models.ValidUsername(name) || strings.ToLower(name) != name || slices.Contains(names[:i], name) {
				t.Fatalf("%q mentions %q", content, names)
			}
			if !strings.Contains(strings.ToLower(content), "@"+name) {
				t.Fatalf("%q is not in %q", name, content)
			}
		}
	})
}

// BenchmarkMentions reads texts of maximal length: one without a mention, an ordinary one, and a slow one.
func BenchmarkMentions(b *testing.B) {
	m := markdownOf(b)
	for name, unit := range map[string]string{
		"none": "Some *words* of a text. ", "some": "Some *words* of a text, @ada.\n\n",
		"quotes": ">", "links": "[@ada", "at": "@",
	} {
		content := strings.Repeat(unit, models.MaxContent/len(unit)-1) + " @ada"
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				m.Mentions(content)
			}
		})
	}
}

// TestMentions_endInTime bounds the time for the worst texts.
func TestMentions_endInTime(t *testing.T) {
	m := markdownOf(t)
	for _, unit := range []string{">", "[@a", "@", "*@a ", "_@a_", "`@", "<@a", "@a@", "- @", "|@"} {
		content := strings.Repeat(unit, models.MaxContent/len(unit)-1) + "@ada"
		began := time.Now()
		m.Mentions(content)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%q repeated takes %s", unit, took)
		}
	}
}
