// Package search turns texts and queries into terms, and weighs the terms of a text for the order by relevance. It is
// pure: the index itself, a table of (term, post, weight), is read and written by package models.
//
// A post is found if it has all terms of a query. Its relevance is the sum of the weights of these terms. A weight
// depends on the text of its post alone, and not on other posts or on the time. So the pages of a search do not shift
// while other posts are written.
package search

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/kljensen/snowball/english"
	"github.com/mozillazg/go-unidecode"
	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// Version is the version of the rules in this package that make terms and weights. Posts that were indexed by an
// earlier version are indexed again. Increase it with every change of the rules.
const Version = 2

const (
	// MaxQuery is the maximum length of a query, in characters.
	MaxQuery = 200
	// MaxTerms is the maximum number of terms of a query. Terms after them are ignored.
	MaxTerms = 10

	maxTerm = 32 // characters of a term, the width of its column; longer words are cut
)

// QueryTerms returns the terms that a post must have to be found by a query: at most MaxTerms, each once, in the order
// of the query. It returns none if the query has neither a word nor a symbol. Stop words are left out if other terms
// remain.
func QueryTerms(query string) []string {
	var terms, stopWords []string
	covered := map[string]bool{} // terms that every post with another term has
	each(query, func(term string) {
		if first, size := utf8.DecodeRuneInString(term); isUnspaced(first) && len(term) > size {
			_, last := utf8.DecodeLastRuneInString(term)
			covered[string(first)], covered[term[len(term)-last:]] = true, true
		} else if word := strings.Trim(term, ".+#"); word != term && word != "" {
			covered[stem(word)] = true
		}
		switch {
		case slices.Contains(terms, term) || slices.Contains(stopWords, term):
		case english.IsStopWord(term):
			stopWords = append(stopWords, term)
		default:
			terms = append(terms, term)
		}
	})
	terms = slices.DeleteFunc(terms, func(term string) bool { return covered[term] })
	if len(terms) == 0 {
		terms = stopWords
	}
	return terms[:min(len(terms), MaxTerms)]
}

// each calls yield with every term of a text, in the order of the text and as often as the text has it.
//
// A word is a run of letters, marks and digits. What people may leave out, or have no key for, is folded: see fold. An
// English word becomes its stem: the term of "Qubits" is "qubit". A word with "+" or "#" behind it, or "." before it,
// is a term as well: "C++", "C#" and ".NET" are found as such, and by "C" and "NET". An emoji is a term.
//
// Scripts without spaces between words, and Korean, whose words take particles, have a term for each character and for
// each pair of neighbours. So "量子计算" is found by "量子", "子计", "计算" and by each of its characters.
func each(text string, yield func(term string)) {
	text = fold(text)
	for first := true; text != ""; first = false {
		begin := strings.IndexFunc(text, func(r rune) bool { return !isSeparator(r) })
		if begin < 0 {
			return
		}
		dotted := strings.HasSuffix(text[:begin], ".") && !strings.HasSuffix(text[:begin], "..") && (begin > 1 || first)
		text = text[begin:]
		end := strings.IndexFunc(text, isSeparator)
		if end < 0 {
			end = len(text)
		}
		words(text[:end], yield)
		symbols := signs(text[end:])
		if dotted {
			yield(cut("." + text[:end]))
		}
		if symbols != "" {
			yield(cut(text[:end] + symbols))
		}
		text = text[end:]
	}
}

// signs returns the "+" or "#" at the beginning of s that belong to the word before them: "++" and what no word
// follows.
func signs(s string) string {
	n := len(s) - len(strings.TrimLeft(s, "+#"))
	next, _ := utf8.DecodeRuneInString(s[n:])
	if n > 3 || n == 1 && !isSeparator(next) && next != utf8.RuneError || strings.HasPrefix(s, "##") {
		return ""
	}
	return s[:n]
}

