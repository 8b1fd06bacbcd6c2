package models

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"gorm.io/gorm"
)

// LikeRecord is one event as the log delivered it.
type LikeRecord struct {
	Shard     int
	Pos       Position // zero if the Kafka record could not be read at all
	Event     Event    // meaningless when Problem is set
	Payload   []byte
	Problem   string // why the event can never be applied; such a record becomes a dead letter
	Topic     string
	Partition int32
	Offset    int64
}

// LikesApplied says what a batch did.
type LikesApplied struct {
	Inserted, Deleted int // rows of likes
	Duplicates        int // events at or before the watermark, old epochs included: dropped
	Vanished          int // events whose target has no row: nothing to write
	DeadLetters       int
	Gaps              int
	Watermarks        map[int]Position // of the shards in the batch, after it
}

// ApplyLikes is the like writer's transaction: rows, counts and watermarks change together or not at all.
//
// The like_shards rows are locked first, in order, so that writers that both believe to own a shard take turns, and
// the second one finds the watermark moved. Of each shard only what comes after the watermark is applied. A position
// that does not follow the last one is applied over and recorded in like_gaps for the reconciler. Of each (target,
// user) only the last event counts. Counts change by the rows that changed; neither version nor updated_at moves. An
// author whose count reaches a power of ten for the first time is told of it (see Notification).
//
// Running it again with the same records changes nothing, so an unknown COMMIT is retried by the caller. IsBadData
// errors mean that some record in the batch cannot be stored.
func (s *Store) ApplyLikes(ctx context.Context, records []LikeRecord) (LikesApplied, error) {
	var done LikesApplied
	err := s.transact(ctx, func(tx *gorm.DB) error {
		done = LikesApplied{}
		return s.applyLikes(tx, records, &done)
	})
	if err != nil {
		return LikesApplied{}, fmt.Errorf("apply likes: %w", err)
	}
	return done, nil
}

// shardMark is a like_shards row while a batch works on it.
type shardMark struct {
	Shard                  int
	AppliedEpoch           int64
	AppliedSeq             int64
	SealedEpoch, SealedSeq int64
	moved                  bool
}

func (m *shardMark) pos() Position { return Position{m.AppliedEpoch, m.AppliedSeq} }

type likeKey struct {
	Target
	UserID int64
}

func (s *Store) applyLikes(tx *gorm.DB, records []LikeRecord, done *LikesApplied) error {
	now := s.now().UTC()
	marks, err := lockShards(tx, records)
	if err != nil {
		return err
	}

	last := map[likeKey]Event{}
	var dead []LikeRecord
	var gaps []string
	for _, r := range records {
		mark := marks[r.Shard]
		if mark == nil && r.Problem == "" {
			r.Problem = fmt.Sprintf("shard %d is not installed", r.Shard)
		}
		if mark != nil && !r.Pos.IsZero() {
			before := mark.pos()
			if !r.Pos.After(before) {
				done.Duplicates++
				continue
			}
			if !r.Pos.Follows(before) {
				gaps = append(gaps, fmt.Sprintf("(%d,%d,%d,%d,%d,'%s')", r.Shard, before.Epoch, before.Seq, r.Pos.Epoch, r.Pos.Seq,
					now.Format("2006-01-02 15:04:05.000")))
			}
			if r.Pos.Epoch > before.Epoch {
				mark.SealedEpoch, mark.SealedSeq = before.Epoch, before.Seq
			}
			mark.AppliedEpoch, mark.AppliedSeq, mark.moved = r.Pos.Epoch, r.Pos.Seq, true
		}
		switch {
		case r.Problem != "":
			dead = append(dead, r)
		case r.Event.Type != ShardOpened && r.Event.Type != ShardProbed:
			last[likeKey{r.Event.Target(), r.Event.UserID}] = r.Event
		}
	}

	for _, kind := range []TargetKind{KindPost, KindComment} {
		if err := applyKind(tx, kind, last, now, done); err != nil {
			return err
		}
	}
	if err := insertDeadLetters(tx, dead, now); err != nil {
		return err
	}
	if len(gaps) > 0 {
		if err := tx.Exec("INSERT INTO like_gaps (shard, after_epoch, after_seq, before_epoch, before_seq, created_at) VALUES " +
			strings.Join(gaps, ",")).Error; err != nil {
			return fmt.Errorf("record gaps: %w", err)
		}
	}
	done.DeadLetters, done.Gaps = len(dead), len(gaps)
	return moveWatermarks(tx, marks, now, done)
}

