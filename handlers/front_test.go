package handlers_test

import (
	"fmt"
	"slices"
	"testing"

	"likewise/models"
)

// pinnedPage is a page of a list with pinned=once.
type pinnedPage struct {
	page[post]

	Pinned []post
}

func TestPosts_pinnedAppearOnce(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada := a.account(t)
		mod := a.promoted(t, a.account(t), models.RoleModerator)
		var posts []post
		for range 7 {
			posts = append(posts, a.newPost(t, ada))
		}
		pin := func(p post, how string) {
			t.Helper()
			a.must(t, 200, mod, "POST", fmt.Sprintf("/v1/admin/posts/%d/%s", p.ID, how), obj{"reason": "News."})
		}
		pin(posts[1], "pin")
		pin(posts[6], "pin")
		ids := func(list []post) (ids []int64) {
			for _, p := range list {
				ids = append(ids, p.ID-posts[0].ID)
			}
			return ids
		}
		for _, as := range []account{{}, ada, mod} {
			first := read[pinnedPage](t, a.must(t, 200, as, "GET", "/v1/posts?pinned=once&limit=3", nil))
			if got := ids(first.Pinned); !slices.Equal(got, []int64{6, 1}) {
				t.Errorf("pinned are %v", got)
			}
			if got := ids(first.Items); !slices.Equal(got, []int64{5, 4, 3}) {
				t.Errorf("the first page has %v", got)
			}
			second := read[pinnedPage](t, a.must(t, 200, as, "GET",
				"/v1/posts?pinned=once&limit=3&cursor="+*first.NextCursor, nil))
			if got := ids(second.Items); !slices.Equal(got, []int64{2, 0}) || len(second.Pinned) > 0 ||
				second.NextCursor != nil {
				t.Errorf("the second page has %v, pinned %v, and continues at %v", got, second.Pinned,
					second.NextCursor)
			}
			a.refused(t, 400, "malformed", as, "GET", "/v1/posts?cursor="+*first.NextCursor, nil)
		}
		top := read[pinnedPage](t, a.must(t, 200, ada, "GET",
			"/v1/posts?pinned=once&sort=top&q=content", nil))
		if len(top.Pinned) != 2 || len(top.Items) != 5 {
			t.Errorf("of a search: %d pinned, %d others", len(top.Pinned), len(top.Items))
		}
		pin(posts[6], "unpin")
		got := read[pinnedPage](t, a.must(t, 200, account{}, "GET", "/v1/posts?pinned=once", nil))
		if len(got.Pinned) != 1 || len(got.Items) != 6 {
			t.Errorf("after one was unpinned: %d pinned, %d others", len(got.Pinned), len(got.Items))
		}
		usual := read[pinnedPage](t, a.must(t, 200, ada, "GET", "/v1/posts?pinned=false", nil))
		if len(usual.Items) != 7 || usual.Pinned != nil {
			t.Errorf("without once: %d posts, pinned %v", len(usual.Items), usual.Pinned)
		}
	})
}

func TestPosts_ofATagAreCounted(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	for i := range 3 {
		a.must(t, 201, ada, "POST", "/v1/posts",
			obj{"title": "A title", "content": "Text", "tags": []string{"go", fmt.Sprintf("tag%d", i)}})
	}
	for query, want := range map[string]int64{
		"tag=go": 3, "tag=go&limit=1": 3, "tag=tag1": 1, "tag=none": 0, "tag=go&pinned=once": 3,
		"": -1, "tag=go&q=text": -1, "tag=go&window=day": -1, "tag=go&pinned=true": -1,
		fmt.Sprintf("tag=go&author=%d", ada.ID): -1,
	} {
		total := int64(-1)
		if got := read[struct {
			TotalCount *int64 `json:"total_count"`
		}](t, a.must(t, 200, ada, "GET", "/v1/posts?"+query, nil)).TotalCount; got != nil {
			total = *got
		}
		if total != want {
			t.Errorf("%q has %d posts, want %d; -1 stands for no count", query, total, want)
		}
	}
}

