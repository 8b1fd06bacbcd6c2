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
	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// Version is the version of the rules in this package that make terms and weights. Posts that were indexed by an
// earlier version are indexed again. Increase it with every change of the rules.
const Version = 1

const (
	// MaxQuery is the maximum length of a query, in characters.
	MaxQuery = 200
	// MaxTerms is the maximum number of terms of a query. Terms after them are ignored.
	MaxTerms = 10

	maxTerm = 32 // characters of a term, the width of its column; longer words are cut
)

// QueryTerms returns the terms that a post must have to be found by a query: at most MaxTerms, each once, in the order
// of the query. It returns none if the query has no word. Stop words are left out if other terms remain.
func QueryTerms(query string) []string {
	var terms, stopWords []string
	paired := map[string]bool{} // characters that are part of a pair
	each(query, func(term string) {
		if first, size := utf8.DecodeRuneInString(term); isUnspaced(first) && len(term) > size {
			_, last := utf8.DecodeLastRuneInString(term)
			paired[string(first)], paired[term[len(term)-last:]] = true, true
		}
		switch {
		case slices.Contains(terms, term) || slices.Contains(stopWords, term):
		case english.IsStopWord(term):
			stopWords = append(stopWords, term)
		default:
			terms = append(terms, term)
		}
	})
	// A post with a pair has both of its characters.
	terms = slices.DeleteFunc(terms, func(term string) bool { return paired[term] })
	if len(terms) == 0 {
		terms = stopWords
	}
	return terms[:min(len(terms), MaxTerms)]
}

// each calls yield with every term of a text, in the order of the text and as often as the text has it.
//
// A word is a run of letters, marks and digits. Case, width and other differences of compatibility (NFKC) are folded,
// and so are the accents of Latin, Greek and Cyrillic. An English word becomes its stem: the term of "Qubits" is
// "qubit".
//
// Scripts without spaces between words, and Korean, whose words take particles, have a term for each character and for
// each pair of neighbours. So "量子计算" is found by "量子", "子计", "计算" and by each of its characters.
func each(text string, yield func(term string)) {
	folded := cases.Fold().String(norm.NFKD.String(text))
	withoutAccents := strings.Map(func(r rune) rune {
		if r >= 0x300 && r <= 0x36f { // marks of other scripts are kept: they are part of the spelling
			return -1
		}
		return r
	}, folded)
	for word := range strings.FieldsFuncSeq(norm.NFC.String(withoutAccents), isSeparator) {
		for word != "" {
			var run string
			if run, word = cutRun(word); isUnspaced(firstRune(run)) {
				charactersAndPairs(run, yield)
			} else {
				yield(stem(run))
			}
		}
	}
}

func isSeparator(r rune) bool {
	return !unicode.IsLetter(r) && !unicode.IsMark(r) && !unicode.IsDigit(r)
}

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
		unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
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
	n := 0
	for i := range word {
		if n++; n > maxTerm {
			return word[:i]
		}
	}
	return word
}