func lockShards(tx *gorm.DB, records []LikeRecord) (map[int]*shardMark, error) {
	var shards []int64
	for _, r := range records {
		shards = append(shards, int64(r.Shard))
	}
	slices.Sort(shards)
	shards = slices.Compact(shards)
	var rows []*shardMark
	err := tx.Raw("SELECT shard, applied_epoch, applied_seq, sealed_epoch, sealed_seq FROM like_shards FORCE INDEX (PRIMARY) WHERE shard IN (" +
		joinIDs(shards) + ") ORDER BY shard FOR UPDATE").Scan(&rows).Error
	if err != nil {
		return nil, fmt.Errorf("lock shards: %w", err)
	}
	marks := make(map[int]*shardMark, len(rows))
	for _, row := range rows {
		marks[row.Shard] = row
	}
	return marks, nil
}

func moveWatermarks(tx *gorm.DB, marks map[int]*shardMark, now time.Time, done *LikesApplied) error {
	done.Watermarks = make(map[int]Position, len(marks))
	var rows []string
	for _, shard := range slices.Sorted(maps.Keys(marks)) {
		m := marks[shard]
		done.Watermarks[shard] = m.pos()
		if m.moved {
			rows = append(rows, fmt.Sprintf("(%d,%d,%d,'%s',%d,%d)", m.Shard, m.AppliedEpoch, m.AppliedSeq,
				now.Format("2006-01-02 15:04:05.000"), m.SealedEpoch, m.SealedSeq))
		}
	}
	if len(rows) == 0 {
		return nil
	}
	// One statement for every shard: the rows are there and locked, so this only ever updates.
	err := tx.Exec("INSERT INTO like_shards (shard, applied_epoch, applied_seq, applied_at, sealed_epoch, sealed_seq) VALUES " +
		strings.Join(rows, ",") + " ON DUPLICATE KEY UPDATE applied_epoch=VALUES(applied_epoch), applied_seq=VALUES(applied_seq)," +
		" applied_at=VALUES(applied_at), sealed_epoch=VALUES(sealed_epoch), sealed_seq=VALUES(sealed_seq)").Error
	if err != nil {
		return fmt.Errorf("move watermarks: %w", err)
	}
	return nil
}

// applyKind writes the last events of one kind of target.
func applyKind(tx *gorm.DB, kind TargetKind, last map[likeKey]Event, now time.Time, done *LikesApplied) error {
	t := likeTables[kind]
	users := map[int64][]int64{} // by target
	for key := range last {
		if key.Kind == kind {
			users[key.ID] = append(users[key.ID], key.UserID)
		}
	}
	if len(users) == 0 {
		return nil
	}
	before, err := lockTargets(tx, t, slices.Sorted(maps.Keys(users)))
	if err != nil {
		return err
	}
	maps.DeleteFunc(users, func(id int64, list []int64) bool {
		_, there := before[id]
		if !there {
			done.Vanished += len(list)
		}
		return !there
	})
	ids := slices.Sorted(maps.Keys(users))
	if len(ids) == 0 {
		return nil
	}

	rows, err := readLikes(tx, t, ids, users)
	if err != nil {
		return err
	}
	delta := map[int64]int64{}
	var insert []string
	var remove []int64
	for _, id := range ids {
		for _, user := range slices.Sorted(slices.Values(users[id])) {
			event := last[likeKey{Target{kind, id}, user}]
			row, there := rows[likeKey{Target{kind, id}, user}]
			switch {
			case event.Liked() && !there:
				insert = append(insert, fmt.Sprintf("(%d,%d,'%s')", id, user, time.UnixMilli(event.At).UTC().Format(time.DateTime)))
				delta[id]++
			case !event.Liked() && there:
				remove = append(remove, row)
				delta[id]--
			}
		}
	}
	if len(insert) > 0 {
		added := tx.Exec("INSERT INTO " + t.likes + " (" + t.column + ", user_id, created_at) VALUES " + strings.Join(insert, ","))
		if mysqlCode(added.Error) == errDuplicateKey {
			return errChangedMeanwhile
		}
		if added.Error != nil {
			return fmt.Errorf("insert likes: %w", added.Error)
		}
	}
	if len(remove) > 0 {
		removed := tx.Exec("DELETE FROM " + t.likes + " WHERE id IN (" + joinIDs(remove) + ")")
		if removed.Error != nil {
			return fmt.Errorf("delete likes: %w", removed.Error)
		}
		if removed.RowsAffected != int64(len(remove)) {
			return errChangedMeanwhile
		}
	}
	done.Inserted += len(insert)
	done.Deleted += len(remove)
	return addToCounts(tx, kind, before, delta, now)
}

