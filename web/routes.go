package web

import (
	"net/http"
	"strconv"
)

// router takes routes: a mux of net/http, or a list for tests that go through all pages.
type router interface {
	Handle(pattern string, h http.Handler)
	HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request))
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	s.addRoutes(mux)
	return mux
}

// addRoutes adds the paths of the site. A path with {id} takes numbers alone, and {name} anything.
func (s *Server) addRoutes(mux router) {
	s.forumRoutes(mux)
	s.writingRoutes(mux)
	s.accountRoutes(mux)
	s.modRoutes(mux)
	s.opRoutes(mux)
	s.siteRoutes(mux)
	s.apiRoutes(mux)
	if s.config.Dev != nil {
		mux.Handle("/dev/", s.config.Dev)
	}
	mux.Handle("/", s.page(func(*visit) error { return errNotFound }))
}

func (s *Server) forumRoutes(mux router) {
	for path, sort := range map[string]string{"/{$}": "hot", "/new": "new", "/top": "top", "/active": "active"} {
		mux.Handle("GET "+path, s.shared(func(v *visit) error { return v.front(sort) }))
	}
	mux.Handle("GET /tags", s.shared((*visit).tags))
	mux.Handle("GET /tags/{name}", s.shared((*visit).tagged))
	mux.Handle("GET /search", s.page((*visit).search))
	mux.Handle("GET /feed", s.private((*visit).feed))
	mux.Handle("GET /unread", s.private((*visit).unread))
	mux.Handle("GET /bookmarks", s.private((*visit).bookmarks))
	mux.Handle("GET /likes", s.private((*visit).likes))

	mux.Handle("GET /posts/{id}", s.shared((*visit).thread))
	mux.Handle("GET /posts/{id}/whole", s.shared((*visit).whole))
	mux.Handle("GET /posts/{id}/new", s.private((*visit).news))
	mux.Handle("GET /posts/{id}/all", s.shared((*visit).flat))
	mux.Handle("GET /posts/{id}/comments/{comment}", s.shared((*visit).permalink))
	mux.Handle("GET /comments/{id}", s.page((*visit).findComment))
	mux.Handle("GET /comments/{id}/replies", s.shared((*visit).moreReplies))
	mux.Handle("GET /posts/{id}/revisions", s.shared(func(v *visit) error { return v.revisions("posts") }))
	mux.Handle("GET /comments/{id}/revisions", s.shared(func(v *visit) error { return v.revisions("comments") }))
	mux.Handle("GET /posts/{id}/likes", s.shared(func(v *visit) error { return v.likers("posts") }))
	mux.Handle("GET /comments/{id}/likes", s.shared(func(v *visit) error { return v.likers("comments") }))

	mux.Handle("GET /users/{name}", s.shared((*visit).profile))
	mux.Handle("GET /users/{name}/comments", s.shared((*visit).profile))
	mux.Handle("GET /users/{id}/followers", s.shared(func(v *visit) error { return v.follows("followers") }))
	mux.Handle("GET /users/{id}/following", s.shared(func(v *visit) error { return v.follows("following") }))
}

func (s *Server) writingRoutes(mux router) {
	mux.Handle("GET /posts/new", s.private((*visit).newPost))
	mux.Handle("POST /posts/new", s.private((*visit).createPost))
	mux.Handle("GET /posts/{id}/edit", s.private(func(v *visit) error { return v.editForm("posts") }))
	mux.Handle("POST /posts/{id}/edit", s.private(func(v *visit) error { return v.edit("posts") }))
	mux.Handle("POST /posts/{id}/delete", s.private(func(v *visit) error { return v.remove("posts") }))
	mux.Handle("GET /posts/{id}/restore", s.private((*visit).restoreForm))
	mux.Handle("POST /posts/{id}/restore", s.private((*visit).restore))
	mux.Handle("GET /posts/{id}/comment", s.private((*visit).commentOnPost))
	mux.Handle("POST /posts/{id}/comments", s.private((*visit).createComment))
	mux.Handle("POST /posts/{id}/bookmark", s.private((*visit).bookmark))
	mux.Handle("POST /posts/{id}/subscription", s.private((*visit).subscribe))
	mux.Handle("POST /posts/{id}/read", s.private((*visit).markRead))
	mux.Handle("POST /posts/{id}/like", s.private(func(v *visit) error { return v.like("posts") }))
	mux.Handle("POST /comments/{id}/like", s.private(func(v *visit) error { return v.like("comments") }))
	mux.Handle("GET /comments/{id}/reply", s.private((*visit).replyForm))
	mux.Handle("GET /comments/{id}/edit", s.private(func(v *visit) error { return v.editForm("comments") }))
	mux.Handle("POST /comments/{id}/edit", s.private(func(v *visit) error { return v.edit("comments") }))
	mux.Handle("POST /comments/{id}/delete", s.private(func(v *visit) error { return v.remove("comments") }))
	for _, kind := range []string{"posts", "comments"} {
		mux.Handle("GET /"+kind+"/{id}/report", s.private(func(v *visit) error { return v.reportForm(kind) }))
		mux.Handle("POST /"+kind+"/{id}/report", s.private(func(v *visit) error { return v.report(kind) }))
	}
	mux.Handle("POST /users/{id}/follow", s.private(func(v *visit) error { return v.toggle("follow") }))
	mux.Handle("POST /users/{id}/block", s.private(func(v *visit) error { return v.toggle("block") }))
	mux.Handle("GET /posts/{id}/drops/new", s.private((*visit).newDrop))
	mux.Handle("POST /posts/{id}/drops/new", s.private((*visit).createDrop))
	mux.Handle("POST /drops/{id}/claim", s.private((*visit).claim))
	mux.Handle("POST /drops/{id}/close", s.private((*visit).closeDrop))
	mux.Handle("POST /claims/{name}/confirm", s.private((*visit).confirmClaim))
	mux.Handle("POST /claims/{name}/return", s.private((*visit).returnClaim))
	mux.Handle("POST /preview", s.private((*visit).preview))
}

