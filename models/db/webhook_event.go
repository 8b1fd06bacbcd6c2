package db

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"likewise/models"
)

// announcement is one event, of several objects of a kind.
type announcement struct {
	event     models.WebhookEvent
	kind      string // of the objects: the prefix of the event, or what was liked
	ids       []int64
	milestone int64 // of LikeMilestone
}

// Announce notes that an event happened to objects whose rows the transaction holds. Their state is read at its end.
func (tx *Tx) Announce(event models.WebhookEvent, ids ...int64) {
	kind, _, _ := strings.Cut(string(event), ".")
	tx.AnnounceAll(announcement{event: event, kind: kind, ids: ids})
}

// AnnounceAll notes an event whose objects are not of the kind that its name begins with.
func (tx *Tx) AnnounceAll(a announcement) {
	if len(a.ids) > 0 {
		tx.events = append(tx.events, a)
	}
}

// subscription is what an active endpoint receives.
type subscription struct {
	ID     int64
	Events models.WebhookTypes
}

// writtenNews is the size from which a statement takes no more rows, in bytes.
const writtenNews = 1 << 20

// writeNews writes the events that the transaction has announced, for the endpoints that subscribe to them.
func writeNews(tx *Tx) error {
	if len(tx.events) == 0 {
		return nil
	}
	const query = `
		SELECT id, events
		FROM webhooks
		WHERE active
		ORDER BY id`
	var subscriptions []subscription
	if err := tx.Raw(query).Scan(&subscriptions).Error; err != nil {
		return fmt.Errorf("read webhooks: %w", err)
	}
	rows := newsRows{tx: tx}
	for _, t := range tx.events {
		var to []int64
		for _, sub := range subscriptions {
			if slices.Contains(sub.Events, t.event) {
				to = append(to, sub.ID)
			}
		}
		if len(to) == 0 {
			continue
		}
		objects, err := describe(tx, t)
		if err != nil {
			return fmt.Errorf("describe %s: %w", t.event, err)
		}
		for _, id := range t.ids {
			object, ok := objects[id]
			if !ok {
				object.data = objectRef{ID: id}
			}
			if err := rows.add(t, id, object, to); err != nil {
				return err
			}
		}
	}
	return rows.flush()
}

// newsRows writes rows of webhook_events, many in a statement.
type newsRows struct {
	tx    *Tx
	rows  int
	bytes int
	args  []any
}

func (r *newsRows) add(t announcement, id int64, object described, to []int64) error {
	var data bytes.Buffer
	encoder := json.NewEncoder(&data)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(object.data); err != nil {
		return fmt.Errorf("encode %s: %w", t.event, err)
	}
	text := strings.TrimSuffix(data.String(), "\n")
	for _, webhook := range to {
		if r.bytes > 0 && r.bytes+len(text) > writtenNews {
			if err := r.flush(); err != nil {
				return err
			}
		}
		until := r.tx.Now.Add(models.WebhookRetry)
		r.args = append(r.args, webhook, t.event, t.kind, id, object.userID, text, r.tx.Now, until, r.tx.Now)
		r.bytes += len(text)
		r.rows++
	}
	return nil
}

func (r *newsRows) flush() error {
	if r.rows == 0 {
		return nil
	}
	const row = "(?,?,?,?,NULLIF(?,0),?,'[]',?,?,?)"
	insert := `
		INSERT INTO webhook_events (webhook_id, type, object_type, object_id, user_id, data, attempt_log,
			due_at, retry_until, created_at)
		VALUES ` + row + strings.Repeat(","+row, r.rows-1)
	if err := r.tx.Exec(insert, r.args...).Error; err != nil {
		return fmt.Errorf("write webhook events: %w", err)
	}
	r.rows, r.bytes, r.args = 0, 0, nil
	return nil
}

// described is an object as a delivery has it.
type described struct {
	data   any
	userID int64 // whose name is in data; 0: nobody's
}

