package handlers_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"likewise/models"
	"likewise/models/moderation"
)

// byAddress lists the operations whose items are addressed by id, and those that show blocked users on purpose.
var byAddress = map[string]string{
	"listBlocks":           "says whom one blocks",
	"findUsers":            "is one user, by name",
	"listPostRevisions":    "is one post's past",
	"listCommentRevisions": "is one comment's past",
}

// traces returns the places where a JSON value names the user with the id, or the post.
func traces(value any, at string, user, post int64) []string {
	var found []string
	switch v := value.(type) {
	case obj:
		id, _ := v["id"].(float64)
		if _, is := v["username"]; is && int64(id) == user {
			found = append(found, at+" is the author")
		}
		if title, _ := v["title"].(string); title != "" && int64(id) == post {
			found = append(found, at+" is the post")
		}
		if about, _ := v["post_id"].(float64); int64(about) == post {
			found = append(found, at+" is under the post")
		}
		for name, inner := range v {
			found = append(found, traces(inner, at+"."+name, user, post)...)
		}
	case []any:
		for i, inner := range v {
			found = append(found, traces(inner, at+"["+strconv.Itoa(i)+"]", user, post)...)
		}
	}
	return found
}

// TestBlock_emptiesEveryList reads every list of the contract that is not for moderators, before and after the viewer
// blocks an author. The lists that must show the author before are named, so that none passes because it is empty.
func TestBlock_emptiesEveryList(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var authors [3]account
	for i := range authors {
		authors[i] = w.someone(caller{role: models.RoleUser})
	}
	viewer, other, blocked := authors[0], authors[1], authors[2]
	write := func(as account, path string, fields obj) string {
		t.Helper()
		return strconv.FormatInt(read[comment](t, w.must(t, 201, as, "POST", path, fields)).ID, 10)
	}
	comment := func(as account, path string) string { return write(as, path, obj{"content": "A word."}) }
	text := func(title string) obj {
		return obj{"title": title, "content": "A sunken ship.", "tags": []string{"ships"}}
	}
	bad, good := write(blocked, "/v1/posts", text("Theirs")), write(other, "/v1/posts", text("Another's"))
	under, on := "/v1/posts/"+bad+"/comments", "/v1/posts/"+good+"/comments"
	answered := comment(blocked, on)
	comment(blocked, on)
	reply := comment(other, "/v1/comments/"+answered+"/replies")
	comment(blocked, "/v1/comments/"+reply+"/replies")
	mine, othersUnder := comment(viewer, under), comment(other, under)
	comment(other, "/v1/comments/"+mine+"/replies")
	comment(blocked, "/v1/comments/"+comment(viewer, on)+"/replies")
	for _, as := range authors {
		for _, target := range []string{"posts/" + bad, "posts/" + good, "comments/" + answered, "comments/" + reply,
			"comments/" + mine, "comments/" + othersUnder} {
			w.must(t, 200, as, "PUT", "/v1/"+target+"/like", nil)
		}
		for _, followed := range authors {
			if followed != as {
				w.must(t, 200, as, "PUT", userPath(followed)+"/follow", nil)
			}
		}
	}
	w.must(t, 200, viewer, "PUT", "/v1/posts/"+bad+"/bookmark", nil)
	target, _ := strconv.ParseInt(bad, 10, 64)
	w.exec("UPDATE posts SET pinned=1")
	moderator := w.someone(caller{role: models.RoleModerator})
	if _, err := moderation.New(w.store).ReportContent(t.Context(), viewer.ID,
		models.NewReport{Target: models.Target{Kind: models.KindPost, ID: target}, Reason: "spam"}); err != nil {
		t.Fatal(err)
	}
	report := w.number(t, "SELECT id FROM report_cases WHERE is_open=1 AND target_id=?", target)
	w.must(t, 200, moderator, "POST", fmt.Sprintf("/v1/admin/reports/%d/resolve", report),
		obj{"action": "dismissed", "note": "Fine."})

	// ask returns, for each list, where it shows the author to be blocked, or content below the author's post.
	ask := func() map[string][]string {
		shown := map[string][]string{}
		for _, o := range operations(t) {
			if o.method != http.MethodGet || o.rule.Least > models.RoleUser || o.id == "openStream" ||
				byAddress[o.id] != "" {
				continue
			}
			objects := map[string][]string{"UserId": {fmt.Sprint(other.ID), fmt.Sprint(viewer.ID)}, "PostId": {good},
				"CommentId": {answered, reply}}[o.object()]
			if o.object() == "" {
				objects = []string{""}
			}
			queries := []string{}
			base := url.Values{}
			set := func(name string, value any) {
				query := maps.Clone(base)
				query.Set(name, fmt.Sprint(value))
				queries = append(queries, query.Encode())
			}
			for _, p := range o.params {
				full := o.k.follow(p).value
				schema, _ := full["schema"].(obj)
				values, _ := schema["enum"].([]any)
				switch full["name"] {
				case "q":
					values = []any{"ship"}
				case "tag":
					values = []any{"ships"}
				case "author":
					values = []any{blocked.ID}
				case "targets":
					base.Set("targets", "post:"+good)
				}
				for _, value := range values {
					if full["in"] == "query" {
						set(full["name"].(string), value)
					}
				}
			}
			queries = append(queries, base.Encode())
			for _, id := range objects {
				path := o.path
				if id != "" {
					before, rest, _ := strings.Cut(path, "{")
					_, after, _ := strings.Cut(rest, "}")
					path = before + id + after
				}
				for _, query := range queries {
					r := w.send(t, viewer, http.MethodGet, path+"?"+query, nil)
					var answer obj
					if r.Status != 200 || json.Unmarshal(r.Body, &answer) != nil || answer["items"] == nil {
						continue
					}
					shown[o.id] = append(shown[o.id],
						traces(answer["items"], path+"?"+query+": items", blocked.ID, target)...)
				}
			}
		}
		return shown
	}

	var lists []string
	for id, found := range ask() {
		if len(found) > 0 {
			lists = append(lists, id)
		}
	}
	slices.Sort(lists)
	want := []string{
		"listAncestors", "listBookmarks", "listCommentLikers", "listComments", "listFollowers", "listFollowing",
		"listMyLikes", "listNotifications",
		"listPostLikers", "listPosts", "listReplies", "listUserComments", "listUserLikes",
		"listUserPosts", "readFeed", "readThread",
	}
	if !slices.Equal(lists, want) {
		t.Errorf("the author is shown before the block by %q, want %q", lists, want)
	}
	before := w.unread(t, viewer)
	w.must(t, 200, viewer, "PUT", userPath(blocked)+"/block", nil)
	for id, found := range ask() {
		for _, trace := range found {
			t.Errorf("%s: %s", id, trace)
		}
	}
	if n, listed := w.unread(t, viewer), w.notifications(t, viewer, "?unread=true"); n >= before ||
		n != int64(len(listed)) || n == 0 {
		t.Errorf("%d notifications are unread, %d are listed, and %d were before the block", n, len(listed), before)
	}
	for _, path := range []string{"/v1/posts/" + bad, "/v1/comments/" + answered, "/v1/comments/" + othersUnder,
		userPath(blocked)} {
		w.must(t, 200, viewer, http.MethodGet, path, nil)
	}
}
