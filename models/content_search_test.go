package models

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func allTerms(text string) []string {
	var terms []string
	termsOf(text, func(term string) { terms = append(terms, term) })
	return terms
}

func TestTerms(t *testing.T) {
	for text, want := range map[string][]string{
		"":                         nil,
		"… —!🎀":                    nil,
		"The Qubits' Entanglement": {"the", "qubit", "entangl"},
		"Gödel, ＦＵＬＬ ﬁne Café":     {"godel", "full", "fine", "cafe"},
		"snake_case node.js 3.14":  {"snake", "case", "node", "js", "3", "14"},
		"Straße ΣΊΣΥΦΟΣ Ёлка":      {"strass", "σισυφοσ", "елка"},
		"量子":                       {"量", "量子", "子"},
		"量子计算":                     {"量", "量子", "子", "子计", "计", "计算", "算"},
		"用Redis做缓存":                {"用", "redi", "做", "做缓", "缓", "缓存", "存"},
		"ﾃｽﾄ がく":                   {"テ", "テス", "ス", "スト", "ト", "が", "がく", "く"},
		"한국어":                      {"한", "한국", "국", "국어", "어"},
		"हिन्दी":                   {"हिन्दी"},
	} {
		got := allTerms(text)
		slices.Sort(got)
		slices.Sort(want)
		assert.Equal(t, want, got, text)
	}
	assert.Equal(t, []string{strings.Repeat("e", 32)}, allTerms(strings.Repeat("é", 40)), "long words are cut")
}

func TestSearchTerms(t *testing.T) {
	for q, want := range map[string][]string{
		" ?! ":                                nil,
		"Qubits qubit QUBIT":                  {"qubit"},
		"how to run the code":                 {"run", "code"},
		"to be or not to be":                  {"to", "be", "or", "not"},
		"量子计算":                                {"量子", "子计", "计算"},
		"学":                                   {"学"},
		"Redis 缓存":                            {"redi", "缓存"},
		"a1 a2 a3 a4 a5 a6 a7 a8":             {"a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8"},
		"a1 a2 a3 a4 a5 a6 a7 a8 a9 b1 b2 b3": {"a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "a9", "b1"},
	} {
		assert.Equal(t, want, SearchTerms(q), q)
	}
}

func TestTermWeights(t *testing.T) {
	w := termWeights(PostText{Title: "Qubits", Content: "A gate is a gate is a gate; qubits are not."})
	assert.Greater(t, w["qubit"], w["gate"], "the title counts more than a word that comes often")
	assert.Greater(t, w["gate"], w["are"], "what comes often counts more than what comes once")
	short, long := termWeights(PostText{Content: "gate"}), termWeights(PostText{Content: "gate " + strings.Repeat("of something else ", 300)})
	assert.Greater(t, short["gate"], long["gate"], "what makes up a text counts more than what it mentions")
	assert.Positive(t, long["gate"])
	often := termWeights(PostText{Title: "gate", Content: strings.Repeat("gate ", 10_000)})
	assert.LessOrEqual(t, often["gate"], titleWeight+contentWeight)
	many := strings.Builder{}
	for r := rune(0x4e00); many.Len() < MaxContent-3; r++ {
		many.WriteRune(r)
	}
	assert.Len(t, termWeights(PostText{Content: many.String()}), maxPostTerms)
}

// Whatever a text holds, its terms fit their column, and the text is found by each of its own words.
func FuzzTerms(f *testing.F) {
	for _, seed := range []string{"Qubits' é 量子计算 ﾃｽﾄ", "a\u0301\u0301\u0301", "\u200d\u0e01\u0301x", "İİİ ŉ ǰ", "\xff\x00", strings.Repeat("漢a", 50)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		text = strings.ToValidUTF8(text, "?")
		weights := termWeights(PostText{Title: "T", Content: text})
		for term, weight := range weights {
			if n := utf8.RuneCountInString(term); n == 0 || n > maxTerm || weight < 1 || !utf8.ValidString(term) {
				t.Fatalf("term %q with weight %d of %q", term, weight, text)
			}
		}
		for _, term := range SearchTerms(text) {
			if weights[term] == 0 && len(weights) < maxPostTerms {
				t.Fatalf("%q is not found by its own term %q", text, term)
			}
		}
	})
}

func TestTags_oneSpellingEach(t *testing.T) {
	assert.Equal(t, Tags{"go", "c++", "量子", "café"}, NormalTags([]string{" Go", "GO", "c++", "量子", "Cafe\u0301", "café"}))
	for _, name := range []string{"go", "c++", "c#", ".net", "node.js", "r", "c-sharp", "量子计算", "हिन्दी", "x86-64", "1", strings.Repeat("é", 30)} {
		assert.True(t, ValidTag(name), name)
		assert.True(t, ValidTagPrefix(name), name)
		assert.Equal(t, name, NormalTag(strings.ToUpper(name)), name)
	}
	for _, name := range []string{"", "-", "+", ".", "..net", "-a", "a-", "a.", "a b", "a_b", "a,b", "a\x00", "🎀", "<a>", "a%", strings.Repeat("é", 31)} {
		assert.False(t, ValidTag(name), name)
	}
	require.True(t, ValidTagPrefix("."))
	require.True(t, ValidTagPrefix("c-"))
	require.False(t, ValidTagPrefix("c%"))
	require.False(t, ValidTagPrefix(""))
}
