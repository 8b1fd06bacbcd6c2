package handlers

import (
	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

// route is a row of the table of routes.
type route struct {
	method     string // GET stands for HEAD, too
	path       string
	permission models.Permission // models/permission.go holds its rule
	limit      *routeLimit       // what a request costs; see limit.go
	handler    fiber.Handler
	// Of a POST: answers a repeated Idempotency-Key without acting again; see once in idempotency.go. It is nil for a
	// claim, which repeating does not change, for a preview, which has no effect, and for an image, whose unused copy
	// is deleted by a job.
	repeat fiber.Handler
}

// changesReads reports whether a request of the route may change what shared reads return.
func (r route) changesReads() bool {
	switch {
	case r.method == fiber.MethodGet:
		return false
	// Many at a time, and without such an effect.
	case r.limit == limitLike || r.limit == limitLogin || r.limit == limitUpload || r.limit == limitNote ||
		r.limit == limitRender:
		return false
	}
	return true
}

// routes returns the table of all routes.
//
// To add a route, add a row here and describe it in openapi.yaml, with its permission as x-permission. A new permission
// gets a rule in models/permission.go. If the permission is not for all objects, the handler passes the owner
// of the object to allowOn in auth.go. Tests compare table, rules and contract, and hold every operation to its rule.
func (s *Server) routes() []route {
	const post, comment = models.KindPost, models.KindComment
	moderatedPost, moderatedComment := s.readModerated(post), s.readModerated(comment)
	return []route{
		// The server itself
		{"GET", "/", "system.read", limitRead, readRoot, nil},
		{"GET", "/healthz", "system.read", limitNone, s.alive, nil},
		{"GET", "/openapi.yaml", "system.read", limitRead, sendFile("openapi.yaml"), nil},
		{"GET", "/docs", "system.read", limitRead, sendFile("docs.html"), nil},
		{"GET", "/docs/:file", "system.read", limitRead, sendDocsFile, nil},

		// Sign-in
		{"POST", "/v1/auth/register", "account.create", limitRegister, s.register, s.repeatRegistration},
		{"POST", "/v1/auth/login", "session.create", limitLogin, s.login, s.login},
		{"POST", "/v1/auth/logout", "session.end", limitWrite, s.logout, replyNothing},

		// The viewer's account
		{"GET", "/v1/me", "account.read", limitRead, s.me, nil},
		{"PATCH", "/v1/me", "account.edit", limitWrite, s.editMe, nil},
		{"DELETE", "/v1/me", "account.delete", limitPassword, s.deleteMe, nil},
		{"PUT", "/v1/me/password", "account.password", limitPassword, s.changePassword, nil},
		{"GET", "/v1/me/export", "account.export", limitRead, s.exportMe, nil},
		{"GET", "/v1/me/sessions", "session.list", limitRead, s.listSessions, nil},
		{"DELETE", "/v1/me/sessions", "session.end", limitWrite, s.endOtherSessions, nil},
		{"DELETE", "/v1/me/sessions/:id", "session.end", limitWrite, s.endSession, nil},
		{"GET", "/v1/me/tokens", "token.list", limitRead, s.listTokens, nil},
		{"POST", "/v1/me/tokens", "token.create", limitWrite, s.createToken, s.repeatToken},
		{"DELETE", "/v1/me/tokens/:id", "token.revoke", limitWrite, s.revokeToken, nil},

		// The viewer's lists
		{"GET", "/v1/feed", "feed.read", limitReadLarge, s.readFeed, nil},
		{"GET", "/v1/me/blocks", "block.list", limitReadList, s.listBlocks, nil},
		{"GET", "/v1/me/bookmarks", "bookmark.list", limitReadList, s.listBookmarks, nil},
		{"GET", "/v1/me/claims", "claim.list", limitReadList, s.listMyClaims, nil},
		{"GET", "/v1/me/drafts", "draft.read", limitReadList, s.listDrafts, nil},
		{"GET", "/v1/me/drafts/:key", "draft.read", limitRead, s.readDraft, nil},
		{"PUT", "/v1/me/drafts/:key", "draft.write", limitNote, s.saveDraft, nil},
		{"DELETE", "/v1/me/drafts/:key", "draft.write", limitNote, s.deleteDraft, nil},
		{"GET", "/v1/me/images", "image.list", limitReadList, s.listMyImages, nil},
		{"GET", "/v1/me/likes", "like.list", limitReadList, s.listMyLikes, nil},
		{"GET", "/v1/me/redactions", "redaction.list", limitRead, s.listMyRedactions, nil},
		{"GET", "/v1/me/reports", "report.list", limitRead, s.listMyReports, nil},
		{"GET", "/v1/me/subscriptions", "subscription.list", limitReadList, s.listSubscriptions, nil},
		{"GET", "/v1/me/unread", "post.unread", limitReadLarge, s.listUnread, nil},
		{"GET", "/v1/notifications", "notification.list", limitReadList, s.listNotifications, nil},
		{"GET", "/v1/notifications/unread-count", "notification.list", limitRead, s.countUnread, nil},
		{"POST", "/v1/notifications/read", "notification.read", limitWrite, s.readNotifications, s.countUnread},

		// Users
		{"GET", "/v1/users", "user.read", limitRead, s.findUsers, nil},
		{"GET", "/v1/users/by-name/:name", "user.read", limitRead, s.readUserByName, nil},
		{"GET", "/v1/users/by-prefix/:prefix", "user.complete", limitRead, s.completeUsername, nil},
		{"GET", "/v1/users/:id", "user.read", limitRead, s.readUser, nil},
		{"GET", "/v1/users/:id/posts", "post.read", limitReadList, s.listUserPosts, nil},
		{"GET", "/v1/users/:id/comments", "comment.read", limitReadList, s.listUserComments, nil},
		{"GET", "/v1/users/:id/likes", "like.read", limitReadList, s.listUserLikes, nil},
		{"GET", "/v1/users/:id/followers", "user.read", limitReadList, s.listFollowers, nil},
		{"GET", "/v1/users/:id/following", "user.read", limitReadList, s.listFollowing, nil},
		{"PUT", "/v1/users/:id/follow", "follow.set", limitWrite, s.setFollow(true), nil},
		{"DELETE", "/v1/users/:id/follow", "follow.set", limitWrite, s.setFollow(false), nil},
		{"PUT", "/v1/users/:id/block", "block.set", limitWrite, s.setBlock(true), nil},
		{"DELETE", "/v1/users/:id/block", "block.set", limitWrite, s.setBlock(false), nil},

		// Posts
		{"GET", "/v1/posts", "post.read", limitReadList, s.listPosts, nil},
		{"POST", "/v1/posts", "post.create", limitPost, s.createPost, s.repeatPost},
		{"GET", "/v1/posts/:id", "post.read", limitRead, s.readPost, nil},
		{"PATCH", "/v1/posts/:id", "post.edit", limitWrite, s.editPost, nil},
		{"DELETE", "/v1/posts/:id", "post.delete", limitWrite, s.deletePost, nil},
		{"POST", "/v1/posts/:id/restore", "post.restore", limitWrite, s.restorePost, s.readPost},
		{"GET", "/v1/posts/:id/comments", "comment.read", limitReadComments, s.listComments, nil},
		{"POST", "/v1/posts/:id/comments", "comment.create", limitComment, s.createComment, s.repeatComment},
		{"GET", "/v1/posts/:id/thread", "comment.read", limitReadLarge, s.readThread, nil},
		{"PUT", "/v1/posts/:id/like", "like.set", limitLike, s.setLike(post, true), nil},
		{"DELETE", "/v1/posts/:id/like", "like.set", limitLike, s.setLike(post, false), nil},
		{"GET", "/v1/posts/:id/likes", "like.read", limitReadList, s.listLikers(post), nil},
		{"PUT", "/v1/posts/:id/bookmark", "bookmark.set", limitWrite, s.setBookmark(true), nil},
		{"DELETE", "/v1/posts/:id/bookmark", "bookmark.set", limitWrite, s.setBookmark(false), nil},
		{"PUT", "/v1/posts/:id/read", "post.mark", limitNote, s.markRead, nil},
		{"PUT", "/v1/posts/:id/subscription", "subscription.set", limitWrite, s.setSubscription, nil},
		{"DELETE", "/v1/posts/:id/subscription", "subscription.set", limitWrite, s.endSubscription, nil},
		{"GET", "/v1/posts/:id/revisions", "post.read", limitReadList, s.listRevisions(post, false), nil},
		{"GET", "/v1/posts/:id/revisions/:version", "post.read", limitRead, s.readRevision(post, false), nil},
		{"POST", "/v1/posts/:id/revisions/:version/redaction", "post.redact", limitReport,
			s.requestRedaction(post), s.repeatRedaction},

		// Feeds and sitemap
		{"GET", "/v1/feeds/new", "post.read", limitReadLarge, s.feedNew, nil},
		{"GET", "/v1/feeds/tags/:tag", "post.read", limitReadLarge, s.feedTag, nil},
		{"GET", "/v1/feeds/users/:id", "post.read", limitReadLarge, s.feedUser, nil},
		{"GET", "/v1/feeds/posts/:id", "comment.read", limitReadLarge, s.feedThread, nil},
		{"GET", "/v1/sitemap.xml", "post.read", limitRead, s.sitemapIndex, nil},
		{"GET", "/v1/sitemap/:page", "post.read", limitReadLarge, s.sitemapPage, nil},

		// Drops and claims
		{"GET", "/v1/posts/:id/drops", "drop.read", limitReadList, s.listDrops, nil},
		{"POST", "/v1/posts/:id/drops", "drop.create", limitWrite, s.createDrop, s.repeatDrop},
		{"GET", "/v1/drops/:id", "drop.read", limitRead, s.readDrop, nil},
		{"PATCH", "/v1/drops/:id", "drop.edit", limitWrite, s.editDrop, nil},
		{"POST", "/v1/drops/:id/close", "drop.close", limitWrite, s.closeDrop, s.readDrop},
		{"GET", "/v1/drops/:id/claims", "drop.claims", limitReadList, s.listClaimsOfDrop, nil},
		{"POST", "/v1/drops/:id/claims", "claim.create", limitLike, s.createClaim, nil},
		{"GET", "/v1/claims/:id", "claim.read", limitRead, s.readClaim, nil},
		{"DELETE", "/v1/claims/:id", "claim.return", limitLike, s.returnClaim, nil},
		{"POST", "/v1/claims/:id/confirm", "claim.confirm", limitWrite, s.confirmClaim, s.readClaim},

		// Comments
		{"GET", "/v1/comments", "comment.read", limitReadList, s.findComments, nil},
		{"GET", "/v1/comments/:id", "comment.read", limitRead, s.readComment, nil},
		{"PATCH", "/v1/comments/:id", "comment.edit", limitWrite, s.editComment, nil},
		{"DELETE", "/v1/comments/:id", "comment.delete", limitWrite, s.deleteComment, nil},
		{"GET", "/v1/comments/:id/ancestors", "comment.read", limitReadList, s.readAncestors, nil},
		{"GET", "/v1/comments/:id/replies", "comment.read", limitReadComments, s.listReplies, nil},
		{"POST", "/v1/comments/:id/replies", "comment.create", limitComment, s.createReply, s.repeatComment},
		{"PUT", "/v1/comments/:id/like", "like.set", limitLike, s.setLike(comment, true), nil},
		{"DELETE", "/v1/comments/:id/like", "like.set", limitLike, s.setLike(comment, false), nil},
		{"GET", "/v1/comments/:id/likes", "like.read", limitReadList, s.listLikers(comment), nil},
		{"GET", "/v1/comments/:id/revisions", "comment.read", limitReadList, s.listRevisions(comment, false), nil},
		{"GET", "/v1/comments/:id/revisions/:version", "comment.read", limitRead, s.readRevision(comment, false), nil},
		{"POST", "/v1/comments/:id/revisions/:version/redaction", "comment.redact", limitReport,
			s.requestRedaction(comment), s.repeatRedaction},

		// Images
		{"POST", "/v1/images", "image.create", limitUpload, s.uploadImage, nil},
		{"GET", "/v1/images/:id", "image.read", limitRead, s.readImage(false), nil},
		{"GET", "/v1/images/:id/thumbnail", "image.read", limitRead, s.readImage(true), nil},
		{"DELETE", "/v1/images/:id", "image.delete", limitWrite, s.deleteImage, nil},

		// Previews, tags, likes, live counts and reports
		{"POST", "/v1/render", "text.render", limitRender, s.renderText, nil},
		{"GET", "/v1/tags", "post.read", limitReadTags, s.listTags, nil},
		{"GET", "/v1/likes", "like.read", limitRead, s.readLikes, nil},
		{"GET", "/v1/stream", "stream.read", limitRead, s.openStream, nil},
		{"POST", "/v1/reports", "report.create", limitReport, s.reportContent, s.repeatReport},

		// Moderators: posts
		{"GET", "/v1/admin/posts", "admin.post.read", limitReadLarge, s.listModeratedPosts, nil},
		{"GET", "/v1/admin/posts/:id", "admin.post.read", limitRead, moderatedPost, nil},
		{"POST", "/v1/admin/posts/:id/delete", "admin.post.delete", limitWrite, s.removeContent(post), moderatedPost},
		{"POST", "/v1/admin/posts/:id/restore", "admin.post.restore", limitWrite,
			s.reinstateContent(post), moderatedPost},
		{"POST", "/v1/admin/posts/:id/purge", "admin.post.purge", limitWrite, s.purgeContent(post), moderatedPost},
		{"POST", "/v1/admin/posts/:id/lock", "admin.post.lock", limitWrite,
			s.flagPost(models.PostLocked, true), moderatedPost},
		{"POST", "/v1/admin/posts/:id/unlock", "admin.post.lock", limitWrite,
			s.flagPost(models.PostLocked, false), moderatedPost},
		{"POST", "/v1/admin/posts/:id/pin", "admin.post.pin", limitWrite,
			s.flagPost(models.PostPinned, true), moderatedPost},
		{"POST", "/v1/admin/posts/:id/unpin", "admin.post.pin", limitWrite,
			s.flagPost(models.PostPinned, false), moderatedPost},
		{"GET", "/v1/admin/posts/:id/revisions", "admin.post.read", limitRead, s.listRevisions(post, true), nil},
		{"GET", "/v1/admin/posts/:id/revisions/:version", "admin.post.read", limitRead,
			s.readRevision(post, true), nil},
		{"POST", "/v1/admin/posts/:id/revisions/:version/redact", "admin.post.redact", limitWrite,
			s.redactVersion(post), moderatedPost},

		// Moderators: comments
		{"GET", "/v1/admin/comments", "admin.comment.read", limitReadLarge, s.listModeratedComments, nil},
		{"GET", "/v1/admin/comments/:id", "admin.comment.read", limitRead, moderatedComment, nil},
		{"POST", "/v1/admin/comments/:id/delete", "admin.comment.delete", limitWrite,
			s.removeContent(comment), moderatedComment},
		{"POST", "/v1/admin/comments/:id/restore", "admin.comment.restore", limitWrite,
			s.reinstateContent(comment), moderatedComment},
		{"POST", "/v1/admin/comments/:id/purge", "admin.comment.purge", limitWrite,
			s.purgeContent(comment), moderatedComment},
		{"GET", "/v1/admin/comments/:id/revisions", "admin.comment.read", limitRead,
			s.listRevisions(comment, true), nil},
		{"GET", "/v1/admin/comments/:id/revisions/:version", "admin.comment.read", limitRead,
			s.readRevision(comment, true), nil},
		{"POST", "/v1/admin/comments/:id/revisions/:version/redact", "admin.comment.redact", limitWrite,
			s.redactVersion(comment), moderatedComment},

		// Moderators: reports and redactions
		{"GET", "/v1/admin/reports", "admin.report.read", limitRead, s.listReportCases, nil},
		{"POST", "/v1/admin/reports/resolve", "admin.report.resolve", limitWrite, s.resolveReports, replyKept},
		{"GET", "/v1/admin/reports/:id", "admin.report.read", limitRead, s.readReportCase, nil},
		{"GET", "/v1/admin/reports/:id/reports", "admin.report.reporters", limitRead, s.listReportsOfCase, nil},
		{"POST", "/v1/admin/reports/:id/claim", "admin.report.claim", limitWrite, s.claimReport, s.readReportCase},
		{"POST", "/v1/admin/reports/:id/resolve", "admin.report.resolve", limitWrite,
			s.resolveReport, s.readReportCase},
		{"GET", "/v1/admin/redactions", "admin.redaction.read", limitRead, s.listRedactions, nil},
		{"GET", "/v1/admin/redactions/:id", "admin.redaction.read", limitRead, s.readRedaction, nil},
		{"POST", "/v1/admin/redactions/:id/resolve", "admin.redaction.resolve", limitWrite,
			s.resolveRedaction, s.readRedaction},

		// Moderators: users and their content
		{"GET", "/v1/admin/users", "admin.user.read", limitRead, s.listAccounts, nil},
		{"GET", "/v1/admin/users/:id", "admin.user.read", limitRead, s.readAccount, nil},
		{"POST", "/v1/admin/users/:id/ban", "admin.user.ban", limitWrite, s.banUser, s.repeatBan},
		{"POST", "/v1/admin/users/:id/unban", "admin.user.ban", limitWrite, s.unbanUser, replyNothing},
		{"POST", "/v1/admin/users/:id/delete", "admin.user.delete", limitWrite, s.deleteBannedUser, replyNothing},
		{"PUT", "/v1/admin/users/:id/role", "admin.user.role", limitWrite, s.changeRole, nil},
		{"POST", "/v1/admin/users/:id/content/delete", "admin.content.delete", limitWrite,
			s.removeAllContent, s.repeatOperation},
		{"GET", "/v1/admin/users/:id/images", "admin.image.read", limitRead, s.listImagesOf, nil},
		{"GET", "/v1/admin/images/:id", "admin.image.read", limitRead, s.readImageForModerators, nil},
		{"GET", "/v1/admin/operations/:id", "admin.content.read", limitRead, s.readOperation, nil},
		{"POST", "/v1/admin/operations/:id/undo", "admin.content.restore", limitWrite,
			s.undoOperation, s.repeatOperation},

		// Moderators: claims
		{"GET", "/v1/admin/drops/:id/claims", "admin.claim.read", limitReadList, s.listDropClaims, nil},
		{"POST", "/v1/admin/users/:id/claims/void", "admin.claim.void", limitWrite, s.voidClaims, s.repeatVoidClaims},

		// Moderators: likes
		{"GET", "/v1/admin/users/:id/likes", "admin.like.read", limitRead, s.listGivenLikes, nil},
		{"POST", "/v1/admin/users/:id/likes/void", "admin.like.void", limitWrite, s.voidLikes, s.repeatVoid},
		{"GET", "/v1/admin/like-voids/:id", "admin.like.read", limitRead, s.readLikeVoid, nil},
		{"GET", "/v1/admin/like-rings", "admin.ring.read", limitRead, s.listLikeRings, nil},
		{"POST", "/v1/admin/like-rings/:id/dismiss", "admin.ring.resolve", limitWrite, s.dismissLikeRing, replyNothing},
		{"POST", "/v1/admin/like-rings/:id/void", "admin.ring.resolve", limitWrite, s.voidLikeRing, s.repeatRingVoids},

		// Moderators: logs
		{"GET", "/v1/admin/log", "admin.log.read", limitRead, s.listActs, nil},
		{"GET", "/v1/admin/log.csv", "admin.log.read", limitRead, s.exportActs, nil},
		{"GET", "/v1/admin/security-log", "admin.security.read", limitRead, s.listSecurityEvents, nil},

		// Administrators: webhooks
		{"GET", "/v1/admin/webhooks", "admin.webhook.read", limitRead, s.listWebhooks, nil},
		{"POST", "/v1/admin/webhooks", "admin.webhook.edit", limitWrite, s.createWebhook, s.repeatWebhook},
		{"GET", "/v1/admin/webhooks/:id", "admin.webhook.read", limitRead, s.readWebhook, nil},
		{"PATCH", "/v1/admin/webhooks/:id", "admin.webhook.edit", limitWrite, s.editWebhook, nil},
		{"DELETE", "/v1/admin/webhooks/:id", "admin.webhook.edit", limitWrite, s.deleteWebhook, nil},
		{"POST", "/v1/admin/webhooks/:id/rotate-secret", "admin.webhook.edit", limitWrite,
			s.rotateSecret, s.repeatRotation},
		{"DELETE", "/v1/admin/webhooks/:id/previous-secret", "admin.webhook.edit", limitWrite,
			s.endPreviousSecret, nil},
		{"POST", "/v1/admin/webhooks/:id/ping", "admin.webhook.send", limitWrite, s.pingWebhook, s.repeatPing},
		{"GET", "/v1/admin/webhooks/:id/deliveries", "admin.webhook.read", limitRead, s.listDeliveries, nil},
		{"POST", "/v1/admin/webhooks/:id/deliveries/:delivery/replay", "admin.webhook.send", limitWrite,
			s.replayDelivery, s.repeatReplay},

		// Administrators: the pipeline of likes
		{"GET", "/v1/admin/pipeline", "admin.pipeline.read", limitRead, s.readPipeline, nil},
		{"GET", "/v1/admin/dead-letters", "admin.pipeline.read", limitRead, s.listDeadLetters, nil},
		{"POST", "/v1/admin/dead-letters/:id/retry", "admin.pipeline.mend", limitWrite,
			s.retryDeadLetter, s.repeatLetter},
		{"POST", "/v1/admin/dead-letters/:id/discard", "admin.pipeline.mend", limitWrite,
			s.discardDeadLetter, s.repeatLetter},
		{"POST", "/v1/admin/reconcile", "admin.pipeline.mend", limitWrite, s.reconcile, replyKept},
	}
}
