package web

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

type modAccount struct {
	account

	Ban             *ban     `json:"ban"`
	FollowersCount  int64    `json:"followers_count"`
	PostsCount      int64    `json:"posts_count"`
	DeletedPosts    int64    `json:"deleted_posts_count"`
	CommentsCount   int64    `json:"comments_count"`
	DeletedComments int64    `json:"deleted_comments_count"`
	SessionsCount   int64    `json:"sessions_count"`
	TokensCount     int64    `json:"tokens_count"`
	Former          []string `json:"former_usernames"`
	LikesCount      int64    `json:"given_likes_count"` // counted to 10,000
}

type modUsersPage struct {
	deskPage

	Accounts []modAccount
	Query    filters
	Wrong    *problem
	Next     string
}

// usernameOf returns the name that was typed, without an @ before it.
func usernameOf(typed string) string { return strings.TrimPrefix(strings.TrimSpace(typed), "@") }

// modUsers finds accounts.
func (v *visit) modUsers() error {
	q := v.r.URL.Query()
	p := &modUsersPage{Query: filters{q, v.r.URL.Path}}
	p.Title = "Accounts"
	name, email, banned := usernameOf(q.Get("username")), strings.TrimSpace(q.Get("email")), ""
	if q.Get("banned") != "" {
		banned = "true"
	}
	var page list[modAccount]
	err := v.loadDesk(v.fetch(query("/v1/admin/users", "username", name, "email", email, "role", q.Get("role"),
		"banned", banned, "limit", "50", "cursor", v.cursor()), &page))
	if p.Wrong, err = wrongConditions(err); err != nil {
		return err
	}
	p.Accounts, p.Next = page.Items, v.next(page.NextCursor)
	return v.showDesk("mod_users", "users", p)
}

type modUserPage struct {
	deskPage

	Account modAccount
}

// May reports whether the viewer may act on the account: on a lower role, and an admin on everybody else.
func (p *modUserPage) May() bool {
	if p.Me == nil || p.Me.ID == p.Account.ID || p.Account.Role == "" {
		return false
	}
	return p.Me.Operates() || p.Account.Role == "user"
}

// modUser shows an account with what can be done to it.
func (v *visit) modUser() error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	p := &modUserPage{}
	if err := v.loadDesk(v.fetch(at("admin", "users", id), &p.Account)); err != nil {
		return err
	}
	p.Named = p.Account.Name()
	return v.showDesk("mod_user", "users", p)
}

// banTimes are the choices for the duration of a ban.
var banTimes = map[string]func(time.Time) time.Time{
	"day":   func(t time.Time) time.Time { return t.AddDate(0, 0, 1) },
	"days":  func(t time.Time) time.Time { return t.AddDate(0, 0, 3) },
	"week":  func(t time.Time) time.Time { return t.AddDate(0, 0, 7) },
	"month": func(t time.Time) time.Time { return t.AddDate(0, 1, 0) },
	"ever":  nil,
}

// banUntil returns when a ban of a chosen duration ends, to the second; nil for never.
func banUntil(choice string, now time.Time) (*time.Time, error) {
	after, ok := banTimes[choice]
	if !ok {
		return nil, &problem{
			Status: http.StatusUnprocessableEntity, Code: "invalid", Detail: "Choose how long the ban lasts.",
		}
	}
	if after == nil {
		return nil, nil
	}
	until := after(now.UTC()).Truncate(time.Second)
	return &until, nil
}

func (v *visit) ban(id int64, _ url.Values) (string, error) {
	until, err := banUntil(v.r.PostForm.Get("for"), v.started)
	if err != nil {
		return "", err
	}
	body := map[string]any{"reason": v.reason()}
	if until != nil {
		body["until"] = until
	}
	return "", v.send(http.MethodPost, at("admin", "users", id, "ban"), body, nil,
		"Idempotency-Key", v.r.PostForm.Get("key"))
}

