// Package oracle judges a run: it compares the histories of clients, which are what they asked and how they were
// answered, with what is in MySQL in the end. It knows the promise and the API, and neither servers nor the network.
//
// A history is recorded while the clients run. What is certain and what is possible are kept apart: a request without
// an answer may have taken effect, and may do so later.
package oracle

import (
	"slices"
	"time"
)

// Judge compares what clients were answered with what is there in the end.
type Judge struct {
	*Violations
	Conditions

	At    time.Duration // when the comparison begins
	Known func(kind string, id int64) *Target
}

// Content is a post or comment in MySQL.
type Content struct {
	ID, Parent       int64
	Marker           string
	Likes, Comments  int64
	Rows, CommentsIn int64
}

// Likes compares every like in MySQL with the answers to its user. It returns the likes by their keys.
func (j *Judge) Likes(registers []*Register, rows []RegisterKey) map[RegisterKey]bool {
	there := make(map[RegisterKey]bool, len(rows))
	for _, key := range rows {
		if there[key] {
			j.Addf(LikedTwice, j.At, "%s, user %d", key.Target.Name(), key.User)
		}
		there[key] = true
	}
	asked := make(map[RegisterKey]bool, len(registers))
	for _, r := range registers {
		key := RegisterKey{r.Target, r.User.ID}
		asked[key] = true
		for i, o := range r.Ops {
			r.Ops[i].offsets = j.offsets(o.Start, j.last(o))
		}
		liked, notLiked := r.possible(j.last)
		if is := there[key]; is && !liked {
			j.Addf(LikedAfterUnlike, j.At, "the like is in MySQL: %s", r.story())
		} else if !is && !notLiked {
			j.Addf(LostLike, j.At, "the like is not in MySQL: %s", r.story())
		}
	}
	for key := range there {
		if !asked[key] {
			j.Addf(NobodysLike, j.At, "%s, user %d", key.Target.Name(), key.User)
		}
	}
	return there
}

// Counts compares the counts of posts or comments with their rows.
func (j *Judge) Counts(kind string, contents []Content) {
	for _, c := range contents {
		if c.Likes != c.Rows {
			j.Addf(WrongLikesCount, j.At, "%s %d: likes_count %d, rows %d", kind, c.ID, c.Likes, c.Rows)
		}
		if c.Comments != c.CommentsIn {
			j.Addf(WrongCommentsCount, j.At, "post %d: comments_count %d, comments %d", c.ID, c.Comments, c.CommentsIn)
		}
	}
}

// Creations checks that posts or comments exist exactly once if they were acknowledged, at most once if their
// outcome is unknown, and never if they were refused.
func (j *Judge) Creations(kind string, contents []Content, creations []*Creation) {
	found := map[string][]Content{}
	for _, c := range contents {
		found[c.Marker] = append(found[c.Marker], c)
	}
	for _, made := range creations {
		if made.Kind != kind {
			continue
		}
		there := found[made.Marker]
		delete(found, made.Marker)
		switch {
		case len(there) > 1:
			j.Addf(MadeTwice, j.At, "%s is there %d times", made.Story(), len(there))
		case made.Outcome == OK && len(there) == 0:
			j.Addf(LostCreation, j.At, "%s", made.Story())
		case made.Outcome == OK && there[0].ID != made.ID:
			j.Addf(WrongAnswer, j.At, "%s has the id %d", made.Story(), there[0].ID)
		case made.Outcome == Failed && len(there) > 0:
			j.Addf(MadeThoughRefused, j.At, "%s has the id %d", made.Story(), there[0].ID)
		case len(there) == 1 && there[0].Parent != made.Parent:
			j.Addf(WrongAnswer, j.At, "%s is below post %d", made.Story(), there[0].Parent)
		}
	}
	for marker := range found {
		j.Addf(NobodysCreation, j.At, "%s %q", kind, marker)
	}
}

// View is a post or comment as an API shows it to a user.
type View struct {
	Target *Target
	User   int64
	API    int
	Count  int64
	Liked  bool
}