func TestComments_areFound(t *testing.T) {
	t.Parallel()
	eachMode(t, func(t *testing.T, a *api) {
		ada := a.account(t)
		p := a.newPost(t, ada)
		c := read[comment](t, a.must(t, 201, ada, "POST", pathOf(p)+"/comments", obj{"content": "A *tardigrade*."}))
		a.newComment(t, ada, p.ID)
		type found struct {
			PostTitle string `json:"post_title"`
			Comment   comment
		}
		type result struct {
			page[found]

			Complete bool
		}
		for _, sort := range []string{"", "&sort=new"} {
			got := read[result](t, a.must(t, 200, account{}, "GET", "/v1/comments?q=Tardigrades"+sort, nil))
			if len(got.Items) != 1 || got.Items[0].Comment.ID != c.ID || got.Items[0].PostTitle != "A title" ||
				got.Items[0].Comment.ContentHTML == "" || !got.Complete || got.NextCursor != nil {
				t.Errorf("found %+v", got)
			}
			first := read[result](t, a.must(t, 200, ada, "GET", "/v1/comments?q=a&limit=1"+sort, nil))
			second := read[result](t, a.must(t, 200, ada, "GET",
				"/v1/comments?q=a&limit=1"+sort+"&cursor="+*first.NextCursor, nil))
			if len(first.Items) != 1 || len(second.Items) != 1 || second.NextCursor != nil ||
				first.Items[0].Comment.ID == second.Items[0].Comment.ID {
				t.Errorf("pages %+v and %+v", first, second)
			}
		}
		a.must(t, 204, ada, "DELETE", pathOf(c), nil)
		got := read[result](t, a.must(t, 200, account{}, "GET", "/v1/comments?q=tardigrade", nil))
		if len(got.Items) > 0 {
			t.Errorf("found after its deletion: %+v", got)
		}
		a.refusedField(t, 422, "invalid", "q", ada, "GET", "/v1/comments?q=%3F", nil)
		a.refusedField(t, 422, "invalid", "q", ada, "GET", "/v1/comments", nil)
		a.refusedField(t, 422, "invalid", "sort", ada, "GET", "/v1/comments?q=a&sort=top", nil)
	})
}

func TestQueue_hasWhatModeratorsDecideBy(t *testing.T) {
	t.Parallel()
	a := newAPI(t, modes[0])
	ada := a.account(t)
	mod := a.promoted(t, a.account(t), models.RoleModerator)
	p, own := a.newPost(t, ada), a.newPost(t, mod)
	c := a.newComment(t, ada, p.ID)
	report := func(kind string, id int64, detail string) {
		t.Helper()
		a.must(t, 201, a.account(t), "POST", "/v1/reports",
			obj{"target_type": kind, "target_id": id, "reason": "spam", "detail": detail})
	}
	for i := range 7 {
		report("comment", c.ID, fmt.Sprintf("Detail %d.", i))
	}
	report("post", own.ID, "About a moderator.")
	type reportCase struct {
		TargetID int64 `json:"target_id"`
		Content  string
		Author   struct{ ID int64 }
		Reports  []struct {
			Detail   string
			Reporter struct{ Username string }
		}
		ReportersCount int64 `json:"reporters_count"`
	}
	type queue struct {
		page[reportCase]

		OpenCount int64 `json:"open_count"`
	}
	list := func(query string) queue {
		t.Helper()
		return read[queue](t, a.must(t, 200, mod, "GET", "/v1/admin/reports"+query, nil))
	}
	got := list("")
	if got.OpenCount != 2 || len(got.Items) != 2 {
		t.Fatalf("%+v", got)
	}
	first, second := got.Items[0], got.Items[1]
	if first.Content != "A comment." || first.Author.ID != ada.ID || first.ReportersCount != 7 ||
		len(first.Reports) != models.CaseReports || first.Reports[4].Detail != "Detail 4." ||
		first.Reports[0].Reporter.Username == "" {
		t.Errorf("%+v", first)
	}
	// Authors do not learn who reported them, nor what they wrote.
	if second.Content != "Some *content*." || second.ReportersCount != 1 || len(second.Reports) > 0 {
		t.Errorf("of the moderator's own post: %+v", second)
	}
	id := a.number(t, "SELECT MIN(id) FROM report_cases")
	path := fmt.Sprintf("/v1/admin/reports/%d", id)
	a.must(t, 200, mod, "POST", path+"/claim", nil)
	if got := list(""); got.OpenCount != 2 || len(got.Items) != 1 {
		t.Errorf("a claimed case is not open: %+v", got)
	}
	a.must(t, 200, mod, "POST", path+"/resolve", obj{"action": "removed", "note": "Spam."})
	if got := list("?status=resolved"); got.OpenCount != 1 || len(got.Items) != 1 ||
		got.Items[0].Content != "A comment." {
		t.Errorf("after one was resolved: %+v", got)
	}
}