func (v *visit) setRole(id int64, note url.Values) (string, error) {
	if was := v.r.PostForm.Get("was"); was != "" {
		note.Set("was", was) // the form of an undo has none
	}
	return "", v.send(http.MethodPut, at("admin", "users", id, "role"),
		map[string]any{"role": v.r.PostForm.Get("role"), "reason": v.reason()}, nil)
}

func (v *visit) deleteContent(id int64, _ url.Values) (string, error) {
	var op operation
	err := v.sendReason(at("admin", "users", id, "content", "delete"), &op)
	return fmt.Sprintf("/moderate/operations/%d", op.ID), err
}

// modDeleteAccount leads to the list of accounts, because the account has no page of its own after that.
func (v *visit) modDeleteAccount(id int64, note url.Values) (string, error) {
	note.Del("of")
	return "/moderate/users", v.sendReason(at("admin", "users", id, "delete"), nil)
}

type operation struct {
	ID               int64      `json:"id"`
	UserID           int64      `json:"user_id"`
	State            string     `json:"state"`
	Reason           string     `json:"reason"`
	RequestedBy      int64      `json:"requested_by"`
	RequestedAt      time.Time  `json:"requested_at"`
	FinishedAt       *time.Time `json:"finished_at"`
	PostsDeleted     int64      `json:"posts_deleted"`
	CommentsDeleted  int64      `json:"comments_deleted"`
	PostsRestored    int64      `json:"posts_restored"`
	CommentsRestored int64      `json:"comments_restored"`
}

type operationPage struct {
	deskPage

	Op operation
}

// modOperation shows the progress of a deletion of everything.
func (v *visit) modOperation() error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	p := &operationPage{}
	p.Title = "Deletion of everything"
	if err := v.loadDesk(v.fetch(at("admin", "operations", id), &p.Op)); err != nil {
		return err
	}
	return v.showDesk("mod_operation", "users", p)
}

type likeVoid struct {
	ID          int64      `json:"id"`
	UserID      int64      `json:"user_id"`
	Reason      string     `json:"reason"`
	RequestedBy int64      `json:"requested_by"`
	RequestedAt time.Time  `json:"requested_at"`
	Since       *time.Time `json:"since"`
	Until       *time.Time `json:"until"`
	LikesLeft   *int64     `json:"likes_left"`
	DoneAt      *time.Time `json:"done_at"`
}

type voidPage struct {
	deskPage

	Void likeVoid
}

// modVoid shows the progress of a voiding of likes.
func (v *visit) modVoid() error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	p := &voidPage{}
	p.Title = "Voiding of likes"
	if err := v.loadDesk(v.fetch(at("admin", "like-voids", id), &p.Void)); err != nil {
		return err
	}
	return v.showDesk("mod_void", "users", p)
}

func (v *visit) voidLikes(id int64, _ url.Values) (string, error) {
	body := map[string]any{"reason": v.reason()}
	if since := dayTime(v.r.PostForm.Get("since")); since != "" {
		body["since"] = since
	}
	var made likeVoid
	err := v.send(http.MethodPost, at("admin", "users", id, "likes", "void"), body, &made,
		"Idempotency-Key", v.r.PostForm.Get("key"))
	return fmt.Sprintf("/moderate/voids/%d", made.ID), err
}

func (v *visit) voidClaims(id int64, note url.Values) (string, error) {
	body := map[string]any{"reason": v.reason()}
	if typed := strings.TrimSpace(v.r.PostForm.Get("drop_id")); typed != "" {
		drop, err := strconv.ParseInt(typed, 10, 64)
		if err != nil {
			return "", &problem{
				Status: http.StatusUnprocessableEntity, Code: "invalid", Detail: "The form has errors.",
				Errors: []fieldError{{Field: "drop_id", Code: "invalid", Message: "must be a number"}},
			}
		}
		body["drop_id"] = drop
	}
	var out struct {
		Voided int64 `json:"voided"`
	}
	err := v.send(http.MethodPost, at("admin", "users", id, "claims", "void"), body, &out,
		"Idempotency-Key", v.r.PostForm.Get("key"))
	note.Set("n", strconv.FormatInt(out.Voided, 10))
	return "", err
}

