package models

import (
	"fmt"
	"math/bits"
	"strings"
)

// Permission names an action that a route of the API carries out for its caller, such as "post.edit".
type Permission string

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
	// SessionOnly is for actions that grant, end or protect access to the account: no API token has the right.
	SessionOnly Scope = 0
)

// rules is the permission matrix. routes.go declares a permission for every route, and the contract names it as
// x-permission. A generated test checks each operation for every role and scope, on own objects and on those of others.
var rules = map[Permission]Rule{
	// Health, the contract and its page.
	"system.read": {RoleAnonymous, All, NoToken},

	// Open an account.
	"account.create": {RoleAnonymous, All, NoToken},
	// Read and edit the caller's account.
	"account.read": {RoleUser, All, ScopeRead},
	"account.edit": {RoleUser, All, ScopeWrite},
	// Change the password, delete the account.
	"account.password": {RoleUser, All, SessionOnly},
	"account.delete":   {RoleUser, All, SessionOnly},
	// Request and download an archive of all data about the account.
	"account.export": {RoleUser, All, SessionOnly},

	// Sign in, list the caller's sessions, end them.
	"session.create": {RoleAnonymous, All, NoToken},
	"session.list":   {RoleUser, All, SessionOnly},
	"session.end":    {RoleUser, Hidden, SessionOnly},

	// List, create and revoke API tokens.
	"token.list":   {RoleUser, All, SessionOnly},
	"token.create": {RoleUser, All, SessionOnly},
	"token.revoke": {RoleUser, Hidden, SessionOnly},

	// Read profiles, and the posts, comments and likes of users.
	"user.read": {RoleAnonymous, All, ScopeRead},
	// Complete usernames while writing a mention.
	"user.complete": {RoleUser, All, ScopeRead},
	// Follow users, and read the posts of followed users.
	"follow.set": {RoleUser, Others, ScopeWrite},
	"feed.read":  {RoleUser, All, ScopeRead},
	// Block users, and list blocked users.
	"block.set":  {RoleUser, Others, ScopeWrite},
	"block.list": {RoleUser, All, ScopeRead},

	// Read posts, their lists, tags and revisions.
	"post.read":    {RoleAnonymous, All, ScopeRead},
	"post.create":  {RoleUser, All, ScopeWrite},
	"post.edit":    {RoleUser, Own, ScopeWrite},
	"post.delete":  {RoleUser, Own, ScopeWrite},
	"post.restore": {RoleUser, Hidden, ScopeWrite},
	// Request that a version of the caller's post be redacted.
	"post.redact": {RoleUser, Hidden, ScopeWrite},

	// Read comments, their lists, threads and revisions.
	"comment.read":   {RoleAnonymous, All, ScopeRead},
	"comment.create": {RoleUser, All, ScopeWrite},
	"comment.edit":   {RoleUser, Own, ScopeWrite},
	"comment.delete": {RoleUser, Own, ScopeWrite},
	// Request that a version of the caller's comment be redacted.
	"comment.redact": {RoleUser, Hidden, ScopeWrite},

	// Upload images; list and delete the caller's. Everybody who knows the address of an image may look at it, unless
	// it is hidden.
	"image.read":   {RoleAnonymous, All, ScopeRead},
	"image.create": {RoleUser, All, ScopeWrite},
	"image.list":   {RoleUser, All, ScopeRead},
	"image.delete": {RoleUser, Kept, ScopeWrite},

	// Render a text that is not stored.
	"text.render": {RoleUser, All, ScopeWrite},

	// Like and unlike; read likers, and the caller's own likes.
	"like.set":  {RoleUser, All, ScopeWrite},
	"like.read": {RoleAnonymous, All, ScopeRead},
	"like.list": {RoleUser, All, ScopeRead},

	// Read drops; attach them to posts, edit and close them.
	"drop.read":   {RoleAnonymous, All, ScopeRead},
	"drop.create": {RoleUser, Kept, ScopeWrite},
	"drop.edit":   {RoleUser, Kept, ScopeWrite},
	"drop.close":  {RoleUser, Kept, ScopeWrite},
	// Claim the stock of drops; read, return and confirm the caller's claims.
	"claim.create":  {RoleUser, All, ScopeWrite},
	"claim.read":    {RoleUser, Hidden, ScopeRead},
	"claim.return":  {RoleUser, Hidden, ScopeWrite},
	"claim.confirm": {RoleUser, Hidden, ScopeWrite},
	"claim.list":    {RoleUser, All, ScopeRead},
	// Read who has claimed the stock of a drop.
	"drop.claims": {RoleUser, Kept, ScopeRead},

	// Bookmark posts, and list the caller's bookmarks.
	"bookmark.set":  {RoleUser, All, ScopeWrite},
	"bookmark.list": {RoleUser, All, ScopeRead},

	// Mark posts as read, and list those with unread comments.
	"post.mark":   {RoleUser, All, ScopeWrite},
	"post.unread": {RoleUser, All, ScopeRead},
	// Follow and mute posts, and list them.
	"subscription.set":  {RoleUser, All, ScopeWrite},
	"subscription.list": {RoleUser, All, ScopeRead},
	// Read and write the caller's drafts.
	"draft.read":  {RoleUser, All, ScopeRead},
	"draft.write": {RoleUser, All, ScopeWrite},

	// Read notifications, and mark them as read.
	"notification.list": {RoleUser, All, ScopeRead},
	"notification.read": {RoleUser, All, ScopeWrite},

	// Follow counts as they change.
	"stream.read": {RoleAnonymous, All, ScopeRead},

	// Report posts and comments, and read the outcome of the caller's reports.
	"report.create": {RoleUser, All, ScopeWrite},
	"report.list":   {RoleUser, All, ScopeRead},
	// Read the outcome of the caller's requests to redact.
	"redaction.list": {RoleUser, All, ScopeRead},

	// Read posts and comments of any status, delete them with a reason, restore them, lock and pin posts.
	"admin.post.read":       {RoleModerator, All, ScopeModerate},
	"admin.post.delete":     {RoleModerator, All, ScopeModerate},
	"admin.post.restore":    {RoleModerator, Others, ScopeModerate},
	"admin.post.lock":       {RoleModerator, All, ScopeModerate},
	"admin.post.pin":        {RoleModerator, All, ScopeModerate},
	"admin.comment.read":    {RoleModerator, All, ScopeModerate},
	"admin.comment.delete":  {RoleModerator, All, ScopeModerate},
	"admin.comment.restore": {RoleModerator, Others, ScopeModerate},
	// Overwrite the text of a version, with or without an author's request, and decline requests.
	"admin.post.redact":       {RoleModerator, Others, ScopeModerate},
	"admin.comment.redact":    {RoleModerator, Others, ScopeModerate},
	"admin.redaction.read":    {RoleModerator, All, ScopeModerate},
	"admin.redaction.resolve": {RoleModerator, Others, ScopeModerate},
	// Delete a post or comment permanently, with all versions of its text.
	"admin.post.purge":    {RoleAdmin, Others, ScopeModerate},
	"admin.comment.purge": {RoleAdmin, Others, ScopeModerate},
	// Delete all content of a user, read the progress, and undo it.
	"admin.content.delete":  {RoleModerator, Lower, ScopeModerate},
	"admin.content.read":    {RoleModerator, All, ScopeModerate},
	"admin.content.restore": {RoleModerator, Lower, ScopeModerate},
	// Read the images of users, hidden ones included, with their users and uses.
	"admin.image.read": {RoleModerator, All, ScopeModerate},
	// Read reports and their reporters, claim and resolve them.
	"admin.report.read":      {RoleModerator, All, ScopeModerate},
	"admin.report.reporters": {RoleModerator, Others, ScopeModerate},
	"admin.report.claim":     {RoleModerator, Others, ScopeModerate},
	"admin.report.resolve":   {RoleModerator, Others, ScopeModerate},
	// Read the moderation log.
	"admin.log.read": {RoleModerator, All, ScopeModerate},

	// Find accounts, with their bans and counts, and e-mail addresses of lower roles.
	"admin.user.read": {RoleModerator, All, ScopeModerate},
	// Ban users, and end bans.
	"admin.user.ban": {RoleModerator, Lower, ScopeModerate},
	// Read the likes of users, void them, and read the progress.
	"admin.like.read": {RoleModerator, All, ScopeModerate},
	"admin.like.void": {RoleModerator, Lower, ScopeModerate},
	// Read the claims of drops, and void the claims of users.
	"admin.claim.read": {RoleModerator, All, ScopeModerate},
	"admin.claim.void": {RoleModerator, Lower, ScopeModerate},
	// Read rings, accounts that like the same author in the same seconds, and resolve them.
	"admin.ring.read":    {RoleModerator, All, ScopeModerate},
	"admin.ring.resolve": {RoleModerator, Others, ScopeModerate},
	// Read the state of the like pipeline, and repair it.
	"admin.pipeline.read": {RoleAdmin, All, ScopeModerate},
	"admin.pipeline.mend": {RoleAdmin, All, ScopeModerate},
	// Read webhooks and their deliveries, and send pings and events once more.
	"admin.webhook.read": {RoleAdmin, All, ScopeModerate},
	"admin.webhook.send": {RoleAdmin, All, ScopeModerate},
	// Register, change and delete webhooks. The answer has a secret, and the events go to another site.
	"admin.webhook.edit": {RoleAdmin, All, SessionOnly},
	// Read the security log.
	"admin.security.read": {RoleAdmin, All, ScopeModerate},
	// Delete banned accounts.
	"admin.user.delete": {RoleAdmin, Lower, SessionOnly},
	// Change roles.
	"admin.user.role": {RoleAdmin, Lower, SessionOnly},
}