// objectRef is all that a delivery has of an object that is not public.
type objectRef struct {
	ID     int64 `json:"id"`
	PostID int64 `json:"post_id,omitempty"` // of a comment
}

// describe returns the objects of an event by their ids, as the API shows them to everybody.
func describe(tx *Tx, t announcement) (map[int64]described, error) {
	switch t.event {
	case models.PostCreated, models.PostEdited, models.PostRestored:
		return describePosts(tx, t.ids)
	case models.CommentCreated, models.CommentEdited, models.CommentDeleted, models.CommentRestored:
		return describeComments(tx, t.ids)
	case models.LikeMilestone:
		return describeMilestones(tx, t)
	case models.ReportOpened, models.ReportDecided:
		return describeReports(tx, t.ids)
	case models.UserBanned, models.UserUnbanned:
		return describeBans(tx, t.ids)
	case models.ClaimConfirmed, models.ClaimRejected:
		return describeClaims(tx, t.ids)
	}
	return nil, nil // PostDeleted
}

// namedUser is a user in a delivery.
type namedUser struct {
	ID          int64   `json:"id"`
	Username    string  `json:"username"`
	DisplayName *string `json:"display_name"` // null: shows the username
}

func named(a models.Author) namedUser { return namedUser{a.ID, a.Username, a.DisplayName} }

// publicPost is a post in a delivery: what GET /v1/posts/{id} returns to everybody, without the HTML.
type publicPost struct {
	ID            int64       `json:"id"`
	Author        namedUser   `json:"author"`
	Title         string      `json:"title"`
	Content       string      `json:"content"`
	Tags          models.Tags `json:"tags"`
	LikesCount    int64       `json:"likes_count"`
	CommentsCount int64       `json:"comments_count"`
	Locked        bool        `json:"locked"`
	Pinned        bool        `json:"pinned"`
	Version       int64       `json:"version"`
	CreatedAt     time.Time   `json:"created_at"`
	UpdatedAt     time.Time   `json:"updated_at"`
}

func describePosts(tx *Tx, ids []int64) (map[int64]described, error) {
	query := `
		SELECT ` + postColumns + `, ` + fullColumns + `
		FROM posts p
		JOIN users u ON u.id=p.user_id
		WHERE p.id IN (` + joinIDs(ids) + `) AND p.status=?`
	var posts []models.Post
	if err := tx.Raw(query, 0, models.StatusNormal).Scan(&posts).Error; err != nil {
		return nil, err
	}
	objects := make(map[int64]described, len(posts))
	for _, p := range posts {
		objects[p.ID] = described{publicPost{
			ID: p.ID, Author: named(p.Author), Title: p.Title, Content: p.Content, Tags: p.Tags,
			LikesCount: p.LikesCount, CommentsCount: p.CommentsCount, Locked: p.Locked, Pinned: p.Pinned,
			Version: p.Version, CreatedAt: p.CreatedAt, UpdatedAt: p.UpdatedAt,
		}, p.Author.ID}
	}
	return objects, nil
}

// publicComment is a comment in a delivery: what GET /v1/comments/{id} returns to everybody, without the HTML.
type publicComment struct {
	ID           int64     `json:"id"`
	PostID       int64     `json:"post_id"`
	ParentID     *int64    `json:"parent_id"`
	Depth        int       `json:"depth"`
	Author       namedUser `json:"author"`
	Content      string    `json:"content"`
	LikesCount   int64     `json:"likes_count"`
	RepliesCount int64     `json:"replies_count"`
	Version      int64     `json:"version"`
	CreatedAt    time.Time `json:"created_at"`
	UpdatedAt    time.Time `json:"updated_at"`
}