// View compares a view with MySQL. counts are the likes of each target there.
func (j *Judge) View(v View, counts map[*Target]int64, there map[RegisterKey]bool) {
	if v.Count != counts[v.Target] {
		j.Addf(APICountsOtherwise, j.At, "%s: %s says likes_count %d, MySQL has %d likes",
			v.Target.Name(), APIName(v.API), v.Count, counts[v.Target])
	}
	if is := there[RegisterKey{v.Target, v.User}]; v.Liked != is {
		j.Addf(APISeesOtherwise, j.At, "%s, user %d: %s says liked %v, in MySQL it is %v",
			v.Target.Name(), v.User, APIName(v.API), v.Liked, is)
	}
}

// ClaimRows are the rows of claims, by drop and user.
type ClaimRows map[int64]map[int64]ClaimRow

// Add adds a row. It reports false if the user has one already.
func (r ClaimRows) Add(drop, user int64, row ClaimRow) bool {
	if r[drop] == nil {
		r[drop] = map[int64]ClaimRow{}
	}
	_, twice := r[drop][user]
	r[drop][user] = row
	return !twice
}

// InForce counts the live claims among rows.
func InForce(rows map[int64]ClaimRow) (n int64) {
	for _, row := range rows {
		if Live(row.State) {
			n++
		}
	}
	return n
}

// Claims compares the answers about the claims of a drop with each other and with MySQL.
func (j *Judge) Claims(d *Drop, rows map[int64]ClaimRow) {
	var histories []*claimHistory
	asked := map[int64]bool{}
	for _, s := range d.All() {
		h := &claimHistory{Share: s, j: j}
		h.walk()
		if row, there := rows[s.User.ID]; there {
			h.end(&row)
		} else {
			h.end(nil)
		}
		histories = append(histories, h)
		asked[s.User.ID] = true
	}
	for user, row := range rows {
		if !asked[user] {
			j.Addf(NobodysClaim, j.At, "%s, user %d: %s", d.Name(), user, row)
		}
	}
	j.stock(d, histories, rows)
}

// Notice identifies what a notification is about: a claim, or a milestone of a target.
type Notice struct {
	User      int64
	Claim     int64
	Post      int64
	Comment   int64 // 0: the post
	Milestone int64
}

// Rejections compares notifications of rejected claims with the claims. A claim that is answered with 2xx is
// stored, or its user is notified that it was rejected. A later claim of the user takes the row, and the notification
// stays. claims are by the ids that answers named.
func (j *Judge) Rejections(
	rejected, confirmed map[Notice]int, claims map[int64]*Share, drops []*Drop, rows ClaimRows,
) {
	for n, times := range rejected {
		of, known := claims[n.Claim]
		switch {
		case times > 1:
			j.Addf(NotifiedTwice, j.At, "user %d, claim %d is rejected: %d times", n.User, n.Claim, times)
		case known && of.User.ID != n.User:
			j.Addf(NotifiedOfAnothers, j.At, "user %d, claim %d: %s", n.User, n.Claim, of.Story())
		case confirmed[n] > 0:
			j.Addf(NotifiedOtherwise, j.At, "user %d: claim %d is confirmed and rejected", n.User, n.Claim)
		}
	}
	for _, d := range drops {
		for _, s := range d.All() {
			if s.User.Outcast {
				continue // accounts that are deleted are not notified
			}
			h := &claimHistory{Share: s, j: j, judged: true}
			h.walk()
			row := rows[d.ID][s.User.ID]
			notified := func(id int64) bool { return rejected[Notice{User: s.User.ID, Claim: id}] > 0 }
			if row.State == StateRejected != notified(row.ID) && row.ID != 0 {
				j.Addf(SilentRejection, j.At, "in MySQL: %s; notified: %v: %s", row, notified(row.ID), s.Story())
			}
			for _, c := range h.claims {
				ends := h.mayReturn(c, Forever) || h.mayExpire(c, Forever) || h.mayBeVoided(c, Forever)
				if c.id != row.ID && !ends && !notified(c.id) {
					j.Addf(LostClaim, j.At, "claim %d is not stored, and its user was not notified; in MySQL: %s: %s",
						c.id, row, s.Story())
				}
			}
		}
	}
}

