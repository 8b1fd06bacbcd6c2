package models

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"
)

// Permission is an action that a route of the API carries out for its caller. Only this file makes permissions, so a
// misspelled one does not compile. The zero value does not exist: it has no rule.
type Permission struct{ name string }

// Rule is the requirement of a permission.
type Rule struct {
	Least Role  // the lowest role that has the permission
	On    Reach // the owners of the objects that it is for
	Scope Scope // the scope that an API token needs; a session needs none
}

// Reach selects the owners of the objects that a permission is for.
type Reach int8

// The reaches.
const (
	All    Reach = iota // all owners, or there is no object
	Own                 // the caller; objects of others are CodeForbidden
	Hidden              // the caller; objects of others are CodeNotFound, as if they did not exist
	Others              // other users, never the caller
	Kept                // the caller; for moderators, all
	Lower               // users of a lower role, never the caller; for admins all other users (see Outranks)
)

// Scope is the set of rights of an API token: none, one or several of the constants.
type Scope uint8

// The scopes. None of them includes another.
const (
	ScopeRead     Scope = 1 << iota // to read
	ScopeWrite                      // to create, edit, delete and like
	ScopeModerate                   // to moderate, for moderators
	// NoToken is for actions that are open to everybody: a token is ignored.
	NoToken
	// RecentOnly is SessionOnly, and for sessions whose user has entered the password within ProofLife alone: a stolen
	// session does not suffice.
	RecentOnly
	// SessionOnly is for actions that grant, end or protect access to the account: no API token has the right.
	SessionOnly Scope = 0
)

// The permissions below are the permission matrix. routes.go declares one for every route, and the contract names it as
// x-permission. A generated test checks each operation for every role and scope, on own objects and on those of others.

