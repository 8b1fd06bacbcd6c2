package pages

import (
	"strings"
	"testing"
)

func FuzzIfMatch(f *testing.F) {
	for _, s := range []string{`"v0"`, `W/"v0"`, `"a","b"`, `"a" , W/"b",`, `"`, `W/`, `,,`, `"a""b"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		tags, ok := ParseTags(s, false)
		for _, tag := range tags {
			if len(tag) < 2 || tag[0] != '"' || tag[len(tag)-1] != '"' || strings.Count(tag, `"`) != 2 ||
				!strings.Contains(s, tag) {
				t.Errorf("%q has the tag %q", s, tag)
			}
		}
		if again, okAgain := ParseTags(strings.Join(tags, ","), false); ok && (!okAgain || len(again) != len(tags)) {
			t.Errorf("%q is parsed as %q, and that as %q", s, tags, again)
		}
	})
}
