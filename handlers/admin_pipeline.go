package handlers

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"

	"likewise/counters"
	"likewise/handlers/pages"
	"likewise/models"
	"likewise/models/db"
)

// Desk inspects and repairs the pipeline of likes to MySQL: *workers.Desk.
type Desk interface {
	// Gated reports whether there is a pipeline; in direct mode there is none.
	Gated() bool
	// ShardInfos returns what Redis holds about every shard, in order. Err of a shard is why it cannot be read.
	ShardInfos(ctx context.Context) ([]counters.ShardInfo, error)
	// Trace returns how far the last change of the likes of a target has come.
	Trace(ctx context.Context, target models.Target) (models.LikeTrace, error)
	// Reassert sends the present state of the like of an event through the pipeline again. It returns
	// counters.ErrNotWarm if the gate does not hold it, or has loaded it after the position of the event.
	Reassert(ctx context.Context, event models.Event, at models.Position) error
	// Compare compares rows, counts and Redis of a target, and repairs them if repair is set.
	Compare(ctx context.Context, target models.Target, repair bool) ([]models.Difference, error)
	// CompareShard compares the targets of a kind in a shard with ids above after: at most limit, and none after end.
	// It returns how many it has compared, and the id to continue after; 0 at the end of the shard.
	CompareShard(
		ctx context.Context, shard int, kind models.TargetKind, after int64, limit int, end time.Time, repair bool,
	) (found []models.Difference, compared int, next int64, err error)
	// VoidClaims ends the claims of a user that are in force, also those on their way to MySQL, and returns their
	// number.
	VoidClaims(ctx context.Context, v models.ClaimVoid) (int, error)
}

type pipelineJSON struct {
	Mode   string             `json:"mode"`  // gated or direct
	Redis  *string            `json:"redis"` // ok or unreachable; null in direct mode
	Totals pipelineTotalsJSON `json:"totals"`
	Shards []shardJSON        `json:"shards"`
}

// pipelineTotalsJSON holds sums over all shards. What Redis alone knows is null while Redis is unreachable, and leaves
// out a shard that cannot be read.
type pipelineTotalsJSON struct {
	OutboxEvents *int64     `json:"outbox_events"`
	OldestAt     *time.Time `json:"oldest_at"`
	LagEvents    *int64     `json:"lag_events"`
	ClosedShards *int       `json:"closed_shards"`
	OpenGaps     int        `json:"open_gaps"`
	DeadLetters  int64      `json:"dead_letters"`
}

type shardJSON struct {
	Shard        int              `json:"shard"`
	Open         *bool            `json:"open"`
	Relay        *string          `json:"relay"` // the process that holds the shard's lock
	Epoch        int64            `json:"epoch"` // the latest
	OutboxEvents *int64           `json:"outbox_events"`
	OldestAt     *time.Time       `json:"oldest_at"`
	Accepted     *models.Position `json:"accepted"`   // of the last event that the gate accepted
	Applied      models.Position  `json:"applied"`    // the watermark
	AppliedAt    *time.Time       `json:"applied_at"` // null: never
	LagEvents    *int64           `json:"lag_events"`
	LagSeconds   *int64           `json:"lag_seconds"`
	OpenGaps     int              `json:"open_gaps"`
	Failures     []failureJSON    `json:"failures"`
}

type failureJSON struct {
	Stage    models.Stage `json:"stage"`
	Worker   string       `json:"worker"`
	Error    string       `json:"error"`
	FailedAt time.Time    `json:"failed_at"`
}

// deskWait bounds the wait for Redis, so that time is left to query MySQL.
const deskWait = time.Second

