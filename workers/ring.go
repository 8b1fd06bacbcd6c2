package workers

import (
	"cmp"
	"context"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"time"

	"likewise/models"
	"likewise/models/moderation"
)

// RingFinder finds like rings: accounts that repeatedly like the same author in the same seconds.
//
// Two likes of one author's content, by two accounts, coincide if they were accepted in the same window of ringWindow.
// Two accounts are suspects if at least ringCoincidences of their likes coincide, and these are at least half of the
// likes that each of them gave the author in ringDays. A ring is a connected group of suspects around one author.
// Unrelated accounts that like a post in the same second rarely do so again.
//
// A run has two steps. First it reads the likes since the previous run, and the older likes of ringBefore, at most
// ringRows and ringRowsBefore rows of each kind. Pairs with ringCandidate coincidences in them are candidates. Then it
// reads the latest ringHistory likes of at most ringSuspects candidates. Both steps read rows in the order of their
// ids, so likes need no index by time, which would make every like slower.
type RingFinder struct {
	store *moderation.Store
	now   func() time.Time
}

// NewRingFinder returns a RingFinder.
func NewRingFinder(store *moderation.Store, now func() time.Time) *RingFinder {
	return &RingFinder{store: store, now: now}
}

// The rule. docs/moderation.md explains it to moderators.
const (
	ringWindow       = 5 * time.Second
	ringCoincidences = 5
	ringDays         = 7 * 24 * time.Hour
	ringBefore       = 24 * time.Hour

	ringCandidate  = 2       // coincidences, in the rows of the first step, that make two accounts candidates
	ringCrowd      = 20      // accounts of a window that are compared with each other
	ringRows       = 300_000 // new rows of each kind that a run reads
	ringRowsBefore = 100_000 // older rows of each kind that a run reads
	ringPage       = 10_000  // rows a query
	ringSuspects   = 500     // accounts in the second step
	ringHistory    = 2000    // likes of each kind that the second step reads of an account
	ringEvidence   = 20      // occasions in a report
	ringMembers    = 100     // accounts in a report
)

// Find saves a report of each ring. It returns the numbers of likes read and of new rings.
func (f *RingFinder) Find(ctx context.Context) (read, found int, err error) {
	var likes []models.AuthoredLike
	marks := map[models.TargetKind]int64{}
	for _, kind := range []models.TargetKind{models.KindPost, models.KindComment} {
		list, upTo, err := f.recent(ctx, kind)
		if err != nil {
			return len(likes), 0, err
		}
		likes, marks[kind] = append(likes, list...), upTo
	}
	suspects := suspectPairs(likes)
	history, err := f.histories(ctx, suspects)
	if err != nil {
		return len(likes), 0, err
	}
	for _, author := range slices.Sorted(maps.Keys(suspects)) {
		rings, err := f.rings(ctx, author, suspects[author], history)
		if err != nil {
			return len(likes), found, err
		}
		for i := range rings {
			isNew, err := f.store.SaveRing(ctx, &rings[i])
			if err != nil {
				return len(likes), found, err
			}
			if isNew && rings[i].ID > 0 {
				found++
				f.store.Logger().InfoContext(ctx, "like ring found", "ring", rings[i].ID, "author_id", author,
					"members", len(rings[i].Members), "coincidences", rings[i].Coincidences)
			}
		}
	}
	for kind, upTo := range marks {
		if err := f.store.SetRingCheckpoint(ctx, kind, upTo); err != nil {
			return len(likes), found, err
		}
	}
	return len(likes), found, nil
}

// recent reads the likes of a kind since the previous run, and some older ones. It returns the id of the last row read.
func (f *RingFinder) recent(
	ctx context.Context,
	kind models.TargetKind,
) (likes []models.AuthoredLike, upTo int64, err error) {
	last, err := f.store.LastLikeID(ctx, kind)
	if err != nil {
		return nil, 0, err
	}
	mark, ok, err := f.store.RingCheckpoint(ctx, kind)
	if err != nil {
		return nil, 0, err
	}
	if !ok || mark > last { // in the first run, and after rows were restored from a backup
		mark = max(0, last-ringRows)
	}
	upTo = min(last, mark+ringRows)
	read := func(after, upTo int64, back time.Duration) error {
		for ; after < upTo; after += ringPage {
			page, err := f.store.LikesBetween(ctx, kind, after, min(after+ringPage, upTo), f.now().Add(-back).UTC())
			if err != nil {
				return err
			}
			likes = append(likes, page...)
		}
		return nil
	}
	if err := read(max(0, mark-ringRowsBefore), mark, ringBefore); err != nil {
		return nil, 0, err
	}
	if err := read(mark, upTo, ringDays); err != nil {
		return nil, 0, err
	}
	return likes, upTo, nil
}

