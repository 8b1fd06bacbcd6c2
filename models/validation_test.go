package models

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestCleanLine_keepsWhatScriptsNeed(t *testing.T) {
	t.Parallel()
	scotland := "\U0001F3F4\U000E0067\U000E0062\U000E0073\U000E0063\U000E0074\U000E007F"
	for given, want := range map[string]string{
		"  padded \u00a0":               "padded",
		"a\u200bb\u00adc\ufeffd\u2060e": "abcde",
		scotland + " x":                 scotland + " x",
		"\U000E0067x\U000E007F":         "x",
		"می\u200cخواهم":                 "می\u200cخواهم",
		"👨\u200d👩\u200d👧":               "👨\u200d👩\u200d👧",
		"שלום\u200f!":                   "שלום\u200f!",
		"\u200eplain\u200e":             "plain",
		"a\u2028b":                      "a b",
		"ᠠ\u180e":                       "ᠠ\u180e",
		"a\u3164b\u115f":                "ab",
		"\u2067שלום\u2069 x":            "\u2067שלום\u2069 x",
		"\ufffd":                        "\ufffd",
	} {
		clean := CleanLine(given)
		assert.Equal(t, want, clean, "%+q", given)
		_, bad := refused(clean, "")
		assert.False(t, bad, "%+q", given)
		assert.NoError(t, PostText{Title: "x" + clean, Content: "x"}.Validate(), "%+q", given)
	}
}

// Each text that is one line refuses the same characters, and names the one that is there.
func TestLines_nameTheCharacterThatIsRefused(t *testing.T) {
	t.Parallel()
	for text, name := range map[string]string{
		"a\x01b": "U+0001", "a\nb": "U+000A", "a\u202eb": "U+202E", "a\u2066b": "U+2069", "a\uffffb": "U+FFFF",
		"a\ufdd0b": "U+FDD0", "a\U0001FFFEb": "U+1FFFE", "a\ufff9b": "U+FFF9", "a\u0085b": "U+0085",
		"a\u2069b": "U+2069",
	} {
		for field, err := range map[string]error{
			"title":        PostText{Title: text, Content: "x"}.Validate(),
			"display_name": Profile{DisplayName: text}.Validate(),
			"reason":       ValidateReason(text),
			"bio":          Profile{Bio: strings.ReplaceAll(text, "\n", "\x02")}.Validate(),
		} {
			want := name
			if field == "bio" && name == "U+000A" {
				want = "U+0002"
			}
			assert.ErrorContains(t, err, "invalid", "%s %+q", field, text)
			var found *Error
			if assert.ErrorAs(t, err, &found) {
				assert.Contains(t, found.Fields[0].Message, want, "%s %+q", field, text)
			}
		}
	}
	assert.Error(t, PostText{Title: "x", Content: "a\uffffb"}.Validate())
	assert.NoError(t, PostText{Title: "\ufffd", Content: "\ufffd \x01"}.Validate())
}

func TestUsernames_areNotDigitsAlone(t *testing.T) {
	t.Parallel()
	assert.False(t, ValidUsername("20260711"))
	assert.True(t, ValidUsername("20260711a"))
}

func TestNormalTag_keepsJoinersAndDropsWhatMeansNothing(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "می\u200cخواهم", NormalTag("می\u200cخواهم"))
	assert.True(t, ValidTag(NormalTag("می\u200cخواهم")))
	assert.Equal(t, "go", NormalTag("\ufeff G\u00ado\u200b"))
}

func TestCheckDisplayName_findsReservedNames(t *testing.T) {
	t.Parallel()
	reserved, err := NewReservedNames(nil)
	assert.NoError(t, err)
	for _, name := range []string{"[deleted]", "Moderator", "(moderator)",
		"Моdеrаtоr", "Ａｄｍｉｎ", "ADM1N", "Ádmin", "m o d"} {
		assert.Error(t, reserved.CheckDisplayName(name), name)
	}
	for _, name := range []string{"Ada Lovelace", "Модест", "张伟", "", "🙂"} {
		assert.NoError(t, reserved.CheckDisplayName(name), name)
	}
}

func TestNormalizePassword_isTheSameInEveryForm(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "pässwörd", NormalizePassword("pa\u0308sswo\u0308rd"))
	assert.Equal(t, "a b", NormalizePassword("a\u00a0b"))
	assert.Equal(t, "a\x01b", NormalizePassword("a\x01b"))
	assert.Equal(t, NormalizeLogin("José@A.example"), NormalizeLogin(" jose\u0301@a.EXAMPLE\u200b "))
	assert.Equal(t, NormalizeLogin("jose@a.example"), NormalizeLogin("josé@a.example"))
}

func TestWebhookSettings_checkThePort(t *testing.T) {
	t.Parallel()
	for port, ok := range map[string]bool{"": true, ":443": true, ":65535": true, ":65536": false, ":99999": false,
		":0": false, ":": false} {
		err := WebhookSettings{URL: "https://a.example" + port + "/x", Events: WebhookEvents[:1]}.Validate(false)
		assert.Equal(t, ok, err == nil, "%q: %v", port, err)
		assert.Equal(t, ok, validAvatarURL("https://a.example"+port+"/x"), port)
	}
}