// readPipeline shows the state of every shard.
func (s *Server) readPipeline(c *fiber.Ctx) error {
	ctx := c.UserContext()
	letters, err := s.likes.DeadLetters(ctx)
	if err != nil {
		return err
	}
	out := pipelineJSON{Mode: "direct", Totals: pipelineTotalsJSON{DeadLetters: letters}, Shards: []shardJSON{}}
	if !s.desk.Gated() {
		return c.JSON(out)
	}
	states, err := s.likes.ShardStates(ctx)
	if err != nil {
		return err
	}
	failures, err := s.likes.ShardFailures(ctx)
	if err != nil {
		return err
	}
	redis := "ok"
	out.Mode, out.Redis = "gated", &redis
	waiting, cancel := context.WithTimeout(ctx, deskWait)
	infos, err := s.desk.ShardInfos(waiting)
	cancel()
	if err != nil {
		redis = "unreachable"
		s.log.Warn("the pipeline is shown without redis", "error", err)
	} else {
		out.Totals.OutboxEvents, out.Totals.LagEvents, out.Totals.ClosedShards = new(int64), new(int64), new(int)
	}
	for i, state := range states {
		shard := shardJSON{
			Shard: state.Shard, Epoch: state.Epoch, Applied: state.Applied, OpenGaps: state.OpenGaps,
			Failures: []failureJSON{},
		}
		if !state.Applied.IsZero() {
			shard.AppliedAt = &state.AppliedAt
		}
		for _, f := range failures {
			if f.Shard == state.Shard {
				shard.Failures = append(shard.Failures, failureJSON{f.Stage, f.Worker, f.Error, f.FailedAt})
			}
		}
		switch {
		case infos == nil:
		case infos[i].Err != nil:
			s.log.Warn("a shard is shown without redis", "shard", state.Shard, "error", infos[i].Err)
		default:
			shard.add(infos[i], state, s.now())
			out.Totals.add(shard)
		}
		out.Totals.OpenGaps += state.OpenGaps
		out.Shards = append(out.Shards, shard)
	}
	return c.JSON(out)
}

// add sets the fields that Redis knows.
func (j *shardJSON) add(info counters.ShardInfo, state models.ShardState, now time.Time) {
	lag, lagSeconds := info.Last.Beyond(state.Applied), int64(0)
	if lag > 0 {
		lagSeconds = max(0, int64(now.Sub(state.AppliedAt).Seconds()))
	}
	j.Open, j.OutboxEvents, j.Accepted = &info.Open, &info.Depth, &info.Last
	j.LagEvents, j.LagSeconds = &lag, &lagSeconds
	if info.Held {
		j.Relay = &info.Holder
	}
	if !info.Oldest.IsZero() {
		oldest := info.Oldest.UTC()
		j.OldestAt = &oldest
	}
}

func (t *pipelineTotalsJSON) add(shard shardJSON) {
	*t.OutboxEvents += *shard.OutboxEvents
	*t.LagEvents += *shard.LagEvents
	if !*shard.Open {
		*t.ClosedShards++
	}
	if shard.OldestAt != nil && (t.OldestAt == nil || shard.OldestAt.Before(*t.OldestAt)) {
		t.OldestAt = shard.OldestAt
	}
}

type letterJSON struct {
	ID          int64            `json:"id"`
	Shard       int              `json:"shard"`
	Position    *models.Position `json:"position"` // null if the record could not be read
	Topic       string           `json:"topic"`
	Partition   int32            `json:"partition"`
	Offset      int64            `json:"offset"`
	Payload     string           `json:"payload"`
	Encoding    string           `json:"encoding"` // of the payload: text or base64
	PayloadSize int              `json:"payload_size"`
	Error       string           `json:"error"`
	Status      string           `json:"status"` // open, retried or discarded
	CreatedAt   time.Time        `json:"created_at"`
	ResolvedAt  *time.Time       `json:"resolved_at"`
	ResolvedBy  *int64           `json:"resolved_by"`
}

func newLetterJSON(l *models.DeadLetter) letterJSON {
	j := letterJSON{
		ID: l.ID, Shard: l.Shard, Topic: l.Topic, Partition: l.Partition, Offset: l.Offset, PayloadSize: l.Size,
		Error: l.Error, Status: statusOpen, CreatedAt: l.CreatedAt, ResolvedAt: l.ResolvedAt, ResolvedBy: l.ResolvedBy,
	}
	if l.Resolution != models.Unresolved {
		j.Status = string(l.Resolution)
	}
	if !l.Pos.IsZero() {
		j.Position = &l.Pos
	}
	shown := l.Payload[:min(len(l.Payload), models.MaxShownPayload)]
	if j.Payload, j.Encoding = string(shown), "text"; !printable(shown) {
		j.Payload, j.Encoding = base64.StdEncoding.EncodeToString(shown), "base64"
	}
	return j
}

func printable(b []byte) bool {
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		if r == utf8.RuneError && size <= 1 || !unicode.IsPrint(r) && r != '\n' && r != '\t' {
			return false
		}
		b = b[size:]
	}
	return true
}

