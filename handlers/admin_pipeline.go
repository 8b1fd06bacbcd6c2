package handlers

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gofiber/fiber/v2"

	"likewise/counters"
	"likewise/models"
)

// Desk is what the admin API sees of a like's way to MySQL, and does about it: *workers.Desk.
type Desk interface {
	// Gated reports whether there is such a way at all; in direct mode there is none.
	Gated() bool
	// ShardInfos gives what Redis knows of every shard, in order.
	ShardInfos(ctx context.Context) ([]counters.ShardInfo, error)
	// Reassert sends the present state of a user's like through the pipeline once more. counters.ErrNotWarm when the gate
	// does not hold it.
	Reassert(ctx context.Context, target models.Target, userID int64) error
	// Compare compares rows, counts and Redis of a target, and mends them with repair.
	Compare(ctx context.Context, target models.Target, repair bool) ([]models.Difference, error)
	// CompareShard does so with the targets of a kind in a shard that have ids above after: at most limit, and as many as
	// it gets to until end. It gives how many that were, and the id to go on with; 0 when there are no more.
	CompareShard(ctx context.Context, shard int, kind models.TargetKind, after int64, limit int, end time.Time, repair bool) (
		found []models.Difference, compared int, next int64, err error)
}

type pipelineJSON struct {
	Mode   string             `json:"mode"`  // gated or direct
	Redis  *string            `json:"redis"` // ok or unreachable; null in direct mode
	Totals pipelineTotalsJSON `json:"totals"`
	Shards []shardJSON        `json:"shards"`
}

// What only Redis knows is null while it does not answer.
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
	Relay        *string          `json:"relay"` // the process that holds the lock
	Epoch        int64            `json:"epoch"` // the highest handed out
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

// deskWait leaves a look at a pipeline whose Redis is silent the time to ask MySQL.
const deskWait = time.Second

// readPipeline shows how every shard stands.
func (s *Server) readPipeline(c *fiber.Ctx) error {
	ctx := c.UserContext()
	letters, err := s.store.DeadLetters(ctx)
	if err != nil {
		return err
	}
	out := pipelineJSON{Mode: "direct", Totals: pipelineTotalsJSON{DeadLetters: letters}, Shards: []shardJSON{}}
	if !s.desk.Gated() {
		return c.JSON(out)
	}
	states, err := s.store.ShardStates(ctx)
	if err != nil {
		return err
	}
	failures, err := s.store.ShardFailures(ctx)
	if err != nil {
		return err
	}
	redis := "ok"
	out.Mode, out.Redis = "gated", &redis
	asking, cancel := context.WithTimeout(ctx, deskWait)
	infos, err := s.desk.ShardInfos(asking)
	cancel()
	if err != nil {
		redis = "unreachable"
		s.log.Warn("the pipeline desk goes without redis", "error", err)
	} else {
		out.Totals.OutboxEvents, out.Totals.LagEvents, out.Totals.ClosedShards = new(int64), new(int64), new(int)
	}
	for i, state := range states {
		shard := shardJSON{Shard: state.Shard, Epoch: state.Epoch, Applied: state.Applied, OpenGaps: state.OpenGaps, Failures: []failureJSON{}}
		if !state.Applied.IsZero() {
			shard.AppliedAt = &state.AppliedAt
		}
		for _, f := range failures {
			if f.Shard == state.Shard {
				shard.Failures = append(shard.Failures, failureJSON{f.Stage, f.Worker, f.Error, f.FailedAt})
			}
		}
		if infos != nil {
			shard.add(infos[i], state, s.now())
			out.Totals.add(shard)
		}
		out.Totals.OpenGaps += state.OpenGaps
		out.Shards = append(out.Shards, shard)
	}
	return c.JSON(out)
}