// Health, the contract and its page.
var (
	PermSystemRead = permission("system.read", RoleAnonymous, All, NoToken)

	// Read the name of the site, its limits and what is switched on.

	PermSiteRead = permission("site.read", RoleAnonymous, All, NoToken)

	// Open an account.

	PermAccountCreate = permission("account.create", RoleAnonymous, All, NoToken)

	// Read and edit the caller's account.

	PermAccountRead = permission("account.read", RoleUser, All, ScopeRead)
	PermAccountEdit = permission("account.edit", RoleUser, All, ScopeWrite)

	// Change the password, delete the account. Both take the password itself, so they need no other proof.

	PermAccountPassword = permission("account.password", RoleUser, All, SessionOnly)
	PermAccountDelete   = permission("account.delete", RoleUser, All, SessionOnly)

	// Change the e-mail address.

	PermAccountEmail = permission("account.email", RoleUser, All, RecentOnly)

	// Set a new password, and confirm or restore an address, by a link from a mail.

	PermAccountReset   = permission("account.reset", RoleAnonymous, All, NoToken)
	PermAccountConfirm = permission("account.confirm", RoleAnonymous, All, NoToken)

	// Change the username.

	PermAccountUsername = permission("account.username", RoleUser, All, RecentOnly)

	// Request and download an archive of all data about the account.

	PermAccountExport = permission("account.export", RoleUser, All, RecentOnly)

	// Sign in, list the caller's sessions, end them.

	PermSessionCreate = permission("session.create", RoleAnonymous, All, NoToken)
	PermSessionList   = permission("session.list", RoleUser, All, SessionOnly)
	PermSessionEnd    = permission("session.end", RoleUser, Hidden, SessionOnly)

	// Enter the password again, for what is RecentOnly.

	PermSessionProve = permission("session.prove", RoleUser, All, SessionOnly)

	// List, create and revoke API tokens.

	PermTokenList   = permission("token.list", RoleUser, All, SessionOnly)
	PermTokenCreate = permission("token.create", RoleUser, All, RecentOnly)
	PermTokenRevoke = permission("token.revoke", RoleUser, Hidden, SessionOnly)

	// Read, add and remove the caller's second factors.

	PermFactorRead = permission("factor.read", RoleUser, All, SessionOnly)
	PermFactorEdit = permission("factor.edit", RoleUser, All, RecentOnly)

	// Read profiles, and the posts, comments and likes of users.

	PermUserRead = permission("user.read", RoleAnonymous, All, ScopeRead)

	// Complete usernames while writing a mention.

	PermUserComplete = permission("user.complete", RoleUser, All, ScopeRead)

	// Follow users, and read the posts of followed users.

	PermFollowSet = permission("follow.set", RoleUser, Others, ScopeWrite)
	PermFeedRead  = permission("feed.read", RoleUser, All, ScopeRead)

	// Block users, and list blocked users.

	PermBlockSet  = permission("block.set", RoleUser, Others, ScopeWrite)
	PermBlockList = permission("block.list", RoleUser, All, ScopeRead)

	// Read posts, their lists, tags and revisions.

	PermPostRead    = permission("post.read", RoleAnonymous, All, ScopeRead)
	PermPostCreate  = permission("post.create", RoleUser, All, ScopeWrite)
	PermPostEdit    = permission("post.edit", RoleUser, Own, ScopeWrite)
	PermPostDelete  = permission("post.delete", RoleUser, Own, ScopeWrite)
	PermPostRestore = permission("post.restore", RoleUser, Hidden, ScopeWrite)

	// Request that a version of the caller's post be redacted.

	PermPostRedact = permission("post.redact", RoleUser, Hidden, ScopeWrite)

	// Read comments, their lists, threads and revisions.

	PermCommentRead   = permission("comment.read", RoleAnonymous, All, ScopeRead)
	PermCommentCreate = permission("comment.create", RoleUser, All, ScopeWrite)
	PermCommentEdit   = permission("comment.edit", RoleUser, Own, ScopeWrite)
	PermCommentDelete = permission("comment.delete", RoleUser, Own, ScopeWrite)

	// Request that a version of the caller's comment be redacted.

	PermCommentRedact = permission("comment.redact", RoleUser, Hidden, ScopeWrite)

	// Upload images; list and delete the caller's. Everybody who knows the address of an image may look at it, unless
	// it is hidden.

	PermImageRead   = permission("image.read", RoleAnonymous, All, ScopeRead)
	PermImageCreate = permission("image.create", RoleUser, All, ScopeWrite)
	PermImageList   = permission("image.list", RoleUser, All, ScopeRead)
	PermImageDelete = permission("image.delete", RoleUser, Kept, ScopeWrite)

	// Render a text that is not stored.

	PermTextRender = permission("text.render", RoleUser, All, ScopeWrite)

	// Like and unlike; read likers, and the caller's own likes.

	PermLikeSet  = permission("like.set", RoleUser, All, ScopeWrite)
	PermLikeRead = permission("like.read", RoleAnonymous, All, ScopeRead)
	PermLikeList = permission("like.list", RoleUser, All, ScopeRead)

	// Read drops; attach them to posts, edit and close them.

	PermDropRead   = permission("drop.read", RoleAnonymous, All, ScopeRead)
	PermDropCreate = permission("drop.create", RoleUser, Kept, ScopeWrite)
	PermDropEdit   = permission("drop.edit", RoleUser, Kept, ScopeWrite)
	PermDropClose  = permission("drop.close", RoleUser, Kept, ScopeWrite)

	// Claim the stock of drops; read, return and confirm the caller's claims.

	PermClaimCreate  = permission("claim.create", RoleUser, All, ScopeWrite)
	PermClaimRead    = permission("claim.read", RoleUser, Hidden, ScopeRead)
	PermClaimReturn  = permission("claim.return", RoleUser, Hidden, ScopeWrite)
	PermClaimConfirm = permission("claim.confirm", RoleUser, Hidden, ScopeWrite)
	PermClaimList    = permission("claim.list", RoleUser, All, ScopeRead)

	// Read who has claimed the stock of a drop.

	PermDropClaims = permission("drop.claims", RoleUser, Kept, ScopeRead)

	// Bookmark posts, and list the caller's bookmarks.

	PermBookmarkSet  = permission("bookmark.set", RoleUser, All, ScopeWrite)
	PermBookmarkList = permission("bookmark.list", RoleUser, All, ScopeRead)

	// Mark posts as read, and list those with unread comments.

	PermPostMark   = permission("post.mark", RoleUser, All, ScopeWrite)
	PermPostUnread = permission("post.unread", RoleUser, All, ScopeRead)

	// Follow and mute posts, and list them.

	PermSubscriptionSet  = permission("subscription.set", RoleUser, All, ScopeWrite)
	PermSubscriptionList = permission("subscription.list", RoleUser, All, ScopeRead)

	// Read and write the caller's drafts.

	PermDraftRead  = permission("draft.read", RoleUser, All, ScopeRead)
	PermDraftWrite = permission("draft.write", RoleUser, All, ScopeWrite)

	// Read notifications, and mark them as read.

	PermNotificationList = permission("notification.list", RoleUser, All, ScopeRead)
	PermNotificationRead = permission("notification.read", RoleUser, All, ScopeWrite)

	// Follow counts as they change.

	PermStreamRead   = permission("stream.read", RoleAnonymous, All, ScopeRead)
	PermStreamChange = permission("stream.change", RoleAnonymous, Hidden, ScopeRead)

	// Report posts and comments, and read the outcome of the caller's reports.

	PermReportCreate = permission("report.create", RoleUser, All, ScopeWrite)
	PermReportList   = permission("report.list", RoleUser, All, ScopeRead)

	// Read the outcome of the caller's requests to redact.

	PermRedactionList = permission("redaction.list", RoleUser, All, ScopeRead)

	// Read posts and comments of any status, delete them with a reason, restore them, lock and pin posts.

	PermAdminPostRead       = permission("admin.post.read", RoleModerator, All, ScopeModerate)
	PermAdminPostDelete     = permission("admin.post.delete", RoleModerator, All, ScopeModerate)
	PermAdminPostRestore    = permission("admin.post.restore", RoleModerator, Others, ScopeModerate)
	PermAdminPostLock       = permission("admin.post.lock", RoleModerator, All, ScopeModerate)
	PermAdminPostPin        = permission("admin.post.pin", RoleModerator, All, ScopeModerate)
	PermAdminCommentRead    = permission("admin.comment.read", RoleModerator, All, ScopeModerate)
	PermAdminCommentDelete  = permission("admin.comment.delete", RoleModerator, All, ScopeModerate)
	PermAdminCommentRestore = permission("admin.comment.restore", RoleModerator, Others, ScopeModerate)

	// Overwrite the text of a version, with or without an author's request, and decline requests.

	PermAdminPostRedact       = permission("admin.post.redact", RoleModerator, Others, ScopeModerate)
	PermAdminCommentRedact    = permission("admin.comment.redact", RoleModerator, Others, ScopeModerate)
	PermAdminRedactionRead    = permission("admin.redaction.read", RoleModerator, All, ScopeModerate)
	PermAdminRedactionResolve = permission("admin.redaction.resolve", RoleModerator, Others, ScopeModerate)

	// Delete a post or comment permanently, with all versions of its text.

	PermAdminPostPurge    = permission("admin.post.purge", RoleAdmin, Others, ScopeModerate)
	PermAdminCommentPurge = permission("admin.comment.purge", RoleAdmin, Others, ScopeModerate)

	// Delete all content of a user, read the progress, and undo it.

	PermAdminContentDelete  = permission("admin.content.delete", RoleModerator, Lower, ScopeModerate)
	PermAdminContentRead    = permission("admin.content.read", RoleModerator, All, ScopeModerate)
	PermAdminContentRestore = permission("admin.content.restore", RoleModerator, Lower, ScopeModerate)

	// Read the images of users, hidden ones included, with their users and uses.

	PermAdminImageRead = permission("admin.image.read", RoleModerator, All, ScopeModerate)

	// Read reports and their reporters, claim and resolve them.

	PermAdminReportRead      = permission("admin.report.read", RoleModerator, All, ScopeModerate)
	PermAdminReportReporters = permission("admin.report.reporters", RoleModerator, Others, ScopeModerate)
	PermAdminReportClaim     = permission("admin.report.claim", RoleModerator, Others, ScopeModerate)
	PermAdminReportResolve   = permission("admin.report.resolve", RoleModerator, Others, ScopeModerate)

	// Read the moderation log.

	PermAdminLogRead = permission("admin.log.read", RoleModerator, All, ScopeModerate)

	// Find accounts, with their bans and counts, and e-mail addresses of lower roles.

	PermAdminUserRead = permission("admin.user.read", RoleModerator, All, ScopeModerate)

	// Ban users, and end bans.

	PermAdminUserBan = permission("admin.user.ban", RoleModerator, Lower, ScopeModerate)

	// Read the likes of users, void them, and read the progress.

	PermAdminLikeRead = permission("admin.like.read", RoleModerator, All, ScopeModerate)
	PermAdminLikeVoid = permission("admin.like.void", RoleModerator, Lower, ScopeModerate)

	// Read the claims of drops, and void the claims of users.

	PermAdminClaimRead = permission("admin.claim.read", RoleModerator, All, ScopeModerate)
	PermAdminClaimVoid = permission("admin.claim.void", RoleModerator, Lower, ScopeModerate)

	// Read rings, accounts that like the same author in the same seconds, and resolve them.

	PermAdminRingRead    = permission("admin.ring.read", RoleModerator, All, ScopeModerate)
	PermAdminRingResolve = permission("admin.ring.resolve", RoleModerator, Others, ScopeModerate)

	// Read the state of the like pipeline, and repair it.

	PermAdminPipelineRead = permission("admin.pipeline.read", RoleAdmin, All, ScopeModerate)
	PermAdminPipelineMend = permission("admin.pipeline.mend", RoleAdmin, All, ScopeModerate)

	// Read webhooks and their deliveries, and send pings and events once more.

	PermAdminWebhookRead = permission("admin.webhook.read", RoleAdmin, All, ScopeModerate)
	PermAdminWebhookSend = permission("admin.webhook.send", RoleAdmin, All, ScopeModerate)

	// Register, change and delete webhooks. The answer has a secret, and the events go to another site.

	PermAdminWebhookEdit = permission("admin.webhook.edit", RoleAdmin, All, SessionOnly)

	// Read the security log.

	PermAdminSecurityRead = permission("admin.security.read", RoleAdmin, All, ScopeModerate)

	// Delete banned accounts.

	PermAdminUserDelete = permission("admin.user.delete", RoleAdmin, Lower, SessionOnly)

	// Change roles.

	PermAdminUserRole = permission("admin.user.role", RoleAdmin, Lower, SessionOnly)

	// Have second factors of users removed after a delay.

	PermAdminUserFactors = permission("admin.user.factors", RoleAdmin, Lower, SessionOnly)
)