// likedRow is what a target's row has of its likes.
type likedRow struct {
	ID, LikesCount, Milestone int64
}

// lockTargets reads the rows that are there. They are locked before anything is decided from them: a like that another
// transaction counts in between, as in direct mode, could otherwise take the count over a milestone unseen.
func lockTargets(tx *gorm.DB, t likeTable, ids []int64) (map[int64]likedRow, error) {
	var rows []likedRow
	err := tx.Raw("SELECT id, likes_count, milestone FROM " + t.targets + " FORCE INDEX (PRIMARY) WHERE id IN (" + joinIDs(ids) + ") ORDER BY id FOR UPDATE").Scan(&rows).Error
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", t.targets, err)
	}
	before := make(map[int64]likedRow, len(rows))
	for _, row := range rows {
		before[row.ID] = row
	}
	return before, nil
}

// readTargets is how many targets' likes one query reads. What the databases take to plan an OR grows with the square of
// its length: 2,000 targets take a second in one query, and 50 ms in twenty.
const readTargets = 100

// readLikes finds which of the (target, user) pairs have a row, and its id.
func readLikes(tx *gorm.DB, t likeTable, ids []int64, users map[int64][]int64) (map[likeKey]int64, error) {
	type like struct{ ID, TargetID, UserID int64 }
	var list []like
	for chunk := range slices.Chunk(ids, readTargets) {
		where := make([]string, len(chunk))
		for i, id := range chunk {
			// One range of the unique key for each target; both databases plan this form well, but not row constructors.
			where[i] = "(" + t.column + "=" + strconv.FormatInt(id, 10) + " AND user_id IN (" + joinIDs(users[id]) + "))"
		}
		var found []like
		err := tx.Raw("SELECT id, " + t.column + " AS target_id, user_id FROM " + t.likes + " WHERE " + strings.Join(where, " OR ")).Scan(&found).Error
		if err != nil {
			return nil, fmt.Errorf("read likes: %w", err)
		}
		list = append(list, found...)
	}
	kind := KindPost
	if t.likes == "comment_likes" {
		kind = KindComment
	}
	rows := make(map[likeKey]int64, len(list))
	for _, r := range list {
		rows[likeKey{Target{kind, r.TargetID}, r.UserID}] = r.ID
	}
	return rows, nil
}

// addToCounts counts the rows that changed, and tells the authors of targets whose count reached a power of ten for the
// first time.
func addToCounts(tx *gorm.DB, kind TargetKind, before map[int64]likedRow, delta map[int64]int64, now time.Time) error {
	maps.DeleteFunc(delta, func(_ int64, d int64) bool { return d == 0 })
	if len(delta) == 0 {
		return nil
	}
	t, ids := likeTables[kind], slices.Sorted(maps.Keys(delta))
	reached, highest := map[int64][]int64{}, map[int64]int64{} // targets by milestone, and the other way round
	for _, id := range ids {
		row := before[id]
		for _, m := range milestones(max(row.LikesCount, row.Milestone), row.LikesCount+delta[id]) {
			reached[m] = append(reached[m], id)
			highest[id] = m
		}
	}
	set := t.adding(caseOf(delta, "0"))
	if len(reached) > 0 {
		set += ", milestone=" + caseOf(highest, "milestone")
	}
	update := tx.Exec("UPDATE " + t.targets + " SET " + set + " WHERE id IN (" + joinIDs(ids) + ")")
	if update.Error != nil {
		return fmt.Errorf("update counts of %s: %w", t.targets, update.Error)
	}
	if update.RowsAffected != int64(len(ids)) {
		return errChangedMeanwhile
	}
	if err := t.counted(tx, ids...); err != nil {
		return err
	}
	for _, m := range slices.Sorted(maps.Keys(reached)) {
		if err := notifyMilestone(tx, kind, m, reached[m], now); err != nil {
			return err
		}
	}
	return nil
}

