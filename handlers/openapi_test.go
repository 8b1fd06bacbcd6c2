package handlers_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// contract validates requests and answers against openapi.yaml. A schema of OpenAPI 3.1 is one of JSON Schema 2020-12
// and is addressed by its place in the document, so the validator of JSON Schema does the work; the code here finds the
// place. It is stricter than published validators of OpenAPI: an undocumented status, header, query parameter or body
// is an error.
type contract struct {
	doc obj

	mu       sync.Mutex
	compiler *jsonschema.Compiler
	schemas  map[string]*jsonschema.Schema // by JSON pointer

	paths []template // of the document, sorted
}

// template is a path of the document, and its segments.
type template struct {
	path string
	want []string
}

const contractURL = "https://likewise.example/openapi.json" // never fetched

// spec is read once for the whole suite.
var spec = sync.OnceValues(func() (*contract, error) {
	raw, err := os.ReadFile("openapi.yaml")
	if err != nil {
		return nil, err
	}
	return newContract(raw)
})

func newContract(raw []byte) (*contract, error) {
	var parsed any
	if err := yaml.Unmarshal(raw, &parsed); err != nil {
		return nil, err
	}
	text, err := json.Marshal(parsed) // fails on a key that is not a string
	if err != nil {
		return nil, err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.AssertFormat()
	if err := compiler.AddResource(contractURL, doc); err != nil {
		return nil, err
	}
	k := &contract{doc: doc.(obj), compiler: compiler, schemas: map[string]*jsonschema.Schema{}}
	paths, _ := node{"", k.doc}.in("paths")
	for _, path := range slices.Sorted(maps.Keys(paths.value)) {
		k.paths = append(k.paths, template{path, strings.Split(path, "/")})
	}
	return k, nil
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// node is a place in the document.
type node struct {
	pointer string
	value   obj
}

func (n node) in(keys ...string) (child node, ok bool) {
	for _, key := range keys {
		value, ok := n.value[key].(obj)
		if !ok {
			return node{}, false
		}
		n = node{n.pointer + "/" + pointerEscapes.Replace(key), value}
	}
	return n, true
}

// at returns the node at the keys, and follows references.
func (k *contract) at(n node, keys ...string) (node, bool) {
	for _, key := range keys {
		child, ok := n.in(key)
		if !ok {
			return node{}, false
		}
		n = k.follow(child)
	}
	return n, true
}

func (k *contract) follow(n node) node {
	for {
		ref, ok := n.value["$ref"].(string)
		if !ok {
			return n
		}
		n, _ = node{"", k.doc}.in(strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
	}
}

// valid validates a value, decoded with json.Number, against the schema of the node.
func (k *contract) valid(schema node, value any) error {
	k.mu.Lock()
	compiled, ok := k.schemas[schema.pointer]
	if !ok {
		var err error
		// In the fragment of a URL.
		if compiled, err = k.compiler.Compile(contractURL + "#" +
			(&url.URL{Path: schema.pointer}).EscapedPath()); err != nil {
			k.mu.Unlock()
			return fmt.Errorf("schema %s: %w", schema.pointer, err)
		}
		k.schemas[schema.pointer] = compiled
	}
	k.mu.Unlock()
	return compiled.Validate(value)
}

// operation finds the operation of a request and the parameters in its path. A path without parameters goes first.
func (k *contract) operation(method, path string) (op, item node, params map[string]string, found bool) {
	paths, _ := node{"", k.doc}.in("paths")
	got := strings.Split(path, "/")
	for _, t := range slices.Backward(k.paths) { // "{" sorts after letters
		p, ok := match(t.want, got)
		if !ok || found && len(p) >= len(params) {
			continue
		}
		item, _ = paths.in(t.path)
		params, found = p, true
	}
	op, _ = item.in(strings.ToLower(method))
	return op, item, params, found
}

func match(want, got []string) (params map[string]string, ok bool) {
	if len(want) != len(got) {
		return nil, false
	}
	for i, w := range want {
		switch name, isParam := strings.CutPrefix(w, "{"); {
		case isParam:
			value, err := url.PathUnescape(got[i])
			if err != nil || value == "" {
				return nil, false
			}
			if params == nil {
				params = map[string]string{}
			}
			params[strings.TrimSuffix(name, "}")] = value
		case w != got[i]:
			return nil, false
		}
	}
	return params, true
}

// check validates an exchange against the contract: the answer always, the request if it was accepted.
func (k *contract) check(req *http.Request, sent []byte, r reply) error {
	method := req.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	op, item, params, found := k.operation(method, req.URL.EscapedPath())
	var response node
	switch {
	case slices.Contains([]int{408, 413, 431}, r.Status), !found && slices.Contains([]int{400, 404}, r.Status),
		op.value == nil && slices.Contains([]int{405, 429, 503}, r.Status):
		// HTTP itself refuses these, on any path.
		if r.Status == 405 && r.Header.Get("Allow") == "" {
			return errors.New("the header Allow is missing")
		}
		return k.refusal(r)
	case op.value == nil:
		return errors.New("there is no such operation")
	default:
		var ok bool
		if response, ok = k.at(op, "responses", strconv.Itoa(r.Status)); !ok {
			return fmt.Errorf("the status %d is not one of %v", r.Status, op.value["operationId"])
		}
	}
	if err := k.headers(response, r.Header); err != nil {
		return err
	}
	if req.Method != http.MethodHead && r.Status != http.StatusNotModified {
		if err := k.body(response, r.Header, r.Body); err != nil {
			return fmt.Errorf("answer: %w", err)
		}
	}
	if r.Status >= 400 {
		return checkStatus(r)
	}
	if err := k.parameters(op, item, params, req); err != nil {
		return fmt.Errorf("request was accepted: %w", err)
	}
	if request, ok := k.at(op, "requestBody"); ok && (len(sent) > 0 || request.value["required"] == true) {
		if err := k.body(request, req.Header, sent); err != nil {
			return fmt.Errorf("request was accepted: %w", err)
		}
	}
	return nil
}

// checkStatus checks that a problem names the status of its answer.
func checkStatus(r reply) error {
	var p struct {
		Status int `json:"status"`
	}
	if err := json.Unmarshal(r.Body, &p); err == nil && p.Status != r.Status { // an answer to HEAD has no body
		return fmt.Errorf("the problem of an answer %d has the status %d", r.Status, p.Status)
	}
	return nil
}

// refusal validates an answer without an operation as a problem.
func (k *contract) refusal(r reply) error {
	schema, _ := node{"", k.doc}.in("components", "schemas", "Problem")
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(r.Body))
	if err != nil {
		return err
	}
	if kind := r.Header.Get("Content-Type"); kind != "application/problem+json" {
		return fmt.Errorf("the problem has the type %q", kind)
	}
	if err := k.valid(schema, value); err != nil {
		return err
	}
	return checkStatus(r)
}

// plumbing lists the headers that are not specific to an operation.
var plumbing = []string{
	"Access-Control-Allow-Credentials", "Access-Control-Allow-Headers", "Access-Control-Allow-Methods",
	"Access-Control-Allow-Origin",
	"Access-Control-Expose-Headers", "Access-Control-Max-Age", "Cache-Control", "Connection", "Content-Encoding",
	"Content-Length",
	"Content-Security-Policy", "Content-Type", "Cross-Origin-Resource-Policy", "Date", "Ratelimit", "Ratelimit-Policy",
	"Referrer-Policy",
	"Strict-Transport-Security", "Transfer-Encoding", "Vary", "X-Content-Type-Options",
}

func (k *contract) headers(response node, header http.Header) error {
	documented, _ := response.value["headers"].(obj)
	for name := range documented {
		h, _ := k.at(response, "headers", name)
		values := header.Values(name)
		if len(values) == 0 {
			if h.value["required"] == true {
				return fmt.Errorf("the header %s is missing", name)
			}
			continue
		}
		if err := k.text(h, strings.Join(values, ", ")); err != nil {
			return fmt.Errorf("header %s: %w", name, err)
		}
	}
	for name := range header {
		if !slices.Contains(plumbing, name) &&
			!slices.ContainsFunc(slices.Collect(maps.Keys(documented)),
				func(d string) bool { return strings.EqualFold(d, name) }) {
			return fmt.Errorf("the header %s is not documented", name)
		}
	}
	return nil
}

// text validates a value of a path, a query or a header against the schema of the parameter or header.
func (k *contract) text(n node, s string) error {
	schema, ok := n.in("schema")
	if !ok {
		return nil
	}
	var value any = s
	switch k.follow(schema).value["type"] {
	case "integer", "number":
		value = json.Number(s)
		if _, err := strconv.ParseFloat(s, 64); err != nil {
			value = s
		}
	case "boolean":
		if b, err := strconv.ParseBool(s); err == nil {
			value = b
		}
	case "array":
		items := []any{}
		for part := range strings.SplitSeq(s, ",") {
			items = append(items, part)
		}
		value = items
	}
	return k.valid(schema, value)
}

// unknownParameter is a parameter that no operation has. The API ignores such parameters.
const unknownParameter = "whatever"

func (k *contract) parameters(op, item node, path map[string]string, req *http.Request) error {
	query := req.URL.Query()
	for _, n := range []node{item, op} {
		list, _ := n.value["parameters"].([]any)
		for i, p := range list {
			param := k.follow(node{n.pointer + "/parameters/" + strconv.Itoa(i), p.(obj)})
			name := param.value["name"].(string)
			var values []string
			switch param.value["in"] {
			case "path":
				values = []string{path[name]}
			case "query":
				values = query[name]
				query.Del(name)
			case "header":
				values = req.Header.Values(name)
			}
			if len(values) == 0 && param.value["required"] == true {
				return fmt.Errorf("the parameter %s is missing", name)
			}
			for _, value := range values {
				if err := k.text(param, value); err != nil {
					return fmt.Errorf("parameter %s: %w", name, err)
				}
			}
		}
	}
	delete(query, unknownParameter)
	for name := range query {
		return fmt.Errorf("the parameter %s is not documented", name)
	}
	return nil
}

// body validates a body against n, the response or request body in the contract.
func (k *contract) body(n node, header http.Header, body []byte) error {
	content, ok := n.in("content")
	if !ok {
		if len(body) > 0 {
			return fmt.Errorf("a body where none is documented: %.100q", body)
		}
		return nil
	}
	kind, params, err := mime.ParseMediaType(header.Get("Content-Type"))
	if err != nil {
		return err
	}
	schema, ok := content.in(kind, "schema")
	if !ok {
		return fmt.Errorf("the type %s is not documented", kind)
	}
	var value any = string(body)
	if boundary := params["boundary"]; kind == "multipart/form-data" {
		form, err := multipart.NewReader(bytes.NewReader(body), boundary).ReadForm(32 << 20)
		if err != nil {
			return err
		}
		members := obj{}
		for name := range form.File {
			members[name] = ""
		}
		value = members
	}
	if kind == "application/json" || strings.HasSuffix(kind, "+json") {
		if value, err = jsonschema.UnmarshalJSON(bytes.NewReader(body)); err != nil {
			return err
		}
	}
	if err := k.valid(schema, value); err != nil {
		return err
	}
	if codes, ok := content.value[kind].(obj)["x-codes"].([]any); ok {
		return checkProblem(value.(obj), codes)
	}
	return nil
}

// checkProblem checks what a problem has to do with its answer and its code. Generators of clients fail on schemas that
// state it.
func checkProblem(p obj, codes []any) error {
	if !slices.Contains(codes, p["code"]) {
		return fmt.Errorf("the code %v is not one of %v", p["code"], codes)
	}
	page, err := errorsPage()
	if err != nil {
		return err
	}
	list, _ := p["errors"].([]any)
	for _, item := range list {
		field := item.(obj)
		params, _ := field["params"].(obj)
		names, known := page.fields[field["code"].(string)]
		if got := slices.Sorted(maps.Keys(params)); !known || !slices.Equal(got, names) {
			return fmt.Errorf("the code %v of %v has the params %v, and in docs/errors.md %v",
				field["code"], field["field"], got, names)
		}
	}
	for code, member := range map[string]string{
		"invalid": "errors", "precondition_failed": "version", "banned": "ban",
	} {
		if _, ok := p[member]; p["code"] == code && !ok {
			return fmt.Errorf("a problem with the code %s has no %s", code, member)
		}
	}
	return nil
}

func mustSpec(t testing.TB) *contract {
	t.Helper()
	k, err := spec()
	require.NoError(t, err)
	return k
}

var methods = []string{"get", "put", "post", "delete", "options", "head", "patch", "trace"}

// operations calls f with every operation of the contract.
func (k *contract) operations(f func(method, path string, op node)) {
	paths, _ := node{"", k.doc}.in("paths")
	for path := range paths.value {
		for _, method := range methods {
			if op, ok := paths.in(path, method); ok {
				f(strings.ToUpper(method), path, op)
			}
		}
	}
}

func TestContract_hasEveryRouteAndNoOther(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	served := map[string]bool{}
	for _, route := range a.Routes() {
		if route.Method == http.MethodHead { // Fiber adds it to each GET
			continue
		}
		parts := strings.Split(route.Path, "/")
		for i, part := range parts {
			if name, ok := strings.CutPrefix(part, ":"); ok {
				parts[i] = "{" + name + "}"
			}
		}
		served[route.Method+" "+strings.Join(parts, "/")] = true
	}
	documented := map[string]bool{}
	mustSpec(t).operations(func(method, path string, _ node) { documented[method+" "+path] = true })
	for route := range served {
		if !documented[route] {
			t.Errorf("%s is served but not documented", route)
		}
	}
	for route := range documented {
		if !served[route] {
			t.Errorf("%s is documented but not served", route)
		}
	}
}

// TestContract_listsTheAnswersOfEveryOperation checks that operations list the answers that every operation of their
// kind can have, which no test provokes from each.
func TestContract_listsTheAnswersOfEveryOperation(t *testing.T) {
	t.Parallel()
	k := mustSpec(t)
	ids := map[any]string{}
	k.operations(func(method, path string, op node) {
		name := method + " " + path
		if id := op.value["operationId"]; id == nil || ids[id] != "" {
			t.Errorf("%s: the operationId %v is missing or that of %q, too", name, id, ids[id])
		} else {
			ids[id] = name
		}
		want := []string{"431"}
		if strings.HasPrefix(path, "/v1/") {
			want = append(want, "500", "503")
			if security, ok := op.value["security"].([]any); !ok {
				t.Errorf("%s: security is missing", name)
			} else if len(security) > 0 {
				want = append(want, "401", "403") // 403: the token lacks the scope
			}
		}
		var parameter string
		switch {
		case op.value["operationId"] == "createClaim", // it has no body, and repeating it changes nothing
			op.value["operationId"] == "uploadImage": // of two copies, the unused one is deleted
			want = append(want, "409")
		case op.value["operationId"] == "renderText": // it has no effect
		case slices.Contains([]any{"answerChallenge", "beginTOTP", "confirmTOTP", "replaceRecoveryCodes",
			"requestFactorReset"}, op.value["operationId"]): // codes and secrets are accepted and shown once
		case method == http.MethodPost:
			want, parameter = append(want, "400", "409", "422"), "IdempotencyKey"
		case method == http.MethodGet && strings.HasPrefix(path, "/v1/") && path != "/v1/stream" &&
			path != "/v1/admin/log.csv" && path != "/v1/me/export":
			want, parameter = append(want, "304"), "IfNoneMatch"
		}
		if success, ok := k.at(op, "responses", "200"); ok && parameter == "IfNoneMatch" {
			_, ok = success.in("headers", "ETag")
			assert.True(t, ok, "%s: the answer 200 has an ETag", name)
		}
		if list := fmt.Sprint(op.value["parameters"]); !strings.Contains(list, parameter) {
			t.Errorf("%s: the parameter %s is missing in %s", name, parameter, list)
		}
		if strings.HasPrefix(path, "/v1/") {
			want = append(want, "429")
		}
		if op.value["requestBody"] != nil {
			want = append(want, "400", "408", "413", "415", "422")
		}
		responses, _ := op.value["responses"].(obj)
		for _, status := range want {
			if responses[status] == nil {
				t.Errorf("%s: the answer %s is missing", name, status)
			}
		}
		for status := range responses {
			response, _ := k.at(op, "responses", status)
			if _, ok := response.in("headers", "X-Request-Id"); !ok {
				t.Errorf("%s: the answer %s has no header X-Request-Id", name, status)
			}
		}
	})
}

// TestContract_suitsGenerators holds the contract to what generators of clients can read; docs/clients.md names them.
func TestContract_suitsGenerators(t *testing.T) {
	t.Parallel()
	k := mustSpec(t)
	schemas, _ := node{"", k.doc}.in("components", "schemas")
	for name := range schemas.value {
		// A name such as New and Post would be that of a constructor in Go.
		assert.NotRegexp(t, "^New[A-Z]", name, "the body of a request is a schema such as PostInput")
	}
	k.walk(node{"", k.doc}, func(n node) {
		assert.NotContains(t, n.value, "allOf", n.pointer)
		for _, keyword := range []string{"anyOf", "oneOf"} {
			choices, _ := n.value[keyword].([]any)
			for _, choice := range choices {
				kind := k.follow(node{n.pointer, choice.(obj)}).value["type"]
				assert.True(t, kind == "object" || kind == "null" && len(choices) > 1,
					"%s: %s is for objects; another value that may be null has two types", n.pointer, keyword)
			}
		}
		if n.value["format"] == "date-time" {
			assert.NotContains(t, n.value, "pattern", n.pointer)
		}
	})
	declared := map[any]bool{}
	for _, tag := range k.doc["tags"].([]any) {
		declared[tag.(obj)["name"]] = true
	}
	problem := obj{"$ref": "#/components/schemas/Problem"}
	k.operations(func(method, path string, op node) {
		// A tag is a class, a module or a file of a generated client.
		permission, _ := op.value["x-permission"].(string)
		resource := strings.ReplaceAll(permission[:strings.LastIndexByte(permission, '.')], ".", "-")
		tags := fmt.Sprint(op.value["tags"])
		assert.Contains(t, []string{"[" + resource + "]", "[" + resource + "s]"}, tags,
			"%s %s: its tag is the resource of %s", method, path, permission)
		assert.True(t, declared[strings.Trim(tags, "[]")], "%s is declared", tags)
		responses, _ := op.in("responses")
		for status := range responses.value {
			if status < "400" {
				continue
			}
			response, _ := k.at(responses, status)
			answer, ok := response.in("content", "application/problem+json")
			if assert.True(t, ok, "%s %s: %s is a problem", method, path, status) {
				assert.Equal(t, problem, answer.value["schema"], "%s %s: %s", method, path, status)
				assert.NotEmpty(t, answer.value["x-codes"], "%s %s: %s", method, path, status)
			}
		}
	})
}

// walk calls f with every object of the document.
func (k *contract) walk(n node, f func(node)) {
	f(n)
	for key, value := range n.value {
		pointer := n.pointer + "/" + pointerEscapes.Replace(key)
		list, ok := value.([]any)
		if !ok {
			list = []any{value}
		}
		for _, value := range list {
			if child, ok := value.(obj); ok && key != "example" {
				k.walk(node{pointer, child}, f)
			}
		}
	}
}

// TestContract_detectsViolations breaks one thing at a time in an exchange that conforms to the contract.
func TestContract_detectsViolations(t *testing.T) {
	t.Parallel()
	k := mustSpec(t)
	const problem = `{"type":"about:blank","title":"Not Found","status":404,"detail":"There is no such post.",` +
		`"code":"not_found","request_id":"r"%s}`
	headers := func(more ...string) http.Header {
		h := http.Header{"Content-Type": {"application/json"}, "X-Request-Id": {"r"}, "Etag": {`"v0-kX2-0vJ8zq1Wm3Td"`},
			"Location": {"/v1/posts/1"}}
		for i := 0; i < len(more); i += 2 {
			h.Del(more[i])
			if more[i+1] != "" {
				h.Set(more[i], more[i+1])
			}
		}
		return h
	}
	post, err := json.Marshal(k.example(t, "Post"))
	require.NoError(t, err)
	for name, test := range map[string]struct {
		method, path, sent string
		answer             reply
		want               string // in the error; "" is none
	}{
		"nothing":           {"POST", "/v1/posts", `{"title":"T","content":"C"}`, reply{201, headers(), post}, ""},
		"an unknown path":   {"GET", "/v1/nothing", "", reply{200, headers(), post}, "no such operation"},
		"an unknown method": {"PUT", "/v1/posts", "", reply{200, headers(), post}, "no such operation"},
		"another status": {"POST", "/v1/posts", `{"title":"T","content":"C"}`, reply{202, headers(), post},
			"status 202"},
		"a field too many": {"POST", "/v1/posts", `{"title":"T","content":"C"}`,
			reply{201, headers(), bytes.Replace(post, []byte(`"id":1`), []byte(`"id":1,"more":2`), 1)}, "more"},
		"a field too few": {"POST", "/v1/posts", `{"title":"T","content":"C"}`,
			reply{201, headers(), bytes.Replace(post, []byte(`"liked":`), []byte(`"bookmarked":`), 1)}, "liked"},
		"a field's type": {"POST", "/v1/posts", `{"title":"T","content":"C"}`,
			reply{201, headers(), bytes.Replace(post, []byte(`"id":1`), []byte(`"id":"1"`), 1)}, "/id"},
		"a header too few": {"POST", "/v1/posts", `{"title":"T","content":"C"}`,
			reply{201, headers("Location", ""), post}, "Location"},
		"a header too many": {"POST", "/v1/posts", `{"title":"T","content":"C"}`,
			reply{201, headers("X-Other", "1"), post}, "X-Other"},
		"a header's value": {"POST", "/v1/posts", `{"title":"T","content":"C"}`,
			reply{201, headers("Etag", "v0"), post}, "ETag"},
		"the answer's type": {"POST", "/v1/posts", `{"title":"T","content":"C"}`,
			reply{201, headers("Content-Type", "text/plain"), post}, "text/plain"},
		"a body too many": {"POST", "/v1/auth/logout", "",
			reply{204, headers("Etag", "", "Location", "", "Content-Type", ""), []byte("{}")}, "body"},
		"what was accepted": {"POST", "/v1/posts", `{"title":" ","content":"C"}`, reply{201, headers(), post},
			"accepted"},
		"an accepted field": {"POST", "/v1/posts", `{"title":"T","content":"C","more":1}`,
			reply{201, headers(), post}, "more"},
		"an accepted parameter": {"POST", "/v1/posts?more=1", `{"title":"T","content":"C"}`,
			reply{201, headers(), post}, "more"},
		"an accepted value": {"GET", "/v1/posts?limit=101", "",
			reply{200, headers("Etag", `"kX2-0vJ8zq1Wm3Td"`, "Location", ""),
				[]byte(`{"items":[],"next_cursor":null}`)}, "limit"},
		"no problem": {"GET", "/v1/posts/9", "",
			reply{404, headers("Etag", "", "Location", "", "Content-Type", "application/problem+json"),
				fmt.Appendf(nil, problem, "")}, ""},
		"a problem's field": {"GET", "/v1/posts/9", "",
			reply{404, headers("Etag", "", "Location", "", "Content-Type", "application/problem+json"),
				fmt.Appendf(nil, problem, `,"more":1`)}, "more"},
		"a problem's code": {"GET", "/v1/posts/9", "",
			reply{404, headers("Etag", "", "Location", "", "Content-Type", "application/problem+json"),
				bytes.Replace(fmt.Appendf(nil, problem, ""), []byte("not_found"), []byte("conflict"), 1)}, "code"},
		"a problem's status": {"GET", "/v1/posts/9", "",
			reply{404, headers("Etag", "", "Location", "", "Content-Type", "application/problem+json"),
				bytes.Replace(fmt.Appendf(nil, problem, ""), []byte("404"), []byte("409"), 1)}, "status"},
		"a problem's errors": {"GET", "/v1/posts", "",
			reply{422, headers("Etag", "", "Location", "", "Content-Type", "application/problem+json"),
				[]byte(strings.NewReplacer("404", "422", "not_found", "invalid").Replace(fmt.Sprintf(problem, "")))},
			"errors"},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), test.method, "http://forum.example"+test.path, nil)
			require.NoError(t, err)
			req.Header.Set("Content-Type", "application/json")
			err = k.check(req, []byte(test.sent), test.answer)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// example builds a value from the examples of a schema's properties.
func (k *contract) example(t testing.TB, schema string) any {
	t.Helper()
	n, ok := node{"", k.doc}.in("components", "schemas", schema)
	if !ok {
		t.Fatalf("there is no schema %s", schema)
	}
	return k.exampleOf(n)
}

func (k *contract) exampleOf(n node) any {
	n = k.follow(n)
	if example, ok := n.value["example"]; ok {
		return example
	}
	properties, ok := n.in("properties")
	if !ok {
		return nil
	}
	value := obj{}
	for name := range properties.value {
		property, _ := properties.in(name)
		value[name] = k.exampleOf(property)
	}
	return value
}

func BenchmarkContract(b *testing.B) {
	k := mustSpec(b)
	req, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "http://forum.example/v1/posts?limit=100", nil)
	require.NoError(b, err)
	post, err := json.Marshal(k.example(b, "Post"))
	require.NoError(b, err)
	body := []byte(`{"next_cursor":null,"items":[` + strings.Repeat(string(post)+",", 99) + string(post) + `]}`)
	answer := reply{200, http.Header{"Content-Type": {"application/json"}, "X-Request-Id": {"r"},
		"Etag": {`"kX2-0vJ8zq1Wm3Td"`}}, body}
	for b.Loop() {
		require.NoError(b, k.check(req, nil, answer))
	}
}