// milestones returns the numbers of likes of others, up to most, of which authors are notified.
func milestones(limit int64) (list []int64) {
	for m := int64(1); m <= limit; m *= 10 {
		list = append(list, m)
	}
	return list
}

// Reached checks that authors were notified at most once of each milestone, and of none that the likes of others
// cannot have reached.
func (j *Judge) Reached(notified map[Notice]int, registers []*Register) {
	own := map[*Target]int64{}
	for _, r := range registers {
		if r.ever && r.Target.Author != nil && r.Target.Author.ID == r.User.ID {
			own[r.Target] = 1
		}
	}
	for n, times := range notified {
		t := j.Known("posts", n.Post)
		if n.Comment != 0 {
			t = j.Known("comments", n.Comment)
		}
		if times > 1 {
			j.Addf(NotifiedTwice, j.At, "user %d of %d likes, post %d, comment %d: %d times", n.User, n.Milestone,
				n.Post, n.Comment, times)
			continue
		}
		if t == nil {
			continue
		}
		others := t.Likers.Load() - own[t]
		if t.Author != nil && t.Author.ID != n.User || !slices.Contains(milestones(others), n.Milestone) {
			j.Addf(NotifiedOtherwise, j.At, "user %d of %d likes: %s, at most %d others ever liked it", n.User,
				n.Milestone, t.Name(), others)
		}
	}
}

// Missed checks that authors were notified of each milestone that the likes of others have reached. Of a target
// that was ever deleted, nothing is certain: nobody is notified meanwhile.
func (j *Judge) Missed(
	notified map[Notice]int, kind string, contents []Content, inMySQL map[RegisterKey]bool,
) {
	for _, c := range contents {
		t := j.Known(kind, c.ID)
		if t == nil || t.Author == nil || t.Author.Outcast || t.MayBeGone(0) {
			continue
		}
		n := Notice{User: t.Author.ID, Post: c.ID}
		if kind == "comments" {
			n.Post, n.Comment = c.Parent, c.ID
		}
		others := c.Likes
		if inMySQL[RegisterKey{t, n.User}] {
			others--
		}
		for _, n.Milestone = range milestones(others) {
			if notified[n] == 0 {
				j.Addf(MissedMilestone, j.At, "%s has %d likes of others, and user %d was not notified of %d",
					t.Name(), others, n.User, n.Milestone)
			}
		}
	}
}

// Rushed is what a crowd was answered.
type Rushed struct {
	Asked, Answered                             time.Duration // from the first to the last request; the last answer
	Users                                       int
	Requests, Made, Repeated, SoldOut, NoAnswer int
}

// Rush checks that exactly the stock is claimed, by those whose claims were acknowledged.
func (j *Judge) Rush(d *Drop, stock int64, rows map[int64]ClaimRow) (r Rushed) {
	first, last := Forever, time.Duration(0)
	winners := int64(0)
	for _, s := range d.All() {
		r.Users++
		first, last = min(first, s.Ops[0].Start), max(last, s.Ops[0].Start)
		r.Requests += len(s.Ops)
		r.Answered = max(r.Answered, s.Ops[len(s.Ops)-1].End)
		won := false
		for _, o := range s.Ops {
			switch {
			case o.Made():
				r.Made++
			case o.Outcome == OK:
				r.Repeated++
			case o.Code == "sold_out":
				r.SoldOut++
			case o.Outcome == Unknown:
				r.NoAnswer++
			}
			won = won || o.Outcome == OK
		}
		if won {
			winners++
		}
		if row, has := rows[s.User.ID]; has != won || has && row.State != StateConfirmed {
			j.Addf(NotTheStock, j.At, "in MySQL: %s: %s", row, s.Story())
		}
	}
	r.Asked = last - first
	if n := InForce(rows); n != stock || int64(len(rows)) != stock || winners != stock {
		j.Addf(NotTheStock, j.At, "stock %d, %d users were answered that they have one, %d rows, %d of them live",
			stock, winners, len(rows), n)
	}
	return r
}
