package pages

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

// Cursors encodes and decodes the cursors of lists. A cursor holds a position and is signed together with the name of
// its list, so that a forged cursor and one of another list are refused. If the list has a window of time, the cursor
// also holds the beginning of the window: otherwise the window would move between two pages.
type Cursors struct{ key []byte }

const (
	cursorPayload = 24 // big-endian: the sort column's value, the id, and the window's beginning in Unix seconds or 0
	cursorMAC     = 16 // bytes kept of the HMAC-SHA256
)

// Strict refuses alternative encodings of the last character.
var cursorEncoding = base64.RawURLEncoding.Strict()

// CursorLength is the length of every cursor, in bytes.
var CursorLength = cursorEncoding.EncodedLen(cursorPayload + cursorMAC)

// NewCursors returns the cursors that are signed with a key, of 32 bytes.
func NewCursors(key []byte) Cursors { return Cursors{key} }

// Encode returns the cursor of a position in a list without a window.
func (k Cursors) Encode(list string, key models.ListKey) string { return k.EncodeSince(list, key, 0) }

// EncodeSince returns the cursor of a position in a list whose window begins at since, in Unix seconds.
func (k Cursors) EncodeSince(list string, key models.ListKey, since int64) string {
	b := make([]byte, 0, cursorPayload+cursorMAC)
	b = binary.BigEndian.AppendUint64(b, uint64(key.Value))
	b = binary.BigEndian.AppendUint64(b, uint64(key.ID))
	b = binary.BigEndian.AppendUint64(b, uint64(since))
	return cursorEncoding.EncodeToString(append(b, k.mac(list, b)...))
}

func (k Cursors) mac(list string, payload []byte) []byte {
	h := hmac.New(sha256.New, k.key)
	h.Write(payload) // of fixed length, so payload and name cannot be confused
	h.Write([]byte(list))
	return h.Sum(nil)[:cursorMAC]
}

// Decode returns CodeMalformed unless Encode has returned the cursor for this list.
func (k Cursors) Decode(list, cursor string) (models.ListKey, error) {
	key, _, err := k.decodeSince(list, cursor)
	return key, err
}

func (k Cursors) decodeSince(list, cursor string) (key models.ListKey, since int64, err error) {
	b, err := cursorEncoding.DecodeString(cursor)
	if err != nil || len(cursor) != CursorLength || len(b) != cursorPayload+cursorMAC ||
		!hmac.Equal(k.mac(list, b[:cursorPayload]), b[cursorPayload:]) {
		return key, 0, &models.Error{Code: models.CodeMalformed,
			Message: "The cursor does not belong to this list.",
			Fields: []models.FieldError{
				models.Broken(models.FieldWrongCursor, "is not a next_cursor of this list").In("cursor"),
			}}
	}
	key = models.ListKey{
		Value: int64(binary.BigEndian.Uint64(b)),
		ID:    int64(binary.BigEndian.Uint64(b[8:])),
	}
	return key, int64(binary.BigEndian.Uint64(b[16:])), nil
}

// After reads ?cursor= of a list; it returns nil for the first page.
func (k Cursors) After(c *fiber.Ctx, list string) (*models.ListKey, error) {
	key, _, err := k.AfterSince(c, list)
	return key, err
}

// AfterSince is After for a list with a window. It also returns the beginning of the window, 0 for the first page.
func (k Cursors) AfterSince(c *fiber.Ctx, list string) (*models.ListKey, int64, error) {
	if !c.Context().QueryArgs().Has("cursor") {
		return nil, 0, nil
	}
	key, since, err := k.decodeSince(list, c.Query("cursor"))
	if err != nil {
		return nil, 0, err
	}
	return &key, since, nil
}