// listDeadLetters lists the events that could not be applied.
func (s *Server) listDeadLetters(c *fiber.Ctx) error {
	status, err := oneOf(c, "status", statusOpen, statusResolved)
	if err != nil {
		return err
	}
	return replyList(s, c, pages.Listing[models.DeadLetter, letterJSON]{
		Name: "dead-letters:" + status,
		Read: func(ctx context.Context, at pages.Position) ([]models.DeadLetter, *models.ListKey, error) {
			return pages.All(s.likes.ListDeadLetters(ctx, status == statusResolved, at.ID(), at.Limit))
		},
		Key:  (*models.DeadLetter).Key,
		Show: pages.Each(newLetterJSON),
	})
}

// retryDeadLetter sends the likes that a dead letter is about through the pipeline again, in the state that the gate
// holds now and not in that of the letter: changes that came after the letter stay.
func (s *Server) retryDeadLetter(c *fiber.Ctx) error {
	id, reason, err := pathIDAndValidReason(c, "dead letter")
	if err != nil {
		return err
	}
	letter, err := s.likes.DeadLetter(c.UserContext(), id)
	if err != nil {
		return err
	}
	if letter.Resolution == models.Unresolved {
		events, first, err := letter.Events(s.store.Shards())
		if err != nil {
			return err
		}
		if step, begun := db.Step(c.UserContext(), "begin"); !begun {
			if err := s.likes.BeginRetry(step, viewerID(c), id, reason, len(events)); err != nil {
				return err
			}
		}
		if err := s.reassert(c.UserContext(), letter.Shard, events, first); err != nil {
			s.logOutcome(c, func(ctx context.Context) error {
				return s.likes.FailRetry(db.Aside(ctx), viewerID(c), id, reason)
			})
			return err
		}
	}
	return s.resolveDeadLetter(c, id, models.Retried, reason)
}

// logOutcome writes the outcome of an act to the moderation log, even if the request has ended. The beginning of the
// act is logged already.
func (s *Server) logOutcome(c *fiber.Ctx, write func(ctx context.Context) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.UserContext()), outcomeTimeout)
	defer cancel()
	if err := write(ctx); err != nil {
		s.log.Error("the outcome of an act is missing in the moderation log", "request_id", requestID(c), "error", err)
	}
}

const outcomeTimeout = 2 * time.Second

// discardDeadLetter resolves a dead letter without applying it.
func (s *Server) discardDeadLetter(c *fiber.Ctx) error {
	id, reason, err := pathIDAndValidReason(c, "dead letter")
	if err != nil {
		return err
	}
	return s.resolveDeadLetter(c, id, models.Discarded, reason)
}

func (s *Server) resolveDeadLetter(c *fiber.Ctx, id int64, how models.LetterFate, reason string) error {
	letter, err := s.likes.ResolveDeadLetter(c.UserContext(), viewerID(c), id, how, reason)
	if err != nil {
		return err
	}
	return c.JSON(newLetterJSON(letter))
}

// reassert sends the likes that the events of a letter are about through the pipeline again, as the gate holds them.
// The first event has the position at. If the gate does not hold some, reassert sends the others and returns
// CodeConflict.
func (s *Server) reassert(ctx context.Context, shard int, events []models.Event, at models.Position) error {
	sent := 0
	var cold []models.Target
	for _, e := range events {
		if e.UserID == 0 {
			continue // an event of the shard itself, which has no effect beyond its position
		}
		err := s.desk.Reassert(ctx, e, at)
		switch {
		case errors.Is(err, counters.ErrNotWarm):
			if !slices.Contains(cold, e.Target()) {
				cold = append(cold, e.Target())
			}
		case errors.Is(err, counters.ErrShardClosed):
			return models.Unavailable(closedShard, err)
		case err != nil:
			return pipelineError(err)
		default:
			sent++
		}
	}
	if len(cold) == 0 {
		return nil
	}
	return s.notWarm(ctx, shard, sent, cold)
}

const closedShard = "The shard is closed until its worker opens it; try again."

// namedTargets is the number of targets that an error names.
const namedTargets = 10

