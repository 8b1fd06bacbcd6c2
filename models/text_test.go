package models

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
)

// Two names that look alike must not both be valid.
func TestNames_cannotBeMadeToLookLikeOthers(t *testing.T) {
	t.Parallel()
	tricks := map[string]string{
		"right-to-left override":    "\u202e",
		"left-to-right override":    "\u202d",
		"embedding":                 "\u202a",
		"pop":                       "\u202c",
		"isolate":                   "\u2066",
		"pop isolate":               "\u2069",
		"left-to-right mark":        "\u200e",
		"right-to-left mark":        "\u200f",
		"Arabic letter mark":        "\u061c",
		"zero width space":          "\u200b",
		"word joiner":               "\u2060",
		"byte order mark":           "\ufeff",
		"soft hyphen":               "\u00ad",
		"Mongolian vowel separator": "\u180e",
		"joiner":                    "\u200d",
		"non-joiner":                "\u200c",
		"invisible times":           "\u2062",
		"Hangul filler":             "\u3164",
		"halfwidth Hangul filler":   "\uffa0",
		"Hangul choseong filler":    "\u115f",
		"combining grapheme joiner": "\u034f",
		"tag letter":                "\U000e0061",
		"line separator":            "\u2028",
		"paragraph separator":       "\u2029",
		"next line":                 "\u0085",
		"NUL":                       "\x00",
		"escape":                    "\x1b",
		"backspace":                 "\x08",
		"delete":                    "\x7f",
		"line end":                  "\n",
		"tab":                       "\t",
		"interlinear annotation":    "\ufff9",
		"half of a character":       "\xc3",
	}
	valid := Registration{Username: "adalove", Email: "ada@example.org", Password: "difference engine"}
	assert.NoError(t, valid.Validate())
	for name, trick := range tricks {
		for _, s := range []string{"ada" + trick + "love", trick + "adalove", "adalove" + trick} {
			registration := valid
			registration.Username = s
			assert.Error(t, registration.Validate(), "username with %s", name)
			registration = valid
			registration.Email = s + "@example.org"
			assert.Error(t, registration.Validate(), "e-mail address with %s", name)
			assert.Error(t, Profile{DisplayName: s}.Validate(), "display name with %s", name)
			assert.Error(t, PostText{Title: s, Content: "x"}.Validate(), "title with %s", name)
			if tag := NormalTag(s); tag != "adalove" {
				assert.False(t, ValidTag(tag), "tag %q with %s", tag, name)
			}
		}
	}
	for _, s := range []string{
		"a\ufffd", "аdа", "ａｄａ", "ada\u0301", "ⓐda", "𝐚da", "ad\u2010a", "ädä", "ada۱", "ada\u00a0b", "ADA\u0130",
	} {
		registration := valid
		registration.Username = s + "love"
		assert.Error(t, registration.Validate(), "username %q", s)
	}
	for _, blank := range []string{"\u2800", "\u3164", "\u200d", "\u00a0", "\u3000", "\u0301", "\ufe0f", " \u2003 "} {
		assert.Error(t, PostText{Title: strings.Repeat(blank, 3), Content: "x"}.Validate(), "title of %q", blank)
		assert.Error(t, PostText{Title: "x", Content: strings.Repeat(blank, 3)}.Validate(), "content of %q", blank)
		assert.Error(t, Profile{DisplayName: blank}.Validate(), "display name of %q", blank)
	}
}

func TestNames_ofEveryScriptAreValid(t *testing.T) {
	t.Parallel()
	for _, s := range []string{
		"Ada Lovelace", "Größe", "Гёдель", "نمی\u200cخواهم", "עברית", "日本語の題",
		"क्\u200dष", "👩\u200d👩\u200d👧", "❤\ufe0f",
		"a\u0301", "한국어", "ไทย", "1", "?",
	} {
		assert.NoError(t, PostText{Title: s, Content: s}.Validate(), s)
		assert.NoError(t, Profile{DisplayName: s}.Validate(), s)
	}
}

// FuzzNames checks that valid names are visible, and that their normal form is stable.
func FuzzNames(f *testing.F) {
	for _, seed := range []string{
		"Ada", "c++", " .NET ", "\u202eada", "नमी\u200c", "\u3164", "e\u0301\u0301", "Ä\x00", "ﬁ", "İ",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		tag := NormalTag(s)
		if again := NormalTag(tag); ValidTag(tag) && again != tag {
			t.Errorf("%q is normal as %q and as %q", s, tag, again)
		}
		if ValidTag(tag) && (showsNothing(tag) || strings.ContainsAny(tag, " ,<>\"'&?%\\") || !ValidTagPrefix(tag)) {
			t.Errorf("%q is a tag", tag)
		}
		if ValidUsername(s) && strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) {
			t.Errorf("%q is a username", s)
		}
		if validEmail(s) && (strings.ContainsAny(s, " \r\n<>\"") || strings.ContainsFunc(s, isUnseen)) {
			t.Errorf("%q is an e-mail address", s)
		}
		title, displayName := PostText{Title: s, Content: "x"}, Profile{DisplayName: s + "x"}
		for _, err := range []error{title.Validate(), displayName.Validate()} {
			unseen := func(r rune) bool {
				return isUnseen(r) && !strings.ContainsRune(directions+directionMarks+mongolianVowels, r)
			}
			if err == nil && (strings.ContainsFunc(s, unseen) || !utf8.ValidString(s)) {
				t.Errorf("%q is a title or a name", s)
			}
		}
	})
}