// caseOf writes the value of each id, or otherwise, as an expression. Ids of one value stand in one list, which the databases search
// by halves; a list of WHENs they go through for every row.
func caseOf(values map[int64]int64, otherwise string) string {
	ids := map[int64][]int64{} // by value
	for _, id := range slices.Sorted(maps.Keys(values)) {
		ids[values[id]] = append(ids[values[id]], id)
	}
	var b strings.Builder
	b.WriteString("CASE")
	for _, value := range slices.Sorted(maps.Keys(ids)) {
		fmt.Fprintf(&b, " WHEN id IN (%s) THEN %d", joinIDs(ids[value]), value)
	}
	b.WriteString(" ELSE " + otherwise + " END")
	return b.String()
}

// maxLetterError is the width of dead_letters.error, in characters.
const maxLetterError = 1000

func insertDeadLetters(tx *gorm.DB, dead []LikeRecord, now time.Time) error {
	for _, r := range dead {
		reason := []rune(strings.ToValidUTF8(r.Problem, "?"))
		if len(reason) > maxLetterError {
			reason = reason[:maxLetterError]
		}
		digest := sha256.Sum256(fmt.Appendf(nil, "%s %d %d %s %s", r.Topic, r.Partition, r.Offset, r.Pos, r.Payload))
		err := tx.Exec("INSERT INTO dead_letters (shard, digest, epoch, seq, topic, topic_partition, topic_offset, payload, error, created_at)"+
			" VALUES (?,UNHEX(?),?,?,?,?,?,UNHEX(?),?,?) ON DUPLICATE KEY UPDATE id=id", r.Shard, hexOf(digest), r.Pos.Epoch, r.Pos.Seq,
			r.Topic, r.Partition, r.Offset, hex.EncodeToString(r.Payload), string(reason), now).Error
		if err != nil {
			return fmt.Errorf("write dead letter: %w", err)
		}
	}
	return nil
}

// ShardState is what MySQL knows of a shard.
type ShardState struct {
	Shard     int
	Epoch     int64     // the highest handed out
	Applied   Position  // the watermark
	AppliedAt time.Time // when it last moved
	Sealed    Position  // the watermark just before the applied epoch began
	OpenGaps  int       // gaps that are not reconciled yet
}

// ShardStates reads every shard in order, with the gaps as of the same instant.
func (s *Store) ShardStates(ctx context.Context) ([]ShardState, error) {
	return s.shardStates(ctx, "")
}

// ShardState reads one shard.
func (s *Store) ShardState(ctx context.Context, shard int) (ShardState, error) {
	states, err := s.shardStates(ctx, " WHERE s.shard="+strconv.Itoa(shard))
	if err == nil && len(states) == 0 {
		err = fmt.Errorf("shard %d is not installed", shard)
	}
	if err != nil {
		return ShardState{}, err
	}
	return states[0], nil
}

func (s *Store) shardStates(ctx context.Context, where string) ([]ShardState, error) {
	var rows []struct {
		Mark      shardMark `gorm:"embedded"`
		Epoch     int64
		AppliedAt time.Time
		OpenGaps  int
	}
	err := s.db.WithContext(ctx).Raw("SELECT s.shard, s.epoch, s.applied_epoch, s.applied_seq, s.applied_at, s.sealed_epoch, s.sealed_seq," +
		" (SELECT COUNT(*) FROM like_gaps g WHERE g.shard=s.shard AND g.reconciled_at IS NULL) AS open_gaps" +
		" FROM like_shards s" + where + " ORDER BY s.shard").Scan(&rows).Error
	if err != nil {
		return nil, fmt.Errorf("read shards: %w", err)
	}
	states := make([]ShardState, len(rows))
	for i, r := range rows {
		states[i] = ShardState{Shard: r.Mark.Shard, Epoch: r.Epoch, Applied: r.Mark.pos(), AppliedAt: r.AppliedAt,
			Sealed: Position{r.Mark.SealedEpoch, r.Mark.SealedSeq}, OpenGaps: r.OpenGaps}
	}
	return states, nil
}

