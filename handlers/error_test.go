package handlers_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/handlers"
	"likewise/images"
	"likewise/models"
	"likewise/models/db"
)

// errorCodes are the codes in the tables of docs/errors.md.
type errorCodes struct {
	problems map[string]int      // the status of each code of a problem
	fields   map[string][]string // the parameters of each code of a field, sorted
	formats  []string
}

var (
	tableRow = regexp.MustCompile("(?m)^\\| `(\\w+)` \\|(.*)\\|$")
	quoted   = regexp.MustCompile("`(\\w+)`")
)

var errorsPage = sync.OnceValues(func() (errorCodes, error) {
	page := errorCodes{problems: map[string]int{}, fields: map[string][]string{}}
	text, err := os.ReadFile("../docs/errors.md")
	if err != nil {
		return page, err
	}
	for _, row := range tableRow.FindAllStringSubmatch(string(text), -1) {
		code, cells := row[1], strings.Split(row[2], "|")
		if len(cells) == 1 {
			page.formats = append(page.formats, code)
			continue
		}
		if status, err := strconv.Atoi(strings.TrimSpace(cells[0])); err == nil {
			page.problems[code] = status
			continue
		}
		var params []string
		for _, param := range quoted.FindAllStringSubmatch(cells[0], -1) {
			params = append(params, param[1])
		}
		slices.Sort(params)
		page.fields[code] = params
	}
	return page, nil
})

// constants returns the values of the constants of a type in a file of models.
func constants(t *testing.T, file, kind string) (values []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), "../models/"+file, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if name, ok := spec.Type.(*ast.Ident); ok && name.Name == kind {
			value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			require.NoError(t, err)
			values = append(values, value)
		}
		return true
	})
	return values
}

// TestErrorsPage_isTheContractAndTheCode compares the codes of docs/errors.md, of openapi.yaml and of models. The
// contract is compared with every answer of the suite, and so are the parameters on the page.
func TestErrorsPage_isTheContractAndTheCode(t *testing.T) {
	t.Parallel()
	page, err := errorsPage()
	require.NoError(t, err)
	k := mustSpec(t)
	words := func(schema, property, keyword string) (list []string) {
		n, ok := k.at(node{"", k.doc}, "components", "schemas", schema, "properties", property)
		require.True(t, ok, "%s.%s", schema, property)
		for _, word := range n.value[keyword].([]any) {
			list = append(list, word.(string))
		}
		return list
	}

	statuses := map[string]int{}
	for code, status := range handlers.ProblemStatuses() {
		statuses[string(code)] = status
	}
	assert.Equal(t, statuses, page.problems)
	assert.ElementsMatch(t, words("Problem", "code", "enum"), slices.Collect(maps.Keys(page.problems)))
	for _, code := range constants(t, "error.go", "Code") {
		assert.Contains(t, page.problems, code)
	}
	k.operations(func(method, path string, op node) {
		responses, _ := op.in("responses")
		for status := range responses.value {
			response, _ := k.at(responses, status)
			answer, _ := response.in("content", "application/problem+json")
			codes, _ := answer.value["x-codes"].([]any)
			for _, code := range codes {
				assert.Equal(t, status, strconv.Itoa(page.problems[code.(string)]), "%s %s: %s", method, path, code)
			}
		}
	})

	codes := slices.Collect(maps.Keys(page.fields))
	assert.ElementsMatch(t, words("FieldError", "code", "enum"), codes)
	assert.ElementsMatch(t, constants(t, "fault.go", "FieldCode"), codes)
	assert.ElementsMatch(t, words("FieldParams", "format", "enum"), page.formats)
	assert.ElementsMatch(t, constants(t, "fault.go", "Format"), page.formats)
	var params []string
	for _, names := range page.fields {
		params = append(params, names...)
	}
	slices.Sort(params)
	properties, _ := k.at(node{"", k.doc}, "components", "schemas", "FieldParams", "properties")
	assert.Equal(t, slices.Sorted(maps.Keys(properties.value)), slices.Compact(params))
}