// describeComments shows comments that are public. Those that are deleted, or whose post is, have their ids alone.
func describeComments(tx *Tx, ids []int64) (map[int64]described, error) {
	query := `
		SELECT ` + commentColumns + `, p.status AS post_status
		FROM comments c
		JOIN users u ON u.id=c.user_id
		JOIN posts p ON p.id=c.post_id
		WHERE c.id IN (` + joinIDs(ids) + `)`
	var comments []struct {
		models.Comment `gorm:"embedded"`
		PostStatus     models.Status
	}
	if err := tx.Raw(query, 0).Scan(&comments).Error; err != nil {
		return nil, err
	}
	objects := make(map[int64]described, len(comments))
	for _, c := range comments {
		if c.Status != models.StatusNormal || c.PostStatus != models.StatusNormal {
			objects[c.ID] = described{data: objectRef{ID: c.ID, PostID: c.PostID}}
			continue
		}
		objects[c.ID] = described{publicComment{
			ID: c.ID, PostID: c.PostID, ParentID: c.ParentID, Depth: c.Depth, Author: named(c.Author),
			Content: c.Content, LikesCount: c.LikesCount, RepliesCount: c.RepliesCount, Version: c.Version,
			CreatedAt: c.CreatedAt, UpdatedAt: c.UpdatedAt,
		}, c.Author.ID}
	}
	return objects, nil
}

// describeMilestones shows which posts or comments reached a milestone. Deleted ones have no rows.
func describeMilestones(tx *Tx, t announcement) (map[int64]described, error) {
	post := "t.id"
	if t.kind == string(models.KindComment) {
		post = "t.post_id"
	}
	query := `
		SELECT t.id, ` + post + ` AS post_id, t.user_id, t.likes_count
		FROM ` + likeTables[models.TargetKind(t.kind)].targets + ` t
		WHERE t.id IN (` + joinIDs(t.ids) + `)`
	var rows []struct{ ID, PostID, UserID, LikesCount int64 }
	if err := tx.Raw(query).Scan(&rows).Error; err != nil {
		return nil, err
	}
	objects := make(map[int64]described, len(rows))
	for _, r := range rows {
		objects[r.ID] = described{data: struct {
			TargetType string `json:"target_type"`
			TargetID   int64  `json:"target_id"`
			PostID     int64  `json:"post_id"`
			AuthorID   int64  `json:"author_id"`
			Milestone  int64  `json:"milestone"`
			LikesCount int64  `json:"likes_count"`
		}{t.kind, r.ID, r.PostID, r.UserID, t.milestone, r.LikesCount}}
	}
	return objects, nil
}

// describeReports shows reports as moderators list them: the open or decided case about a target. It has neither
// reporters nor what they or moderators wrote.
func describeReports(tx *Tx, ids []int64) (map[int64]described, error) {
	query := `
		SELECT k.id, k.target_type, k.target_id, k.reporters_count, k.outcome, k.first_at, k.resolved_at
		FROM report_cases k
		WHERE k.id IN (` + joinIDs(ids) + `)`
	type publicReport struct {
		ID             int64      `json:"id"`
		TargetType     string     `json:"target_type"`
		TargetID       int64      `json:"target_id"`
		ReportersCount int64      `json:"reporters_count"`
		Outcome        *string    `json:"outcome"` // null while it is open
		FirstAt        time.Time  `json:"first_at"`
		ResolvedAt     *time.Time `json:"resolved_at"`
	}
	var reports []publicReport
	if err := tx.Raw(query).Scan(&reports).Error; err != nil {
		return nil, err
	}
	objects := make(map[int64]described, len(reports))
	for _, r := range reports {
		objects[r.ID] = described{data: r}
	}
	return objects, nil
}

