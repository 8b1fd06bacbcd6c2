package handlers_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A message with an ambiguous end is answered once, and nothing after it on the connection is read as a request.
func TestFraming_thatIsAmbiguousEndsTheConnection(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	const hidden = "GET /healthz HTTP/1.1\r\nHost: hidden\r\n\r\n"
	for name, message := range map[string]string{
		"Content-Length before Transfer-Encoding": "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"Content-Length after Transfer-Encoding":  "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
		"in other cases":                          "tRANSFER-eNCODING: Chunked\r\ncONTENT-lENGTH: 5\r\n\r\n0\r\n\r\n",
		"Content-Length: 0 and Transfer-Encoding": "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"Content-Length and the coding identity":  "Content-Length: 0\r\nTransfer-Encoding: identity\r\n\r\n",
		"the coding identity":                     "Transfer-Encoding: identity\r\n\r\n",
		"a folded Transfer-Encoding":              "Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
		"a Transfer-Encoding folded with a tab":   "Transfer-Encoding:\r\n\tchunked\r\n\r\n0\r\n\r\n",
		"a Transfer-Encoding hidden in a fold": "X-Fold: a\r\n Transfer-Encoding: chunked\r\n" +
			"Content-Length: 0\r\n\r\n",
		"a folded Content-Length":        "Content-Length:\r\n 0\r\n\r\n",
		"a line that ends with LF alone": "X-Line: a\nContent-Length: 0\r\n\r\n",
		"an unknown coding":              "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
		"two codings":                    "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"two lengths":                    "Content-Length: 0\r\nContent-Length: 0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", strings.TrimPrefix(a.url, "http://"))
			require.NoError(t, err)
			defer conn.Close()
			require.NoError(t, conn.SetDeadline(time.Now().Add(30*time.Second)))
			fmt.Fprint(conn, "POST /v1/auth/login HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n"+
				"Content-Type: application/json\r\n"+message+hidden)
			if half, ok := conn.(*net.TCPConn); ok {
				_ = half.CloseWrite() // or the server would linger for what else comes
			}
			in := bufio.NewReader(conn)
			r, err := http.ReadResponse(in, nil)
			require.NoError(t, err)
			defer r.Body.Close()
			body, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			if p := read[problem](t, reply{r.StatusCode, r.Header, body}); r.StatusCode != http.StatusBadRequest ||
				p.Code != "malformed" || !r.Close {
				t.Errorf("the answer is %d %s, close: %t", r.StatusCode, body, r.Close)
			}
			if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
				t.Errorf("after the answer, the client received %q, %v", rest, err)
			}
		})
	}
	// A chunked body alone is unambiguous: the next request of the connection is answered.
	conn, err := net.Dial("tcp", strings.TrimPrefix(a.url, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	fmt.Fprint(conn, "POST /v1/auth/login HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"+
		"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"+hidden)
	in := bufio.NewReader(conn)
	for _, want := range []int{401, 200} {
		r, err := http.ReadResponse(in, nil)
		require.NoError(t, err)
		defer r.Body.Close()
		body, err := io.ReadAll(r.Body)
		if err != nil || r.StatusCode != want {
			t.Errorf("answered with %d %s, %v; want %d", r.StatusCode, body, err, want)
		}
	}
}
