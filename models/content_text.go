package models

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Invisible characters that text needs: the spelling of Persian, of the scripts of India and of emojis has joiners.
const (
	zeroWidthNonJoiner = '\u200c'
	zeroWidthJoiner    = '\u200d'
	brailleBlank       = '\u2800'
)

func isControl(r rune) bool { return r < 0x20 || r == 0x7f || r == utf8.RuneError }

// isUnseen reports whether a character is invisible, so that it could make a name or title look like another one:
// control characters, line and paragraph separators, marks of the writing direction, and characters without a glyph.
func isUnseen(r rune) bool {
	switch {
	case r == zeroWidthNonJoiner, r == zeroWidthJoiner, unicode.Is(unicode.Prepended_Concatenation_Mark, r):
		return false
	}
	return isControl(r) ||
		unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Other_Default_Ignorable_Code_Point)
}

// showsNothing reports whether s has no visible character.
func showsNothing(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool {
		return unicode.IsGraphic(r) && !unicode.IsSpace(r) && r != brailleBlank &&
			!unicode.In(r, unicode.M, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point)
	})
}

// Seen returns s without its invisible characters; "" if none is left.
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
