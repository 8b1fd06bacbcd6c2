package counters

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"

	"github.com/redis/go-redis/v9"

	"likewise/counters/rounds"
	"likewise/models"
	"likewise/models/db"
	"likewise/models/likes"
)

// Outcome is the result of a call of the gate, for the metrics.
type Outcome string

// The outcomes of a call of the gate.
const (
	Changed    Outcome = "changed"    // accepted, with a new event in the outbox
	Unchanged  Outcome = "unchanged"  // accepted, and nothing to change
	Closed     Outcome = "closed"     // refused: the shard is closed
	Cold       Outcome = "cold"       // retried after the target was warmed
	Gone       Outcome = "gone"       // refused: the target is deleted or does not exist
	Full       Outcome = "full"       // refused: the outbox is at its limit
	Damaged    Outcome = "damaged"    // the target's keys contradict each other; it is forgotten if MySQL has all of it
	Late       Outcome = "late"       // retried: the call reached Redis too late, or the estimate of its clock was off
	Superseded Outcome = "superseded" // refused: the user called again while this call waited for its target
	Refused    Outcome = "refused"    // refused: likes of the user are being voided
	Unstored   Outcome = "unstored"   // refused: Redis is out of memory, or moves the shard to another node
	Undated    Outcome = "undated"    // refused: MySQL cannot store the time that Redis shows
	Lost       Outcome = "lost"       // refused: Redis lost what keeps the call in order with later ones of the user
	Failed     Outcome = "failed"     // Redis did not answer
)

// The outcomes that only claims have.
const (
	SoldOut    Outcome = "sold_out"    // refused: the stock is claimed
	NotStarted Outcome = "not_started" // refused: the drop has not begun
	Ended      Outcome = "ended"       // refused: the drop has ended
)

// outcomes lists the outcomes by their numbers in the replies of the gate.
var outcomes = []Outcome{Unchanged, Closed, Cold, Gone, Full, Damaged, Late, Changed, Superseded, Refused,
	Unstored, SoldOut, NotStarted, Ended, Undated, Lost}

// likeOutcomes is the number of the first outcomes, which likes have, too.
const likeOutcomes = 11

// Outcomes lists every outcome of a like.
func Outcomes() []Outcome {
	return append([]Outcome{Failed, Undated, Lost}, outcomes[:likeOutcomes]...)
}

// Likes sets and reads likes through the gate. It is safe for concurrent use.
type Likes struct {
	*shardGate
	reads *rounds.Batch[int64, []sight] // of viewers, by the targets
}

// LikesOptions configure Likes. The zero value holds the defaults.
type LikesOptions struct {
	OutboxLimit int           // in likes a shard; beyond it the gate refuses likes; 0 means DefaultOutboxLimit
	Logger      *slog.Logger  // nil means slog.Default()
	Count       func(Outcome) // called with every outcome; nil means none
}

// DefaultOutboxLimit is in likes. An outbox of that size takes 2 to 8 MB of Redis memory if its likes came in crowds,
// and 35 MB if each came alone.
const DefaultOutboxLimit = 500_000

// NewLikes returns a gate in front of store.
func NewLikes(r *Redis, store *db.DB, o LikesOptions) *Likes {
	g := newShardGate(r, store, gateOptions{likeScript, likeLoading{r, store}, busy, o})
	return &Likes{g, &rounds.Batch[int64, []sight]{}}
}

// Messages of refusals.
const (
	busy     = "The server cannot accept likes at the moment; try again."
	reviewed = "Likes of your account are being reviewed; try again."
	replaced = "A later call for the same like has replaced this one."
)

// SetLike sets or removes the user's like of the target, and returns the resulting state. Repeating a call changes
// nothing. For a warm target, SetLike takes one round trip to Redis, which it shares with other likes. If the
// target is deleted or does not exist, it returns CodeNotFound. After CodeUnavailable the like may have changed, and it
// is safe to try again. After CodeSuperseded it must not be tried again: the user has made a later call for the same
// like. A call that ends because ctx does takes no effect after it has returned.
func (l *Likes) SetLike(ctx context.Context, target models.Target, userID int64, liked bool) (models.LikeState, error) {
	a, err := l.call(ctx, target, userID, liked)
	if err != nil {
		return models.LikeState{}, err
	}
	switch a.outcome {
	case Changed, Unchanged:
		return models.LikeState{Liked: liked, Count: a.count}, nil
	case Refused:
		return models.LikeState{}, models.Unavailable(reviewed, errRefused)
	case Superseded:
		return models.LikeState{}, models.Errorf(models.CodeSuperseded, replaced)
	}
	return models.LikeState{}, l.refusal(ctx, target, a)
}

var errRefused = errors.New("likes of the user are being voided")

// call takes one like through its lane.
func (l *Likes) call(ctx context.Context, target models.Target, userID int64, liked bool) (answer, error) {
	return l.take(ctx, &call{target: target, user: userID, liked: liked})
}

