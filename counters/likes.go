package counters

import (
	"context"
	"errors"
	"log/slog"

	"github.com/redis/go-redis/v9"

	"likewise/models"
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
	Unstored, SoldOut, NotStarted, Ended}

// likeOutcomes is the number of outcomes that likes have.
const likeOutcomes = 11

// Outcomes lists every outcome of a like.
func Outcomes() []Outcome { return append([]Outcome{Failed}, outcomes[:likeOutcomes]...) }

// Likes sets and reads likes through the gate. It is safe for concurrent use.
type Likes struct{ *shardGate }

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
func NewLikes(r *Redis, store *models.Store, o LikesOptions) *Likes {
	g := newShardGate(r, store, gateOptions{likeScript, likeLoading{r, store}, busy, o})
	return &Likes{g}
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
// is safe to try again. A call that ends because ctx does takes no effect after it has returned.
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
		return models.LikeState{}, models.Unavailable(replaced, errSuperseded)
	}
	return models.LikeState{}, l.refusal(ctx, target, a)
}

var errRefused = errors.New("likes of the user are being voided")

var errSuperseded = errors.New("superseded while the target was loaded")

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
	liked, err := l.store.LikedBy(ctx, viewer, cold)
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
	stored, err := l.store.StatesOf(ctx, viewer, ask)
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

// held reads the likes of targets from Redis, in one round trip. If Redis does not answer in time, no state is known.
func (l *Likes) held(ctx context.Context, viewer int64, targets []models.Target) []heldState {
	if len(targets) == 0 {
		return nil
	}
	states := make([]heldState, len(targets))
	for i, target := range targets {
		states[i].target = target
	}
	l.ask(ctx, "states", targets, viewer, func(reply *redis.Cmd, places []int) {
		numbers, err := reply.Int64Slice()
		if err != nil || len(numbers) != 2*len(places) {
			return
		}
		for at, i := range places {
			count, flags := numbers[2*at], numbers[2*at+1]
			if count < 0 {
				states[i].cold = count == coldCount
				continue
			}
			states[i].LikeState = models.LikeState{Count: count, Liked: flags&1 != 0}
			states[i].known, states[i].gone = true, flags&2 != 0
		}
	})
	return states
}