// rules has the rule of each permission.
var rules = map[Permission]Rule{}

// permission returns the permission of a name, which no other has, and sets its rule.
func permission(name string, least Role, on Reach, scope Scope) Permission {
	p := Permission{name}
	if _, twice := rules[p]; twice {
		panic("two permissions are named " + name)
	}
	rules[p] = Rule{least, on, scope}
	return p
}

// ParsePermission returns the permission of a name, such as "post.edit"; ok is false if it does not exist.
func ParsePermission(name string) (p Permission, ok bool) {
	p = Permission{name}
	_, ok = rules[p]
	return p, ok
}

func (p Permission) String() string { return p.name }

// Rule returns the rule of a permission; ok is false if the permission does not exist.
func (p Permission) Rule() (rule Rule, ok bool) {
	rule, ok = rules[p]
	return rule, ok
}

// Permissions returns all permissions with their rules. The caller must not change the map.
func Permissions() map[Permission]Rule { return rules }

// Admit checks a caller, nil for the anonymous, against the rule, except for the owner of the object (see AdmitOn) and
// for a recent proof (see AdmitProof).
// CodeUnauthorized: a token is required. CodeForbidden: the user, or the token, does not have the permission.
// CodeNoFactor: the permission is one of moderators or admins, staffFactor is set, and the session has not used a
// second factor.
func (r Rule) Admit(caller *Session, staffFactor bool) error {
	if caller == nil {
		if r.Least > RoleAnonymous {
			return Errorf(CodeUnauthorized, "This needs a token: Authorization: Bearer TOKEN.")
		}
		return nil
	}
	if caller.Role < r.Least {
		return Errorf(CodeForbidden, "Only a user with the role %s can do this.", r.Least)
	}
	if staffFactor && r.Least >= RoleModerator && !caller.SecondFactor {
		return Errorf(CodeNoFactor, "Moderators and admins need a second factor here. "+
			"Add one to your account, or log in with it.")
	}
	if !caller.IsToken || r.Scope == NoToken || caller.Scopes&r.Scope != 0 {
		return nil
	}
	if r.Scope == SessionOnly || r.Scope == RecentOnly {
		return Errorf(CodeForbidden, "API tokens do not have this permission. Log in and use the token of the session.")
	}
	return Errorf(CodeForbidden, "The token does not have the scope %s.", r.Scope)
}

