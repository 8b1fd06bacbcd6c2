package webhooks

import (
	"context"
	"slices"
	"time"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/content"
	"likewise/models/db"
)

// Describe returns objects as deliveries have them: as the API shows them to everybody. It is for db.Options.
func Describe(tx *db.Tx, t db.Announcement) (map[int64]db.Described, error) {
	switch t.Event {
	case models.PostCreated, models.PostEdited, models.PostRestored:
		return describePosts(tx, t.IDs)
	case models.CommentCreated, models.CommentEdited, models.CommentDeleted, models.CommentRestored:
		return describeComments(tx, t.IDs)
	case models.LikeMilestone:
		return describeMilestones(tx, t)
	case models.ReportOpened, models.ReportDecided:
		return describeReports(tx, t.IDs)
	case models.UserBanned, models.UserUnbanned:
		return describeBans(tx, t.IDs)
	case models.ClaimConfirmed, models.ClaimRejected:
		return describeClaims(tx, t.IDs)
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

func describePosts(tx *db.Tx, ids []int64) (map[int64]db.Described, error) {
	query := `
		SELECT ` + content.PostColumns + `, ` + content.FullColumns + `
		FROM posts p
		JOIN users u ON u.id=p.user_id
		WHERE p.id IN (` + db.JoinIDs(ids) + `) AND p.status=?`
	var posts []models.Post
	if err := tx.Raw(query, 0, models.StatusNormal).Scan(&posts).Error; err != nil {
		return nil, err
	}
	objects := make(map[int64]db.Described, len(posts))
	for _, p := range posts {
		objects[p.ID] = db.Described{Data: publicPost{
			ID: p.ID, Author: named(p.Author), Title: p.Title, Content: p.Content, Tags: p.Tags,
			LikesCount: p.LikesCount, CommentsCount: p.CommentsCount, Locked: p.Locked, Pinned: p.Pinned,
			Version: p.Version, CreatedAt: p.CreatedAt, UpdatedAt: p.UpdatedAt,
		}, UserID: p.Author.ID}
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
func describeComments(tx *db.Tx, ids []int64) (map[int64]db.Described, error) {
	query := `
		SELECT ` + content.CommentColumns + `, p.status AS post_status
		FROM comments c
		JOIN users u ON u.id=c.user_id
		JOIN posts p ON p.id=c.post_id
		WHERE c.id IN (` + db.JoinIDs(ids) + `)`
	var comments []struct {
		models.Comment `gorm:"embedded"`
		PostStatus     models.Status
	}
	if err := tx.Raw(query, 0).Scan(&comments).Error; err != nil {
		return nil, err
	}
	objects := make(map[int64]db.Described, len(comments))
	for _, c := range comments {
		if c.Status != models.StatusNormal || c.PostStatus != models.StatusNormal {
			objects[c.ID] = db.Described{Data: db.Reference{ID: c.ID, PostID: c.PostID}}
			continue
		}
		objects[c.ID] = db.Described{Data: publicComment{
			ID: c.ID, PostID: c.PostID, ParentID: c.ParentID, Depth: c.Depth, Author: named(c.Author),
			Content: c.Content, LikesCount: c.LikesCount, RepliesCount: c.RepliesCount, Version: c.Version,
			CreatedAt: c.CreatedAt, UpdatedAt: c.UpdatedAt,
		}, UserID: c.Author.ID}
	}
	return objects, nil
}

// describeMilestones shows which posts or comments reached a milestone. Deleted ones have no rows.
func describeMilestones(tx *db.Tx, t db.Announcement) (map[int64]db.Described, error) {
	post := "t.id"
	if t.Kind == string(models.KindComment) {
		post = "t.post_id"
	}
	query := `
		SELECT t.id, ` + post + ` AS post_id, t.user_id, t.likes_count
		FROM ` + db.TargetTables[models.TargetKind(t.Kind)].Targets + ` t
		WHERE t.id IN (` + db.JoinIDs(t.IDs) + `)`
	var rows []struct{ ID, PostID, UserID, LikesCount int64 }
	if err := tx.Raw(query).Scan(&rows).Error; err != nil {
		return nil, err
	}
	objects := make(map[int64]db.Described, len(rows))
	for _, r := range rows {
		objects[r.ID] = db.Described{Data: struct {
			TargetType string `json:"target_type"`
			TargetID   int64  `json:"target_id"`
			PostID     int64  `json:"post_id"`
			AuthorID   int64  `json:"author_id"`
			Milestone  int64  `json:"milestone"`
			LikesCount int64  `json:"likes_count"`
		}{t.Kind, r.ID, r.PostID, r.UserID, t.Milestone, r.LikesCount}}
	}
	return objects, nil
}

// describeReports shows reports as moderators list them: the open or decided case about a target. It has neither
// reporters nor what they or moderators wrote.
func describeReports(tx *db.Tx, ids []int64) (map[int64]db.Described, error) {
	query := `
		SELECT k.id, k.target_type, k.target_id, k.reporters_count, k.outcome, k.first_at, k.resolved_at
		FROM report_cases k
		WHERE k.id IN (` + db.JoinIDs(ids) + `)`
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
	objects := make(map[int64]db.Described, len(reports))
	for _, r := range reports {
		objects[r.ID] = db.Described{Data: r}
	}
	return objects, nil
}

// describeBans shows users with the ends of their bans. The reason of a ban is for its user alone.
func describeBans(tx *db.Tx, ids []int64) (map[int64]db.Described, error) {
	query := `
		SELECT ` + accounts.AuthorColumns + `, u.banned_until
		FROM users u
		WHERE u.id IN (` + db.JoinIDs(ids) + `)`
	var users []struct {
		Author      models.Author `gorm:"embedded;embeddedPrefix:author_"`
		BannedUntil *time.Time
	}
	if err := tx.Raw(query).Scan(&users).Error; err != nil {
		return nil, err
	}
	objects := make(map[int64]db.Described, len(users))
	for _, u := range users {
		permanent := u.BannedUntil != nil && models.Ban{Until: *u.BannedUntil}.Permanent()
		if permanent {
			u.BannedUntil = nil
		}
		objects[u.Author.ID] = db.Described{Data: struct {
			namedUser

			Permanent bool       `json:"permanent"`
			Until     *time.Time `json:"until"` // null: permanent, or not banned
		}{named(u.Author), permanent, u.BannedUntil}, UserID: u.Author.ID}
	}
	return objects, nil
}

func describeClaims(tx *db.Tx, ids []int64) (map[int64]db.Described, error) {
	objects := make(map[int64]db.Described, len(ids))
	for batch := range slices.Chunk(ids, db.ReadUsers) {
		query := `
			SELECT c.id, c.drop_id, d.post_id, c.user_id, c.state, c.reason, c.created_at
			FROM claims c FORCE INDEX (idx_id)
			JOIN drops d ON d.id=c.drop_id
			WHERE c.id IN (` + db.JoinIDs(batch) + `)`
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
			objects[c.ID] = db.Described{Data: struct {
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

// EmptyEventsOf removes the name of a deleted account from at most limit events, with the rest of their data, and
// reports whether there may be more.
func (s *Store) EmptyEventsOf(ctx context.Context, userID int64, limit int) (more bool, err error) {
	const find = `
		SELECT id
		FROM webhook_events FORCE INDEX (idx_user)
		WHERE user_id=?
		LIMIT ?`
	var ids []int64
	if err := s.Read(ctx).Raw(find, userID, limit).Scan(&ids).Error; err != nil || len(ids) == 0 {
		return false, err
	}
	err = s.Transact(ctx, func(tx *db.Tx) error { return db.EmptyEvents(tx, db.Ascending(ids)) })
	return len(ids) == limit, err
}
