package pages

import (
	"testing"

	"likewise/models"
)

func FuzzCursor(f *testing.F) {
	k := Cursors{[]byte("a key of thirty-two bytes, nearly")}
	f.Add("posts:new", int64(1_767_225_600), int64(42), "")
	f.Add("likers:post=1", int64(0), int64(1), "AAAA")
	f.Add("posts:top:author=7", int64(-1), int64(-1), k.Encode("posts:new", models.ListKey{Value: 5, ID: 9}))
	f.Fuzz(func(t *testing.T, list string, value, id int64, other string) {
		key := models.ListKey{Value: value, ID: id}
		cursor := k.Encode(list, key)
		if got, err := k.Decode(list, cursor); err != nil || got != key {
			t.Errorf("%v is decoded as %v, %v", key, got, err)
		}
		if _, err := k.Decode(list+"x", cursor); models.ErrorCode(err) != models.CodeMalformed {
			t.Errorf("a cursor of %q is good for another list: %v", list, err)
		}
		if other != cursor {
			if got, err := k.Decode(list, other); err == nil && k.Encode(list, got) != other || err != nil &&
				models.ErrorCode(err) != models.CodeMalformed {
				t.Errorf("%q is read as %v, %v", other, got, err)
			}
		}
	})
}