// AdmitProof checks an admitted caller against a rule that is RecentOnly. It returns CodeUnproven.
func (r Rule) AdmitProof(caller *Session, now time.Time) error {
	if r.Scope != RecentOnly || caller.Proven(now) {
		return nil
	}
	return Errorf(CodeUnproven, "Enter your password again before you do this.")
}

// AdmitOn checks an admitted caller against the rule for an object of this owner. It returns CodeForbidden, or
// CodeNotFound if the objects of others are hidden. For Lower it checks the same as for Others: the role of the owner
// is checked by Outranks.
func (r Rule) AdmitOn(caller *Session, owner int64) error {
	own := caller != nil && caller.UserID == owner
	switch {
	case r.On == Kept && !own && (caller == nil || caller.Role < RoleModerator):
		return Errorf(CodeForbidden, "Only its author, and moderators, can do this.")
	case r.On == Own && !own:
		return Errorf(CodeForbidden, "Only the author can do this.")
	case r.On == Hidden && !own:
		return Errorf(CodeNotFound, "The object does not exist.")
	case (r.On == Others || r.On == Lower) && own:
		return Errorf(CodeForbidden, "You cannot do this to yourself.")
	}
	return nil
}

// Outranks checks Lower for an actor and another user. It returns CodeForbidden.
func Outranks(actor int64, role Role, other int64, otherRole Role) error {
	switch {
	case actor == other:
		return Errorf(CodeForbidden, "You cannot do this to yourself.")
	case role < RoleModerator || role < RoleAdmin && otherRole >= role:
		return Errorf(CodeForbidden, "You cannot do this to a user whose role is not below yours.")
	}
	return nil
}

