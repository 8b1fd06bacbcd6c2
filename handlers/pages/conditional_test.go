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

func TestNegotiate_takesTheCodingThatWeighsMost(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]string{
		"": Identity, "identity": Identity, "deflate, zstd": Identity, "gzip;q=0": Identity,
		"*;q=0": Identity,
		",;,":   Identity, "gzipped": Identity,
		"gzip": "gzip", "br": "br", "gzip, deflate, br, zstd": "br", "gzip,br": "br", "GZIP ; Q=0.5": "gzip",
		"x-gzip":               "gzip",
		"br;q=1.0, gzip;q=0.8": "br", "br;q=0.8, gzip;q=1.0": "gzip", "gzip;q=0.8,br;q=0": "gzip",
		"gzip;q=0.001": "gzip",
		"*":            "br", "*, br;q=0": "gzip", "*;q=0.5, gzip": "gzip", "gzip;q=0, *": "br",
		"identity;q=1, gzip;q=0.5": Identity, "identity;q=0.5, gzip;q=1": "gzip", "identity;q=0": Identity,
		"gzip;q=2": Identity, "gzip;q=-1": Identity, "gzip;q=NaN": Identity, "gzip;q=x, br": "br",
	} {
		if got := negotiate(accept); got != want {
			t.Errorf("%q: %s, want %s", accept, got, want)
		}
	}
}