// NextEpoch hands out a new epoch of a shard, higher than every one before and than above.
func (s *Store) NextEpoch(ctx context.Context, shard int, above int64) (int64, error) {
	var epoch int64
	err := s.transact(ctx, func(tx *gorm.DB) error {
		update := tx.Exec("UPDATE like_shards SET epoch=GREATEST(epoch, applied_epoch, ?)+1 WHERE shard=?", above, shard)
		if update.Error != nil {
			return update.Error
		}
		if update.RowsAffected == 0 {
			return fmt.Errorf("shard %d is not installed", shard)
		}
		return tx.Raw("SELECT epoch FROM like_shards WHERE shard=?", shard).Scan(&epoch).Error
	})
	if err != nil {
		return 0, fmt.Errorf("next epoch of shard %d: %w", shard, err)
	}
	return epoch, nil
}

// OpenGaps lists the gaps of a shard that are not reconciled, by id.
func (s *Store) OpenGaps(ctx context.Context, shard int) ([]int64, error) {
	var ids []int64
	if err := s.db.WithContext(ctx).Raw("SELECT id FROM like_gaps WHERE shard=? AND reconciled_at IS NULL", shard).Scan(&ids).Error; err != nil {
		return nil, fmt.Errorf("read gaps of shard %d: %w", shard, err)
	}
	return ids, nil
}

// CloseGaps records that the shard was compared with Redis and mended after these gaps appeared.
func (s *Store) CloseGaps(ctx context.Context, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	_, err := s.write(ctx, "UPDATE like_gaps SET reconciled_at=? WHERE id IN ("+joinIDs(ascending(ids))+")", s.now().UTC())
	if err != nil {
		return fmt.Errorf("close gaps: %w", err)
	}
	return nil
}

// ShardFailure is the latest failure of one stage of a shard's way to MySQL.
type ShardFailure struct {
	Shard    int
	Stage    Stage
	Worker   string // the process: host and pid
	Error    string // as the log of the worker has it
	FailedAt time.Time
}

// Stage is a part of a like's way to MySQL.
type Stage string

// The stages.
const (
	StageRelay  Stage = "relay"
	StageWriter Stage = "writer"
)

const maxFailure = 500 // characters of shard_failures.error

// NoteFailure keeps a failure of a stage of some shards, in place of the one before, for the pipeline desk.
func (s *Store) NoteFailure(ctx context.Context, shards []int, stage Stage, worker string, failure error) error {
	if len(shards) == 0 {
		return nil
	}
	text := []rune(strings.ToValidUTF8(failure.Error(), "?"))
	text = text[:min(len(text), maxFailure)]
	now, args := s.now().UTC(), []any{}
	for _, shard := range shards {
		args = append(args, shard, string(stage), worker, string(text), now)
	}
	rows := strings.Repeat(",(?,?,?,?,?)", len(shards))[1:]
	_, err := s.write(ctx, "INSERT INTO shard_failures (shard, stage, worker, error, failed_at) VALUES "+rows+
		" ON DUPLICATE KEY UPDATE worker=VALUES(worker), error=VALUES(error), failed_at=VALUES(failed_at)", args...)
	if err != nil {
		return fmt.Errorf("note failure: %w", err)
	}
	return nil
}

// ShardFailures lists what NoteFailure kept.
func (s *Store) ShardFailures(ctx context.Context) ([]ShardFailure, error) {
	var list []ShardFailure
	if err := s.db.WithContext(ctx).Raw("SELECT shard, stage, worker, error, failed_at FROM shard_failures ORDER BY shard, stage").Scan(&list).Error; err != nil {
		return nil, fmt.Errorf("read failures: %w", err)
	}
	return list, nil
}
