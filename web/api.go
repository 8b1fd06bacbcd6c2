package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"
)

// Bounds on one request to the API.
const (
	apiTimeout  = 12 * time.Second // more than the API's own, so that its answer arrives
	maxAPIBytes = 8 << 20          // a page of the API has at most 1 MiB of JSON, and its rendered HTML beside it
)

// problem is an error of the API (RFC 9457), or of the way to it.
type problem struct {
	Status     int          `json:"status"`
	Code       string       `json:"code"`
	Detail     string       `json:"detail"`
	RequestID  string       `json:"request_id"`
	Errors     []fieldError `json:"errors"`
	Version    *int64       `json:"version"`
	Ban        *ban         `json:"ban"`
	Challenge  string       `json:"challenge"` // of a login that needs a code
	RetryAfter int          `json:"-"`         // seconds; 0 if the answer does not say
	Once       bool         `json:"-"`         // sent again with its key, the request is not carried out again
}

type fieldError struct {
	Field   string `json:"field"`
	Code    string `json:"code"`
	Message string `json:"message"`
}

type ban struct {
	Until  *time.Time `json:"until"`
	Reason string     `json:"reason"`
}

func (p *problem) Error() string { return fmt.Sprintf("%d %s: %s", p.Status, p.Code, p.Detail) }

// Of returns the messages about a field.
func (p *problem) Of(field string) []string {
	if p == nil {
		return nil
	}
	var list []string
	for _, e := range p.Errors {
		if e.Field == field {
			list = append(list, e.Message)
		}
	}
	return list
}

// uncertain reports whether the request may have been carried out all the same.
func (p *problem) uncertain() bool { return p.Status >= http.StatusInternalServerError }

// problemOf returns err as a problem.
func problemOf(err error) *problem {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok { // before that of the request to the API, which it ended
		return &problem{
			Status: http.StatusRequestEntityTooLarge, Code: "too_large", Detail: "What you sent is too large.",
		}
	}
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	return &problem{Status: http.StatusInternalServerError, Code: "internal", Detail: "Something went wrong."}
}

// call is a request to the API.
type call struct {
	method, path string // path includes the query
	token        string // "" for the anonymous
	header       http.Header
	body         any       // encoded as JSON; nil for none
	stream       io.Reader // the body if it is not JSON
}

// answer is an answer of the API without an error.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// client sends requests to the API.
type client struct {
	base *url.URL
	http *http.Client
}

// do sends a request. The context ends it, as does apiTimeout. An answer from 400 on is a *problem.
func (c *client) do(ctx context.Context, r call) (*answer, error) {
	a, err := c.exchange(ctx, r)
	if p, ok := errors.AsType[*problem](err); ok {
		p.Once = r.header.Get("Idempotency-Key") != ""
		if p.RequestID == "" { // the answer is not the API's
			p.RequestID = r.header.Get("X-Request-Id")
		}
	}
	return a, err
}

func (c *client) exchange(ctx context.Context, r call) (*answer, error) {
	if r.stream == nil { // a browser may take its time to send a picture
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, apiTimeout)
		defer cancel()
	}
	body := r.stream
	if r.body != nil {
		encoded, err := json.Marshal(r.body)
		if err != nil {
			return nil, fmt.Errorf("encode a request: %w", err)
		}
		body = bytes.NewReader(encoded)
	}
	url := c.base.String() + r.path
	req, err := http.NewRequestWithContext(ctx, r.method, url, body) //nolint:gosec // the host is that of --api
	if err != nil {
		return nil, fmt.Errorf("make a request: %w", err)
	}
	maps.Copy(req.Header, r.header)
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	resp, err := c.http.Do(req) //nolint:gosec // as above
	if err != nil {
		return nil, unreachable(err)
	}
	defer resp.Body.Close()
	read, err := io.ReadAll(io.LimitReader(resp.Body, maxAPIBytes+1))
	switch {
	case err != nil:
		return nil, unreachable(err)
	case len(read) > maxAPIBytes:
		return nil, unreachable(errors.New("the answer is too long"))
	case resp.StatusCode >= http.StatusBadRequest:
		return nil, asProblem(resp, read)
	case resp.StatusCode == http.StatusTemporaryRedirect:
		return nil, &movedError{resp.Header.Get("Location")}
	}
	return &answer{resp.StatusCode, resp.Header, read}, nil
}

// movedError is the answer of the API about what has another path now, as the profile of a former username.
type movedError struct{ to string }

// name returns the last segment of the new path, as it is escaped there.
func (e *movedError) name() string {
	to, _, _ := strings.Cut(e.to, "?")
	return path.Base(to)
}

func (e *movedError) Error() string { return "moved to " + e.to }

// Ping returns an error if the API does not answer.
func (s *Server) Ping(ctx context.Context) error {
	_, err := s.api.do(ctx, call{method: http.MethodGet, path: "/healthz"})
	return err
}

// unreachableError is the cause of a problem that is not an answer of the API.
type unreachableError struct {
	problem

	cause error
}

func (e *unreachableError) Error() string { return e.problem.Error() + ": " + e.cause.Error() }

func (e *unreachableError) Unwrap() []error { return []error{&e.problem, e.cause} }

func unreachable(cause error) error {
	return &unreachableError{problem{
		Status: http.StatusServiceUnavailable, Code: "unavailable", Detail: "The forum does not answer.", RetryAfter: 1,
	}, cause}
}

func asProblem(resp *http.Response, body []byte) error {
	p := &problem{Status: resp.StatusCode, RequestID: resp.Header.Get("X-Request-Id")}
	p.RetryAfter, _ = strconv.Atoi(resp.Header.Get("Retry-After"))
	if err := json.Unmarshal(body, p); err != nil || p.Detail == "" {
		// A proxy before the API has answered.
		p.Code, p.Detail = "unavailable", http.StatusText(resp.StatusCode)
	}
	p.Status = resp.StatusCode
	p.aboutKey()
	return p
}

// The codes of a problem with the Idempotency-Key of a form.
const (
	codeKeyReused = "key_reused" // another form was carried out with it
	codeKeyInUse  = "key_in_use" // the same request is being carried out
)

// aboutKey puts a problem with an Idempotency-Key into words for people, who have never seen the key.
func (p *problem) aboutKey() {
	for _, e := range p.Errors {
		switch e.Code {
		case codeKeyReused:
			p.Detail = "You sent an earlier version of this, and it has arrived. Look at it before you send another."
		case codeKeyInUse:
			p.Detail = "It is being carried out. Look again in a moment."
		default:
			continue
		}
		p.Code, p.Errors = e.Code, nil
		return
	}
}

// at joins the segments of a path of the API and escapes each of them.
func at(segments ...any) string {
	var out []byte
	for _, s := range segments {
		out = append(out, '/')
		out = append(out, url.PathEscape(fmt.Sprint(s))...)
	}
	return "/v1" + string(out)
}

// query appends the parameters that have a value to a path.
func query(path string, pairs ...string) string {
	values := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			values.Set(pairs[i], pairs[i+1])
		}
	}
	if len(values) == 0 {
		return path
	}
	return path + "?" + values.Encode()
}