// pair is two accounts, the lower id first.
type pair [2]int64

// byAuthor groups likes by the author of the liked content. It skips authors' likes of their own content.
func byAuthor(likes []models.AuthoredLike) map[int64][]models.AuthoredLike {
	of := map[int64][]models.AuthoredLike{}
	for _, l := range likes {
		if l.UserID != l.AuthorID {
			of[l.AuthorID] = append(of[l.AuthorID], l)
		}
	}
	return of
}

// windowOf returns the number of a like's window.
func windowOf(l models.AuthoredLike) int64 { return l.LikedAt.Unix() / int64(ringWindow/time.Second) }

// windows counts each account's likes in each window.
func windows(likes []models.AuthoredLike) map[int64]map[int64]int {
	at := map[int64]map[int64]int{}
	for _, l := range likes {
		w := windowOf(l)
		if at[w] == nil {
			at[w] = map[int64]int{}
		}
		at[w][l.UserID]++
	}
	return at
}

// suspectPairs returns the pairs of accounts with at least ringCandidate coincidences, by author. Pairs with the most
// coincidences come first, until they have ringSuspects accounts.
func suspectPairs(likes []models.AuthoredLike) map[int64][]pair {
	type suspect struct {
		author int64
		pair
		n int
	}
	var all []suspect
	for author, likes := range byAuthor(likes) {
		given := map[int64]int{}
		for _, l := range likes {
			given[l.UserID]++
		}
		// An account with a single like of the author cannot coincide twice. Most accounts of a crowd are such.
		likes = slices.DeleteFunc(likes, func(l models.AuthoredLike) bool { return given[l.UserID] < ringCandidate })
		together := map[pair]int{}
		for _, users := range windows(likes) {
			ids := crowd(slices.Sorted(maps.Keys(users)))
			for i, a := range ids {
				for _, b := range ids[i+1:] {
					together[pair{a, b}] += min(users[a], users[b])
				}
			}
		}
		for p, n := range together {
			if n >= ringCandidate {
				all = append(all, suspect{author, p, n})
			}
		}
	}
	slices.SortFunc(all, func(x, y suspect) int {
		return cmp.Or(cmp.Compare(y.n, x.n), cmp.Compare(x.author, y.author), slices.Compare(x.pair[:], y.pair[:]))
	})
	chosen, users := map[int64][]pair{}, map[int64]bool{}
	for _, s := range all {
		if len(users) >= ringSuspects && (!users[s.pair[0]] || !users[s.pair[1]]) {
			continue
		}
		users[s.pair[0]], users[s.pair[1]] = true, true
		chosen[s.author] = append(chosen[s.author], s.pair)
	}
	return chosen
}

// crowd returns ringCrowd of the sorted ids. It chooses them by a hash of the id, so that the same accounts are
// compared in every window.
func crowd(ids []int64) []int64 {
	if len(ids) <= ringCrowd {
		return ids
	}
	rank := func(id int64) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(strconv.FormatInt(id, 10))) // a hash returns no errors
		return h.Sum64()
	}
	slices.SortFunc(ids, func(a, b int64) int { return cmp.Compare(rank(a), rank(b)) })
	ids = ids[:ringCrowd]
	slices.Sort(ids)
	return ids
}

// histories reads the likes of suspects, by account.
func (f *RingFinder) histories(
	ctx context.Context,
	suspects map[int64][]pair,
) (map[int64][]models.AuthoredLike, error) {
	history := map[int64][]models.AuthoredLike{}
	since := f.now().Add(-ringDays).UTC()
	for _, pairs := range suspects {
		for _, p := range pairs {
			for _, user := range p {
				if _, ok := history[user]; ok {
					continue
				}
				history[user] = nil
				for _, kind := range []models.TargetKind{models.KindPost, models.KindComment} {
					likes, err := f.store.LatestLikesOf(ctx, kind, user, since, ringHistory)
					if err != nil {
						return nil, err
					}
					history[user] = append(history[user], likes...)
				}
			}
		}
	}
	return history, nil
}