var scopeNames = map[Scope]string{ScopeRead: "read", ScopeWrite: "write", ScopeModerate: "moderate"}

// allScopes are the scopes that a token can have.
const allScopes = ScopeRead | ScopeWrite | ScopeModerate

// Names returns the names of the scopes, in the order of the constants; never nil.
func (s Scope) Names() []string {
	names := make([]string, 0, bits.OnesCount8(uint8(s)))
	for scope := ScopeRead; scope <= ScopeModerate; scope <<= 1 {
		if s&scope != 0 {
			names = append(names, scopeNames[scope])
		}
	}
	return names
}

func (s Scope) String() string { return strings.Join(s.Names(), " ") }

// parseScopes parses names as Names returns them, in any order.
func parseScopes(names []string) (Scope, error) {
	var scopes Scope
next:
	for _, name := range names {
		for scope, n := range scopeNames {
			if n == name {
				scopes |= scope
				continue next
			}
		}
		return 0, fmt.Errorf("scope %q is none of %s", name, allScopes)
	}
	return scopes, nil
}

// Role determines the rights that a user has beyond their own content.
type Role int8

// The roles, each with the rights of those before it. No user has RoleAnonymous: it stands for callers without a token.
const (
	RoleAnonymous Role = 0
	RoleUser      Role = 1
	RoleModerator Role = 2
	RoleAdmin     Role = 3
)

// roleNames has the names of the roles of users, which begin with RoleUser.
var roleNames = [...]string{"user", "moderator", "admin"}

// String returns "" for RoleAnonymous.
func (r Role) String() string {
	if r < RoleUser || r > RoleAdmin {
		return ""
	}
	return roleNames[r-RoleUser]
}

// RoleNames returns the names of the roles of users, the lowest first.
func RoleNames() []string { return slices.Clone(roleNames[:]) }

// ParseRole parses one of RoleNames.
func ParseRole(name string) (Role, error) {
	i := slices.Index(roleNames[:], name)
	if i < 0 {
		return 0, fmt.Errorf("role %q is none of %s", name, strings.Join(roleNames[:], ", "))
	}
	return RoleUser + Role(i), nil
}
