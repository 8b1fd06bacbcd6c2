package handlers_test

import (
	"fmt"
	"reflect"
	"testing"
)

func TestTags_fromCreationToRestoration(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	counts := func(want string) {
		t.Helper()
		p := read[page[struct {
			Name       string
			PostsCount int64 `json:"posts_count"`
		}]](t, a.must(t, 200, account{}, "GET", "/v1/tags?sort=name", nil))
		if got := fmt.Sprint(p.Items); got != want {
			t.Errorf("the tags are %s, want %s", got, want)
		}
	}
	tags := func(r reply) []any { return read[obj](t, r)["tags"].([]any) }
	is := func(got []any, want ...any) {
		t.Helper()
		if !reflect.DeepEqual(got, append([]any{}, want...)) {
			t.Errorf("the tags are %v, want %v", got, want)
		}
	}
	counts("[]")
	r := a.must(t, 201, ada, "POST", "/v1/posts",
		obj{"title": "T", "content": "C", "tags": []string{"Redis", "go", "redis"}})
	is(tags(r), "redis", "go")
	path := pathOf(read[post](t, r))
	is(tags(a.must(t, 201, ada, "POST", "/v1/posts", obj{"title": "T", "content": "C", "tags": []string{"go"}})), "go")
	is(tags(a.must(t, 201, ada, "POST", "/v1/posts", obj{"title": "T", "content": "C"})))
	counts("[{go 2} {redis 1}]")
	edit := func(body obj) reply { return a.must(t, 200, ada, "PATCH", path, body, header{"If-Match", "*"}) }
	is(tags(edit(obj{"title": "T2"})), "redis", "go")
	is(tags(edit(obj{"tags": nil})), "redis", "go")
	is(tags(edit(obj{"tags": []string{"mysql", "redis"}})), "mysql", "redis")
	counts("[{go 1} {mysql 1} {redis 1}]")
	a.must(t, 204, ada, "DELETE", path, nil)
	counts("[{go 1}]")
	is(tags(a.must(t, 200, ada, "POST", path+"/restore", nil)), "mysql", "redis")
	counts("[{go 1} {mysql 1} {redis 1}]")
	is(tags(edit(obj{"tags": []string{}})))
	counts("[{go 1}]")
	for _, bad := range []any{"go", []int{1}, obj{}} {
		a.refusedField(t, 400, "malformed", "tags", ada, "POST", "/v1/posts",
			obj{"title": "T", "content": "C", "tags": bad})
	}
}
