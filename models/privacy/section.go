package privacy

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/content"
	"likewise/models/db"
)

// exportSection is one kind of data about a user. read returns at most limit rows after a key; the zero key is before
// the first row.
type exportSection struct {
	name string
	read func(ctx context.Context, s *Store, userID int64, after models.ListKey, limit int) ([]models.ExportItem, error)
}

// ExportSections returns the names of the sections of an export in their order.
func ExportSections() []string {
	names := make([]string, len(exportSections))
	for i, section := range exportSections {
		names[i] = section.name
	}
	return names
}

// ExportItems reads rows of a section: at most limit after a key. The zero key is before the first row.
func (s *Store) ExportItems(
	ctx context.Context, userID int64, section string, after models.ListKey, limit int,
) ([]models.ExportItem, error) {
	i := slices.IndexFunc(exportSections, func(e exportSection) bool { return e.name == section })
	if i < 0 {
		return nil, fmt.Errorf("export of user %d: this version has no section %q", userID, section)
	}
	items, err := exportSections[i].read(ctx, s, userID, after, limit)
	if err != nil {
		return nil, fmt.Errorf("export %s of user %d: %w", section, userID, err)
	}
	return items, nil
}

// RowKey is the key of a row that has an id of its own. The export contains it only if the row has a further field for
// it. It is exported because gorm fills in exported fields only.
type RowKey struct {
	RowID int64 `json:"-"`
}

func (r RowKey) key() models.ListKey { return models.ListKey{ID: r.RowID} }

// rowsOf returns a section that is read by a query. The placeholders of the query are the user, the last id and the
// limit.
func rowsOf[T interface{ key() models.ListKey }](name, query string) exportSection {
	read := func(ctx context.Context, s *Store, userID int64, after models.ListKey, limit int) ([]models.ExportItem,
		error) {
		return exportRows[T](s.Read(ctx).Raw(query, userID, after.ID, limit))
	}
	return exportSection{name, read}
}

func exportRows[T interface{ key() models.ListKey }](query *gorm.DB) ([]models.ExportItem, error) {
	var rows []T
	if err := query.Scan(&rows).Error; err != nil {
		return nil, err
	}
	items := make([]models.ExportItem, len(rows))
	for i, row := range rows {
		items[i] = models.ExportItem{Key: row.key(), Value: row}
	}
	return items, nil
}

