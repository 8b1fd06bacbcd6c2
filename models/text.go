package models

import (
	"fmt"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Invisible characters that text needs: the spelling of Persian, of the scripts of India and of emojis has joiners, and
// marks of direction order words of scripts that run in different directions.
const (
	zeroWidthNonJoiner = '\u200c'
	zeroWidthJoiner    = '\u200d'
	leftToRightMark    = '\u200e'
	rightToLeftMark    = '\u200f'
	arabicLetterMark   = '\u061c'
	brailleBlank       = '\u2800'
)

// Marks that begin and end a direction. Text in which each has its end leaves the text around it alone. Overrides are
// refused: they show letters in another order than they are written.
const (
	popDirection    = '\u202c'
	popIsolate      = '\u2069'
	beginEmbeddings = "\u202a\u202b"
	beginIsolates   = "\u2066\u2067\u2068"
	directionMarks  = string(leftToRightMark) + string(rightToLeftMark) + string(arabicLetterMark)
	overrides       = "\u202d\u202e"
	annotations     = "\ufff9\ufffa\ufffb"
	mongolianVowels = "\u180e"
	lineSeparators  = "\u2028\u2029"
	joiners         = string(zeroWidthNonJoiner) + string(zeroWidthJoiner)

	directions   = beginEmbeddings + beginIsolates + string(popDirection) + string(popIsolate)
	refusedLater = directions + overrides + annotations // CleanLine keeps them
)

// flag matches a flag of a region, such as that of Scotland: a black flag and the letters of the region as tags.
var flag = regexp.MustCompile(`\x{1F3F4}[\x{E0020}-\x{E007E}]+\x{E007F}`)

// rightToLeft are the scripts that run from right to left.
var rightToLeft = []*unicode.RangeTable{unicode.Arabic, unicode.Hebrew, unicode.Syriac, unicode.Thaana, unicode.Nko,
	unicode.Adlam, unicode.Samaritan, unicode.Mandaic, unicode.Hanifi_Rohingya, unicode.Yezidi}

// unjoined are the scripts whose spelling has no joiners.
var unjoined = []*unicode.RangeTable{unicode.Latin, unicode.Greek, unicode.Cyrillic, unicode.Armenian,
	unicode.Georgian, unicode.Hebrew, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Bopomofo}

// CleanLine returns a text of one line as it is stored: without space around it, and without invisible characters that
// mean nothing, such as the word joiners and soft hyphens of pasted text.
func CleanLine(s string) string {
	return strings.TrimSpace(clean(separators(s, " ")))
}

// CleanLines is CleanLine for a text of several lines. The space around it stays.
func CleanLines(s string) string { return clean(separators(s, "\n")) }

// separators replaces the line and paragraph separators of Unicode, which word processors write.
func separators(s, by string) string {
	if !strings.ContainsAny(s, lineSeparators) {
		return s
	}
	return strings.NewReplacer("\u2028", by, "\u2029", by).Replace(s)
}

// clean removes invisible characters that mean nothing where they are.
func clean(s string) string {
	if !strings.ContainsFunc(s, isInvisible) {
		return s
	}
	meant := refusedLater
	if strings.ContainsFunc(s, func(r rune) bool { return unicode.IsLetter(r) && unicode.In(r, rightToLeft...) }) {
		meant += directionMarks
	}
	if strings.ContainsFunc(s, isJoined) {
		meant += joiners
	}
	if strings.ContainsFunc(s, func(r rune) bool { return unicode.IsLetter(r) && unicode.Is(unicode.Mongolian, r) }) {
		meant += mongolianVowels
	}
	keep := func(r rune) rune {
		if isInvisible(r) && !strings.ContainsRune(meant, r) {
			return -1
		}
		return r
	}
	var b strings.Builder
	from := 0
	for _, at := range flag.FindAllStringIndex(s, -1) {
		b.WriteString(strings.Map(keep, s[from:at[0]]) + s[at[0]:at[1]])
		from = at[1]
	}
	b.WriteString(strings.Map(keep, s[from:]))
	return b.String()
}

// isInvisible reports whether a character shows nothing, and is neither space nor a control character.
func isInvisible(r rune) bool {
	return r >= utf8.RuneSelf && unicode.In(r, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point) &&
		!unicode.Is(unicode.Prepended_Concatenation_Mark, r)
}

// isJoined reports whether r is an emoji or of a script that is spelled with joiners. In the other scripts, two texts
// that differ in a joiner look the same.
func isJoined(r rune) bool {
	return unicode.Is(unicode.So, r) || unicode.IsLetter(r) && !unicode.In(r, unjoined...)
}

// isNoncharacter reports whether r is one of the code points that will never be characters, and that XML cannot have.
func isNoncharacter(r rune) bool { return r&0xfffe == 0xfffe || r >= 0xfdd0 && r <= 0xfdef }

// refused returns the first character of a clean text that a line cannot have, apart from those of besides: a control
// character, an override of the direction, a mark of direction without its other half, or a noncharacter.
func refused(s, besides string) (rune, bool) {
	var open []rune
	for _, r := range s {
		switch {
		case strings.ContainsRune(besides, r):
		case unicode.IsControl(r), strings.ContainsRune(lineSeparators+overrides+annotations, r), isNoncharacter(r):
			return r, true
		case strings.ContainsRune(beginEmbeddings, r):
			open = append(open, popDirection)
		case strings.ContainsRune(beginIsolates, r):
			open = append(open, popIsolate)
		case r == popDirection, r == popIsolate:
			if len(open) == 0 || open[len(open)-1] != r {
				return r, true
			}
			open = open[:len(open)-1]
		}
	}
	if len(open) > 0 {
		return open[len(open)-1], true
	}
	return 0, false
}

// isUnseen reports whether a character is invisible or a control character, and is refused or removed in names.
func isUnseen(r rune) bool {
	_, bad := refused(string(r), "")
	return bad || isInvisible(r) && r != zeroWidthNonJoiner && r != zeroWidthJoiner
}

// codePoint returns the usual name of a character, such as U+202E.
func codePoint(r rune) string { return fmt.Sprintf("U+%04X", r) }

// showsNothing reports whether s has no visible character.
func showsNothing(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool {
		return unicode.IsGraphic(r) && !unicode.IsSpace(r) && r != brailleBlank &&
			!unicode.In(r, unicode.M, unicode.Cf, unicode.Other_Default_Ignorable_Code_Point)
	})
}

// Seen returns s without the characters that a line cannot have and those that CleanLine removes; "" if nothing visible
// is left. It is for text of others that cannot be refused.
func Seen(s string) string {
	s = CleanLine(strings.Map(func(r rune) rune {
		if _, bad := refused(string(r), directions); bad {
			return -1
		}
		return r
	}, separators(s, " ")))
	if _, bad := refused(s, ""); bad { // marks of direction without their other half
		s = strings.Map(func(r rune) rune {
			if strings.ContainsRune(directions, r) {
				return -1
			}
			return r
		}, s)
	}
	if showsNothing(s) {
		return ""
	}
	return strings.TrimSpace(s)
}
