package handlers_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/handlers"
	"likewise/internal/testkit"
)

// The log holds few lines of many refused requests, and counts the others.
func TestLog_samplesRefusals(t *testing.T) {
	a := newAPI(t, modes[0])
	for _, flood := range []struct {
		kind         string
		status       int
		method, path string
	}{
		{"404 without a route", 404, "GET", "/nope"},
		{"405 without a route", 405, "BREW", "/v1/posts"},
		{"404", 404, "GET", "/v1/posts/424242"},
		{"401", 401, "GET", "/v1/me"},
	} {
		const requests = 500
		began := time.Now()
		for range requests {
			a.must(t, flood.status, account{}, flood.method, flood.path, nil)
		}
		windows := int(time.Since(began)/time.Second) + 2
		testkit.Eventually(t, 20*time.Second, func() (bool, string) {
			lines, leftOut := 0, 0
			for line := range strings.Lines(a.log.String()) {
				var l struct {
					Msg, Kind, Route string
					Status           int
					LeftOut          int `json:"left_out"`
				}
				if err := json.Unmarshal([]byte(line), &l); err != nil {
					t.Fatalf("%v in %s", err, line)
				}
				switch {
				case l.Msg == "request" && l.Status == flood.status &&
					(l.Route == "none") == strings.HasSuffix(flood.kind, "a route"):
					lines++
				case l.Kind == flood.kind:
					leftOut += l.LeftOut
				}
			}
			if lines > 20*windows {
				t.Fatalf("%s: %d lines in about %d seconds", flood.kind, lines, windows)
			}
			return lines+leftOut == requests,
				fmt.Sprintf("%s: %d lines, and %d are left out, of %d", flood.kind, lines, leftOut, requests)
		})
	}
}

// Every successful request is logged, because the limits bound their number.
func TestLog_hasEverySuccessfulRequest(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	for range 100 {
		a.must(t, 200, account{}, "GET", "/v1/posts", nil)
	}
	testkit.Eventually(t, 5*time.Second, func() (bool, string) {
		n := strings.Count(a.log.String(), `"route":"/v1/posts","status":200`)
		return n == 100, fmt.Sprintf("%d lines", n)
	})
}

func TestAccessLog_selectsRequests(t *testing.T) {
	t.Parallel()
	for log, want := range map[handlers.AccessLog][2]int{
		handlers.AccessAll: {1, 1}, handlers.AccessErrors: {0, 1}, handlers.AccessNone: {0, 0},
	} {
		a := newAPI(t, modes[0], func(c *handlers.Config) { c.AccessLog = log })
		a.must(t, 200, account{}, "GET", "/v1/posts", nil)
		a.refused(t, 404, "not_found", account{}, "GET", "/v1/posts/42", nil)
		require.NoError(t, a.Shutdown(t.Context())) // the requests are logged by then
		lines := a.log.String()
		got := [2]int{strings.Count(lines, `"status":200`), strings.Count(lines, `"status":404`)}
		assert.Equal(t, want, got, "%s: %s", log, lines)
	}
}