// The rows of an export. They contain the public data of other users: ids and usernames. Moderators are not named.
type (
	exportedProfile struct {
		RowKey          `gorm:"embedded"`
		ID              int64      `json:"id"`
		Username        string     `json:"username"`
		Email           string     `json:"email"`
		EmailVerifiedAt *time.Time `json:"email_verified_at"`
		PendingEmail    *string    `json:"pending_email"`
		Role            string     `json:"role"`
		DisplayName     *string    `json:"display_name"`
		Bio             string     `json:"bio"`
		AvatarURL       *string    `json:"avatar_url"`
		FollowersCount  int64      `json:"followers_count"`
		BannedUntil     *time.Time `json:"banned_until"`
		BanReason       string     `json:"ban_reason"`
		CreatedAt       time.Time  `json:"created_at"`
		UpdatedAt       time.Time  `json:"updated_at"`
	}
	exportedPost struct {
		RowKey        `gorm:"embedded"`
		ID            int64       `json:"id"`
		Title         string      `json:"title"`
		Content       string      `json:"content"`
		Tags          models.Tags `json:"tags"`
		Status        string      `json:"status"`
		Version       int64       `json:"version"`
		LikesCount    int64       `json:"likes_count"`
		CommentsCount int64       `json:"comments_count"`
		Locked        bool        `json:"locked"`
		Pinned        bool        `json:"pinned"`
		CreatedAt     time.Time   `json:"created_at"`
		UpdatedAt     time.Time   `json:"updated_at"`
		DeletedAt     *time.Time  `json:"deleted_at"`
		DeletedByYou  bool        `json:"deleted_by_you"`
	}
	exportedPostRevision struct {
		PostID    int64       `json:"post_id"`
		Version   int64       `json:"version"`
		Title     string      `json:"title"`
		Content   string      `json:"content"`
		Tags      models.Tags `json:"tags"`
		CreatedAt time.Time   `json:"created_at"`
	}
	exportedComment struct {
		RowKey       `gorm:"embedded"`
		ID           int64      `json:"id"`
		PostID       int64      `json:"post_id"`
		ParentID     *int64     `json:"parent_id"`
		Content      string     `json:"content"`
		Status       string     `json:"status"`
		Version      int64      `json:"version"`
		LikesCount   int64      `json:"likes_count"`
		RepliesCount int64      `json:"replies_count"`
		CreatedAt    time.Time  `json:"created_at"`
		UpdatedAt    time.Time  `json:"updated_at"`
		DeletedAt    *time.Time `json:"deleted_at"`
		DeletedByYou bool       `json:"deleted_by_you"`
	}
	exportedCommentRevision struct {
		CommentID int64     `json:"comment_id"`
		Version   int64     `json:"version"`
		Content   string    `json:"content"`
		CreatedAt time.Time `json:"created_at"`
	}
	exportedMail struct {
		RowKey    `gorm:"embedded"`
		Kind      string    `json:"kind"`
		Address   string    `json:"address"`
		Detail    string    `json:"detail"`
		Outcome   string    `json:"outcome"` // "" while it is due
		CreatedAt time.Time `json:"created_at"`
	}
	exportedEvent struct {
		RowKey    `gorm:"embedded"`
		Kind      string    `json:"kind"`
		Address   string    `json:"address"`
		UserAgent string    `json:"user_agent"`
		Attempts  int64     `json:"attempts"`
		CreatedAt time.Time `json:"created_at"`
		LastAt    time.Time `json:"last_at"`
	}
	exportedTarget struct {
		RowKey    `gorm:"embedded"`
		PostID    *int64    `json:"post_id,omitempty"`
		CommentID *int64    `json:"comment_id,omitempty"`
		CreatedAt time.Time `json:"created_at"`
	}
	exportedReadMark struct {
		RowKey    `gorm:"embedded"`
		PostID    int64     `json:"post_id"`
		CommentID *int64    `json:"comment_id"`
		ReadAt    time.Time `json:"read_at"`
	}
	exportedSubscription struct {
		RowKey    `gorm:"embedded"`
		PostID    int64     `json:"post_id"`
		Level     string    `json:"level"`
		CreatedAt time.Time `json:"created_at"`
	}
	exportedDraft struct {
		RowKey    `gorm:"embedded"`
		Key       string      `gorm:"column:draft_key" json:"key"`
		PostID    *int64      `json:"post_id"`
		ParentID  *int64      `json:"parent_id"`
		Title     string      `json:"title"`
		Content   string      `json:"content"`
		Tags      models.Tags `json:"tags"`
		Version   int64       `json:"version"`
		CreatedAt time.Time   `json:"created_at"`
		UpdatedAt time.Time   `json:"updated_at"`
	}
	exportedImage struct {
		RowKey    `gorm:"embedded"`
		Name      string    `json:"id"`
		Type      string    `json:"type"`
		Width     int       `json:"width"`
		Height    int       `json:"height"`
		Bytes     int64     `json:"bytes"`
		CreatedAt time.Time `json:"created_at"`
	}
	exportedUser struct {
		RowKey    `gorm:"embedded"`
		UserID    int64     `json:"user_id"`
		Username  string    `json:"username"`
		CreatedAt time.Time `json:"created_at"`
	}
	exportedUsername struct {
		RowKey    `gorm:"embedded"`
		Username  string    `json:"username"`
		ChangedAt time.Time `json:"changed_at"`
	}
	exportedSession struct {
		ID        string    `json:"id"`
		UserAgent string    `json:"user_agent"`
		CreatedAt time.Time `json:"created_at"`
		ExpiresAt time.Time `json:"expires_at"`
	}
	exportedFactor struct {
		RowKey            `gorm:"embedded"`
		Kind              string    `json:"kind"`
		AddedAt           time.Time `json:"added_at"`
		RecoveryCodesLeft int64     `json:"recovery_codes_left"`
	}
	exportedToken struct {
		ID         string     `json:"id"`
		Name       string     `json:"name"`
		Scopes     []string   `json:"scopes"`
		CreatedAt  time.Time  `json:"created_at"`
		ExpiresAt  time.Time  `json:"expires_at"`
		LastUsedAt *time.Time `json:"last_used_at"`
	}
	exportedNotification struct {
		RowKey    `gorm:"embedded"`
		Kind      string     `json:"kind"`
		ActorID   *int64     `json:"actor_id"`
		PostID    int64      `json:"post_id"`
		CommentID *int64     `json:"comment_id"`
		Milestone *int64     `json:"milestone"`
		ReportID  *int64     `json:"report_id"`
		ClaimID   *int64     `json:"claim_id,string"`
		CreatedAt time.Time  `json:"created_at"`
		ReadAt    *time.Time `json:"read_at"`
	}
	exportedReport struct {
		RowKey     `gorm:"embedded"`
		ID         int64      `json:"id"`
		TargetType string     `json:"target_type"`
		TargetID   int64      `json:"target_id"`
		Reason     string     `json:"reason"`
		Detail     string     `json:"detail"`
		CreatedAt  time.Time  `json:"created_at"`
		Outcome    *string    `json:"outcome"`
		ResolvedAt *time.Time `json:"resolved_at"`
	}
	exportedDrop struct {
		RowKey        `gorm:"embedded"`
		ID            int64      `json:"id"`
		PostID        int64      `json:"post_id"`
		Title         string     `json:"title"`
		Stock         int64      `json:"stock"`
		Claimed       int64      `json:"claimed"`
		BeginsAt      *time.Time `json:"begins_at"`
		EndsAt        *time.Time `json:"ends_at"`
		ClosedAt      *time.Time `json:"closed_at"`
		ConfirmWithin *int64     `json:"confirm_within"`
		CreatedAt     time.Time  `json:"created_at"`
		UpdatedAt     time.Time  `json:"updated_at"`
	}
	exportedClaim struct {
		RowKey      `gorm:"embedded"`
		ID          int64      `json:"id,string"`
		DropID      int64      `json:"drop_id"`
		State       string     `json:"state"`
		Reason      string     `json:"reason,omitempty"`
		CreatedAt   time.Time  `json:"created_at"`
		ExpiresAt   *time.Time `json:"expires_at"`
		ConfirmedAt *time.Time `json:"confirmed_at"`
		EndedAt     *time.Time `json:"ended_at"`
	}
	exportedRedaction struct {
		RowKey      `gorm:"embedded"`
		ID          int64      `json:"id"`
		TargetType  string     `json:"target_type"`
		TargetID    int64      `json:"target_id"`
		Version     int64      `json:"version"`
		Reason      string     `json:"reason"`
		RequestedAt time.Time  `json:"requested_at"`
		Outcome     *string    `json:"outcome"`
		ResolvedAt  *time.Time `json:"resolved_at"`
		Note        *string    `json:"note"`
	}
	exportedAct struct {
		RowKey    `gorm:"embedded"`
		Action    string          `json:"action"`
		Reason    string          `json:"reason,omitempty"`
		Before    json.RawMessage `gorm:"column:before_state" json:"before"`
		After     json.RawMessage `gorm:"column:after_state"  json:"after"`
		CreatedAt time.Time       `json:"created_at"`
	}
)