// describeBans shows users with the ends of their bans. The reason of a ban is for its user alone.
func describeBans(tx *Tx, ids []int64) (map[int64]described, error) {
	query := `
		SELECT ` + authorColumns + `, u.banned_until
		FROM users u
		WHERE u.id IN (` + joinIDs(ids) + `)`
	var users []struct {
		Author      models.Author `gorm:"embedded;embeddedPrefix:author_"`
		BannedUntil *time.Time
	}
	if err := tx.Raw(query).Scan(&users).Error; err != nil {
		return nil, err
	}
	objects := make(map[int64]described, len(users))
	for _, u := range users {
		permanent := u.BannedUntil != nil && models.Ban{Until: *u.BannedUntil}.Permanent()
		if permanent {
			u.BannedUntil = nil
		}
		objects[u.Author.ID] = described{struct {
			namedUser

			Permanent bool       `json:"permanent"`
			Until     *time.Time `json:"until"` // null: permanent, or not banned
		}{named(u.Author), permanent, u.BannedUntil}, u.Author.ID}
	}
	return objects, nil
}

func describeClaims(tx *Tx, ids []int64) (map[int64]described, error) {
	objects := make(map[int64]described, len(ids))
	for some := range slices.Chunk(ids, readUsers) {
		query := `
			SELECT c.id, c.drop_id, d.post_id, c.user_id, c.state, c.reason, c.created_at
			FROM claims c FORCE INDEX (idx_id)
			JOIN drops d ON d.id=c.drop_id
			WHERE c.id IN (` + joinIDs(some) + `)`
		var claims []struct {
			ID, DropID, PostID, UserID int64
			State                      models.ClaimState
			Reason                     string
			CreatedAt                  time.Time
		}
		if err := tx.Raw(query).Scan(&claims).Error; err != nil {
			return nil, err
		}
		for _, c := range claims {
			objects[c.ID] = described{data: struct {
				ID        models.ID `json:"id"` // a string: it has more digits than a number of JavaScript
				DropID    int64     `json:"drop_id"`
				PostID    int64     `json:"post_id"`
				UserID    int64     `json:"user_id"`
				State     string    `json:"state"`
				Reason    string    `json:"reason"` // why it was rejected; "" otherwise
				CreatedAt time.Time `json:"created_at"`
			}{models.ID(c.ID), c.DropID, c.PostID, c.UserID, c.State.String(), c.Reason, c.CreatedAt}}
		}
	}
	return objects, nil
}

// redactNews removes an object's text from the events about it, delivered or not, and from what endpoints answered. The
// transaction holds the row of the object's post.
func redactNews(tx *Tx, target models.Target) error {
	const find = `
		SELECT id
		FROM webhook_events FORCE INDEX (idx_object)
		WHERE object_type=? AND object_id=? AND type<>?`
	var ids []int64
	if err := tx.Raw(find, target.Kind, target.ID, models.LikeMilestone).Scan(&ids).Error; err != nil {
		return fmt.Errorf("read events of %s: %w", target, err)
	}
	for some := range slices.Chunk(ascending(ids), lockedAtOnce) {
		if err := emptyNews(tx, some); err != nil {
			return err
		}
	}
	return nil
}

// emptyNews leaves of events the ids of their objects alone.
func emptyNews(tx *Tx, ids []int64) error {
	update := `
		UPDATE webhook_events FORCE INDEX (PRIMARY)
		SET data=CONCAT('{"id":',object_id,',"redacted":true}'), user_id=NULL, attempt_log='[]'
		WHERE id IN (` + joinIDs(ids) + `)`
	if err := tx.Exec(update).Error; err != nil {
		return fmt.Errorf("redact webhook events: %w", err)
	}
	return nil
}

// emptyNewsOf removes the name of a deleted account from at most limit events, with the rest of their data, and reports
// whether there may be more.
func (s *DB) emptyNewsOf(ctx context.Context, userID int64, limit int) (more bool, err error) {
	const find = `
		SELECT id
		FROM webhook_events FORCE INDEX (idx_user)
		WHERE user_id=?
		LIMIT ?`
	var ids []int64
	if err := s.Read(ctx).Raw(find, userID, limit).Scan(&ids).Error; err != nil || len(ids) == 0 {
		return false, err
	}
	err = s.Transact(ctx, func(tx *Tx) error { return emptyNews(tx, ascending(ids)) })
	return len(ids) == limit, err
}
