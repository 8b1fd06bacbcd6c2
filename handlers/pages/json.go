package pages

import "encoding/json"

// JSON appends JSON to Body, without HTML escapes. They are not needed: every answer has a Content-Type and
// forbids sniffing.
type JSON struct {
	Body    []byte
	encoder *json.Encoder
}

// Write appends b, for the encoder.
func (w *JSON) Write(b []byte) (int, error) {
	w.Body = append(w.Body, b...)
	return len(b), nil
}

// Text appends JSON that needs no encoding.
func (w *JSON) Text(json string) { w.Body = append(w.Body, json...) }

// Encode appends the JSON of v.
func (w *JSON) Encode(v any) error {
	if w.encoder == nil {
		w.encoder = json.NewEncoder(w)
		w.encoder.SetEscapeHTML(false)
	}
	if err := w.encoder.Encode(v); err != nil {
		return err
	}
	w.Body = w.Body[:len(w.Body)-1] // the newline
	return nil
}

// EncodeJSON encodes v as Fiber calls it.
func EncodeJSON(v any) ([]byte, error) {
	var w JSON
	err := w.Encode(v)
	return w.Body, err
}