// likesGiven returns the section of the likes that a user gave.
func likesGiven(kind models.TargetKind) exportSection {
	t := db.TargetTables[kind]
	return rowsOf[exportedTarget](strings.TrimSuffix(t.Column, "_id")+"_likes", `
		SELECT id AS row_id, `+t.Column+`, created_at
		FROM `+t.Likes+` FORCE INDEX (idx_user_id)
		WHERE user_id=? AND id>?
		ORDER BY id
		LIMIT ?`)
}

// exportSections are all data about a user that they may see, in the order of the archive. Rows of unfinished exports
// contain their names.
var exportSections = []exportSection{
	rowsOf[exportedProfile]("profile", `
		SELECT id AS row_id, id, username, email, email_verified_at, pending_email,
			ELT(role,'user','moderator','admin') AS role, display_name, bio, avatar_url, followers_count, banned_until,
			ban_reason, created_at, updated_at
		FROM users
		WHERE id=? AND id>?
		LIMIT ?`),
	rowsOf[exportedUsername]("former_usernames", `
		SELECT id AS row_id, username, changed_at
		FROM former_usernames FORCE INDEX (idx_user_id)
		WHERE user_id=? AND id>?
		ORDER BY id
		LIMIT ?`),
	rowsOf[exportedPost]("posts", `
		SELECT p.id AS row_id, p.id, p.title, p.content, `+content.TagNames+` AS tags,
			IF(p.status=`+db.SQLDeleted+`,'deleted','normal') AS status, p.version, p.likes_count, p.comments_count,
			p.locked, p.pinned, p.created_at, p.updated_at, p.deleted_at,
			COALESCE(p.deleted_by=p.user_id,FALSE) AS deleted_by_you
		FROM posts p FORCE INDEX (idx_user_id)
		WHERE p.user_id=? AND p.id>?
		ORDER BY p.id
		LIMIT ?`),
	revisionsOf[exportedPostRevision]("post_revisions", models.KindPost,
		"r.post_id, r.version, r.title, r.content, r.tags, r.created_at"),
	rowsOf[exportedComment]("comments", `
		SELECT c.id AS row_id, c.id, c.post_id, c.parent_id, c.content,
			IF(c.status=`+db.SQLDeleted+`,'deleted','normal') AS status, c.version, c.likes_count, c.replies_count,
			c.created_at, c.updated_at, c.deleted_at, COALESCE(c.deleted_by=c.user_id,FALSE) AS deleted_by_you
		FROM comments c FORCE INDEX (idx_user_id)
		WHERE c.user_id=? AND c.id>?
		ORDER BY c.id
		LIMIT ?`),
	revisionsOf[exportedCommentRevision]("comment_revisions", models.KindComment,
		"r.comment_id, r.version, r.content, r.created_at"),
	likesGiven(models.KindPost),
	likesGiven(models.KindComment),
	rowsOf[exportedTarget]("bookmarks", `
		SELECT id AS row_id, post_id, created_at
		FROM bookmarks FORCE INDEX (idx_user_id)
		WHERE user_id=? AND id>?
		ORDER BY id
		LIMIT ?`),
	rowsOf[exportedReadMark]("read_marks", `
		SELECT post_id AS row_id, post_id, NULLIF(comment_id,0) AS comment_id, read_at
		FROM read_marks FORCE INDEX (PRIMARY)
		WHERE user_id=? AND post_id>?
		ORDER BY post_id
		LIMIT ?`),
	rowsOf[exportedSubscription]("subscriptions", `
		SELECT id AS row_id, post_id, ELT(level,'following','muted') AS level, created_at
		FROM subscriptions FORCE INDEX (idx_user_id)
		WHERE user_id=? AND id>?
		ORDER BY id
		LIMIT ?`),
	rowsOf[exportedDraft]("drafts", `
		SELECT id AS row_id, draft_key, NULLIF(post_id,0) AS post_id, NULLIF(parent_id,0) AS parent_id, title,
			content, tags, version, created_at, updated_at
		FROM drafts FORCE INDEX (idx_user_id)
		WHERE user_id=? AND id>?
		ORDER BY id
		LIMIT ?`),
	rowsOf[exportedImage]("images", `
		SELECT id AS row_id, name, type, width, height, bytes, created_at
		FROM images FORCE INDEX (idx_user_id)
		WHERE user_id=? AND id>? AND state=2
		ORDER BY id
		LIMIT ?`),
	rowsOf[exportedUser]("follows", `
		SELECT f.id AS row_id, f.followed_id AS user_id, u.username, f.created_at
		FROM follows f FORCE INDEX (idx_user_id)
		JOIN users u ON u.id=f.followed_id
		WHERE f.user_id=? AND f.id>?
		ORDER BY f.id
		LIMIT ?`),
	rowsOf[exportedUser]("blocks", `
		SELECT b.blocked_id AS row_id, b.blocked_id AS user_id, u.username, b.created_at
		FROM blocks b FORCE INDEX (PRIMARY)
		JOIN users u ON u.id=b.blocked_id
		WHERE b.user_id=? AND b.blocked_id>?
		ORDER BY b.blocked_id
		LIMIT ?`),
	{"sessions", exportSessions},
	{"api_tokens", exportTokens},
	rowsOf[exportedFactor]("second_factors", `
		SELECT t.user_id AS row_id, 'totp' AS kind, t.confirmed_at AS added_at,
			(SELECT COUNT(*) FROM recovery_codes r WHERE r.user_id=t.user_id) AS recovery_codes_left
		FROM totp_factors t
		WHERE t.user_id=? AND t.user_id>? AND t.confirmed_at IS NOT NULL
		LIMIT ?`),
	rowsOf[exportedNotification]("notifications", `
		SELECT id AS row_id,
			ELT(kind, 'reply', 'mention', 'milestone', 'report', 'claim_confirmed', 'claim_rejected',
				'claim_expiring', 'comment') AS kind,
			NULLIF(actor_id,0) AS actor_id, post_id, NULLIF(comment_id,0) AS comment_id,
			NULLIF(milestone,0) AS milestone, NULLIF(report_id,0) AS report_id,
			NULLIF(claim_id,0) AS claim_id, created_at, read_at
		FROM notifications FORCE INDEX (idx_user_id)
		WHERE user_id=? AND id>?
		ORDER BY id
		LIMIT ?`),
	rowsOf[exportedReport]("reports", `
		SELECT r.id AS row_id, r.id, k.target_type, k.target_id, r.reason, r.detail, r.created_at,
			k.outcome, k.resolved_at
		FROM reports r FORCE INDEX (idx_reporter)
		JOIN report_cases k ON k.id=r.case_id
		WHERE r.reporter_id=? AND r.id>?
		ORDER BY r.id
		LIMIT ?`),
	rowsOf[exportedRedaction]("redactions", `
		SELECT id AS row_id, id, target_type, target_id, version, reason, requested_at, outcome, resolved_at,
			IF(outcome IS NULL,NULL,note) AS note
		FROM redactions FORCE INDEX (idx_requester)
		WHERE requested_by=? AND id>?
		ORDER BY id
		LIMIT ?`),
	rowsOf[exportedDrop]("drops", `
		SELECT id AS row_id, id, post_id, title, stock, claimed, begins_at, ends_at, closed_at,
			NULLIF(confirm_within,0) AS confirm_within, created_at, updated_at
		FROM drops FORCE INDEX (idx_user_id)
		WHERE user_id=? AND id>?
		ORDER BY id
		LIMIT ?`),
	rowsOf[exportedClaim]("claims", `
		SELECT id AS row_id, id, drop_id,
			ELT(state,'reserved','confirmed','returned','expired','rejected','voided') AS state, reason, created_at,
			expires_at, confirmed_at, ended_at
		FROM claims FORCE INDEX (idx_user_id)
		WHERE user_id=? AND id>?
		ORDER BY id
		LIMIT ?`),
	// The acts of moderators on the account that are shown to its user: bans with their reasons, and roles.
	rowsOf[exportedAct]("account_acts", `
		SELECT id AS row_id, action, IF(action='user.ban',reason,'') AS reason, before_state, after_state, created_at
		FROM moderation_log FORCE INDEX (idx_target_created)
		WHERE target_type='user' AND target_id=? AND action IN ('user.ban','user.unban','user.role') AND id>?
		ORDER BY id
		LIMIT ?`),
	// The address of another actor, such as a moderator, is left out.
	rowsOf[exportedMail]("mails", `
		SELECT id AS row_id, kind, address, detail, outcome, created_at
		FROM mails FORCE INDEX (idx_user_id)
		WHERE user_id=? AND id>?
		ORDER BY id
		LIMIT ?`),
	rowsOf[exportedEvent]("security_events", `
		SELECT id AS row_id, kind, IF(actor_id IS NULL OR actor_id=user_id,address,'') AS address,
			IF(actor_id IS NULL OR actor_id=user_id,user_agent,'') AS user_agent, attempts, created_at, last_at
		FROM security_log FORCE INDEX (idx_user_created)
		WHERE user_id=? AND id>?
		ORDER BY id
		LIMIT ?`),
}

