package counters

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"likewise/models"
	"likewise/models/db"
	"likewise/models/stock"
)

// Claims takes shares of limited stock through the gate. It is safe for concurrent use.
//
// A claim is accepted by one script, which looks at the window of the drop by Redis's clock, at the user and at the
// stock. So the gate never accepts more claims than the stock that it knows. MySQL may know of less by then; the writer
// rejects such a claim, and Release puts it back.
type Claims struct{ *shardGate }

// ClaimsOptions configure Claims. The zero value holds the defaults.
type ClaimsOptions = LikesOptions

// NewClaims returns a gate in front of store.
func NewClaims(r *Redis, store *db.DB, o ClaimsOptions) *Claims {
	return &Claims{newShardGate(r, store, gateOptions{claimScript, dropLoading{r, store}, busyClaims, o})}
}

// ClaimOutcomes lists every outcome of a claim.
func ClaimOutcomes() []Outcome {
	all := append([]Outcome{Failed}, outcomes...)
	return slices.DeleteFunc(all, func(o Outcome) bool { return o == Superseded || o == Lost })
}

const (
	busyClaims     = "The server cannot accept claims at the moment; try again."
	reviewedClaims = "Claims of your account are being reviewed; try again."
)

// claimScript is the gate of claims.
var claimScript = gateScript{"claim", func(reply any) (part shardReply) {
	values, _ := reply.([]any)
	for i, value := range values {
		number, ok := value.(int64)
		if !ok || i > 1 && part.head[0] == 0 {
			break
		}
		part.head = append(part.head, number)
	}
	if len(part.head) < 2 || part.head[0] != 0 {
		return part
	}
	part.answers = make([]answer, 0, len(values)/3)
	for i := 2; i+2 < len(values); i += 3 {
		status, isStatus := values[i].(int64)
		id, isID := values[i+1].(string)
		remaining, isNumber := values[i+2].(int64)
		if !isStatus || !isID || !isNumber || status < 0 || status >= int64(len(outcomes)) {
			part.err = fmt.Errorf("the gate replied %v, %v, %v to a claim", values[i], values[i+1], values[i+2])
			return part
		}
		a := answer{outcome: outcomes[status], count: remaining, at: part.head[1]}
		if id != "" {
			var err error
			if a.claim, err = strconv.ParseInt(id, 10, 64); err != nil {
				part.err = fmt.Errorf("the gate replied claim %q: %w", id, err)
				return part
			}
		}
		part.answers = append(part.answers, a)
	}
	return part
}}

// Claimed is the gate's answer to a claim or a return.
type Claimed struct {
	ID        int64     // the claim that the user holds or has returned; 0 for none
	Changed   bool      // this call has made or returned it
	Remaining int64     // the stock that is left
	At        time.Time // when the gate answered, on the clock of Redis
}

// Claim takes a share of a drop for a user, under claimID, a new global id with the shard of the drop. If the user has
// a claim, Claim returns that one, and Changed is false. It takes one round trip to Redis, which it shares with other
// claims.
//
// It returns CodeNotStarted, CodeEnded or CodeSoldOut if the drop does not permit it, and CodeNotFound if the drop or
// its post is deleted or does not exist. After CodeUnavailable the claim may have been accepted, and it is safe to try
// again with another id. A call that ends because ctx does takes no effect after it has returned.
func (c *Claims) Claim(ctx context.Context, dropID, userID, claimID int64) (Claimed, error) {
	target := models.Target{Kind: models.KindDrop, ID: dropID}
	word := strconv.FormatInt(userID, 10) + " " + strconv.FormatInt(claimID, 10)
	a, err := c.take(ctx, &call{target: target, user: userID, claim: word})
	if err != nil {
		return Claimed{}, err
	}
	return c.claimed(ctx, target, a)
}

