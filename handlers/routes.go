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
	// claim, which repeating does not change, for a preview, which has no effect, for an image, whose unused copy
	// is deleted by a job, and for second factors, whose codes and secrets are accepted and shown once.
	repeat fiber.Handler
}

// changesReads reports whether a request of the route may change what shared reads return.
func (r route) changesReads() bool {
	switch {
	case r.method == fiber.MethodGet, r.limit == limitRead:
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
		{"GET", "/", models.PermSystemRead, limitRead, s.readRoot, nil},
		{"GET", "/healthz", models.PermSystemRead, limitNone, s.alive, nil},
		{"GET", "/openapi.yaml", models.PermSystemRead, limitRead, sendFile("openapi.yaml"), nil},
		{"GET", "/docs", models.PermSystemRead, limitRead, sendFile("docs.html"), nil},
		{"GET", "/docs/:file", models.PermSystemRead, limitRead, sendDocsFile, nil},
		{"GET", "/v1/site", models.PermSiteRead, limitRead, s.readSite, nil},

		// Sign-in
		{"POST", "/v1/auth/register", models.PermAccountCreate, limitRegister, s.register, s.repeatRegistration},
		{"POST", "/v1/auth/login", models.PermSessionCreate, limitLogin, s.login, s.login},
		{"POST", "/v1/auth/challenge", models.PermSessionCreate, limitLogin, s.answerChallenge, nil},
		{"POST", "/v1/auth/logout", models.PermSessionEnd, limitWrite, s.logout, replyNothing},
		{"POST", "/v1/auth/password-reset", models.PermAccountReset, limitMail, s.requestReset, replyMailed},
		{"POST", "/v1/auth/password-reset/confirm", models.PermAccountReset, limitLogin, s.resetPassword, replyNothing},
		{"POST", "/v1/auth/email/confirm", models.PermAccountConfirm, limitLogin, s.confirmEmail, replyNothing},
		{"POST", "/v1/auth/email/undo", models.PermAccountConfirm, limitLogin, s.undoEmail, replyNothing},
		{"POST", "/v1/auth/reauthenticate", models.PermSessionProve, limitPassword, s.reauthenticate, replyNothing},

		// The viewer's account
		{"GET", "/v1/me", models.PermAccountRead, limitRead, s.me, nil},
		{"PATCH", "/v1/me", models.PermAccountEdit, limitWrite, s.editMe, nil},
		{"DELETE", "/v1/me", models.PermAccountDelete, limitPassword, s.deleteMe, nil},
		{"PUT", "/v1/me/email", models.PermAccountEmail, limitPassword, s.changeEmail, nil},
		{"PUT", "/v1/me/password", models.PermAccountPassword, limitPassword, s.changePassword, nil},
		{"PUT", "/v1/me/username", models.PermAccountUsername, limitWrite, s.changeUsername, nil},
		{"GET", "/v1/me/export", models.PermAccountExport, limitRead, s.exportMe, nil},
		{"GET", "/v1/me/sessions", models.PermSessionList, limitRead, s.listSessions, nil},
		{"DELETE", "/v1/me/sessions", models.PermSessionEnd, limitWrite, s.endOtherSessions, nil},
		{"DELETE", "/v1/me/sessions/:id", models.PermSessionEnd, limitWrite, s.endSession, nil},
		{"GET", "/v1/me/factors", models.PermFactorRead, limitRead, s.readFactors, nil},
		{"POST", "/v1/me/factors/totp", models.PermFactorEdit, limitPassword, s.beginTOTP, nil},
		{"POST", "/v1/me/factors/totp/confirm", models.PermFactorEdit, limitPassword, s.confirmTOTP, nil},
		{"DELETE", "/v1/me/factors/totp", models.PermFactorEdit, limitPassword, s.removeTOTP, nil},
		{"POST", "/v1/me/factors/recovery-codes", models.PermFactorEdit, limitPassword, s.replaceRecoveryCodes, nil},
		{"GET", "/v1/me/tokens", models.PermTokenList, limitRead, s.listTokens, nil},
		{"POST", "/v1/me/tokens", models.PermTokenCreate, limitWrite, s.createToken, s.repeatToken},
		{"DELETE", "/v1/me/tokens/:id", models.PermTokenRevoke, limitWrite, s.revokeToken, nil},

		// The viewer's lists
		{"GET", "/v1/feed", models.PermFeedRead, limitReadLarge, s.readFeed, nil},
		{"GET", "/v1/me/blocks", models.PermBlockList, limitReadList, s.listBlocks, nil},
		{"GET", "/v1/me/bookmarks", models.PermBookmarkList, limitReadList, s.listBookmarks, nil},
		{"GET", "/v1/me/claims", models.PermClaimList, limitReadList, s.listMyClaims, nil},
		{"GET", "/v1/me/drafts", models.PermDraftRead, limitReadList, s.listDrafts, nil},
		{"GET", "/v1/me/drafts/:key", models.PermDraftRead, limitRead, s.readDraft, nil},
		{"PUT", "/v1/me/drafts/:key", models.PermDraftWrite, limitNote, s.saveDraft, nil},
		{"DELETE", "/v1/me/drafts/:key", models.PermDraftWrite, limitNote, s.deleteDraft, nil},
		{"GET", "/v1/me/images", models.PermImageList, limitReadList, s.listMyImages, nil},
		{"GET", "/v1/me/likes", models.PermLikeList, limitReadList, s.listMyLikes, nil},
		{"GET", "/v1/me/redactions", models.PermRedactionList, limitRead, s.listMyRedactions, nil},
		{"GET", "/v1/me/reports", models.PermReportList, limitRead, s.listMyReports, nil},
		{"GET", "/v1/me/subscriptions", models.PermSubscriptionList, limitReadList, s.listSubscriptions, nil},
		{"GET", "/v1/me/unread", models.PermPostUnread, limitReadLarge, s.listUnread, nil},
		{"GET", "/v1/notifications", models.PermNotificationList, limitReadList, s.listNotifications, nil},
		{"GET", "/v1/notifications/unread-count", models.PermNotificationList, limitRead, s.countUnread, nil},
		{"POST", "/v1/notifications/read", models.PermNotificationRead, limitWrite, s.readNotifications, s.countUnread},

		// Users
		{"GET", "/v1/users", models.PermUserRead, limitRead, s.findUsers, nil},
		{"GET", "/v1/users/by-name/:name", models.PermUserRead, limitReadProfile, s.readUserByName, nil},
		{"GET", "/v1/users/by-prefix/:prefix", models.PermUserComplete, limitRead, s.completeUsername, nil},
		{"GET", "/v1/users/:id", models.PermUserRead, limitReadProfile, s.readUser, nil},
		{"GET", "/v1/users/:id/posts", models.PermPostRead, limitReadList, s.listUserPosts, nil},
		{"GET", "/v1/users/:id/comments", models.PermCommentRead, limitReadList, s.listUserComments, nil},
		{"GET", "/v1/users/:id/likes", models.PermLikeRead, limitReadList, s.listUserLikes, nil},
		{"GET", "/v1/users/:id/followers", models.PermUserRead, limitReadList, s.listFollowers, nil},
		{"GET", "/v1/users/:id/following", models.PermUserRead, limitReadList, s.listFollowing, nil},
		{"PUT", "/v1/users/:id/follow", models.PermFollowSet, limitWrite, s.setFollow(true), nil},
		{"DELETE", "/v1/users/:id/follow", models.PermFollowSet, limitWrite, s.setFollow(false), nil},
		{"PUT", "/v1/users/:id/block", models.PermBlockSet, limitWrite, s.setBlock(true), nil},
		{"DELETE", "/v1/users/:id/block", models.PermBlockSet, limitWrite, s.setBlock(false), nil},

		// Posts
		{"GET", "/v1/posts", models.PermPostRead, limitReadList, s.listPosts, nil},
		{"POST", "/v1/posts", models.PermPostCreate, limitPost, s.createPost, s.repeatPost},
		{"GET", "/v1/posts/:id", models.PermPostRead, limitRead, s.readPost, nil},
		{"PATCH", "/v1/posts/:id", models.PermPostEdit, limitWrite, s.editPost, nil},
		{"DELETE", "/v1/posts/:id", models.PermPostDelete, limitWrite, s.deletePost, nil},
		{"POST", "/v1/posts/:id/restore", models.PermPostRestore, limitWrite, s.restorePost, s.readPost},
		{"GET", "/v1/posts/:id/comments", models.PermCommentRead, limitReadComments, s.listComments, nil},
		{"POST", "/v1/posts/:id/comments", models.PermCommentCreate, limitComment, s.createComment, s.repeatComment},
		{"GET", "/v1/posts/:id/thread", models.PermCommentRead, limitReadLarge, s.readThread, nil},
		{"PUT", "/v1/posts/:id/like", models.PermLikeSet, limitLike, s.setLike(post, true), nil},
		{"DELETE", "/v1/posts/:id/like", models.PermLikeSet, limitLike, s.setLike(post, false), nil},
		{"GET", "/v1/posts/:id/likes", models.PermLikeRead, limitReadList, s.listLikers(post), nil},
		{"PUT", "/v1/posts/:id/bookmark", models.PermBookmarkSet, limitWrite, s.setBookmark(true), nil},
		{"DELETE", "/v1/posts/:id/bookmark", models.PermBookmarkSet, limitWrite, s.setBookmark(false), nil},
		{"PUT", "/v1/posts/:id/read", models.PermPostMark, limitNote, s.markRead, nil},
		{"PUT", "/v1/posts/:id/subscription", models.PermSubscriptionSet, limitWrite, s.setSubscription, nil},
		{"DELETE", "/v1/posts/:id/subscription", models.PermSubscriptionSet, limitWrite, s.endSubscription, nil},
		{"GET", "/v1/posts/:id/revisions", models.PermPostRead, limitReadList, s.listRevisions(post, false), nil},
		{"GET", "/v1/posts/:id/revisions/:version", models.PermPostRead, limitRead, s.readRevision(post, false), nil},
		{"POST", "/v1/posts/:id/revisions/:version/redaction", models.PermPostRedact, limitReport,
			s.requestRedaction(post), s.repeatRedaction},

		// Feeds and sitemap
		{"GET", "/v1/feeds/new", models.PermPostRead, limitReadLarge, s.feedNew, nil},
		{"GET", "/v1/feeds/tags/:tag", models.PermPostRead, limitReadLarge, s.feedTag, nil},
		{"GET", "/v1/feeds/users/:id", models.PermPostRead, limitReadLarge, s.feedUser, nil},
		{"GET", "/v1/feeds/posts/:id", models.PermCommentRead, limitReadLarge, s.feedThread, nil},
		{"GET", "/v1/sitemap.xml", models.PermPostRead, limitRead, s.sitemapIndex, nil},
		{"GET", "/v1/sitemap/:page", models.PermPostRead, limitReadLarge, s.sitemapPage, nil},

		// Drops and claims
		{"GET", "/v1/posts/:id/drops", models.PermDropRead, limitReadList, s.listDrops, nil},
		{"POST", "/v1/posts/:id/drops", models.PermDropCreate, limitWrite, s.createDrop, s.repeatDrop},
		{"GET", "/v1/drops/:id", models.PermDropRead, limitRead, s.readDrop, nil},
		{"PATCH", "/v1/drops/:id", models.PermDropEdit, limitWrite, s.editDrop, nil},
		{"POST", "/v1/drops/:id/close", models.PermDropClose, limitWrite, s.closeDrop, s.readDrop},
		{"GET", "/v1/drops/:id/claims", models.PermDropClaims, limitReadList, s.listClaimsOfDrop, nil},
		{"POST", "/v1/drops/:id/claims", models.PermClaimCreate, limitLike, s.createClaim, nil},
		{"GET", "/v1/claims/:id", models.PermClaimRead, limitRead, s.readClaim, nil},
		{"DELETE", "/v1/claims/:id", models.PermClaimReturn, limitLike, s.returnClaim, nil},
		{"POST", "/v1/claims/:id/confirm", models.PermClaimConfirm, limitWrite, s.confirmClaim, s.readClaim},

		// Comments
		{"GET", "/v1/comments", models.PermCommentRead, limitReadList, s.findComments, nil},
		{"GET", "/v1/comments/:id", models.PermCommentRead, limitRead, s.readComment, nil},
		{"PATCH", "/v1/comments/:id", models.PermCommentEdit, limitWrite, s.editComment, nil},
		{"DELETE", "/v1/comments/:id", models.PermCommentDelete, limitWrite, s.deleteComment, nil},
		{"GET", "/v1/comments/:id/ancestors", models.PermCommentRead, limitReadList, s.readAncestors, nil},
		{"GET", "/v1/comments/:id/replies", models.PermCommentRead, limitReadComments, s.listReplies, nil},
		{"POST", "/v1/comments/:id/replies", models.PermCommentCreate, limitComment, s.createReply, s.repeatComment},
		{"PUT", "/v1/comments/:id/like", models.PermLikeSet, limitLike, s.setLike(comment, true), nil},
		{"DELETE", "/v1/comments/:id/like", models.PermLikeSet, limitLike, s.setLike(comment, false), nil},
		{"GET", "/v1/comments/:id/likes", models.PermLikeRead, limitReadList, s.listLikers(comment), nil},
		{"GET", "/v1/comments/:id/revisions", models.PermCommentRead, limitReadList,
			s.listRevisions(comment, false), nil},
		{"GET", "/v1/comments/:id/revisions/:version", models.PermCommentRead, limitRead,
			s.readRevision(comment, false), nil},
		{"POST", "/v1/comments/:id/revisions/:version/redaction", models.PermCommentRedact, limitReport,
			s.requestRedaction(comment), s.repeatRedaction},

		// Images
		{"POST", "/v1/images", models.PermImageCreate, limitUpload, s.uploadImage, nil},
		{"GET", "/v1/images/:id", models.PermImageRead, limitRead, s.readImage(false), nil},
		{"GET", "/v1/images/:id/thumbnail", models.PermImageRead, limitRead, s.readImage(true), nil},
		{"DELETE", "/v1/images/:id", models.PermImageDelete, limitWrite, s.deleteImage, nil},

		// Previews, tags, likes, live counts and reports
		{"POST", "/v1/render", models.PermTextRender, limitRender, s.renderText, nil},
		{"GET", "/v1/tags", models.PermPostRead, limitReadTags, s.listTags, nil},
		{"GET", "/v1/likes", models.PermLikeRead, limitRead, s.readLikes, nil},
		{"GET", "/v1/stream", models.PermStreamRead, limitRead, s.openStream, nil},
		{"PUT", "/v1/streams/:id", models.PermStreamChange, limitRead, s.changeStream, nil},
		{"POST", "/v1/reports", models.PermReportCreate, limitReport, s.reportContent, s.repeatReport},

		// Moderators: posts
		{"GET", "/v1/admin/posts", models.PermAdminPostRead, limitReadLarge, s.listModeratedPosts, nil},
		{"GET", "/v1/admin/posts/:id", models.PermAdminPostRead, limitRead, moderatedPost, nil},
		{"POST", "/v1/admin/posts/:id/delete", models.PermAdminPostDelete, limitWrite,
			s.removeContent(post), moderatedPost},
		{"POST", "/v1/admin/posts/:id/restore", models.PermAdminPostRestore, limitWrite,
			s.reinstateContent(post), moderatedPost},
		{"POST", "/v1/admin/posts/:id/purge", models.PermAdminPostPurge, limitWrite,
			s.purgeContent(post), moderatedPost},
		{"POST", "/v1/admin/posts/:id/lock", models.PermAdminPostLock, limitWrite,
			s.flagPost(models.PostLocked, true), moderatedPost},
		{"POST", "/v1/admin/posts/:id/unlock", models.PermAdminPostLock, limitWrite,
			s.flagPost(models.PostLocked, false), moderatedPost},
		{"POST", "/v1/admin/posts/:id/pin", models.PermAdminPostPin, limitWrite,
			s.flagPost(models.PostPinned, true), moderatedPost},
		{"POST", "/v1/admin/posts/:id/unpin", models.PermAdminPostPin, limitWrite,
			s.flagPost(models.PostPinned, false), moderatedPost},
		{"GET", "/v1/admin/posts/:id/revisions", models.PermAdminPostRead, limitRead, s.listRevisions(post, true), nil},
		{"GET", "/v1/admin/posts/:id/revisions/:version", models.PermAdminPostRead, limitRead,
			s.readRevision(post, true), nil},
		{"POST", "/v1/admin/posts/:id/revisions/:version/redact", models.PermAdminPostRedact, limitWrite,
			s.redactVersion(post), moderatedPost},

		// Moderators: comments
		{"GET", "/v1/admin/comments", models.PermAdminCommentRead, limitReadLarge, s.listModeratedComments, nil},
		{"GET", "/v1/admin/comments/:id", models.PermAdminCommentRead, limitRead, moderatedComment, nil},
		{"POST", "/v1/admin/comments/:id/delete", models.PermAdminCommentDelete, limitWrite,
			s.removeContent(comment), moderatedComment},
		{"POST", "/v1/admin/comments/:id/restore", models.PermAdminCommentRestore, limitWrite,
			s.reinstateContent(comment), moderatedComment},
		{"POST", "/v1/admin/comments/:id/purge", models.PermAdminCommentPurge, limitWrite,
			s.purgeContent(comment), moderatedComment},
		{"GET", "/v1/admin/comments/:id/revisions", models.PermAdminCommentRead, limitRead,
			s.listRevisions(comment, true), nil},
		{"GET", "/v1/admin/comments/:id/revisions/:version", models.PermAdminCommentRead, limitRead,
			s.readRevision(comment, true), nil},
		{"POST", "/v1/admin/comments/:id/revisions/:version/redact", models.PermAdminCommentRedact, limitWrite,
			s.redactVersion(comment), moderatedComment},

		// Moderators: reports and redactions
		{"GET", "/v1/admin/reports", models.PermAdminReportRead, limitRead, s.listReportCases, nil},
		{"POST", "/v1/admin/reports/resolve", models.PermAdminReportResolve, limitWrite, s.resolveReports, replyKept},
		{"GET", "/v1/admin/reports/:id", models.PermAdminReportRead, limitRead, s.readReportCase, nil},
		{"GET", "/v1/admin/reports/:id/reports", models.PermAdminReportReporters, limitRead, s.listReportsOfCase, nil},
		{"POST", "/v1/admin/reports/:id/claim", models.PermAdminReportClaim, limitWrite,
			s.claimReport, s.readReportCase},
		{"POST", "/v1/admin/reports/:id/resolve", models.PermAdminReportResolve, limitWrite,
			s.resolveReport, s.readReportCase},
		{"GET", "/v1/admin/redactions", models.PermAdminRedactionRead, limitRead, s.listRedactions, nil},
		{"GET", "/v1/admin/redactions/:id", models.PermAdminRedactionRead, limitRead, s.readRedaction, nil},
		{"POST", "/v1/admin/redactions/:id/resolve", models.PermAdminRedactionResolve, limitWrite,
			s.resolveRedaction, s.readRedaction},

		// Moderators: users and their content
		{"GET", "/v1/admin/users", models.PermAdminUserRead, limitRead, s.listAccounts, nil},
		{"GET", "/v1/admin/users/:id", models.PermAdminUserRead, limitRead, s.readAccount, nil},
		{"POST", "/v1/admin/users/:id/ban", models.PermAdminUserBan, limitWrite, s.banUser, s.repeatBan},
		{"POST", "/v1/admin/users/:id/unban", models.PermAdminUserBan, limitWrite, s.unbanUser, replyNothing},
		{"POST", "/v1/admin/users/:id/delete", models.PermAdminUserDelete, limitWrite,
			s.deleteBannedUser, replyNothing},
		{"POST", "/v1/admin/users/:id/factor-reset", models.PermAdminUserFactors, limitWrite,
			s.requestFactorReset, nil},
		{"DELETE", "/v1/admin/users/:id/factor-reset", models.PermAdminUserFactors, limitWrite,
			s.cancelFactorReset, nil},
		{"PUT", "/v1/admin/users/:id/role", models.PermAdminUserRole, limitWrite, s.changeRole, nil},
		{"POST", "/v1/admin/users/:id/content/delete", models.PermAdminContentDelete, limitWrite,
			s.removeAllContent, s.repeatOperation},
		{"GET", "/v1/admin/users/:id/images", models.PermAdminImageRead, limitRead, s.listImagesOf, nil},
		{"GET", "/v1/admin/images/:id", models.PermAdminImageRead, limitRead, s.readImageForModerators, nil},
		{"GET", "/v1/admin/operations/:id", models.PermAdminContentRead, limitRead, s.readOperation, nil},
		{"POST", "/v1/admin/operations/:id/undo", models.PermAdminContentRestore, limitWrite,
			s.undoOperation, s.repeatOperation},

		// Moderators: claims
		{"GET", "/v1/admin/drops/:id/claims", models.PermAdminClaimRead, limitReadList, s.listDropClaims, nil},
		{"POST", "/v1/admin/users/:id/claims/void", models.PermAdminClaimVoid, limitWrite,
			s.voidClaims, s.repeatVoidClaims},

		// Moderators: likes
		{"GET", "/v1/admin/users/:id/likes", models.PermAdminLikeRead, limitRead, s.listGivenLikes, nil},
		{"POST", "/v1/admin/users/:id/likes/void", models.PermAdminLikeVoid, limitWrite, s.voidLikes, s.repeatVoid},
		{"GET", "/v1/admin/like-voids/:id", models.PermAdminLikeRead, limitRead, s.readLikeVoid, nil},
		{"GET", "/v1/admin/like-rings", models.PermAdminRingRead, limitRead, s.listLikeRings, nil},
		{"POST", "/v1/admin/like-rings/:id/dismiss", models.PermAdminRingResolve, limitWrite,
			s.dismissLikeRing, replyNothing},
		{"POST", "/v1/admin/like-rings/:id/void", models.PermAdminRingResolve, limitWrite,
			s.voidLikeRing, s.repeatRingVoids},

		// Moderators: logs
		{"GET", "/v1/admin/log", models.PermAdminLogRead, limitRead, s.listActs, nil},
		{"GET", "/v1/admin/log.csv", models.PermAdminLogRead, limitRead, s.exportActs, nil},
		{"GET", "/v1/admin/security-log", models.PermAdminSecurityRead, limitRead, s.listSecurityEvents, nil},

		// Administrators: webhooks
		{"GET", "/v1/admin/webhooks", models.PermAdminWebhookRead, limitRead, s.listWebhooks, nil},
		{"POST", "/v1/admin/webhooks", models.PermAdminWebhookEdit, limitWrite, s.createWebhook, s.repeatWebhook},
		{"GET", "/v1/admin/webhooks/:id", models.PermAdminWebhookRead, limitRead, s.readWebhook, nil},
		{"PATCH", "/v1/admin/webhooks/:id", models.PermAdminWebhookEdit, limitWrite, s.editWebhook, nil},
		{"DELETE", "/v1/admin/webhooks/:id", models.PermAdminWebhookEdit, limitWrite, s.deleteWebhook, nil},
		{"POST", "/v1/admin/webhooks/:id/rotate-secret", models.PermAdminWebhookEdit, limitWrite,
			s.rotateSecret, s.repeatRotation},
		{"DELETE", "/v1/admin/webhooks/:id/previous-secret", models.PermAdminWebhookEdit, limitWrite,
			s.endPreviousSecret, nil},
		{"POST", "/v1/admin/webhooks/:id/ping", models.PermAdminWebhookSend, limitWrite, s.pingWebhook, s.repeatPing},
		{"GET", "/v1/admin/webhooks/:id/deliveries", models.PermAdminWebhookRead, limitRead, s.listDeliveries, nil},
		{"POST", "/v1/admin/webhooks/:id/deliveries/:delivery/replay", models.PermAdminWebhookSend, limitWrite,
			s.replayDelivery, s.repeatReplay},

		// Administrators: the pipeline of likes
		{"GET", "/v1/admin/pipeline", models.PermAdminPipelineRead, limitRead, s.readPipeline, nil},
		{"GET", "/v1/admin/pipeline/history", models.PermAdminPipelineRead, limitRead, s.readPipelineHistory, nil},
		{"GET", "/v1/admin/pipeline/posts/:id", models.PermAdminPipelineRead, limitRead, s.tracePostLikes, nil},
		{"GET", "/v1/admin/dead-letters", models.PermAdminPipelineRead, limitRead, s.listDeadLetters, nil},
		{"POST", "/v1/admin/dead-letters/:id/retry", models.PermAdminPipelineMend, limitWrite,
			s.retryDeadLetter, s.repeatLetter},
		{"POST", "/v1/admin/dead-letters/:id/discard", models.PermAdminPipelineMend, limitWrite,
			s.discardDeadLetter, s.repeatLetter},
		{"POST", "/v1/admin/reconcile", models.PermAdminPipelineMend, limitWrite, s.reconcile, replyKept},
	}
}