// notWarm returns the error for targets whose likes the gate does not hold, of a letter of which some likes were sent.
func (s *Server) notWarm(ctx context.Context, shard, sent int, cold []models.Target) error {
	if s.desk.Gated() {
		infos, err := s.desk.ShardInfos(ctx)
		if err != nil {
			return pipelineError(err)
		}
		if infos[shard].Err != nil {
			return pipelineError(infos[shard].Err)
		}
		if !infos[shard].Open {
			return models.Unavailable(closedShard, nil)
		}
	}
	names := make([]string, 0, namedTargets)
	for _, target := range cold[:min(len(cold), namedTargets)] {
		names = append(names, target.String())
	}
	which, others := strings.Join(names, ", "), ""
	if more := len(cold) - len(names); more > 0 {
		which += fmt.Sprintf(" and %d more targets", more)
	}
	if sent > 0 {
		others = fmt.Sprintf(" The other likes of the letter (%d) were sent.", sent)
	}
	return models.Errorf(models.CodeConflict, "Redis no longer holds the likes of %s, so whether the letter is newer "+
		"than MySQL is unknown.%s Discard the letter; its users can like again.", which, others)
}

// pipelineError returns CodeUnavailable for an internal error of the pipeline, and other errors unchanged.
func pipelineError(err error) error {
	if models.ErrorCode(err) == models.CodeInternal {
		return models.Unavailable("The pipeline is unavailable at the moment; try again.", err)
	}
	return err
}

type reconciliationJSON struct {
	DryRun      bool             `json:"dry_run"`
	Compared    int              `json:"compared"`
	Differences []differenceJSON `json:"differences"`
	NextCursor  *string          `json:"next_cursor"`
}

type differenceJSON struct {
	Type     models.TargetKind `json:"target_type"`
	ID       int64             `json:"target_id"`
	Problem  string            `json:"problem"`
	Repaired bool              `json:"repaired"`
	// Undecided: the comparison could not be completed, because changes were still on their way.
	Undecided bool `json:"undecided"`
}

const (
	reconcileTargets = 200             // of a shard that one request compares
	reconcileTime    = 2 * time.Second // after which a comparison begins no other target; a request may run two
)

// reconciliation is the body of a request: a target to compare, or the targets of a shard after an id.
type reconciliation struct {
	target models.Target
	shard  int
	kind   models.TargetKind // of the shard's
	after  int64
	dryRun bool
	reason string
}

// reconcile compares rows, counts and Redis of a target, or of a part of a shard, and repairs differences unless it is
// a dry run. The differences are logged before the repair, and its outcome after.
func (s *Server) reconcile(c *fiber.Ctx) error {
	asked, err := s.reconciliation(c)
	if err != nil {
		return err
	}
	ctx := c.UserContext()
	found, compared, next, err := s.compare(ctx, asked, reconcileTargets, false)
	if err != nil {
		return pipelineError(err)
	}
	var out reconciliationJSON
	answer := func() error {
		out = s.newReconciliation(asked, compared, found, next)
		return db.KeepAnswer(ctx, out)
	}
	if err := answer(); err != nil {
		return err
	}
	if !asked.dryRun {
		act := models.Reconciliation{
			ActorID: viewerID(c), TargetType: "shard", TargetID: int64(asked.shard), Reason: asked.reason,
		}
		if asked.target.ID != 0 {
			act.TargetType, act.TargetID = string(asked.target.Kind), asked.target.ID
		}
		step, begun := db.Step(ctx, "begin")
		if len(found) == 0 {
			step = ctx // nothing to repair: the log entry completes the request
		}
		if !begun {
			if err := s.likes.LogReconcile(step, act, found); err != nil {
				return err
			}
		}
		if len(found) > 0 || begun {
			found, compared, next, err = s.compare(ctx, asked, max(1, compared), true)
			if err != nil {
				s.logOutcome(c, func(ctx context.Context) error {
					return s.likes.LogReconciled(db.Aside(ctx), act, found, true)
				})
				return pipelineError(err)
			}
			if begun {
				repaired, err := repairedBefore(ctx, found)
				if err != nil {
					return err
				}
				found = append(repaired, found...)
			}
			if err := answer(); err != nil {
				return err
			}
			s.logOutcome(c, func(ctx context.Context) error { return s.likes.LogReconciled(ctx, act, found, false) })
		}
	}
	return c.JSON(out)
}