// add adds what Redis knows.
func (j *shardJSON) add(info counters.ShardInfo, state models.ShardState, now time.Time) {
	lag, stood := info.Last.Beyond(state.Applied), int64(0)
	if lag > 0 {
		stood = max(0, int64(now.Sub(state.AppliedAt).Seconds()))
	}
	j.Open, j.OutboxEvents, j.Accepted, j.LagEvents, j.LagSeconds = &info.Open, &info.Depth, &info.Last, &lag, &stood
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
	Position    *models.Position `json:"position"` // null: the record could not be read at all
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
	j := letterJSON{ID: l.ID, Shard: l.Shard, Topic: l.Topic, Partition: l.Partition, Offset: l.Offset, PayloadSize: l.Size, Error: l.Error,
		Status: "open", CreatedAt: l.CreatedAt, ResolvedAt: l.ResolvedAt, ResolvedBy: l.ResolvedBy}
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

// listDeadLetters shows the events that could not be applied.
func (s *Server) listDeadLetters(c *fiber.Ctx) error {
	status, err := oneOf(c, "status", "open", "resolved")
	if err != nil {
		return err
	}
	return replyList(s, c, listing[models.DeadLetter, letterJSON]{
		name: "dead-letters:" + status,
		read: func(ctx context.Context, at position) ([]models.DeadLetter, *models.ListKey, error) {
			return all(s.store.ListDeadLetters(ctx, status == "resolved", at.id(), at.limit))
		},
		key:  (*models.DeadLetter).Key,
		show: each(newLetterJSON),
	})
}

// retryDeadLetter reads a dead letter again. What it is about is sent through the pipeline once more as the gate has it now,
// never as the letter has it: what came after the letter stays.
func (s *Server) retryDeadLetter(c *fiber.Ctx) error {
	id, reason, err := pathIDAndValidReason(c, "dead letter")
	if err != nil {
		return err
	}
	letter, err := s.store.DeadLetter(c.UserContext(), id)
	if err != nil {
		return err
	}
	if letter.Resolution == models.Unresolved {
		events, err := letter.Events(s.store.Shards())
		if err != nil {
			return err
		}
		if step, begun := models.Step(c.UserContext(), "begin"); !begun {
			if err := s.store.BeginRetry(step, viewerID(c), id, reason, len(events)); err != nil {
				return err
			}
		}
		if err := s.reassert(c.UserContext(), letter.Shard, events); err != nil {
			s.afterwards(c, func(ctx context.Context) error { return s.store.FailRetry(models.Aside(ctx), viewerID(c), id, reason) })
			return err
		}
	}
	return s.resolveDeadLetter(c, id, models.Retried, reason)
}

// afterwards logs what came of an act, whatever became of the request meanwhile. That the act was begun is logged already.
func (s *Server) afterwards(c *fiber.Ctx, write func(ctx context.Context) error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.UserContext()), afterwardsTimeout)
	defer cancel()
	if err := write(ctx); err != nil {
		s.log.Error("what came of an act is not in the moderation log", "request_id", requestID(c), "error", err)
	}
}

const afterwardsTimeout = 2 * time.Second

// discardDeadLetter leaves a dead letter without effect.
func (s *Server) discardDeadLetter(c *fiber.Ctx) error {
	id, reason, err := pathIDAndValidReason(c, "dead letter")
	if err != nil {
		return err
	}
	return s.resolveDeadLetter(c, id, models.Discarded, reason)
}

func (s *Server) resolveDeadLetter(c *fiber.Ctx, id int64, how models.LetterFate, reason string) error {
	letter, err := s.store.ResolveDeadLetter(c.UserContext(), viewerID(c), id, how, reason)
	if err != nil {
		return err
	}
	return c.JSON(newLetterJSON(letter))
}

// reassert sends what the events of a letter are about through the pipeline once more, as the gate has it.
func (s *Server) reassert(ctx context.Context, shard int, events []models.Event) error {
	for _, e := range events {
		if e.UserID == 0 {
			continue // an event of the shard itself: it has done what it does by having been numbered
		}
		err := s.desk.Reassert(ctx, e.Target(), e.UserID)
		if errors.Is(err, counters.ErrNotWarm) {
			return s.notHeld(ctx, shard, e.Target())
		}
		if err != nil {
			return deskFailed(err)
		}
	}
	return nil
}

// notHeld says why the gate has no state of a target's likes.
func (s *Server) notHeld(ctx context.Context, shard int, target models.Target) error {
	if s.desk.Gated() {
		infos, err := s.desk.ShardInfos(ctx)
		if err != nil {
			return deskFailed(err)
		}
		if !infos[shard].Open {
			return models.Unavailable("The shard is closed until its worker opens it; try again.", nil)
		}
	}
	return models.Errorf(models.CodeConflict, "The gate does not hold the likes of %s any more: they are as MySQL has them, and whether the letter is newer cannot be told. "+
		"Discard it; its user can like again.", target)
}

