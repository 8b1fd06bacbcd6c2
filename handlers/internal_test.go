package handlers

import (
	"strings"
	"testing"

	"likewise/models"
)

func FuzzCursor(f *testing.F) {
	k := cursors{[]byte("a key of thirty-two bytes, nearly")}
	f.Add("posts:new", int64(1_767_225_600), int64(42), "")
	f.Add("likers:post=1", int64(0), int64(1), "AAAA")
	f.Add("posts:top:author=7", int64(-1), int64(-1), k.encode("posts:new", models.ListKey{Value: 5, ID: 9}))
	f.Fuzz(func(t *testing.T, list string, value, id int64, other string) {
		key := models.ListKey{Value: value, ID: id}
		cursor := k.encode(list, key)
		if got, err := k.decode(list, cursor); err != nil || got != key {
			t.Errorf("%v comes back as %v, %v", key, got, err)
		}
		if _, err := k.decode(list+"x", cursor); models.ErrorCode(err) != models.CodeMalformed {
			t.Errorf("a cursor of %q is good for another list: %v", list, err)
		}
		if other != cursor {
			if got, err := k.decode(list, other); err == nil && k.encode(list, got) != other || err != nil &&
				models.ErrorCode(err) != models.CodeMalformed {
				t.Errorf("%q is read as %v, %v", other, got, err)
			}
		}
	})
}

func FuzzIfMatch(f *testing.F) {
	for _, s := range []string{`"v0"`, `W/"v0"`, `"a","b"`, `"a" , W/"b",`, `"`, `W/`, `,,`, `"a""b"`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		tags, ok := parseTags(s, false)
		for _, tag := range tags {
			if len(tag) < 2 || tag[0] != '"' || tag[len(tag)-1] != '"' || strings.Count(tag, `"`) != 2 ||
				!strings.Contains(s, tag) {
				t.Errorf("%q has the tag %q", s, tag)
			}
		}
		if again, okAgain := parseTags(strings.Join(tags, ","), false); ok && (!okAgain || len(again) != len(tags)) {
			t.Errorf("%q gives %q, and that gives %q", s, tags, again)
		}
	})
}

func TestNegotiate_takesTheCodingThatWeighsMost(t *testing.T) {
	t.Parallel()
	for accept, want := range map[string]string{
		"": identity, "identity": identity, "deflate, zstd": identity, "gzip;q=0": identity, "*;q=0": identity,
		",;,": identity, "gzipped": identity,
		"gzip": "gzip", "br": "br", "gzip, deflate, br, zstd": "br", "gzip,br": "br", "GZIP ; Q=0.5": "gzip",
		"x-gzip":               "gzip",
		"br;q=1.0, gzip;q=0.8": "br", "br;q=0.8, gzip;q=1.0": "gzip", "gzip;q=0.8,br;q=0": "gzip",
		"gzip;q=0.001": "gzip",
		"*":            "br", "*, br;q=0": "gzip", "*;q=0.5, gzip": "gzip", "gzip;q=0, *": "br",
		"identity;q=1, gzip;q=0.5": identity, "identity;q=0.5, gzip;q=1": "gzip", "identity;q=0": identity,
		"gzip;q=2": identity, "gzip;q=-1": identity, "gzip;q=NaN": identity, "gzip;q=x, br": "br",
	} {
		if got := negotiate(accept); got != want {
			t.Errorf("%q: %s, want %s", accept, got, want)
		}
	}
}