// Return puts a claim of a user back into the stock of the drop. If the user does not hold this claim, because it was
// returned, released or never accepted, Return changes nothing, and returns the claim that the user holds, or none.
//
// It returns CodeEnded after the end of the drop, and CodeNotFound as Claim does. After CodeUnavailable the claim may
// have been returned, and it is safe to try again.
func (c *Claims) Return(ctx context.Context, dropID, userID, claimID int64) (Claimed, error) {
	target := models.Target{Kind: models.KindDrop, ID: dropID}
	word := "-" + strconv.FormatInt(userID, 10) + " " + strconv.FormatInt(claimID, 10)
	a, err := c.take(ctx, &call{target: target, user: userID, claim: word})
	if err != nil {
		return Claimed{}, err
	}
	return c.claimed(ctx, target, a)
}

func (c *Claims) claimed(ctx context.Context, target models.Target, a answer) (Claimed, error) {
	result := Claimed{ID: a.claim, Changed: a.outcome == Changed, Remaining: a.count, At: timeOf(a.at)}
	switch a.outcome {
	case Changed, Unchanged:
		return result, nil
	case SoldOut:
		return result, models.Errorf(models.CodeSoldOut, "The drop is sold out.")
	case NotStarted:
		return result, models.Errorf(models.CodeNotStarted, "The drop has not begun.")
	case Ended:
		return result, models.Errorf(models.CodeEnded, "The drop has ended.")
	case Refused:
		return result, models.Unavailable(reviewedClaims, errRefused)
	}
	return Claimed{}, c.refusal(ctx, target, a)
}

// Release releases claims that MySQL has ended, whether or not their drops have ended or were deleted. The gate sends
// an event of each, unless it did so in the last day. It returns the claims whose drop is cold: there is nothing to
// release. It does not load a drop. After an error, some may be released, and it is safe to try again.
func (c *Claims) Release(ctx context.Context, claims []models.EndedClaim) (cold []models.EndedClaim, err error) {
	words := make([]dropWord, len(claims))
	for i, item := range claims {
		words[i] = dropWord{item.DropID, fmt.Sprintf("!%d %d", item.UserID, item.ID)}
	}
	indexes, err := c.send(ctx, words)
	for _, i := range indexes {
		cold = append(cold, claims[i])
	}
	return cold, err
}

// Settings sets the stock and the window of drops in the gate. Settings that are older than those of the gate change
// nothing. The gate sends an event of each version once. It returns the drops that are cold, and loads none. After an
// error, some may be set, and it is safe to try again.
func (c *Claims) Settings(ctx context.Context, drops []models.GateDrop) (cold []models.GateDrop, err error) {
	words := make([]dropWord, len(drops))
	for i, d := range drops {
		words[i] = dropWord{d.ID, fmt.Sprintf("=%d %d %d %d", d.Version, d.Stock, Millis(d.Begins), Millis(d.Ends))}
	}
	indexes, err := c.send(ctx, words)
	for _, i := range indexes {
		cold = append(cold, drops[i])
	}
	return cold, err
}

// Millis returns a time in milliseconds since 1970, as the gate keeps it, and 0 for nil.
func Millis(t *time.Time) int64 {
	if t == nil {
		return 0
	}
	return max(1, t.UnixMilli())
}

// dropWord is a word of claim.lua that no user sends.
type dropWord struct {
	dropID int64
	word   string
}

// send sends words to the gate, past the lanes, and returns the indexes of those whose drop is cold. Words that the
// gate refuses for another reason are an error. A failure of a shard does not keep the others from their words.
func (c *Claims) send(ctx context.Context, words []dropWord) (cold []int, err error) {
	byShard := map[int][]int{}
	for i, w := range words {
		shard := int(w.dropID % int64(c.redis.shards))
		byShard[shard] = append(byShard[shard], i)
	}
	var failures []error
	for _, shard := range slices.Sorted(maps.Keys(byShard)) {
		for batch := range slices.Chunk(byShard[shard], maxBatch) {
			// The words of a drop follow one another.
			slices.SortStableFunc(batch, func(a, b int) int { return int(words[a].dropID - words[b].dropID) })
			answers, err := c.sendShard(ctx, shard, words, batch)
			if err != nil {
				failures = append(failures, fmt.Errorf("claims of shard %d: %w", shard, err))
				break
			}
			for i, a := range answers {
				c.count(a.outcome)
				switch a.outcome {
				case Changed, Unchanged:
				case Cold:
					cold = append(cold, batch[i])
				default:
					target := models.Target{Kind: models.KindDrop, ID: words[batch[i]].dropID}
					failures = append(failures, fmt.Errorf("%q: %w", words[batch[i]].word, c.refusal(ctx, target, a)))
				}
			}
		}
	}
	slices.Sort(cold)
	return cold, errors.Join(failures...)
}