// Rule returns the rule of a permission; ok is false if the permission does not exist.
func (p Permission) Rule() (rule Rule, ok bool) {
	rule, ok = rules[p]
	return rule, ok
}

// Permissions returns all permissions with their rules. The caller must not change the map.
func Permissions() map[Permission]Rule { return rules }

// Admit checks a caller, nil for the anonymous, against the rule, except for the owner of the object (see AdmitOn).
// CodeUnauthorized: a token is required. CodeForbidden: the user, or the token, does not have the permission.
func (r Rule) Admit(caller *Session) error {
	if caller == nil {
		if r.Least > RoleAnonymous {
			return Errorf(CodeUnauthorized, "This needs a token: Authorization: Bearer TOKEN.")
		}
		return nil
	}
	if caller.Role < r.Least {
		return Errorf(CodeForbidden, "Only a user with the role %s can do this.", r.Least)
	}
	if !caller.IsToken || r.Scope == NoToken || caller.Scopes&r.Scope != 0 {
		return nil
	}
	if r.Scope == SessionOnly {
		return Errorf(CodeForbidden, "API tokens do not have this permission. Log in and use the token of the session.")
	}
	return Errorf(CodeForbidden, "The token does not have the scope %s.", r.Scope)
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

var roleNames = map[Role]string{RoleUser: "user", RoleModerator: "moderator", RoleAdmin: "admin"}

func (r Role) String() string { return roleNames[r] }

// ParseRole parses "user", "moderator" or "admin".
func ParseRole(name string) (Role, error) {
	for role, n := range roleNames {
		if n == name {
			return role, nil
		}
	}
	return 0, fmt.Errorf("role %q is none of user, moderator, admin", name)
}
