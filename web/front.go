package web

import (
	"net/http"
	"net/url"
	"strconv"
)

// perPage is the number of posts on a page.
const perPage = "30"

// listPage is a page with a list of posts.
type listPage struct {
	view

	Heading string
	Sort    string // the chosen tab; "" without tabs
	Window  string
	Tag     string
	Query   string
	In      string // what is searched: posts or comments
	Pinned  []post
	Posts   []post
	Found   []titledComment
	Total   *int64
	Partial bool // the search has more to examine
	Next    string
	Tags    []tag
	Empty   string
	Liked   []liked

	RefusedID string // of a search that was not carried out

	LikedType string // post or comment, on the page of one's likes
}

// next returns the path of the next page of a list.
func (v *visit) next(cursor *string) string {
	if cursor == nil {
		return ""
	}
	q := v.r.URL.Query()
	q.Set("cursor", *cursor)
	return v.r.URL.Path + "?" + q.Encode()
}

func (v *visit) cursor() string { return v.r.URL.Query().Get("cursor") }

var windows = map[string]bool{"day": true, "week": true, "month": true, "year": true}

func (v *visit) front(sort string) error {
	p := &listPage{Sort: sort, Window: v.r.URL.Query().Get("window")}
	if !windows[p.Window] {
		p.Window = ""
	}
	pinned := ""
	if sort == "hot" || sort == "active" {
		pinned = "once"
	}
	path := query("/v1/posts", "sort", sort, "limit", perPage, "window", p.Window, "pinned", pinned,
		"cursor", v.cursor())
	var page postPage
	var tags list[tag]
	if err := v.load(v.fetch(path, &page), v.optional(v.fetch("/v1/tags?limit=20", &tags))); err != nil {
		return err
	}
	p.Pinned, p.Posts, p.Tags, p.Next = page.Pinned, page.Items, tags.Items, v.next(page.NextCursor)
	p.Empty = "Nobody has written anything yet."
	p.About = v.lang.text("What people talk about at %s.", v.siteName())
	p.Feed = v.url("/v1/feeds/new")
	if v.cursor() == "" {
		p.Canonical = v.url(v.r.URL.Path)
	}
	p.Live = "new_posts=true&" + live("posts", p.Pinned, p.Posts)
	v.render(http.StatusOK, "list", p)
	return nil
}

// live returns what a list follows, as the parameters of the stream.
func live(name string, lists ...[]post) string {
	ids := ""
	for _, posts := range lists {
		for i := range posts {
			if ids != "" {
				ids += ","
			}
			ids += strconv.FormatInt(posts[i].ID, 10)
		}
	}
	if ids == "" {
		return ""
	}
	return name + "=" + ids
}

func (v *visit) tags() error {
	p := &tagsPage{}
	p.Title, p.Canonical = "Tags", v.url("/tags")
	var tags list[tag]
	err := v.load(v.fetch(query("/v1/tags", "limit", "100", "cursor", v.cursor()), &tags))
	if err != nil {
		return err
	}
	p.Tags, p.Next = tags.Items, v.next(tags.NextCursor)
	v.render(http.StatusOK, "tags", p)
	return nil
}

type tagsPage struct {
	view

	Tags []tag
	Next string
}

func (v *visit) tagged() error {
	name := v.r.PathValue("name")
	sort := v.r.URL.Query().Get("sort")
	if sort != "new" && sort != "top" && sort != "active" {
		sort = "hot"
	}
	p := &listPage{Sort: sort, Tag: name, Heading: "#" + name}
	p.Title = "#" + name
	var page postPage
	err := v.load(v.fetch(query("/v1/posts", "tag", name, "sort", sort, "limit", perPage, "cursor", v.cursor()), &page))
	if err != nil {
		return err
	}
	p.Posts, p.Total, p.Next = page.Items, page.TotalCount, v.next(page.NextCursor)
	p.Empty = "No post has this tag."
	p.About = v.lang.text("Posts with the tag %s.", name)
	p.Feed = v.url("/v1/feeds/tags/" + url.PathEscape(name))
	if v.cursor() == "" {
		p.Canonical = v.url("/tags/" + url.PathEscape(name))
	}
	p.Live = "tags=" + url.QueryEscape(name) + "&" + live("posts", p.Posts)
	v.render(http.StatusOK, "list", p)
	return nil
}

func (v *visit) search() error {
	q := v.r.URL.Query()
	p := &listPage{Query: q.Get("q"), In: "posts", Heading: "Search"}
	p.Title = "Search"
	if q.Get("in") == "comments" {
		p.In = "comments"
	}
	sort := q.Get("sort")
	if sort != "new" {
		sort = "relevance"
	}
	p.Sort = sort
	var posts postPage
	var comments commentPage
	var err error
	path := query("/v1/"+p.In, "q", p.Query, "sort", sort, "limit", perPage, "cursor", v.cursor())
	switch {
	case p.Query == "":
		err = v.load()
	case p.In == "comments":
		err = v.load(v.fetch(path, &comments))
	default:
		err = v.load(v.fetch(path, &posts))
	}
	if problem := problemOf(err); err != nil && problem.Status == http.StatusUnprocessableEntity {
		p.Empty, p.RefusedID = problem.Detail, problem.RequestID
		if list := problem.Of("q"); len(list) > 0 {
			p.Empty = v.lang.text("The search was not carried out: it %s.", v.lang.text(list[0]))
		}
		v.render(http.StatusUnprocessableEntity, "list", p)
		return nil
	}
	if err != nil {
		return err
	}
	p.Posts, p.Found = posts.Items, comments.Items
	if p.Next = v.next(posts.NextCursor); p.In == "comments" {
		p.Next = v.next(comments.NextCursor)
	}
	complete := posts.Complete
	if p.In == "comments" {
		complete = comments.Complete
	}
	p.Partial = complete != nil && !*complete
	if p.Empty = "Write some words to look for."; p.Query != "" {
		p.Empty = "Nothing was found."
	}
	v.render(http.StatusOK, "list", p)
	return nil
}

// ownList shows a list of posts of the account.
func (v *visit) ownList(path, heading, empty string) error {
	p := &listPage{Heading: heading, Empty: empty}
	p.Title = heading
	var page list[post]
	if err := v.load(v.fetch(query(path, "limit", perPage, "cursor", v.cursor()), &page)); err != nil {
		return err
	}
	p.Posts, p.Next, p.Live = page.Items, v.next(page.NextCursor), live("posts", page.Items)
	v.render(http.StatusOK, "list", p)
	return nil
}

func (v *visit) feed() error {
	return v.ownList("/v1/feed", "Following", "The posts of people whom you follow appear here.")
}

func (v *visit) unread() error {
	return v.ownList("/v1/me/unread", "Unread", "You have read everything.")
}

func (v *visit) bookmarks() error {
	return v.ownList("/v1/me/bookmarks", "Bookmarks", "You have not bookmarked a post yet.")
}

func (v *visit) likes() error {
	p := &listPage{Heading: "Your likes", Empty: "You have not liked anything yet."}
	p.Title = p.Heading
	var page list[liked]
	kind := "post"
	if v.r.URL.Query().Get("type") == "comment" {
		kind = "comment"
	}
	p.LikedType = kind
	path := query("/v1/me/likes", "type", kind, "limit", perPage, "cursor", v.cursor())
	if err := v.load(v.fetch(path, &page)); err != nil {
		return err
	}
	p.Liked, p.Next = page.Items, v.next(page.NextCursor)
	v.render(http.StatusOK, "list", p)
	return nil
}