// TestFieldErrors_haveCodes provokes every code of a field and every format. The contract is checked with each answer.
func TestFieldErrors_haveCodes(t *testing.T) {
	t.Parallel()
	kept := imagesIn(t, t.TempDir())
	a := newAPI(t, modes[0], avatarsAt("images.example.org"), withImages(kept), secretKey)
	none, ada := account{}, a.person(t, "ada")
	mod, admin := a.promoted(t, a.account(t), models.RoleModerator), a.promoted(t, a.account(t), models.RoleAdmin)
	p, other := a.newPost(t, ada), a.newPost(t, ada)
	elsewhere, deepest := a.newComment(t, ada, other.ID), a.newComment(t, ada, p.ID)
	_, err := a.store.Pool().ExecContext(t.Context(), "UPDATE comments SET depth=? WHERE id=?",
		models.MaxDepth, deepest.ID)
	require.NoError(t, err)
	a.must(t, 201, ada, "POST", "/v1/posts", text, key("spent"))

	a.must(t, 200, ada, "POST", "/v1/me/factors/totp", nil)
	full := a.account(t)
	addImage(t, a.store, kept, full.ID)
	a.exec(t, "UPDATE images SET bytes=?", models.DefaultImageRoom.User)
	small, smallType := imageForm(t, "file", asPNG(t, 2, 2))
	broken, brokenType := imageForm(t, "file", asPNG(t, 2, 2)[:40])
	large, largeType := imageForm(t, "file", make([]byte, images.MaxBytes+1))

	renamed := a.account(t)
	a.exec(t, "INSERT INTO former_usernames (user_id, username, changed_at) VALUES (?,'before','2037-01-01')",
		renamed.ID)

	comments, drops := fmt.Sprintf("/v1/posts/%d/comments", p.ID), fmt.Sprintf("/v1/posts/%d/drops", p.ID)
	void := fmt.Sprintf("/v1/admin/users/%d/likes/void", ada.ID)
	const (
		posts, read, tokens = "/v1/posts", "/v1/notifications/read", "/v1/me/tokens"
		register, later     = "/v1/auth/register", "2037-01-01T00:00:00Z"
	)
	as := func(name, email, password string) obj {
		return obj{"username": name, "email": email, "password": password}
	}
	drop := func(begins, ends string) obj {
		return obj{"title": "T", "stock": 1, "begins_at": begins, "ends_at": ends}
	}
	titled := func(title any) obj { return obj{"title": title, "content": "C"} }
	seen := map[string]bool{string(db.ErrKeyInUse.Fields[0].Code): true} // it takes two requests at a time
	for _, test := range []struct {
		want, field  string // the code with its parameters, and the field
		by           account
		method, path string
		body         any
		headers      []header
	}{
		{"required map[]", "title", ada, "POST", posts, titled(" "), nil},
		{"too_long map[max:200 unit:characters]", "title", ada, "POST", posts, titled(strings.Repeat("ä", 201)), nil},
		{"not_a_line map[]", "title", ada, "POST", posts, titled("T\nU"), nil},
		{"wrong_type map[type:string]", "title", ada, "POST", posts, titled(1), nil},
		{"wrong_type map[type:strings]", "tags", ada, "POST", posts, obj{"tags": 1}, nil},
		{"wrong_type map[type:integers]", "ids", ada, "POST", read, obj{"ids": "1"}, nil},
		{"wrong_type map[type:integer]", "up_to", ada, "POST", read, obj{"up_to": "1"}, nil},
		{"wrong_type map[type:boolean]", "dry_run", admin, "POST", "/v1/admin/reconcile", obj{"dry_run": 1}, nil},
		{"repeated_field map[]", "title", ada, "POST", posts, `{"title":"T","title":"U"}`, nil},
		{"unknown_field map[]", "text", ada, "POST", posts, obj{"text": 1}, nil},
		{"too_long map[max:60000 unit:bytes]", "content", ada, "POST", posts,
			obj{"title": "T", "content": strings.Repeat("ä", 30001)}, nil},
		{"bad_characters map[]", "content", ada, "POST", posts, obj{"title": "T", "content": "C\x00"}, nil},
		{"too_many map[max:5]", "tags", ada, "POST", posts, obj{"tags": []string{"1", "2", "3", "4", "5", "6"}}, nil},
		{"bad_format map[format:tag]", "tags", ada, "POST", posts, obj{"tags": []string{"a b"}}, nil},
		{"bad_format map[format:idempotency_key]", "Idempotency-Key", ada, "POST", posts, text, []header{key("ä")}},
		{"key_reused map[]", "Idempotency-Key", ada, "POST", posts, titled("T"), []header{key("spent")}},
		{"other_post map[]", "parent_id", ada, "POST", comments,
			obj{"content": "C", "parent_id": elsewhere.ID}, nil},
		{"too_deep map[max:64]", "parent_id", ada, "POST", comments,
			obj{"content": "C", "parent_id": deepest.ID}, nil},

		{"out_of_range map[max:100 min:1]", "limit", none, "GET", posts + "?limit=0", nil, nil},
		{"not_one_of map[allowed:[new hot top active relevance]]", "sort", none, "GET", posts + "?sort=foo", nil, nil},
		{"needs map[field:q]", "sort", none, "GET", posts + "?sort=relevance", nil, nil},
		{"no_word map[]", "q", none, "GET", posts + "?q=%3F", nil, nil},
		{"wrong_cursor map[]", "cursor", none, "GET", posts + "?cursor=x", nil, nil},
		{"bad_format map[format:id]", "author", none, "GET", posts + "?author=ada", nil, nil},
		{"bad_format map[format:ids]", "posts", none, "GET", "/v1/stream?posts=x", nil, nil},
		{"bad_format map[format:target]", "targets", none, "GET", "/v1/likes?targets=x", nil, nil},
		{"bad_format map[format:time]", "since", mod, "GET", "/v1/admin/posts?since=x", nil, nil},
		{"bad_format map[format:word]", "action", mod, "GET", "/v1/admin/log?action=x-y", nil, nil},
		{"bad_format map[format:ip]", "address", admin, "GET", "/v1/admin/security-log?address=x", nil, nil},

		{"too_short map[max:50 min:3 unit:characters]", "username", none, "POST", register, as("x", "", ""), nil},
		{"bad_format map[format:username]", "username", none, "POST", register, as("a b", "", ""), nil},
		{"bad_format map[format:email]", "email", none, "POST", register, as("", "x", ""), nil},
		{"too_short map[max:128 min:8 unit:characters]", "password", none, "POST", register, as("", "", "x"), nil},
		{"too_common map[]", "password", none, "POST", register, as("", "", "password1"), nil},
		{"personal map[]", "password", none, "POST", register, as("grace-hopper", "", "grace-hopper"), nil},
		{"reserved map[]", "username", none, "POST", register, as("admin", "a@example.org", password), nil},
		{"taken map[]", "username", none, "POST", register, as("Ada", "b@example.org", password), nil},
		{"taken map[]", "email", none, "POST", register, as("bob", "ADA@example.org", password), nil},
		{"too_soon map[at:2037-01-31T00:00:00Z]", "username", renamed, "PUT", "/v1/me/username",
			obj{"username": "after"}, nil},
		{"wrong_password map[]", "password", ada, "DELETE", "/v1/me", obj{"password": "x"}, nil},
		{"wrong_code map[]", "code", ada, "POST", "/v1/me/factors/totp/confirm", obj{"code": "x"}, nil},
		{"bad_format map[format:url]", "avatar_url", ada, "PATCH", "/v1/me", obj{"avatar_url": "x"}, nil},
		{"bad_host map[allowed:[images.example.org]]", "avatar_url", ada, "PATCH", "/v1/me",
			obj{"avatar_url": "https://other.example/x.png"}, nil},
		{"not_permitted map[]", "scopes", ada, "POST", tokens,
			obj{"name": "T", "scopes": []string{"moderate"}}, nil},
		{"too_few map[max:100 min:1]", "ids", ada, "POST", read, obj{"ids": []int{}}, nil},
		{"exclusive map[field:up_to]", "ids", ada, "POST", read, obj{"ids": []int{1}, "up_to": 1}, nil},

		{"bad_format map[format:image]", "file", ada, "POST", "/v1/images", broken, []header{brokenType}},
		{"too_large map[max:1.048576e+07 unit:bytes]", "file", ada, "POST", "/v1/images", large, []header{largeType}},
		{"no_room map[max:2.097152e+08]", "file", full, "POST", "/v1/images", small, []header{smallType}},

		{"not_before map[before:2038-01-19T03:14:07Z]", "ends_at", ada, "POST", drops,
			drop(later, "2039-01-01T00:00:00Z"), nil},
		{"bad_order map[field:begins_at]", "ends_at", ada, "POST", drops, drop(later, later), nil},
		{"not_past map[]", "since", mod, "POST", void, obj{"reason": "R", "since": later}, nil},
		{"not_future map[]", "until", mod, "POST", adminPath(ada, "ban"),
			obj{"reason": "R", "until": "2001-01-01T00:00:00Z"}, nil},
	} {
		r := a.send(t, test.by, test.method, test.path, test.body, test.headers...)
		var answer problem
		r.into(t, &answer)
		i := slices.IndexFunc(answer.Errors, func(e fieldError) bool { return e.Field == test.field })
		if !assert.GreaterOrEqual(t, i, 0, "%s: %s", test.want, r) {
			continue
		}
		e := answer.Errors[i]
		seen[e.Code] = true
		assert.Equal(t, test.want, fmt.Sprint(e.Code, " ", e.Params), "%s", r)
	}
	page, err := errorsPage()
	require.NoError(t, err)
	assert.ElementsMatch(t, slices.Collect(maps.Keys(page.fields)), slices.Collect(maps.Keys(seen)))
}
