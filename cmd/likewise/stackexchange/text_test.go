package stackexchange

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"likewise/models"
)

func TestUsernames(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	require.Equal(t, "a b", title(" a\r\n\tb "))
	require.Equal(t, noText, title(" \n"))
	require.Equal(t, strings.Repeat("é", 199)+"…", title(strings.Repeat("é", 201)))
	require.Equal(t, "What does &amp; mean?", title("What does &amp; mean?"), "a title is text, not HTML")
}

func TestTags(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
	conv := newHTMLConverter("math.stackexchange")
	for body, want := range map[string]string{
		`<p>2<sup>10</sup> = 1024</p>`:                    `2<sup>10</sup> = 1024`,
		`<p><sup>A whole footnote.</sup></p>`:             `<sup>A whole footnote.</sup>`,
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

// A profile is plain text, so the addresses in it have to be whole.
func TestPlainText_hasWholeAddresses(t *testing.T) {
	t.Parallel()
	got, _ := plainText(`<p><a href="/q/1">see</a>, <a href="//b.example/c">d</a> <img src="/e.png" alt="f"></p>`,
		"https://a.example", models.MaxBio)
	require.Equal(t, "see (https://a.example/q/1), d (https://b.example/c) f https://a.example/e.png", got)
}

func TestVoter_isDistinctAndReproducible(t *testing.T) {
	t.Parallel()
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