// sendShard is send for at most maxBatch words of one shard. Such words have the same effect whenever they arrive, so
// a script that is sent twice does no harm.
func (c *Claims) sendShard(ctx context.Context, shard int, words []dropWord, batch []int) ([]answer, error) {
	keys, drops, tail := []string{shardKey(shard), outboxKey(shard)}, 0, []any(nil)
	for from := 0; from < len(batch); {
		id, to := words[batch[from]].dropID, from
		for to < len(batch) && words[batch[to]].dropID == id {
			to++
		}
		target := models.Target{Kind: models.KindDrop, ID: id}
		keys, tail = append(keys, c.redis.keys(target).likes), append(tail, target.Short(), to-from)
		for _, i := range batch[from:to] {
			tail = append(tail, words[i].word)
		}
		drops, from = drops+1, to
	}
	for range maxLate {
		in := c.period(shard, time.Now(), callLimit)
		args := append([]any{c.limit, in.earliest, in.deadline, in.epoch, in.turn, drops}, tail...)
		parts, err := claimScript.parts(c.redis.run(ctx, "claim", keys, args...))
		if err != nil {
			return nil, err
		}
		if len(parts) != 1 {
			return nil, fmt.Errorf("the gate replied to %d shards, not 1", len(parts))
		}
		head, answers := parts[0].head, parts[0].answers
		switch {
		case parts[0].err != nil:
			return nil, parts[0].err
		case len(head) == 2 && head[0] == 0 && len(answers) == len(batch):
			c.heard(shard, head[1], in.epoch, in.turn)
			return answers, nil
		case len(head) == 4 && head[0] == 6:
			c.heard(shard, head[1], head[2], head[3])
		case len(head) == 2 && head[0] == 1:
			return nil, ErrShardClosed
		default:
			return nil, fmt.Errorf("the gate replied %d numbers and %d answers", len(head), len(answers))
		}
	}
	return nil, errors.New("the call reached redis too late")
}

// WarmDrop is a warm drop as a viewer sees it.
type WarmDrop struct {
	Stock, Claimed int64
	Begins, Ends   time.Time // zero: it has none
	Version        int64     // of these settings
	ClaimID        int64     // of the viewer; 0 for none
	Gone           bool      // its post was deleted; MySQL decides
}

// Remaining returns the stock that is left.
func (s WarmDrop) Remaining() int64 { return max(0, s.Stock-s.Claimed) }

// dropNumbers is the number of values that drops.lua returns of a drop.
const dropNumbers = 7

// States returns the viewer's states of those drops that are warm and whose shards are open, in one round trip to
// Redis. Viewer 0 is anonymous. If Redis does not answer within half a second, it returns none.
func (c *Claims) States(ctx context.Context, viewer int64, dropIDs []int64) map[int64]WarmDrop {
	targets := make([]models.Target, len(dropIDs))
	for i, id := range dropIDs {
		targets[i] = models.Target{Kind: models.KindDrop, ID: id}
	}
	states := make(map[int64]WarmDrop, len(dropIDs))
	c.ask(ctx, "drops", targets, []any{viewer}, func(reply *redis.Cmd, places []int) {
		values, err := reply.Slice()
		if err != nil || len(values) != dropNumbers*len(places) {
			return
		}
		for i, place := range places {
			var n [dropNumbers]int64
			for j, value := range values[dropNumbers*i : dropNumbers*(i+1)] {
				n[j], _ = value.(int64)
			}
			if n[0] < 0 {
				continue
			}
			claim, _ := values[dropNumbers*i+5].(string)
			id, _ := strconv.ParseInt(claim, 10, 64) // 0 for none
			states[dropIDs[place]] = WarmDrop{Claimed: n[0], Stock: n[1], Begins: timeOf(n[2]), Ends: timeOf(n[3]),
				Version: n[4], ClaimID: id, Gone: n[6] == 1}
		}
	})
	return states
}

