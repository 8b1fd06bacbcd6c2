package handlers

import (
	"bytes"
	"errors"

	"likewise/models"
)

var errFraming = errors.New("ambiguous framing")

// checkFraming refuses a header that another server before or behind this one may read as a message of another length:
// RFC 9112 calls it a sign of request smuggling. raw is the header as it was sent, without the request line. fasthttp
// accepts all of these: it joins folded lines, prefers Transfer-Encoding to Content-Length, and passes over the coding
// "identity". The caller closes the connection, because nobody knows where the next request would begin.
func checkFraming(raw []byte) error {
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