func (s *Server) accountRoutes(mux router) {
	mux.Handle("GET /sign-in", s.page((*visit).signInForm))
	mux.Handle("POST /sign-in", s.page((*visit).signIn))
	mux.Handle("POST /sign-in/code", s.page((*visit).signInWithCode))
	mux.Handle("GET /sign-up", s.page((*visit).signUpForm))
	mux.Handle("POST /sign-up", s.page((*visit).signUp))
	mux.Handle("GET /forgot", s.page((*visit).forgotForm))
	mux.Handle("POST /forgot", s.page((*visit).forgot))
	mux.Handle("GET /reset", s.page((*visit).resetForm))
	mux.Handle("POST /reset", s.page((*visit).reset))
	for path := range links {
		mux.Handle("GET "+path, s.page((*visit).linkForm))
		mux.Handle("POST "+path, s.page((*visit).useLink))
	}
	mux.Handle("POST /settings/email", s.private((*visit).changeEmail))
	mux.Handle("POST /sign-out", s.page((*visit).signOut))
	mux.Handle("POST /prove", s.private((*visit).proved))
	mux.Handle("GET /notifications", s.private((*visit).notifications))
	mux.Handle("POST /notifications", s.private((*visit).readNotifications))
	mux.Handle("GET /claims", s.private((*visit).claims))
	mux.Handle("GET /drafts", s.private((*visit).drafts))
	mux.Handle("POST /drafts/{name}/delete", s.private((*visit).deleteDraft))
	mux.Handle("GET /images", s.private((*visit).images))
	mux.HandleFunc("POST /images", s.upload)
	mux.Handle("POST /images/{name}/delete", s.private((*visit).deleteImage))
	mux.Handle("GET /reports", s.private((*visit).ownReports))
	mux.Handle("GET /settings", s.private((*visit).settings))
	mux.Handle("POST /settings/profile", s.private((*visit).saveProfile))
	mux.Handle("POST /settings/username", s.private((*visit).changeUsername))
	mux.Handle("POST /settings/password", s.private((*visit).changePassword))
	mux.Handle("GET /settings/sessions", s.private((*visit).sessions))
	mux.Handle("POST /settings/sessions", s.private((*visit).endSessions))
	mux.Handle("GET /settings/factors", s.private((*visit).factors))
	mux.Handle("POST /settings/factors", s.private((*visit).beginTOTP))
	mux.Handle("POST /settings/factors/confirm", s.private((*visit).confirmTOTP))
	mux.Handle("POST /settings/factors/remove", s.private((*visit).removeTOTP))
	mux.Handle("POST /settings/factors/recovery-codes", s.private((*visit).replaceRecoveryCodes))
	mux.Handle("GET /settings/tokens", s.private((*visit).tokens))
	mux.Handle("POST /settings/tokens", s.private((*visit).createToken))
	mux.Handle("POST /settings/tokens/{name}/revoke", s.private((*visit).revokeToken))
	mux.Handle("GET /settings/blocks", s.private((*visit).blocks))
	mux.Handle("GET /settings/data", s.private((*visit).data))
	mux.Handle("POST /settings/data/delete", s.private((*visit).deleteAccount))
	mux.Handle("POST /display", s.page((*visit).display))
}

// apiRoutes are the operations of the API that browsers use themselves.
func (s *Server) apiRoutes(mux router) {
	for _, pattern := range []string{
		"GET /v1/images/{id}", "GET /v1/images/{id}/thumbnail", "POST /v1/images",
		"GET /v1/stream", "PUT /v1/streams/{id}",
		"PUT /v1/posts/{id}/like", "DELETE /v1/posts/{id}/like",
		"PUT /v1/comments/{id}/like", "DELETE /v1/comments/{id}/like",
		"GET /v1/me/drafts/{key}", "PUT /v1/me/drafts/{key}", "DELETE /v1/me/drafts/{key}", "GET /v1/me/export",
		"GET /v1/admin/log.csv", "GET /v1/admin/operations/{id}", "GET /v1/admin/like-voids/{id}",
		"GET /v1/admin/pipeline/posts/{id}", "GET /v1/sitemap.xml", "GET /v1/sitemap/{page}",
		"GET /v1/feeds/new", "GET /v1/feeds/tags/{tag}", "GET /v1/feeds/users/{id}", "GET /v1/feeds/posts/{id}",
	} {
		mux.HandleFunc(pattern, s.pass)
	}
}

var errNotFound = &problem{Status: http.StatusNotFound, Code: "not_found", Detail: "There is nothing here."}

// pathID returns the id in the path.
func (v *visit) pathID() (int64, error) {
	n, err := strconv.ParseInt(v.r.PathValue("id"), 10, 64)
	if err != nil || n < 1 {
		return 0, errNotFound
	}
	return n, nil
}