// timeOf returns a time in milliseconds since 1970, and the zero Time for 0.
func timeOf(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// TakenClaim is a claim that the gate accepted in the last day.
type TakenClaim struct {
	ID, DropID, UserID int64
	At                 time.Time // when it was accepted; zero if that is unknown
	EndedAt            time.Time // when it was returned or released; zero if it was not
	Released           bool      // it was released: MySQL had ended it before
}

// Taken returns a claim that the gate accepted, returned or released in the last day. It answers for claims whose row
// is not in MySQL yet. ok is false if the gate does not know the claim.
func (c *Claims) Taken(ctx context.Context, claimID int64) (taken TakenClaim, ok bool, err error) {
	if claimID <= 0 {
		return TakenClaim{}, false, nil
	}
	text, err := c.redis.run(ctx, "get", []string{c.redis.claimKey(claimID)}).Text()
	if errors.Is(err, redis.Nil) {
		return TakenClaim{}, false, nil
	}
	if err != nil {
		return TakenClaim{}, false, models.Unavailable(c.busy, fmt.Errorf("read claim %d: %w", claimID, err))
	}
	var n [4]int64
	words := strings.Split(text, " ")
	for i := range n {
		var err error
		if len(words) == len(n) {
			n[i], err = strconv.ParseInt(words[i], 10, 64)
		}
		if err != nil || len(words) != len(n) {
			return TakenClaim{}, false, fmt.Errorf("claim %d is %q in redis", claimID, text)
		}
	}
	released := n[3] < 0
	if released {
		n[3] = -n[3]
	}
	return TakenClaim{
		ID: claimID, DropID: n[0], UserID: n[1], At: timeOf(n[2]), EndedAt: timeOf(n[3]), Released: released,
	}, true, nil
}

// ReassertClaims sends the current state of claims of a warm drop through the pipeline again: as claimed if its user
// holds it, otherwise as returned. It also sends the version of the settings. If the drop is cold or damaged, it
// returns ErrNotWarm. If its shard is closed, it returns ErrShardClosed.
func (g *shardGate) ReassertClaims(ctx context.Context, dropID int64, claims []models.LiveClaim) error {
	return g.reassertClaims(ctx, dropID, claims, "")
}

// ReassertClaimEvent is ReassertClaims for the claims of an event that MySQL lacks, at a position. If the drop was
// loaded after it, the gate does not know the event, and ReassertClaimEvent returns ErrNotWarm.
func (g *shardGate) ReassertClaimEvent(
	ctx context.Context, dropID int64, claims []models.LiveClaim, at models.Position,
) error {
	return g.reassertClaims(ctx, dropID, claims, at.String())
}

func (g *shardGate) reassertClaims(ctx context.Context, dropID int64, claims []models.LiveClaim, known string) error {
	target := models.Target{Kind: models.KindDrop, ID: dropID}
	k := g.redis.keys(target)
	for from := 0; from == 0 || from < len(claims); from += maxBatch { // once for the settings alone
		args := []any{g.limit, target.Short(), known}
		for _, item := range claims[from:min(from+maxBatch, len(claims))] {
			args = append(args, fmt.Sprintf("%d %d", item.UserID, item.ID))
		}
		n, err := g.redis.run(ctx, "reassert_claims", []string{k.shard, k.outbox, k.likes}, args...).Int()
		switch {
		case err != nil:
			return fmt.Errorf("reassert %s: %w", target, err)
		case n == -4:
			return models.Unavailable(g.busy, errors.New("the outbox is full"))
		case n == -1:
			return fmt.Errorf("reassert %s: %w", target, ErrShardClosed)
		case n < 0:
			return fmt.Errorf("reassert %s: %w", target, ErrNotWarm)
		}
	}
	return nil
}

// heldPage is the number of claims that one command reads, in a fraction of a millisecond.
const heldPage = 1000

// HeldClaims returns the claims that a warm drop holds, by their users. It takes some 100 bytes a claim. Those that are
// made or end during the call may be missing. If the drop is cold, or its claims are lost, HeldClaims returns
// ErrNotWarm.
func (r *Redis) HeldClaims(ctx context.Context, dropID int64) (map[int64]int64, error) {
	target := models.Target{Kind: models.KindDrop, ID: dropID}
	load, _, err := r.loadOf(ctx, target)
	if err != nil {
		return nil, err
	}
	held, whole := map[int64]int64{}, false
	for cursor := uint64(0); ; {
		var page *redis.ScanCmd
		err := r.read(ctx, func(p redis.Pipeliner) {
			page = p.HScan(ctx, setKey(r.keys(target).likes, load, 0), cursor, "", heldPage)
		})
		if err != nil {
			return nil, fmt.Errorf("read claims of %s: %w", target, err)
		}
		fields, next := page.Val()
		for pair := range slices.Chunk(fields, 2) {
			userID, err1 := strconv.ParseInt(pair[0], 10, 64)
			id, err2 := strconv.ParseInt(pair[1], 10, 64)
			if err := errors.Join(err1, err2); err != nil {
				return nil, fmt.Errorf("read claims of %s: %w", target, err)
			}
			if userID == 0 {
				whole = true
			} else {
				held[userID] = id
			}
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	if !whole {
		return nil, fmt.Errorf("read claims of %s: %w", target, ErrNotWarm)
	}
	return held, nil
}

// HeldClaim returns the claim that a user holds to a warm drop; 0 for none. If the drop is cold, it returns ErrNotWarm.
func (r *Redis) HeldClaim(ctx context.Context, dropID, userID int64) (int64, error) {
	target := models.Target{Kind: models.KindDrop, ID: dropID}
	load, _, err := r.loadOf(ctx, target)
	if err != nil {
		return 0, err
	}
	var id *redis.StringCmd
	err = r.read(ctx, func(p redis.Pipeliner) {
		id = p.HGet(ctx, setKey(r.keys(target).likes, load, 0), strconv.FormatInt(userID, 10))
	})
	if errors.Is(err, redis.Nil) {
		return 0, nil
	}
	claimID, err2 := id.Int64()
	if err := errors.Join(err, err2); err != nil {
		return 0, fmt.Errorf("read the claim of user %d to %s: %w", userID, target, err)
	}
	return claimID, nil
}

// SettingsOf returns the settings that a warm drop has in Redis. If the drop is cold or damaged, it returns ErrNotWarm.
func (r *Redis) SettingsOf(ctx context.Context, dropID int64) (models.GateDrop, error) {
	target := models.Target{Kind: models.KindDrop, ID: dropID}
	var values *redis.SliceCmd
	err := r.read(ctx, func(p redis.Pipeliner) {
		values = p.HMGet(ctx, r.keys(target).likes, "stock", "version", "count", "begins", "ends")
	})
	if err != nil {
		return models.GateDrop{}, fmt.Errorf("read settings of %s: %w", target, err)
	}
	var n [5]int64
	for i, value := range values.Val() {
		text, _ := value.(string)
		if n[i], err = strconv.ParseInt(text, 10, 64); err != nil {
			return models.GateDrop{}, fmt.Errorf("read settings of %s: %w", target, ErrNotWarm)
		}
	}
	at := func(ms int64) *time.Time {
		if ms == 0 {
			return nil
		}
		t := timeOf(ms)
		return &t
	}
	return models.GateDrop{
		ID: dropID, Stock: n[0], Version: n[1], Claimed: n[2], Begins: at(n[3]), Ends: at(n[4]),
	}, nil
}

// dropLoading loads the settings and the live claims of drops.
type dropLoading struct {
	redis *Redis
	store *db.DB
}

func (l dropLoading) sizes(ctx context.Context, targets []models.Target) (map[models.Target]int64, error) {
	drops, err := stock.New(l.store).DropGate(ctx, idsOf(targets), 0)
	sizes := make(map[models.Target]int64, len(drops))
	for _, drop := range drops {
		sizes[drop.Target()] = drop.Claimed
	}
	return sizes, err
}

func idsOf(targets []models.Target) []int64 {
	ids := make([]int64, len(targets))
	for i, target := range targets {
		ids[i] = target.ID
	}
	return ids
}

// grown is the number of claims up to which a drop that was small a moment ago is still loaded with others. A cold drop
// gets no further claims.
const grown = 2 * loadUsers

func (l dropLoading) read(ctx context.Context, targets []models.Target) (warming, error) {
	drops, err := stock.New(l.store).DropGate(ctx, idsOf(targets), grown)
	r := l.redis
	return func(ctx context.Context, p pipe, batch []load, token string) []func() (bool, error) {
		return eachOf(batch, func(item load) func() (bool, error) {
			k, drop := r.keys(item.target), drops[item.target.ID]
			if drop == nil || drop.Claimed > grown { // deleted since, or its claims were left out
				return func() (bool, error) { return false, nil }
			}
			commands := []redis.Cmder{
				r.noteLoad(ctx, p, k, token, 1), r.putClaims(ctx, p, k, token, drop.Claims),
				p.script(ctx, "warm_drop", []string{k.shard, k.likes, k.warming, k.garbage},
					warmDropArgs(drop, token, item.epoch, len(drop.Claims))...),
			}
			return func() (bool, error) { return allOf(commands) }
		})
	}, err
}

func warmDropArgs(drop *models.GateDrop, token, epoch string, claims int) []any {
	return []any{token, epoch, claims, drop.Stock, Millis(drop.Begins), Millis(drop.Ends), drop.Version}
}

// putClaims adds claims of a load, and the field 0, to a pipeline.
func (r *Redis) putClaims(
	ctx context.Context, p pipe, k targetKeys, token string, claims []models.LiveClaim,
) *redis.Cmd {
	args := make([]any, 3, 3+2*len(claims))
	args[0], args[1], args[2] = token, 0, 0
	for _, item := range claims {
		args = append(args, item.UserID, item.ID)
	}
	return p.script(ctx, "put_claims", []string{k.warming, setKey(k.likes, token, 0)}, args...)
}

// claimsAtOnce is the number of claims of a large drop that one command writes, in some 2 ms.
const claimsAtOnce = 5_000

// large loads page by page. Rows that end meanwhile are released through the gate, or by a process that has taken the
// lock of this load away: see db.DB.
func (l dropLoading) large(
	ctx context.Context, target models.Target, token, epoch string, keep func(sets int) error,
) error {
	r := l.redis
	k, claims := r.keys(target), 0
	drops, err := stock.New(l.store).DropGate(ctx, []int64{target.ID}, 0)
	if err != nil {
		return err
	}
	drop := drops[target.ID]
	if drop == nil {
		return ErrLockLost
	}
	for after, more := int64(0), true; more; {
		if err := keep(1); err != nil {
			return err
		}
		page, err := stock.New(l.store).LiveClaims(ctx, target.ID, after, largePage)
		if err != nil {
			return err
		}
		err = r.pipelined(ctx, func(p pipe) {
			for batch := range slices.Chunk(page, claimsAtOnce) {
				r.putClaims(ctx, p, k, token, batch)
			}
		})
		if err != nil {
			return fmt.Errorf("load claims: %w", err)
		}
		claims += len(page)
		if more = len(page) == largePage; more {
			after = page[len(page)-1].UserID
		}
	}
	warm, err := r.run(ctx, "warm_drop", []string{k.shard, k.likes, k.warming, k.garbage},
		warmDropArgs(drop, token, epoch, claims)...).Int()
	if err == nil && warm == 0 {
		err = ErrLockLost
	}
	return err
}