// exportSessions reads the section of sessions.
func exportSessions(
	ctx context.Context, s *Store, userID int64, after models.ListKey, limit int,
) ([]models.ExportItem, error) {
	list, err := accounts.New(s.DB).Sessions(ctx, userID, afterKey(after), limit)
	items := make([]models.ExportItem, len(list))
	for i := range list {
		session := &list[i]
		items[i] = models.ExportItem{Key: session.Key(), Value: exportedSession{
			models.SessionID(session.Hash()), session.UserAgent, session.CreatedAt, session.ExpiresAt,
		}}
	}
	return items, err
}

// exportTokens reads the section of API tokens.
func exportTokens(
	ctx context.Context, s *Store, userID int64, after models.ListKey, limit int,
) ([]models.ExportItem, error) {
	list, err := accounts.New(s.DB).Tokens(ctx, userID, afterKey(after), limit)
	items := make([]models.ExportItem, len(list))
	for i := range list {
		t := &list[i]
		items[i] = models.ExportItem{Key: t.Key(), Value: exportedToken{
			models.SessionID(t.Hash()), t.Name, t.Scopes.Names(), t.CreatedAt, t.ExpiresAt, t.LastUsedAt,
		}}
	}
	return items, err
}

// afterKey returns the key for lists, for which nil is before the first row.
func afterKey(key models.ListKey) *models.ListKey {
	if key == (models.ListKey{}) {
		return nil
	}
	return &key
}

