package stackexchange

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
	"golang.org/x/net/html"

	"likewise/models"
)

func TestUsernames(t *testing.T) {
	more := func(id string) []string {
		return []string{"user-" + id, "user-" + id + "-2", "user-" + id + "-3", "user-" + id + "-4"}
	}
	for name, want := range map[string][]string{
		"Ada Lovelace":             {"Ada-Lovelace", "Ada-Lovelace-7"},
		"Jérémy Prud'Homme":        {"Jeremy-PrudHomme", "Jeremy-PrudHomme-7"},
		"Мати Тернер":              {"Mati-Terner", "Mati-Terner-7"},
		"彭紅豆":                      {"Peng-Hong-Dou", "Peng-Hong-Dou-7"},
		"Ł.":                       {"L-7"},
		"oa":                       {"oa-7"},
		"  _._ ":                   nil,
		"":                         nil,
		"🙂":                        nil,
		"me@example.org":           {"me-example.org", "me-example.org-7"},
		"St.":                      {"St-7"},
		strings.Repeat("long", 30): {strings.Repeat("long", 12) + "lo", strings.Repeat("long", 12) + "-7"},
	} {
		require.Equal(t, append(want, more("7")...), usernames(name, 7), name)
	}
}

func TestTitle(t *testing.T) {
	require.Equal(t, "a b", title(" a\r\n\tb "))
	require.Equal(t, noText, title(" \n"))
	require.Equal(t, strings.Repeat("é", 199)+"…", title(strings.Repeat("é", 201)))
	require.Equal(t, "What does &amp; mean?", title("What does &amp; mean?"), "a title is text, not HTML")
}

func TestTags(t *testing.T) {
	for s, want := range map[string]models.Tags{
		"":                            {},
		"<qubit><quantum-gate>":       {"qubit", "quantum-gate"},
		"|qubit|quantum-gate|":        {"qubit", "quantum-gate"},
		"<c++><.net><C#><c#>":         {"c++", ".net", "c#"},
		"<a><b><-><a b><c><d><e><f>":  {"a", "b", "c", "d", "e"},
		"<" + strings.Repeat("x", 31): {},
	} {
		names, _ := tags(s)
		require.ElementsMatch(t, want, names, s)
	}
}

func TestMarkdown(t *testing.T) {
	conv := newHTMLConverter("math.stackexchange")
	for body, want := range map[string]string{
		`<p>2<sup>10</sup> = 1024</p>`:                    `2^10 = 1024`,
		`<p><sup>A whole footnote.</sup></p>`:             `A whole footnote.`,
		`<p><a href="/q/1">see</a></p>`:                   `[see](https://math.stackexchange.com/q/1)`,
		`<p><s>old</s> <em>new</em></p>`:                  `~~old~~ *new*`,
		"<pre><code>a := *b\n</code></pre>":               "```\na := *b\n```",
		`<p>$a_1 * b_2 * c$</p>`:                          `$a\_1 * b\_2 * c$`,
		`<script>alert(1)</script><p onclick="x()">p</p>`: `p`,
	} {
		got, err := conv.markdown(body)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

// The Markdown of every post must render to the text of its HTML, although formulas contain characters that are markup
// in Markdown.
func TestMarkdown_rendersToTheSameText(t *testing.T) {
	d, err := openDump(t.Context(), extract, func(int64, int64) {})
	require.NoError(t, err)
	defer d.Close()
	text := func(page string) string {
		root, err := html.Parse(strings.NewReader(page))
		require.NoError(t, err)
		return strings.Join(strings.Fields(nodeText(root)), "")
	}
	conv, renderer := newHTMLConverter("quantumcomputing.stackexchange"), goldmark.New(
		goldmark.WithExtensions(extension.GFM),
	)
	for _, list := range []table{d.questions, d.answers} {
		for _, e := range list.rows {
			r, err := list.read(e)
			require.NoError(t, err)
			p, err := decodePost(r)
			require.NoError(t, err)
			require.NotEmpty(t, p.body)
			markdown, err := conv.markdown(p.body)
			require.NoError(t, err)
			var page bytes.Buffer
			require.NoError(t, renderer.Convert([]byte(markdown), &page))
			require.Equal(
				t,
				strings.ReplaceAll(text(p.body), "^", ""),
				strings.ReplaceAll(text(page.String()), "^", ""),
				"post %d",
				p.id,
			)
		}
	}
}

func TestVoter_isDistinctAndReproducible(t *testing.T) {
	for _, users := range []int64{1, 2, 6, 41, 3461} {
		for external := range int64(20) {
			seen := map[int64]bool{}
			for n := range users {
				v := voter(kindPostLikes, external, n, users)
				require.False(t, seen[v])
				require.Less(t, v, users)
				require.GreaterOrEqual(t, v, int64(0))
				seen[v] = true
			}
		}
	}
	// Fixed values: if the choice of voters changed, a stopped import would continue with other voters.
	require.Equal(
		t,
		[]int64{32, 19, 11},
		[]int64{voter(kindPostLikes, 23, 0, 41), voter(kindPostLikes, 23, 1, 41), voter(kindAnswerLikes, 23, 0, 41)},
	)
}