// words yields the terms of a run of letters, marks, digits and emoji.
func words(word string, yield func(term string)) {
	for word != "" {
		var run string
		if run, word = cutRun(word); isUnspaced(firstRune(run)) {
			charactersAndPairs(run, yield)
		} else {
			yield(stem(run))
		}
	}
}

// fold removes the differences that readers do not search by. Case, width and other differences of compatibility (NFKC)
// are folded, and so are the accents of Latin, Greek and Cyrillic, with the Latin letters that Unicode does not take
// apart, such as "ł" and "ø". The vowel points of Arabic and Hebrew go, and letters that Arabic and Persian keyboards
// spell differently are one. Invisible characters go, but for the zero width space, which separates words.
func fold(text string) string {
	folded := cases.Fold().String(norm.NFKD.String(text))
	var b strings.Builder
	b.Grow(len(folded))
	for _, r := range folded {
		switch {
		case r < utf8.RuneSelf:
			b.WriteByte(byte(r))
		case isPoint(r) || r != zeroWidthSpace && unicode.In(r, unicode.Cf, unicode.Variation_Selector):
		case unicode.Is(unicode.Latin, r):
			b.WriteString(strings.ToLower(unidecode.Unidecode(string(r))))
		default:
			b.WriteRune(sameLetter(r))
		}
	}
	return norm.NFC.String(b.String())
}

const zeroWidthSpace = 0x200b

// isPoint reports whether r is an accent, a vowel point, or a stroke that lengthens a word. Marks of other scripts are
// kept: they are part of the spelling.
func isPoint(r rune) bool {
	return r >= 0x300 && r <= 0x36f || r == 0x640 ||
		unicode.Is(unicode.Mn, r) && unicode.In(r, unicode.Arabic, unicode.Hebrew) ||
		r >= 0x64b && r <= 0x65f || r == 0x670
}

// sameLetter returns the letter that stands for r in the index.
func sameLetter(r rune) rune {
	switch r {
	case 'ى', 'ی': // alef maksura, Persian yeh
		return 'ي'
	case 'ک':
		return 'ك'
	case 'ة':
		return 'ه'
	case 'ٱ':
		return 'ا'
	}
	return r
}

func isSeparator(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsMark(r) && !unicode.IsDigit(r) && !isEmoji(r)
}

// isEmoji reports whether r is a symbol such as an emoji: not one of mathematics or of money, which stand between
// words.
func isEmoji(r rune) bool { return unicode.Is(unicode.So, r) && r >= 0x2190 }

// cutRun cuts off the beginning of a word that is all in unspaced scripts, or all in others. Marks belong to the run
// before them.
func cutRun(word string) (run, rest string) {
	first := isUnspaced(firstRune(word))
	for i, r := range word {
		if isUnspaced(r) != first && !unicode.IsMark(r) {
			return word[:i], word[i:]
		}
	}
	return word, ""
}

func firstRune(s string) rune {
	r, _ := utf8.DecodeRuneInString(s)
	return r
}

// isUnspaced reports whether a character belongs to a script that is indexed by characters and pairs.
func isUnspaced(r rune) bool {
	return r >= 0xe00 && unicode.In(r,
		unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Bopomofo,
		unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar) || isEmoji(r)
}

func charactersAndPairs(run string, yield func(term string)) {
	before := ""
	for _, r := range run {
		character := string(r)
		yield(character)
		if before != "" {
			yield(before + character)
		}
		before = character
	}
}

// stem returns the English stem of a word of the letters a to z, and any other word as it is, cut to maxTerm
// characters.
func stem(word string) string {
	if len(word) <= maxTerm && strings.IndexFunc(word, func(r rune) bool { return r < 'a' || r > 'z' }) < 0 {
		return english.Stem(word, false)
	}
	return cut(word)
}

// cut returns the first maxTerm characters of a term.
func cut(word string) string {
	n := 0
	for i := range word {
		if n++; n > maxTerm {
			return word[:i]
		}
	}
	return word
}
