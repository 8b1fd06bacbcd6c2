package network

import (
	"bytes"
	"errors"

	"likewise/models"
)

var errFraming = errors.New("ambiguous framing")

// CheckFraming returns CodeMalformed for a header that another server may read as a message of another length, which
// RFC 9112 calls a sign of request smuggling. raw is the header as sent, without the request line. fasthttp accepts all
// such headers: it joins folded lines, prefers Transfer-Encoding to Content-Length, and ignores the coding "identity".
// The caller must close the connection, because it is unknown where the next request begins.
func CheckFraming(raw []byte) error {
	var length, coding bool
	for line := range bytes.Lines(raw) {
		text, ok := bytes.CutSuffix(line, []byte("\r\n"))
		if !ok {
			return ambiguous("A line of the header does not end with CR LF.") // RFC 9112, 2.2
		}
		if len(text) > 0 && (text[0] == ' ' || text[0] == '\t') {
			return ambiguous("A line of the header is folded.") // 5.2
		}
		name, value, _ := bytes.Cut(text, []byte(":"))
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			length = true
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			coding = true
			if !bytes.EqualFold(bytes.TrimSpace(value), []byte("chunked")) {
				return ambiguous("The only Transfer-Encoding is chunked.") // 6.1
			}
		}
	}
	if length && coding {
		return ambiguous("Content-Length and Transfer-Encoding exclude each other.") // 6.3
	}
	return nil
}

func ambiguous(message string) error {
	return &models.Error{Code: models.CodeMalformed, Message: message, Err: errFraming}
}
