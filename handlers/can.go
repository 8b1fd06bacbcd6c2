package handlers

import (
	"context"
	"fmt"
	"slices"

	"github.com/gofiber/fiber/v2"

	"likewise/models"
)

// abilities answers what the viewer may do, by the rules that the handlers and the store enforce: the permission of the
// route, the owner of the object, locks and blocks. A ban ends all sessions, so nobody who has one is banned. Limits,
// such as that of drops of a post, are not taken into account.
type abilities struct {
	viewer   *models.Session            // nil for the anonymous, who may do nothing of this
	blockers map[int64]bool             // authors who block the viewer
	places   map[int64]models.PostState // of comments and drops, by post
	rules    map[ruled]bool             // see may
	// staffFactor is Config.StaffSecondFactor.
	staffFactor bool
}

// ruled is a question that rules alone answer. They distinguish the viewer's own objects from those of all others.
type ruled struct {
	permission models.Permission
	own        bool
}

// abilitiesOn returns the viewer's abilities on objects of these authors that belong to these posts. It queries nothing
// for the anonymous, and blocks only if somebody blocks the viewer.
func (s *Server) abilitiesOn(c *fiber.Ctx, authors, posts []int64) (abilities, error) {
	a := abilities{viewer: viewer(c), staffFactor: s.staffFactor}
	if a.viewer == nil {
		return a, nil
	}
	if posts = distinct(posts); len(posts) > 0 {
		var err error
		a.places, err = readShared(c, s, fmt.Sprint("places of posts ", posts),
			func(ctx context.Context) (map[int64]models.PostState, error) { return s.content.PostStates(ctx, posts) })
		if err != nil {
			return a, err
		}
		for _, place := range a.places {
			authors = append(authors, place.AuthorID)
		}
	}
	if !a.viewer.Blocked {
		return a, nil
	}
	others := slices.DeleteFunc(distinct(authors), func(id int64) bool { return id == a.viewer.UserID })
	if len(others) == 0 {
		return a, nil
	}
	var err error
	a.blockers, err = s.people.BlockersAmong(c.UserContext(), a.viewer.UserID, others)
	return a, err
}

func distinct(ids []int64) []int64 { return slices.Compact(slices.Sorted(slices.Values(ids))) }

// may reports whether the viewer has a permission for objects of the owner. A page asks the same of most of its
// objects.
func (a *abilities) may(p models.Permission, owner int64) bool {
	if a.viewer == nil {
		return false
	}
	question := ruled{p, owner == a.viewer.UserID}
	answer, known := a.rules[question]
	if !known {
		rule, ok := p.Rule()
		answer = ok && rule.Admit(a.viewer, a.staffFactor) == nil && rule.AdmitOn(a.viewer, owner) == nil
		if a.rules == nil {
			a.rules = map[ruled]bool{}
		}
		a.rules[question] = answer
	}
	return answer
}

// mayDespiteLock is may for an object of a post that is or is not locked. Locks do not bind moderators.
func (a *abilities) mayDespiteLock(p models.Permission, owner int64, locked bool) bool {
	return a.may(p, owner) && (!locked || a.viewer.Role >= models.RoleModerator)
}

// mayOnUser is may for a permission for users of lower roles.
func (a *abilities) mayOnUser(p models.Permission, u *models.PublicUser) bool {
	return a.may(p, u.Author.ID) && models.Outranks(a.viewer.UserID, a.viewer.Role, u.Author.ID, u.Role) == nil
}

// postCanJSON is what the viewer may do with a post.
type postCanJSON struct {
	Edit     bool `json:"edit"`
	Delete   bool `json:"delete"`
	Comment  bool `json:"comment"`
	Like     bool `json:"like"`
	Bookmark bool `json:"bookmark"`
	Report   bool `json:"report"`
	AddDrop  bool `json:"add_drop"`
	Remove   bool `json:"remove"` // as a moderator, as the next
	Lock     bool `json:"lock"`
	Pin      bool `json:"pin"`
}

func (a *abilities) post(p *models.Post) postCanJSON {
	owner := p.Author.ID
	can := postCanJSON{
		Remove: a.may(models.PermAdminPostDelete, owner),
		Lock:   a.may(models.PermAdminPostLock, owner),
		Pin:    a.may(models.PermAdminPostPin, owner),
	}
	if p.Status != models.StatusNormal {
		return can
	}
	can.Edit = a.mayDespiteLock(models.PermPostEdit, owner, p.Locked)
	can.Delete = a.may(models.PermPostDelete, owner)
	can.Comment = a.mayDespiteLock(models.PermCommentCreate, owner, p.Locked) && !a.blockers[owner]
	can.Like = a.may(models.PermLikeSet, owner) && !a.blockers[owner]
	can.Bookmark = a.may(models.PermBookmarkSet, owner)
	can.Report = a.may(models.PermReportCreate, owner)
	can.AddDrop = a.mayDespiteLock(models.PermDropCreate, owner, p.Locked)
	return can
}

// commentCanJSON is what the viewer may do with a comment.
type commentCanJSON struct {
	Edit   bool `json:"edit"`
	Delete bool `json:"delete"`
	Reply  bool `json:"reply"`
	Like   bool `json:"like"`
	Report bool `json:"report"`
	Remove bool `json:"remove"` // as a moderator
}

func (a *abilities) comment(m *models.Comment) commentCanJSON {
	owner := m.Author.ID
	can := commentCanJSON{Remove: a.may(models.PermAdminCommentDelete, owner)}
	place, open := a.places[m.PostID]
	if m.Status != models.StatusNormal || !open {
		return can
	}
	can.Edit = a.mayDespiteLock(models.PermCommentEdit, owner, place.Locked)
	can.Delete = a.may(models.PermCommentDelete, owner)
	can.Reply = a.mayDespiteLock(models.PermCommentCreate, owner, place.Locked) && m.Depth < models.MaxDepth &&
		!a.blockers[owner] && !a.blockers[place.AuthorID]
	can.Like = a.may(models.PermLikeSet, owner) && !a.blockers[owner]
	can.Report = a.may(models.PermReportCreate, owner)
	return can
}

// dropCanJSON is what the viewer may do with a drop.
type dropCanJSON struct {
	Edit  bool `json:"edit"`
	Close bool `json:"close"`
	Claim bool `json:"claim"` // and has not
}

func (a *abilities) drop(d *models.Drop, state models.DropState, claimed bool) dropCanJSON {
	place, open := a.places[d.PostID]
	if !open {
		return dropCanJSON{}
	}
	owner := place.AuthorID
	return dropCanJSON{
		Edit:  d.ClosedAt == nil && a.mayDespiteLock(models.PermDropEdit, owner, place.Locked),
		Close: d.ClosedAt == nil && a.mayDespiteLock(models.PermDropClose, owner, place.Locked),
		Claim: state == models.DropOpen && !claimed && a.may(models.PermClaimCreate, owner) && !a.blockers[owner],
	}
}

// userCanJSON is what the viewer may do with a user.
type userCanJSON struct {
	Follow        bool `json:"follow"`
	Block         bool `json:"block"`
	Ban           bool `json:"ban"` // as a moderator, as the next
	RemoveContent bool `json:"remove_content"`
}

func (a *abilities) user(u *models.PublicUser) userCanJSON {
	id := u.Author.ID
	return userCanJSON{
		Follow:        a.may(models.PermFollowSet, id) && !u.Blocked && !a.blockers[id],
		Block:         a.may(models.PermBlockSet, id),
		Ban:           a.mayOnUser(models.PermAdminUserBan, u),
		RemoveContent: a.mayOnUser(models.PermAdminContentDelete, u),
	}
}