type givenLike struct {
	TargetType   string    `json:"target_type"`
	TargetID     int64     `json:"target_id"`
	LikedAt      time.Time `json:"liked_at"`
	TargetStatus string    `json:"target_status"`
	Author       *author   `json:"author"`
	PostTitle    string    `json:"post_title"`
}

type modLikesPage struct {
	deskPage

	Type    string
	Likes   []givenLike
	Account modAccount
	Next    string
}

// modLikes lists the likes of an account.
func (v *visit) modLikes() error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	p := &modLikesPage{Type: "post"}
	p.Title = "Given likes"
	if v.r.URL.Query().Get("type") == "comment" {
		p.Type = "comment"
	}
	var page list[givenLike]
	err = v.loadDesk(
		v.fetch(query(at("admin", "users", id, "likes"), "type", p.Type, "limit", "100", "cursor", v.cursor()), &page),
		v.fetch(at("admin", "users", id), &p.Account),
	)
	if err != nil {
		return err
	}
	p.Likes, p.Next = page.Items, v.next(page.NextCursor)
	return v.showDesk("mod_likes", "users", p)
}

type moderatedImage struct {
	ID           string    `json:"id"`
	URL          string    `json:"url"`
	ThumbnailURL string    `json:"thumbnail_url"`
	Width        int64     `json:"width"`
	Height       int64     `json:"height"`
	Bytes        int64     `json:"bytes"`
	Hidden       bool      `json:"hidden"`
	CreatedAt    time.Time `json:"created_at"`
	User         *author   `json:"user"`
	Uses         []struct {
		Type string `json:"type"`
		ID   int64  `json:"id"`
	} `json:"uses"`
}

type modImagesPage struct {
	deskPage

	UserID int64
	Images []moderatedImage
	Next   string
}

// modImages lists the images of an account.
func (v *visit) modImages() error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	p := &modImagesPage{UserID: id}
	p.Title = "Images"
	var page list[moderatedImage]
	path := query(at("admin", "users", id, "images"), "limit", "50", "cursor", v.cursor())
	if err := v.loadDesk(v.fetch(path, &page)); err != nil {
		return err
	}
	p.Images, p.Next = page.Items, v.next(page.NextCursor)
	return v.showDesk("mod_images", "users", p)
}

type modImagePage struct {
	deskPage

	Image moderatedImage
}

// modImage shows an image, whose it is and what uses it.
func (v *visit) modImage() error {
	p := &modImagePage{}
	p.Title = "Image"
	if err := v.loadDesk(v.fetch(at("admin", "images", v.r.PathValue("name")), &p.Image)); err != nil {
		return err
	}
	return v.showDesk("mod_image", "users", p)
}

func (v *visit) modDeleteImage() error {
	if err := v.r.ParseForm(); err != nil {
		return errBadForm
	}
	if err := v.send(http.MethodDelete, at("images", v.r.PathValue("name")), nil, nil); err != nil {
		return v.actAgain(manyActs["image.delete"], v.r.PostForm, err)
	}
	return v.redirectWith(v.back("/moderate/users"), url.Values{"did": {"image.delete"}})
}

type modDropPage struct {
	deskPage

	DropID int64
	Claims []claim
	Next   string
}

// modDrop lists the claims of a drop.
func (v *visit) modDrop() error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	p := &modDropPage{DropID: id}
	p.Title = "Claims"
	var page list[claim]
	path := query(at("admin", "drops", id, "claims"), "limit", "100", "cursor", v.cursor())
	if err := v.loadDesk(v.fetch(path, &page)); err != nil {
		return err
	}
	p.Claims, p.Next = page.Items, v.next(page.NextCursor)
	return v.showDesk("mod_drop", "users", p)
}