// rings returns the rings around an author among pairs of suspects, according to their histories.
func (f *RingFinder) rings(
	ctx context.Context,
	author int64,
	pairs []pair,
	history map[int64][]models.AuthoredLike,
) ([]models.LikeRing, error) {
	users := map[int64]bool{}
	for _, p := range pairs {
		users[p[0]], users[p[1]] = true, true
	}
	judged, err := f.store.JudgedUntil(ctx, author, slices.Sorted(maps.Keys(users)))
	if err != nil {
		return nil, err
	}
	likes := map[int64][]models.AuthoredLike{} // of the author, by account
	at := map[int64]map[int64]int{}            // by account and window
	for user := range users {
		for _, l := range history[user] {
			if l.AuthorID == author && l.LikedAt.After(judged[user]) {
				likes[user] = append(likes[user], l)
			}
		}
		at[user] = map[int64]int{}
		for _, l := range likes[user] {
			at[user][windowOf(l)]++
		}
	}
	ring := map[int64]int64{} // a union-find forest; its roots are the lowest ids of their rings
	var root func(user int64) int64
	root = func(user int64) int64 {
		if up, ok := ring[user]; ok && up != user {
			return root(up)
		}
		return user
	}
	for _, p := range pairs {
		together := 0
		for w, n := range at[p[0]] {
			together += min(n, at[p[1]][w])
		}
		if together >= ringCoincidences && 2*together >= max(len(likes[p[0]]), len(likes[p[1]])) {
			a, b := root(p[0]), root(p[1])
			ring[max(a, b)], ring[min(a, b)] = min(a, b), min(a, b)
		}
	}
	members := map[int64][]int64{}
	for user := range ring {
		members[root(user)] = append(members[root(user)], user)
	}
	var rings []models.LikeRing
	for _, first := range slices.Sorted(maps.Keys(members)) {
		var all []models.AuthoredLike
		for _, user := range slices.Sorted(slices.Values(members[first])) {
			all = append(all, likes[user]...)
		}
		rings = append(rings, report(author, all))
	}
	return rings, nil
}

// report returns the report of a ring, from all likes that its members gave the author.
func report(author int64, likes []models.AuthoredLike) models.LikeRing {
	ring := models.LikeRing{AuthorID: author}
	slices.SortFunc(likes, func(x, y models.AuthoredLike) int {
		return cmp.Or(
			x.LikedAt.Compare(y.LikedAt),
			cmp.Compare(x.UserID, y.UserID),
			cmp.Compare(x.TargetID, y.TargetID),
		)
	})
	company := windows(likes)
	given, together := map[int64]int{}, map[int64]int{}
	occasions := map[int64]*models.RingOccasion{}
	var order []int64
	for _, l := range likes {
		given[l.UserID]++
		w := windowOf(l)
		if len(company[w]) < 2 {
			continue
		}
		together[l.UserID]++
		ring.Coincidences++
		if occasions[w] == nil {
			occasions[w] = &models.RingOccasion{At: l.LikedAt.UTC()}
			order = append(order, w)
		}
		if o := occasions[w]; len(o.Likes) < ringCrowd {
			o.Likes = append(
				o.Likes,
				models.RingLike{UserID: l.UserID, Type: l.Kind, ID: l.TargetID, At: l.LikedAt.UTC()},
			)
		}
		if ring.FirstAt.IsZero() {
			ring.FirstAt = l.LikedAt.UTC()
		}
		ring.LastAt = l.LikedAt.UTC()
	}
	ring.Occasions = len(order)
	slices.Reverse(order)
	for _, w := range order[:min(len(order), ringEvidence)] {
		ring.Evidence = append(ring.Evidence, *occasions[w])
	}
	users := slices.Collect(maps.Keys(together))
	slices.SortFunc(
		users,
		func(a, b int64) int { return cmp.Or(cmp.Compare(together[b], together[a]), cmp.Compare(a, b)) },
	)
	for _, user := range users[:min(len(users), ringMembers)] {
		ring.Members = append(
			ring.Members,
			models.RingMember{UserID: user, Coincidences: together[user], Likes: given[user]},
		)
	}
	return ring
}
