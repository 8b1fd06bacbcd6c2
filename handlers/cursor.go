package handlers

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

// cursors makes and reads the cursors of lists. A cursor says where its list goes on and is signed together with the
// name of the list, so that neither a made-up cursor nor one of another list is ever taken for a place.
type cursors struct{ key []byte }

const (
	cursorPayload = 16 // two big-endian numbers: the sort column's value and the id
	cursorMAC     = 16 // bytes kept of the HMAC-SHA256
)

// Strict refuses the other spellings of the last character.
var cursorEncoding = base64.RawURLEncoding.Strict()

var cursorLength = cursorEncoding.EncodedLen(cursorPayload + cursorMAC)

func (k cursors) encode(list string, key models.ListKey) string {
	b := make([]byte, 0, cursorPayload+cursorMAC)
	b = binary.BigEndian.AppendUint64(b, uint64(key.Value))
	b = binary.BigEndian.AppendUint64(b, uint64(key.ID))
	return cursorEncoding.EncodeToString(append(b, k.mac(list, b)...))
}

func (k cursors) mac(list string, payload []byte) []byte {
	h := hmac.New(sha256.New, k.key)
	h.Write(payload) // of fixed length, so it cannot run into the name
	h.Write([]byte(list))
	return h.Sum(nil)[:cursorMAC]
}

// decode gives CodeMalformed for everything that encode did not make for this list.
func (k cursors) decode(list, cursor string) (models.ListKey, error) {
	b, err := cursorEncoding.DecodeString(cursor)
	if err != nil || len(cursor) != cursorLength || len(b) != cursorPayload+cursorMAC || !hmac.Equal(k.mac(list, b[:cursorPayload]), b[cursorPayload:]) {
		return models.ListKey{}, malformed("The cursor is not one of this list.",
			models.FieldError{Field: "cursor", Message: "is not a next_cursor of this list"})
	}
	return models.ListKey{
		Value: int64(binary.BigEndian.Uint64(b)),
		ID:    int64(binary.BigEndian.Uint64(b[8:])),
	}, nil
}

// after reads ?cursor= of a list; nil means the first page.
func (k cursors) after(c *fiber.Ctx, list string) (*models.ListKey, error) {
	if !c.Context().QueryArgs().Has("cursor") {
		return nil, nil
	}
	key, err := k.decode(list, c.Query("cursor"))
	if err != nil {
		return nil, err
	}
	return &key, nil
}

// page cuts what was read with one row more than limit down to limit, and gives the cursor to the rest, if there is any.
func page[T any](k cursors, list string, rows []T, limit int, key func(*T) models.ListKey) ([]T, *string) {
	if len(rows) <= limit {
		return rows, nil
	}
	next := k.encode(list, key(&rows[limit-1]))
	return rows[:limit], &next
}