func (r exportedPostRevision) key() models.ListKey {
	return models.ListKey{Value: r.PostID, ID: r.Version}
}

func (r exportedCommentRevision) key() models.ListKey {
	return models.ListKey{Value: r.CommentID, ID: r.Version}
}

// revisionsOf returns the section of the older versions of a user's posts or comments, in the order of the posts or
// comments. Versions by other editors are left out.
func revisionsOf[T interface{ key() models.ListKey }](
	name string, kind models.TargetKind, columns string,
) exportSection {
	revisions := content.RevisionTables[kind]
	from := `
		SELECT ` + columns + `
		FROM ` + db.TargetTables[kind].Targets + ` x FORCE INDEX (%s)
		STRAIGHT_JOIN ` + revisions.Name + ` r ON r.` + revisions.ID + `=x.id
			AND COALESCE(r.editor_id,x.user_id)=x.user_id`
	item := fmt.Sprintf(from, "PRIMARY") + `
		WHERE x.user_id=? AND x.id=? AND r.version>?
		ORDER BY r.version
		LIMIT ?`
	others := fmt.Sprintf(from, "idx_user_id") + `
		WHERE x.user_id=? AND x.id>?
		ORDER BY x.id, r.version
		LIMIT ?`
	read := func(ctx context.Context, s *Store, userID int64, after models.ListKey, limit int) ([]models.ExportItem,
		error) {
		items, err := exportRows[T](s.Read(ctx).Raw(item, userID, after.Value, after.ID, limit))
		if err != nil || len(items) == limit {
			return items, err
		}
		more, err := exportRows[T](s.Read(ctx).Raw(others, userID, after.Value, limit-len(items)))
		return append(items, more...), err
	}
	return exportSection{name, read}
}