// repairedBefore returns the differences that a process repaired before it died without answering: those that it had
// found and that are not found now.
func repairedBefore(ctx context.Context, found []models.Difference) (repaired []models.Difference, err error) {
	kept, err := db.KeptAnswer(ctx)
	if models.ErrorCode(err) == models.CodeNotFound {
		return nil, nil
	}
	var was reconciliationJSON
	if err == nil {
		err = json.Unmarshal(kept, &was)
	}
	if err != nil {
		return nil, fmt.Errorf("read the differences found before: %w", err)
	}
	for _, j := range was.Differences {
		d := models.Difference{Target: models.Target{Kind: j.Type, ID: j.ID}, Problem: j.Problem, Repaired: true}
		same := func(now models.Difference) bool { return now.Target == d.Target && now.Problem == d.Problem }
		if !slices.ContainsFunc(found, same) {
			repaired = append(repaired, d)
		}
	}
	return repaired, nil
}

func (s *Server) newReconciliation(
	asked reconciliation, compared int, found []models.Difference, next int64,
) reconciliationJSON {
	out := reconciliationJSON{DryRun: asked.dryRun, Compared: compared, Differences: make([]differenceJSON, len(found))}
	for i, d := range found {
		out.Differences[i] = differenceJSON{d.Target.Kind, d.Target.ID, d.Problem, d.Repaired, d.Undecided}
	}
	if asked.target.ID == 0 {
		out.NextCursor = s.nextPart(asked, next)
	}
	return out
}

func (s *Server) compare(
	ctx context.Context, asked reconciliation, limit int, repair bool,
) (found []models.Difference, compared int, next int64, err error) {
	ctx = db.Aside(ctx) // repeating the comparison repairs the rest
	if asked.target.ID != 0 {
		found, err = s.desk.Compare(ctx, asked.target, repair)
		return found, 1, 0, err
	}
	end := s.now().Add(reconcileTime)
	return s.desk.CompareShard(ctx, asked.shard, asked.kind, asked.after, limit, end, repair)
}

// reconciled are the kinds of targets in the order in which a shard is compared. Cursors have their indexes.
var reconciled = []models.TargetKind{models.KindPost, models.KindComment, models.KindDrop}

// nextPart returns the cursor of the targets after the id next; 0 means that there are none left of this kind.
func (s *Server) nextPart(asked reconciliation, next int64) *string {
	part := slices.Index(reconciled, asked.kind)
	if next == 0 {
		part++
	}
	if part == len(reconciled) {
		return nil
	}
	key := models.ListKey{ID: next, Value: int64(part)}
	cursor := s.cursors.Encode(shardList(asked.shard), key)
	return &cursor
}

func shardList(shard int) string { return "reconcile:shard=" + strconv.Itoa(shard) }

func (s *Server) reconciliation(c *fiber.Ctx) (reconciliation, error) {
	var kind, cursor string
	var id int64
	var shard *int64
	asked := reconciliation{dryRun: true, kind: models.KindPost}
	err := decode(c, fields{
		"target_type": &kind, "target_id": &id, "shard": &shard, "cursor": &cursor,
		"dry_run": &asked.dryRun, "reason": lineOf{&asked.reason},
	})
	if err != nil {
		return asked, err
	}
	if !asked.dryRun || asked.reason != "" {
		if err := models.ValidateReason(asked.reason); err != nil {
			return asked, err
		}
	}
	if shard == nil {
		asked.target = models.Target{Kind: models.TargetKind(kind), ID: id}
		switch {
		case !slices.Contains(reconciled, asked.target.Kind):
			return asked, models.Invalid("target_type",
				models.NotOneOf(reconciled...).Saying("must be one of post, comment, drop, unless a shard is given"))
		case id < 1:
			return asked, models.Invalid("target_id", models.BadFormat(models.FormatID, "must be the id of a "+kind))
		case cursor != "":
			return asked, models.Invalid("cursor", models.About(models.FieldNeeds, "shard", "is for shards"))
		}
		return asked, nil
	}
	switch {
	case kind != "" || id != 0:
		return asked, models.Invalid("shard",
			models.About(models.FieldExclusive, "target_type", "cannot be given together with a target"))
	case *shard < 0 || *shard >= int64(s.store.Shards()):
		return asked, models.Invalid("shard", models.OutOfRange(0, int64(s.store.Shards()-1)))
	}
	asked.shard = int(*shard)
	if cursor == "" {
		return asked, nil
	}
	key, err := s.cursors.Decode(shardList(asked.shard), cursor)
	if key.Value > 0 && key.Value < int64(len(reconciled)) {
		asked.kind = reconciled[key.Value]
	}
	asked.after = key.ID
	return asked, err
}