// deskFailed is what a client hears when the pipeline cannot be asked.
func deskFailed(err error) error {
	if models.ErrorCode(err) == models.CodeInternal {
		return models.Unavailable("The pipeline cannot be asked at the moment; try again.", err)
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
	// Undecided: nothing can be said, because the last change has not arrived or the next one always has.
	Undecided bool `json:"undecided"`
}

const (
	reconcileTargets = 200             // of a shard that one request compares
	reconcileTime    = 2 * time.Second // after which it begins no other; it may do so twice
)

// reconciliation is what a request asks to compare: a target, or what a shard has from a place on.
type reconciliation struct {
	target models.Target
	shard  int
	kind   models.TargetKind // of the shard's
	after  int64
	dryRun bool
	reason string
}

// reconcile compares rows, counts and Redis of a target, or of a stretch of a shard, and mends what differs unless it is a
// dry run. What is mended has been compared and logged before, and what came of it is logged then.
func (s *Server) reconcile(c *fiber.Ctx) error {
	asked, err := s.reconciliation(c)
	if err != nil {
		return err
	}
	ctx := c.UserContext()
	found, compared, next, err := s.compare(ctx, asked, reconcileTargets, false)
	if err != nil {
		return deskFailed(err)
	}
	var out reconciliationJSON
	answer := func() error {
		out = s.newReconciliation(asked, compared, found, next)
		return models.KeepAnswer(ctx, out)
	}
	if err := answer(); err != nil {
		return err
	}
	if !asked.dryRun {
		act := models.Reconciliation{ActorID: viewerID(c), TargetType: "shard", TargetID: int64(asked.shard), Reason: asked.reason}
		if asked.target.ID != 0 {
			act.TargetType, act.TargetID = string(asked.target.Kind), asked.target.ID
		}
		step, begun := models.Step(ctx, "begin")
		if len(found) == 0 {
			step = ctx // the entry of the log is all that there is to do
		}
		if !begun {
			if err := s.store.LogReconcile(step, act, found); err != nil {
				return err
			}
		}
		if len(found) > 0 || begun {
			found, compared, next, err = s.compare(ctx, asked, max(1, compared), true)
			if err != nil {
				s.afterwards(c, func(ctx context.Context) error { return s.store.LogReconciled(models.Aside(ctx), act, found, true) })
				return deskFailed(err)
			}
			if begun {
				mended, err := mendedBefore(ctx, found)
				if err != nil {
					return err
				}
				found = append(mended, found...)
			}
			if err := answer(); err != nil {
				return err
			}
			s.afterwards(c, func(ctx context.Context) error { return s.store.LogReconciled(ctx, act, found, false) })
		}
	}
	return c.JSON(out)
}

// mendedBefore returns what a process mended that died before it answered: the differences that it had found and that are
// not found now.
func mendedBefore(ctx context.Context, found []models.Difference) (mended []models.Difference, err error) {
	kept, err := models.KeptAnswer(ctx)
	if models.ErrorCode(err) == models.CodeNotFound {
		return nil, nil
	}
	var was reconciliationJSON
	if err == nil {
		err = json.Unmarshal(kept, &was)
	}
	if err != nil {
		return nil, fmt.Errorf("read what was found: %w", err)
	}
	for _, j := range was.Differences {
		d := models.Difference{Target: models.Target{Kind: j.Type, ID: j.ID}, Problem: j.Problem, Repaired: true}
		there := func(now models.Difference) bool { return now.Target == d.Target && now.Problem == d.Problem }
		if !slices.ContainsFunc(found, there) {
			mended = append(mended, d)
		}
	}
	return mended, nil
}

func (s *Server) newReconciliation(asked reconciliation, compared int, found []models.Difference, next int64) reconciliationJSON {
	out := reconciliationJSON{DryRun: asked.dryRun, Compared: compared, Differences: make([]differenceJSON, len(found))}
	for i, d := range found {
		out.Differences[i] = differenceJSON{d.Target.Kind, d.Target.ID, d.Problem, d.Repaired, d.Undecided}
	}
	if asked.target.ID == 0 {
		out.NextCursor = s.nextStretch(asked, next)
	}
	return out
}

func (s *Server) compare(ctx context.Context, asked reconciliation, limit int, repair bool) (found []models.Difference, compared int, next int64, err error) {
	ctx = models.Aside(ctx) // comparing again mends what is left
	if asked.target.ID != 0 {
		found, err = s.desk.Compare(ctx, asked.target, repair)
		return found, 1, 0, err
	}
	return s.desk.CompareShard(ctx, asked.shard, asked.kind, asked.after, limit, s.now().Add(reconcileTime), repair)
}

// nextStretch makes the cursor to what comes after next; posts come first, then comments.
func (s *Server) nextStretch(asked reconciliation, next int64) *string {
	key := models.ListKey{ID: next}
	switch {
	case asked.kind == models.KindComment && next == 0:
		return nil
	case asked.kind == models.KindComment || next == 0:
		key.Value = 1 // comments
	}
	cursor := s.cursors.encode(stretchName(asked.shard), key)
	return &cursor
}

func stretchName(shard int) string { return "reconcile:shard=" + strconv.Itoa(shard) }

func (s *Server) reconciliation(c *fiber.Ctx) (reconciliation, error) {
	var kind, cursor string
	var id int64
	var shard *int64
	asked := reconciliation{dryRun: true, kind: models.KindPost}
	err := decode(c, fields{"target_type": &kind, "target_id": &id, "shard": &shard, "cursor": &cursor, "dry_run": &asked.dryRun, "reason": &asked.reason})
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
		case kind != string(models.KindPost) && kind != string(models.KindComment):
			return asked, models.Invalid("target_type", "must be one of post, comment, unless a shard is given")
		case id < 1:
			return asked, models.Invalid("target_id", "must be the id of a "+kind)
		case cursor != "":
			return asked, models.Invalid("cursor", "is for shards")
		}
		return asked, nil
	}
	switch {
	case kind != "" || id != 0:
		return asked, models.Invalid("shard", "cannot be given together with a target")
	case *shard < 0 || *shard >= int64(s.store.Shards()):
		return asked, models.Invalid("shard", "must be a number from 0 to "+strconv.Itoa(s.store.Shards()-1))
	}
	asked.shard = int(*shard)
	if cursor == "" {
		return asked, nil
	}
	key, err := s.cursors.decode(stretchName(asked.shard), cursor)
	if key.Value == 1 {
		asked.kind = models.KindComment
	}
	asked.after = key.ID
	return asked, err
}