// LikeStates returns the viewer's states of rows, in their order, in one round trip to Redis. Viewer 0 is anonymous.
// For cold targets and closed shards, it uses the counts in rows, and one MySQL query for the viewer's own likes. Cold
// targets that nobody likes need no query. If Redis does not answer within half a second, it does so for all rows.
func (l *Likes) LikeStates(ctx context.Context, viewer int64, rows []models.TargetCount) ([]models.LikeState, error) {
	states := make([]models.LikeState, len(rows))
	targets := make([]models.Target, len(rows))
	for i, row := range rows {
		targets[i] = row.Target
	}
	var cold []models.Target
	for i, held := range l.held(ctx, viewer, targets) {
		if !held.known {
			states[i].Count = rows[i].Count
			// Since the row was read, nobody has liked a cold target: it would be warm.
			if !held.cold || rows[i].Count != 0 {
				cold = append(cold, targets[i])
			}
			continue
		}
		states[i] = held.LikeState
	}
	liked, err := likes.New(l.store).LikedBy(ctx, viewer, cold)
	if err != nil {
		return nil, err
	}
	for i, target := range targets {
		states[i].Liked = states[i].Liked || liked[target]
	}
	return states, nil
}

// StatesOf returns the viewer's states of targets, in one round trip to Redis. Viewer 0 is anonymous. Targets that are
// cold, closed or in a closed shard take one MySQL query. If Redis does not answer within half a second, all targets
// do. The result has no state for targets that are deleted or do not exist.
func (l *Likes) StatesOf(
	ctx context.Context,
	viewer int64,
	targets []models.Target,
) (map[models.Target]models.LikeState, error) {
	states := make(map[models.Target]models.LikeState, len(targets))
	var ask []models.Target
	closed := map[models.Target]models.LikeState{}
	for _, held := range l.held(ctx, viewer, targets) {
		switch {
		case !held.known:
			ask = append(ask, held.target)
		case held.gone: // MySQL decides: a restored target stays closed in the gate until its next like
			ask = append(ask, held.target)
			closed[held.target] = held.LikeState
		default:
			states[held.target] = held.LikeState
		}
	}
	stored, err := likes.New(l.store).StatesOf(ctx, viewer, ask)
	for target, state := range stored {
		if held, ok := closed[target]; ok {
			state = held
		}
		states[target] = state
	}
	return states, err
}

// heldState is the state of a target's likes in Redis.
type heldState struct {
	models.LikeState
	target models.Target
	known  bool // the target is warm and its shard open
	cold   bool // the target is cold and its shard open: MySQL has all of its likes
	gone   bool // the target is closed
}

// coldCount is the count of a cold target in the reply of states.lua.
const coldCount = -2

// maxViewers bounds the viewers of one call of states.lua, which Redis runs at once.
const maxViewers = 256

// held reads the likes of targets from Redis, in one round trip, which it shares with other viewers of the same
// targets. If Redis does not answer in time, no state is known.
func (l *Likes) held(ctx context.Context, viewer int64, targets []models.Target) []heldState {
	if len(targets) == 0 {
		return nil
	}
	name := make([]byte, 0, 16*len(targets))
	for _, target := range targets {
		name = strconv.AppendInt(append(name, target.Kind...), target.ID, 36)
	}
	seen, place, err := l.reads.Do(ctx, string(name), viewer, func(viewers []int64) ([]sight, error) {
		return l.sights(context.WithoutCancel(ctx), viewers, targets), nil // others wait for it, too
	})
	states := make([]heldState, len(targets))
	for i, target := range targets {
		states[i].target = target
		if err == nil {
			states[i].see(seen[place/maxViewers*len(targets)+i], viewer != 0, place%maxViewers)
		}
	}
	return states
}

// sight is a target as up to maxViewers viewers see it.
type sight struct {
	known bool // Redis answered
	count int64
	gone  bool
	liked string // a '1' for each viewer who likes it, and a '0' for each other one
}

// sights reads targets as viewers see them: all targets for the first maxViewers viewers, then for the next ones.
func (l *Likes) sights(ctx context.Context, viewers []int64, targets []models.Target) []sight {
	var all []sight
	for batch := range slices.Chunk(viewers, maxViewers) {
		ids := make([]any, len(batch))
		for i, id := range batch {
			ids[i] = id
		}
		seen := make([]sight, len(targets))
		l.ask(ctx, "states", targets, ids, func(reply *redis.Cmd, places []int) {
			values, err := reply.Slice()
			if err != nil || len(values) != 3*len(places) {
				return
			}
			for at, i := range places {
				count, isCount := values[3*at].(int64)
				gone, isGone := values[3*at+1].(int64)
				liked, isLiked := values[3*at+2].(string)
				known := isCount && isGone && isLiked && (count < 0 || len(liked) == len(batch))
				seen[i] = sight{known, count, gone != 0, liked}
			}
		})
		all = append(all, seen...)
	}
	return all
}

// see sets the state as the viewer at a place sees it. Nobody knows what the anonymous like.
func (s *heldState) see(seen sight, known bool, place int) {
	switch {
	case !seen.known:
	case seen.count < 0:
		s.cold = seen.count == coldCount
	default:
		s.LikeState = models.LikeState{Count: seen.count, Liked: known && seen.liked[place] == '1'}
		s.known, s.gone = true, seen.gone
	}
}
