package models

import (
	"fmt"
	"math/bits"
	"strings"
)

// Permission names what a route of the API lets its caller do, such as "post.edit".
type Permission string

// Rule says who has a permission.
type Rule struct {
	Least Role  // the role that it takes at least
	On    Reach // whose objects it is for
	Scope Scope // what an API token needs; a session may do all that its user may
}

// Reach says whose objects a permission is for.
type Reach int8

// The reaches.
const (
	All    Reach = iota // everybody's, or there is no object
	Own                 // one's own; another's is refused with CodeForbidden
	Hidden              // one's own; another's is CodeNotFound, as if it was not there
	Others              // others' objects and other users, never oneself
	Lower               // users of a lower role, never oneself; for admins all users but themselves (see Outranks)
)

// Scope is what an API token is good for: none, one or several of the constants.
type Scope uint8

// The scopes. None of them includes another.
const (
	ScopeRead     Scope = 1 << iota // to read
	ScopeWrite                      // to create, edit, delete and like
	ScopeModerate                   // to moderate, for who is a moderator
	// NoToken is for what is open to everybody: a token that comes along is not even looked at.
	NoToken
	// SessionOnly is for what gives, takes or guards access to the account: no API token is good for it.
	SessionOnly Scope = 0
)

// rules is who may do what: routes.go declares a permission for every route, the contract names it as x-permission, and
// a generated test holds each operation to it, for every role and scope, on one's own and on others' objects.
var rules = map[Permission]Rule{
	// Health, the contract and its page.
	"system.read": {RoleAnonymous, All, NoToken},

	// Open an account.
	"account.create": {RoleAnonymous, All, NoToken},
	// Read and edit one's own account.
	"account.read": {RoleUser, All, ScopeRead},
	"account.edit": {RoleUser, All, ScopeWrite},
	// Change the password, delete the account.
	"account.password": {RoleUser, All, SessionOnly},
	"account.delete":   {RoleUser, All, SessionOnly},
	// Get an archive of everything that is stored about the account.
	"account.export": {RoleUser, All, SessionOnly},

	// Sign in, list one's sessions, end them.
	"session.create": {RoleAnonymous, All, NoToken},
	"session.list":   {RoleUser, All, SessionOnly},
	"session.end":    {RoleUser, Hidden, SessionOnly},

	// List, make and revoke API tokens.
	"token.list":   {RoleUser, All, SessionOnly},
	"token.create": {RoleUser, All, SessionOnly},
	"token.revoke": {RoleUser, Hidden, SessionOnly},

	// Read profiles, and what users wrote and like.
	"user.read": {RoleAnonymous, All, ScopeRead},
	// Follow users, and read what those write whom one follows.
	"follow.set": {RoleUser, Others, ScopeWrite},
	"feed.read":  {RoleUser, All, ScopeRead},
	// Block users, and list whom one blocks.
	"block.set":  {RoleUser, Others, ScopeWrite},
	"block.list": {RoleUser, All, ScopeRead},

	// Read posts, their lists, tags and revisions.
	"post.read":    {RoleAnonymous, All, ScopeRead},
	"post.create":  {RoleUser, All, ScopeWrite},
	"post.edit":    {RoleUser, Own, ScopeWrite},
	"post.delete":  {RoleUser, Own, ScopeWrite},
	"post.restore": {RoleUser, Hidden, ScopeWrite},
	// Request that a version of one's own post be redacted.
	"post.redact": {RoleUser, Hidden, ScopeWrite},

	// Read comments, their lists, threads and revisions.
	"comment.read":   {RoleAnonymous, All, ScopeRead},
	"comment.create": {RoleUser, All, ScopeWrite},
	"comment.edit":   {RoleUser, Own, ScopeWrite},
	"comment.delete": {RoleUser, Own, ScopeWrite},
	// Request that a version of one's own comment be redacted.
	"comment.redact": {RoleUser, Hidden, ScopeWrite},

	// Like and unlike; see who likes what, and what one likes oneself.
	"like.set":  {RoleUser, All, ScopeWrite},
	"like.read": {RoleAnonymous, All, ScopeRead},
	"like.list": {RoleUser, All, ScopeRead},

	// Bookmark posts, and list one's bookmarks.
	"bookmark.set":  {RoleUser, All, ScopeWrite},
	"bookmark.list": {RoleUser, All, ScopeRead},

	// Read what one was told, and mark it as read.
	"notification.list": {RoleUser, All, ScopeRead},
	"notification.read": {RoleUser, All, ScopeWrite},

	// Follow counts as they change.
	"stream.read": {RoleAnonymous, All, ScopeRead},

	// Report posts and comments, and read what became of one's own reports.
	"report.create": {RoleUser, All, ScopeWrite},
	"report.list":   {RoleUser, All, ScopeRead},
	// Read what became of one's own requests to redact.
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
	// Overwrite the text of a version, on an author's request or without one, and decline requests.
	"admin.post.redact":       {RoleModerator, Others, ScopeModerate},
	"admin.comment.redact":    {RoleModerator, Others, ScopeModerate},
	"admin.redaction.read":    {RoleModerator, All, ScopeModerate},
	"admin.redaction.resolve": {RoleModerator, Others, ScopeModerate},
	// Delete a post or comment for good, with all that is kept of its text.
	"admin.post.purge":    {RoleAdmin, Others, ScopeModerate},
	"admin.comment.purge": {RoleAdmin, Others, ScopeModerate},
	// Delete all that a user wrote, see how far that is, and undo it.
	"admin.content.delete":  {RoleModerator, Lower, ScopeModerate},
	"admin.content.read":    {RoleModerator, All, ScopeModerate},
	"admin.content.restore": {RoleModerator, Lower, ScopeModerate},
	// Read what was reported, see who did, claim it and resolve it.
	"admin.report.read":      {RoleModerator, All, ScopeModerate},
	"admin.report.reporters": {RoleModerator, Others, ScopeModerate},
	"admin.report.claim":     {RoleModerator, Others, ScopeModerate},
	"admin.report.resolve":   {RoleModerator, Others, ScopeModerate},
	// Read the moderation log.
	"admin.log.read": {RoleModerator, All, ScopeModerate},

	// Find accounts, with their bans and counts, and e-mail addresses of lower roles.
	"admin.user.read": {RoleModerator, All, ScopeModerate},
	// Ban users, and take bans back.
	"admin.user.ban": {RoleModerator, Lower, ScopeModerate},
	// See who liked what, have likes taken back, and see how far that is.
	"admin.like.read": {RoleModerator, All, ScopeModerate},
	"admin.like.void": {RoleModerator, Lower, ScopeModerate},
	// See accounts that like the same author in the same seconds, and deal with them.
	"admin.ring.read":    {RoleModerator, All, ScopeModerate},
	"admin.ring.resolve": {RoleModerator, Others, ScopeModerate},
	// See how likes get to MySQL, and mend what does not.
	"admin.pipeline.read": {RoleAdmin, All, ScopeModerate},
	"admin.pipeline.mend": {RoleAdmin, All, ScopeModerate},
	// Read the security log.
	"admin.security.read": {RoleAdmin, All, ScopeModerate},
	// Delete banned accounts.
	"admin.user.delete": {RoleAdmin, Lower, SessionOnly},
	// Change roles.
	"admin.user.role": {RoleAdmin, Lower, SessionOnly},
}

