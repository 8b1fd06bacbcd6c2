package handlers_test

import (
	"fmt"
	"testing"

	"likewise/models"
	"likewise/models/likes"
)

func TestRevisions_oneForEachSuccessfulEdit(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	p := a.newPost(t, ada)
	const editors = 4
	won := make([]int, editors)
	together(editors, func(i int) {
		for n := range 10 {
			read, err := a.try(ada, "GET", pathOf(p), nil)
			if err != nil || read.Status != 200 {
				t.Errorf("%s, %v", read, err)
				return
			}
			r, err := a.try(ada, "PATCH", pathOf(p),
				obj{"content": fmt.Sprintf("Editor %d, edit %d", i, n), "tags": []string{fmt.Sprint("tag", i)}},
				header{"If-Match", read.Header.Get("ETag")})
			switch {
			case err != nil || r.Status != 200 && r.Status != 412:
				t.Errorf("%s, %v", r, err)
			case r.Status == 200:
				won[i]++
			case r.Header.Get("ETag") == "":
				t.Errorf("%s does not name the present version", r)
			}
		}
	})
	sum := 0
	for _, n := range won {
		sum += n
	}
	_, items := a.walk(t, pathOf(p)+"/revisions", 7, func(item obj) float64 { return item["version"].(float64) },
		func() {})
	if len(items) != sum+1 {
		t.Fatalf("%d edits made %d versions", sum, len(items))
	}
	by := make([]int, editors)
	for i, item := range items {
		if item["version"] != float64(sum-i) || item["author"].(obj)["username"] != ada.Name || item["content"] != nil {
			t.Errorf("version %d is listed as %v", sum-i, item)
		}
		item = read[obj](t, a.must(t, 200, ada, "GET", fmt.Sprintf("%s/revisions/%d", pathOf(p), sum-i), nil))
		if item["content_html"] == "" {
			t.Errorf("version %d is %v", sum-i, item)
		}
		var editor int
		if _, err := fmt.Sscanf(item["content"].(string), "Editor %d", &editor); err == nil {
			by[editor]++
			if tags := item["tags"].([]any); len(tags) != 1 || tags[0] != fmt.Sprint("tag", editor) {
				t.Errorf("the text and the tags of version %d are of two edits: %v", sum-i, item)
			}
		} else if i != len(items)-1 {
			t.Errorf("version %d is %v", sum-i, item)
		}
	}
	if fmt.Sprint(by) != fmt.Sprint(won) {
		t.Errorf("%v edits succeeded, and %v are stored", won, by)
	}
}

func TestRestore_whoAndWhen(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada, bob := a.account(t), a.account(t)
	p := a.newPost(t, ada)
	c := a.newComment(t, bob, p.ID)
	before := a.must(t, 200, ada, "GET", pathOf(p), nil)
	a.must(t, 204, ada, "DELETE", pathOf(p), nil)
	a.refused(t, 401, "unauthorized", account{}, "POST", pathOf(p)+"/restore", nil)
	a.refused(t, 404, "not_found", bob, "POST", pathOf(p)+"/restore", nil)
	a.refused(t, 404, "not_found", ada, "POST", "/v1/posts/999/restore", nil)
	if r := a.must(t, 200, ada, "POST", pathOf(p)+"/restore", nil); string(r.Body) != string(before.Body) {
		t.Errorf("restored as %s, was %s", r, before)
	}
	a.must(t, 200, ada, "POST", pathOf(p)+"/restore", nil)
	a.must(t, 200, ada, "GET", pathOf(c), nil)
	a.must(t, 204, ada, "DELETE", pathOf(p), nil)
	if _, err := a.store.Pool().Exec("UPDATE posts SET deleted_at=deleted_at - INTERVAL 25 HOUR"); err != nil {
		t.Fatal(err)
	}
	a.refused(t, 409, "too_late", ada, "POST", pathOf(p)+"/restore", nil)
	if _, err := a.store.Pool().Exec("UPDATE posts SET deleted_by=?", bob.ID); err != nil {
		t.Fatal(err)
	}
	a.refused(t, 403, "forbidden", ada, "POST", pathOf(p)+"/restore", nil)
}

// A post that is deleted and restored, however often and fast, keeps all its likes, including those that are still on
// their way to MySQL, and can be liked again.
func TestRestore_keepsEveryLike(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada := a.account(t)
		users := a.accounts(t, 6)
		p := a.newPost(t, ada)
		c := a.newComment(t, ada, p.ID)
		liked := make([]bool, len(users))
		for round := range 8 {
			for i, u := range users {
				if i%(round+2) == 0 {
					continue
				}
				liked[i] = !liked[i]
				method := "DELETE"
				if liked[i] {
					method = "PUT"
				}
				for _, target := range []any{p, c} {
					a.must(t, 200, u, method, pathOf(target)+"/like", nil)
				}
			}
			// In half of the rounds MySQL holds everything, and in half of them likes are still on their way.
			if round%2 == 0 {
				a.settle()
			}
			a.must(t, 204, ada, "DELETE", pathOf(p), nil)
			for _, target := range []any{p, c} {
				a.refused(t, 404, "not_found", users[0], "PUT", pathOf(target)+"/like", nil)
			}
			a.must(t, 200, ada, "POST", pathOf(p)+"/restore", nil)
			want := int64(0)
			for i, u := range users {
				if liked[i] {
					want++
				}
				if got := read[post](t, a.must(t, 200, u, "GET", pathOf(p), nil)); got.Liked != liked[i] {
					t.Errorf("round %d: user %d sees %v, want %v", round, i, got.Liked, liked[i])
				}
			}
			if got := read[post](t, a.must(t, 200, ada, "GET", pathOf(p), nil)); got.LikesCount != want {
				t.Errorf("round %d: %d likes, want %d", round, got.LikesCount, want)
			}
		}
		// A like during a deletion and restoration is either accepted or refused.
		together(2*len(users), func(i int) {
			if i < len(users) {
				if r, err := a.try(users[i], "PUT", pathOf(p)+"/like", nil); err != nil || r.Status != 200 &&
					r.Status != 404 {
					t.Errorf("%s, %v", r, err)
				}
			} else if i == len(users) {
				a.must(t, 204, ada, "DELETE", pathOf(p), nil)
				a.must(t, 200, ada, "POST", pathOf(p)+"/restore", nil)
			}
		})
		for _, u := range users {
			a.must(t, 200, u, "PUT", pathOf(p)+"/like", nil)
		}
		a.settle()
		for _, target := range []models.Target{targetOf(p), targetOf(c)} {
			tally, ok, err := likes.New(a.store).TallyOf(t.Context(), target)
			if err != nil || !ok || tally.Likes != tally.LikeRows {
				t.Errorf("%s has likes_count %d and %d rows, %v", target, tally.Likes, tally.LikeRows, err)
			}
			shown := read[post](t, a.must(t, 200, ada, "GET", fmt.Sprintf("/v1/%ss/%d", target.Kind, target.ID),
				nil)).LikesCount
			if shown != tally.LikeRows {
				t.Errorf("%s shows %d likes and has %d rows", target, shown, tally.LikeRows)
			}
			if target.Kind == models.KindPost && shown != int64(len(users)) {
				t.Errorf("%d likes, want %d", shown, len(users))
			}
		}
	})
}
