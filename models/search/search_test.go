package search

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
)

func allTerms(text string) []string {
	var terms []string
	each(text, func(term string) { terms = append(terms, term) })
	return terms
}

func TestTerms(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"":                            nil,
		"… —! + 5 < 6":                {"5", "6"},
		"🎀❤️":                         {"🎀", "🎀❤", "❤"},
		"C++ (C#), .NET; C++11":       {"c++", "c", "c#", "c", ".net", "net", "c++", "c", "11"},
		"a+b i++ #1 issue#1 A+ ##":    {"a", "b", "i", "i++", "1", "issu", "1", "a", "a+"},
		"asp.net end. Next ...what":   {"asp", "net", "end", "next", "what"},
		"Łódź København Đường Þór":    {"lodz", "kobenhavn", "duong", "thor"},
		"æsir ŒUVRE ıslak İZMİR":      {"aesir", "oeuvr", "islak", "izmir"},
		"مُحَمَّد كتـاب أحمد":         {"محمد", "كتاب", "احمد"},
		"שָׁלוֹם":                     {"שלום"},
		"علی على علي مدرسة کتاب":      {"علي", "علي", "علي", "مدرسه", "كتاب"},
		"co\u00adoperate می\u200cشود": {"cooper", "ميشود"},
		"ក\u200bខ":                    {"ក", "ខ"},
		"The Qubits' Entanglement":    {"the", "qubit", "entangl"},
		"Gödel, ＦＵＬＬ ﬁne Café":        {"godel", "full", "fine", "cafe"},
		"snake_case node.js 3.14":     {"snake", "case", "node", "js", "3", "14"},
		"Straße ΣΊΣΥΦΟΣ Ёлка":         {"strass", "σισυφοσ", "елка"},
		"量子":                          {"量", "量子", "子"},
		"量子计算":                        {"量", "量子", "子", "子计", "计", "计算", "算"},
		"用Redis做缓存":                   {"用", "redi", "做", "做缓", "缓", "缓存", "存"},
		"ﾃｽﾄ がく":                      {"テ", "テス", "ス", "スト", "ト", "が", "がく", "く"},
		"한국어":                         {"한", "한국", "국", "국어", "어"},
		"हिन्दी":                      {"हिन्दी"},
	} {
		got := allTerms(text)
		slices.Sort(got)
		slices.Sort(want)
		assert.Equal(t, want, got, text)
	}
	assert.Equal(t, []string{strings.Repeat("e", 32)}, allTerms(strings.Repeat("é", 40)), "long words are cut")
}

func TestQueryTerms(t *testing.T) {
	t.Parallel()
	for query, want := range map[string][]string{
		" ?! ":                                nil,
		"C++":                                 {"c++"},
		"learn C# C .NET":                     {"learn", "c#", ".net"},
		"🎉":                                   {"🎉"},
		"The C++ language":                    {"c++", "languag"},
		"Qubits qubit QUBIT":                  {"qubit"},
		"how to run the code":                 {"run", "code"},
		"to be or not to be":                  {"to", "be", "or", "not"},
		"量子计算":                                {"量子", "子计", "计算"},
		"学":                                   {"学"},
		"Redis 缓存":                            {"redi", "缓存"},
		"a1 a2 a3 a4 a5 a6 a7 a8":             {"a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8"},
		"a1 a2 a3 a4 a5 a6 a7 a8 a9 b1 b2 b3": {"a1", "a2", "a3", "a4", "a5", "a6", "a7", "a8", "a9", "b1"},
	} {
		assert.Equal(t, want, QueryTerms(query), query)
	}
}

func TestWeights(t *testing.T) {
	t.Parallel()
	w := Weights("Qubits", "A gate is a gate is a gate; qubits are not.")
	assert.Greater(t, w["qubit"], w["gate"], "a term of the title weighs more than a repeated one")
	assert.Greater(t, w["gate"], w["are"], "a repeated term weighs more than a single one")

	short, long := Weights("", "gate"), Weights("", "gate "+strings.Repeat("of something else ", 300))
	assert.Greater(t, short["gate"], long["gate"], "a term weighs more in a short text than in a long one")
	assert.Positive(t, long["gate"])

	often := Weights("gate", strings.Repeat("gate ", 10_000))
	assert.LessOrEqual(t, often["gate"], MaxWeight)

	const maxContent = 60_000 // bytes, as models.MaxContent
	many := strings.Builder{}
	for r := rune(0x4e00); many.Len() < maxContent-3; r++ {
		many.WriteRune(r)
	}
	assert.Len(t, Weights("", many.String()), maxTextTerms)
}

// FuzzTerms checks that every term fits its column and that a text is found by its own words.
func FuzzTerms(f *testing.F) {
	for _, seed := range []string{
		"Qubits' é 量子计算 ﾃｽﾄ", "a\u0301\u0301\u0301", "C++ .net# ##+ +a+#. .", "❤️🏴󠁧󠁢󠁥󠁮󠁧󠁿",
		"\u200d\u0e01\u0301x", "İİİ ŉ ǰ", "\xff\x00",
		strings.Repeat("漢a", 50),
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		text = strings.ToValidUTF8(text, "?")
		weights := Weights("T", text)
		for term, weight := range weights {
			if n := utf8.RuneCountInString(term); n == 0 || n > maxTerm || weight < 1 || !utf8.ValidString(term) {
				t.Fatalf("term %q with weight %d of %q", term, weight, text)
			}
		}
		for _, term := range QueryTerms(text) {
			if weights[term] == 0 && len(weights) < maxTextTerms {
				t.Fatalf("%q is not found by its own term %q", text, term)
			}
		}
	})
}