// Rule gives the rule of a permission; ok is false when there is no such permission.
func (p Permission) Rule() (rule Rule, ok bool) {
	rule, ok = rules[p]
	return rule, ok
}

// Permissions gives every permission with its rule. The map must not be changed.
func Permissions() map[Permission]Rule { return rules }

// Admit holds a caller, nil for the anonymous, to the rule, as far as that can be told without an object.
// CodeUnauthorized: it takes a token. CodeForbidden: the user may not do this, or not with this token.
func (r Rule) Admit(caller *Session) error {
	if caller == nil {
		if r.Least > RoleAnonymous {
			return Errorf(CodeUnauthorized, "This needs a token: Authorization: Bearer TOKEN.")
		}
		return nil
	}
	if caller.Role < r.Least {
		return Errorf(CodeForbidden, "Only a user with the role %s may do this.", r.Least)
	}
	if !caller.IsToken || r.Scope == NoToken || caller.Scopes&r.Scope != 0 {
		return nil
	}
	if r.Scope == SessionOnly {
		return Errorf(CodeForbidden, "No API token is good for this: log in.")
	}
	return Errorf(CodeForbidden, "The token has not got the scope %s.", r.Scope)
}

// AdmitOn holds a caller that was admitted to the rule for an object of this owner: CodeForbidden or, where others'
// objects are hidden, CodeNotFound. Of Lower it says no more than of Others: that takes the other's role, too.
func (r Rule) AdmitOn(caller *Session, owner int64) error {
	own := caller != nil && caller.UserID == owner
	switch {
	case r.On == Own && !own:
		return Errorf(CodeForbidden, "Only who wrote it may do this.")
	case r.On == Hidden && !own:
		return Errorf(CodeNotFound, "There is no such thing.")
	case (r.On == Others || r.On == Lower) && own:
		return Errorf(CodeForbidden, "You cannot do this to yourself.")
	}
	return nil
}

// Outranks holds who acts on another user to Lower: CodeForbidden.
func Outranks(actor int64, role Role, other int64, otherRole Role) error {
	switch {
	case actor == other:
		return Errorf(CodeForbidden, "You cannot do this to yourself.")
	case role < RoleModerator || role < RoleAdmin && otherRole >= role:
		return Errorf(CodeForbidden, "The user's role is not below yours.")
	}
	return nil
}

var scopeNames = map[Scope]string{ScopeRead: "read", ScopeWrite: "write", ScopeModerate: "moderate"}

// allScopes is what a token can have.
const allScopes = ScopeRead | ScopeWrite | ScopeModerate

// Names gives the scopes one by one, in the order of the constants; never nil.
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

// ParseScopes reads names as Names gives them, in any order.
func ParseScopes(names []string) (Scope, error) {
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
