package models

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Joiners are not seen, but Persian, the scripts of India and many an emoji are spelt with them.
const (
	zeroWidthNonJoiner = '\u200c'
	zeroWidthJoiner    = '\u200d'
	brailleBlank       = '\u2800'
)

func isControl(r rune) bool { return r < 0x20 || r == 0x7f || r == utf8.RuneError }

// isUnseen holds for what no name or title needs and could be used to make it look like another: control characters, line
// and paragraph separators, marks that turn the direction of writing, and what takes no room or leaves it empty.
func isUnseen(r rune) bool {
	switch {
	case r == zeroWidthNonJoiner, r == zeroWidthJoiner, unicode.Is(unicode.Prepended_Concatenation_Mark, r):
		return false
	}
	return isControl(r) || unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point)
}

// showsNothing reports whether there is nothing in s that a reader could see.
func showsNothing(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool {
		return unicode.IsGraphic(r) && !unicode.IsSpace(r) && !unicode.In(r, unicode.M, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point) && r != brailleBlank
	})
}

// Seen gives s without what cannot be seen; "" if nothing is left.
func Seen(s string) string {
	s = strings.Map(func(r rune) rune {
		if isUnseen(r) {
			return -1
		}
		return r
	}, s)
	if showsNothing(s) {
		return ""
	}
	return strings.TrimSpace(s)
}
