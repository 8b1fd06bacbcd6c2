package models

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"
)

// ExportState is how far an Export is.
type ExportState int8

// The states.
const (
	ExportBuilding ExportState = 1
	ExportReady    ExportState = 2
)

// ExportLife is how long an archive is kept after it was built, and how long a request for one stands. A user has one
// export at a time, so it is also what lies between two builds at least.
const ExportLife = 24 * time.Hour

// MaxExportSize is the size in bytes from which on an archive is ended before it is complete.
const MaxExportSize = 1 << 30

// MaxExportChunk is the size in bytes that a chunk may have.
const MaxExportChunk = 1<<20 - 1

// Export is an archive of what is stored about a user, or the request for it. Its chunks are rows, so that every process
// can go on with one that another has begun, and every process can send it. See workers.Exporter.
type Export struct {
	ID          int64
	UserID      int64
	State       ExportState
	Place       ExportPlace `gorm:"embedded"` // of what comes next
	Chunks      int
	Size        int64 // of the chunks, in bytes
	RequestedAt time.Time
	ReadyAt     *time.Time // nil while it is being built
	ExpiresAt   time.Time
}

// ExportPlace is a place in an archive.
type ExportPlace struct {
	Section    string // one of ExportSections; "" after the last
	Part       int    // of the section, from 1
	AfterValue int64  // with AfterID the key of the last row before it
	AfterID    int64
}

const exportColumns = "id, COALESCE(user_id,0) AS user_id, state, section, part, after_value, after_id, chunks, size, requested_at, ready_at, expires_at"

// RequestExport returns the export of a user, after requesting one if there is none, or it has expired. CodeUnauthorized
// when the user is banned or the account was deleted, which ended the session that a process may still have cached.
func (s *Store) RequestExport(ctx context.Context, userID int64) (*Export, error) {
	var e *Export
	err := s.transact(ctx, func(tx *gorm.DB) error {
		found, err := lockStandings(tx, userID) // also keeps others from requesting one at the same time
		if err != nil {
			return err
		}
		now := s.now().UTC().Truncate(time.Millisecond)
		user := found[userID]
		if user == nil || user.ban(now) != nil {
			return Errorf(CodeUnauthorized, "The token is not valid.")
		}
		var rows []Export
		const read = `
			SELECT ` + exportColumns + `
			FROM exports
			WHERE user_id=?
			FOR UPDATE`
		if err := tx.Raw(read, userID).Scan(&rows).Error; err != nil {
			return err
		}
		if len(rows) > 0 && rows[0].ExpiresAt.After(now) {
			e = &rows[0]
			return nil
		}
		if err := dropExport(tx, userID); err != nil {
			return err
		}
		e = &Export{UserID: userID, State: ExportBuilding, Place: ExportPlace{Section: exportSections[0].name, Part: 1}, RequestedAt: now, ExpiresAt: now.Add(ExportLife)}
		const insert = `
			INSERT INTO exports (user_id, state, section, part, after_value, after_id, requested_at, expires_at)
			VALUES (?,?,?,?,0,0,?,?)`
		if err := tx.Exec(insert, userID, e.State, e.Place.Section, e.Place.Part, e.RequestedAt, e.ExpiresAt).Error; err != nil {
			return err
		}
		return tx.Raw("SELECT LAST_INSERT_ID()").Scan(&e.ID).Error
	})
	if err != nil {
		return nil, fmt.Errorf("request export of user %d: %w", userID, err)
	}
	return e, nil
}

// dropExport takes a user's export away from everybody at once. Its chunks, which may be many, are left to RemoveExports.
func dropExport(tx *gorm.DB, userID int64) error {
	return tx.Exec("UPDATE exports SET user_id=NULL WHERE user_id=?", userID).Error
}

// ExportChunk reads one chunk of a user's export. CodeNotFound when the export has expired or was dropped meanwhile.
func (s *Store) ExportChunk(ctx context.Context, e *Export, number int) ([]byte, error) {
	var rows []struct{ Data []byte }
	const read = `
		SELECT c.data
		FROM exports e
		JOIN export_chunks c ON c.export_id=e.id AND c.number=?
		WHERE e.id=? AND e.user_id=? AND e.expires_at>?`
	if err := s.db.WithContext(ctx).Raw(read, number, e.ID, e.UserID, s.now().UTC()).Scan(&rows).Error; err != nil {
		return nil, fmt.Errorf("read export %d: %w", e.ID, err)
	}
	if len(rows) == 0 {
		return nil, Errorf(CodeNotFound, "The export has expired.")
	}
	return rows[0].Data, nil
}

// WaitingExports lists exports that are to be built, at most limit: those that have the least come first, so that a large
// one does not hold up the others.
func (s *Store) WaitingExports(ctx context.Context, limit int) ([]Export, error) {
	var list []Export
	const read = `
		SELECT ` + exportColumns + `
		FROM exports FORCE INDEX (idx_state_chunks)
		WHERE state=? AND user_id IS NOT NULL AND expires_at>?
		ORDER BY chunks, id
		LIMIT ?`
	if err := s.db.WithContext(ctx).Raw(read, ExportBuilding, s.now().UTC(), limit).Scan(&list).Error; err != nil {
		return nil, fmt.Errorf("read exports: %w", err)
	}
	return list, nil
}

// AppendExport adds a chunk to an export and moves it on to the next place, or ends it with done. It reports false, and
// changes nothing, when the export is no longer as e has it: another process has gone on with it, or it was dropped.
func (s *Store) AppendExport(ctx context.Context, e *Export, chunk []byte, next ExportPlace, done bool) (ok bool, err error) {
	if len(chunk) > MaxExportChunk {
		return false, fmt.Errorf("export %d: a chunk of %d bytes", e.ID, len(chunk))
	}
	after := *e
	after.Place, after.Chunks, after.Size = next, e.Chunks+1, e.Size+int64(len(chunk))
	if done {
		now := s.now().UTC().Truncate(time.Millisecond)
		after.State, after.ReadyAt, after.ExpiresAt = ExportReady, &now, now.Add(ExportLife)
	}
	err = s.transact(ctx, func(tx *gorm.DB) error {
		const update = `
			UPDATE exports
			SET state=?, section=?, part=?, after_value=?, after_id=?, chunks=?, size=?, ready_at=?, expires_at=?
			WHERE id=? AND user_id=? AND state=? AND chunks=?`
		moved := tx.Exec(update, after.State, next.Section, next.Part, next.AfterValue, next.AfterID, after.Chunks, after.Size, after.ReadyAt, after.ExpiresAt,
			e.ID, e.UserID, ExportBuilding, e.Chunks)
		ok = moved.RowsAffected == 1
		if moved.Error != nil || !ok {
			return moved.Error
		}
		return tx.Exec("INSERT INTO export_chunks (export_id, number, data) VALUES (?,?,UNHEX(?))", e.ID, e.Chunks, hex.EncodeToString(chunk)).Error
	})
	if err != nil {
		return false, fmt.Errorf("write export %d: %w", e.ID, err)
	}
	if ok {
		*e = after
	}
	return ok, nil
}

const (
	removeExports = 100 // exports a query
	removeChunks  = 16  // chunks a statement, of up to 1 MiB each
)

// RemoveExports deletes the exports that have expired and those that were dropped, with their chunks, and returns how many
// exports are gone.
func (s *Store) RemoveExports(ctx context.Context) (removed int, err error) {
	if _, err := s.write(ctx, "UPDATE exports SET user_id=NULL WHERE expires_at<=? AND user_id IS NOT NULL", s.now().UTC()); err != nil {
		return 0, fmt.Errorf("expire exports: %w", err)
	}
	for {
		var ids []int64
		if err := s.db.WithContext(ctx).Raw("SELECT id FROM exports WHERE user_id IS NULL LIMIT ?", removeExports).Scan(&ids).Error; err != nil {
			return removed, fmt.Errorf("read dropped exports: %w", err)
		}
		for _, id := range ids {
			for more := true; more; {
				n, err := s.write(ctx, "DELETE FROM export_chunks WHERE export_id=? ORDER BY number LIMIT ?", id, removeChunks)
				if err != nil {
					return removed, fmt.Errorf("remove chunks of export %d: %w", id, err)
				}
				more = n == removeChunks
			}
			n, err := s.write(ctx, "DELETE FROM exports WHERE id=? AND user_id IS NULL", id)
			if err != nil {
				return removed, fmt.Errorf("remove export %d: %w", id, err)
			}
			removed += int(n)
		}
		if len(ids) < removeExports {
			return removed, nil
		}
	}
}

// ExportItem is a row of an export, ready to be written as JSON.
type ExportItem struct {
	Key   ListKey // of its place in the section
	Value any
}

// exportSection is one kind of what is stored about a user. read returns at most limit rows after a key, the zero key for
// the first ones.
type exportSection struct {
	name string
	read func(ctx context.Context, s *Store, userID int64, after ListKey, limit int) ([]ExportItem, error)
}

// ExportSections are the sections of an export in their order.
func ExportSections() []string {
	names := make([]string, len(exportSections))
	for i, section := range exportSections {
		names[i] = section.name
	}
	return names
}

// ExportItems reads rows of a section: at most limit after a key, the zero key for the first ones.
func (s *Store) ExportItems(ctx context.Context, userID int64, section string, after ListKey, limit int) ([]ExportItem, error) {
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

// RowKey is the key of a row that has an id of its own. It is not in the export unless the row names it again.
type RowKey struct {
	RowID int64 `json:"-"`
}

func (r RowKey) key() ListKey { return ListKey{ID: r.RowID} }

// rowsOf makes a section of a query whose placeholders are the user, the last id and the limit.
func rowsOf[T interface{ key() ListKey }](name, query string) exportSection {
	return exportSection{name, func(ctx context.Context, s *Store, userID int64, after ListKey, limit int) ([]ExportItem, error) {
		return exportRows[T](s.db.WithContext(ctx).Raw(query, userID, after.ID, limit))
	}}
}

func exportRows[T interface{ key() ListKey }](query *gorm.DB) ([]ExportItem, error) {
	var rows []T
	if err := query.Scan(&rows).Error; err != nil {
		return nil, err
	}
	items := make([]ExportItem, len(rows))
	for i, row := range rows {
		items[i] = ExportItem{row.key(), row}
	}
	return items, nil
}

// What of others is in an export is what everybody can see of them: ids and usernames. Moderators are not named.
type (
	exportedProfile struct {
		RowKey         `gorm:"embedded"`
		ID             int64      `json:"id"`
		Username       string     `json:"username"`
		Email          string     `json:"email"`
		Role           string     `json:"role"`
		DisplayName    *string    `json:"display_name"`
		Bio            string     `json:"bio"`
		AvatarURL      *string    `json:"avatar_url"`
		FollowersCount int64      `json:"followers_count"`
		BannedUntil    *time.Time `json:"banned_until"`
		BanReason      string     `json:"ban_reason"`
		CreatedAt      time.Time  `json:"created_at"`
		UpdatedAt      time.Time  `json:"updated_at"`
	}
	exportedPost struct {
		RowKey        `gorm:"embedded"`
		ID            int64      `json:"id"`
		Title         string     `json:"title"`
		Content       string     `json:"content"`
		Tags          Tags       `json:"tags"`
		Status        string     `json:"status"`
		Version       int64      `json:"version"`
		LikesCount    int64      `json:"likes_count"`
		CommentsCount int64      `json:"comments_count"`
		Locked        bool       `json:"locked"`
		Pinned        bool       `json:"pinned"`
		CreatedAt     time.Time  `json:"created_at"`
		UpdatedAt     time.Time  `json:"updated_at"`
		DeletedAt     *time.Time `json:"deleted_at"`
		DeletedByYou  bool       `json:"deleted_by_you"`
	}
	exportedPostRevision struct {
		PostID    int64     `json:"post_id"`
		Version   int64     `json:"version"`
		Title     string    `json:"title"`
		Content   string    `json:"content"`
		Tags      Tags      `json:"tags"`
		CreatedAt time.Time `json:"created_at"`
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
	exportedUser struct {
		RowKey    `gorm:"embedded"`
		UserID    int64     `json:"user_id"`
		Username  string    `json:"username"`
		CreatedAt time.Time `json:"created_at"`
	}
	exportedSession struct {
		ID        string    `json:"id"`
		UserAgent string    `json:"user_agent"`
		CreatedAt time.Time `json:"created_at"`
		ExpiresAt time.Time `json:"expires_at"`
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
		Before    json.RawMessage `json:"before"`
		After     json.RawMessage `json:"after"`
		CreatedAt time.Time       `json:"created_at"`
	}
)

// likesGiven is a section of the likes that a user gave.
func likesGiven(kind TargetKind) exportSection {
	t := likeTables[kind]
	return rowsOf[exportedTarget](strings.TrimSuffix(t.column, "_id")+"_likes", `
		SELECT id AS row_id, `+t.column+`, created_at
		FROM `+t.likes+` FORCE INDEX (idx_user_id)
		WHERE user_id=? AND id>?
		ORDER BY id
		LIMIT ?`)
}

// exportSections is everything that is stored about a user and that they may see, in the order of the archive. Names
// stand in rows of exports that are being built.
var exportSections = []exportSection{
	rowsOf[exportedProfile]("profile", `
		SELECT id AS row_id, id, username, email, ELT(role,'user','moderator','admin') AS role, display_name, bio, avatar_url,
			followers_count, banned_until, ban_reason, created_at, updated_at
		FROM users
		WHERE id=? AND id>?
		LIMIT ?`),
	rowsOf[exportedPost]("posts", `
		SELECT p.id AS row_id, p.id, p.title, p.content, `+tagNames+` AS tags, IF(p.status=2,'deleted','normal') AS status, p.version, p.likes_count,
			p.comments_count, p.locked, p.pinned, p.created_at, p.updated_at, p.deleted_at, COALESCE(p.deleted_by=p.user_id,FALSE) AS deleted_by_you
		FROM posts p FORCE INDEX (idx_user_id)
		WHERE p.user_id=? AND p.id>?
		ORDER BY p.id
		LIMIT ?`),
	revisionsOf[exportedPostRevision]("post_revisions", KindPost, "r.post_id, r.version, r.title, r.content, r.tags, r.created_at"),
	rowsOf[exportedComment]("comments", `
		SELECT c.id AS row_id, c.id, c.post_id, c.parent_id, c.content, IF(c.status=2,'deleted','normal') AS status, c.version, c.likes_count,
			c.replies_count, c.created_at, c.updated_at, c.deleted_at, COALESCE(c.deleted_by=c.user_id,FALSE) AS deleted_by_you
		FROM comments c FORCE INDEX (idx_user_id)
		WHERE c.user_id=? AND c.id>?
		ORDER BY c.id
		LIMIT ?`),
	revisionsOf[exportedCommentRevision]("comment_revisions", KindComment, "r.comment_id, r.version, r.content, r.created_at"),
	likesGiven(KindPost),
	likesGiven(KindComment),
	rowsOf[exportedTarget]("bookmarks", `
		SELECT id AS row_id, post_id, created_at
		FROM bookmarks FORCE INDEX (idx_user_id)
		WHERE user_id=? AND id>?
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
	{"sessions", func(ctx context.Context, s *Store, userID int64, after ListKey, limit int) ([]ExportItem, error) {
		list, err := s.Sessions(ctx, userID, afterKey(after), limit)
		items := make([]ExportItem, len(list))
		for i := range list {
			items[i] = ExportItem{list[i].Key(), exportedSession{SessionID(list[i].Hash()), list[i].UserAgent, list[i].CreatedAt, list[i].ExpiresAt}}
		}
		return items, err
	}},
	{"api_tokens", func(ctx context.Context, s *Store, userID int64, after ListKey, limit int) ([]ExportItem, error) {
		list, err := s.Tokens(ctx, userID, afterKey(after), limit)
		items := make([]ExportItem, len(list))
		for i := range list {
			t := &list[i]
			items[i] = ExportItem{t.Key(), exportedToken{SessionID(t.Hash()), t.Name, t.Scopes.Names(), t.CreatedAt, t.ExpiresAt, t.LastUsedAt}}
		}
		return items, err
	}},
	rowsOf[exportedNotification]("notifications", `
		SELECT id AS row_id, ELT(kind,'reply','mention','milestone','report') AS kind, NULLIF(actor_id,0) AS actor_id, post_id,
			NULLIF(comment_id,0) AS comment_id, NULLIF(milestone,0) AS milestone, NULLIF(report_id,0) AS report_id, created_at, read_at
		FROM notifications FORCE INDEX (idx_user_id)
		WHERE user_id=? AND id>?
		ORDER BY id
		LIMIT ?`),
	rowsOf[exportedReport]("reports", `
		SELECT r.id AS row_id, r.id, k.target_type, k.target_id, r.reason, r.detail, r.created_at, k.outcome, k.resolved_at
		FROM reports r FORCE INDEX (idx_reporter)
		JOIN report_cases k ON k.id=r.case_id
		WHERE r.reporter_id=? AND r.id>?
		ORDER BY r.id
		LIMIT ?`),
	rowsOf[exportedRedaction]("redactions", `
		SELECT id AS row_id, id, target_type, target_id, version, reason, requested_at, outcome, resolved_at, IF(outcome IS NULL,NULL,note) AS note
		FROM redactions FORCE INDEX (idx_requester)
		WHERE requested_by=? AND id>?
		ORDER BY id
		LIMIT ?`),
	// What moderators did to the account, as far as its user is told: bans with their reasons, and roles.
	rowsOf[exportedAct]("account_acts", "SELECT id AS row_id, action, IF(action='user.ban',reason,'') AS reason, before_state AS `before`, after_state AS `after`, created_at"+`
		FROM moderation_log FORCE INDEX (idx_target_created)
		WHERE target_type='user' AND target_id=? AND action IN ('user.ban','user.unban','user.role') AND id>?
		ORDER BY id
		LIMIT ?`),
	// Where others did it, such as moderators, their address stays theirs.
	rowsOf[exportedEvent]("security_events", `
		SELECT id AS row_id, kind, IF(actor_id IS NULL OR actor_id=user_id,address,'') AS address,
			IF(actor_id IS NULL OR actor_id=user_id,user_agent,'') AS user_agent, attempts, created_at, last_at
		FROM security_log FORCE INDEX (idx_user_created)
		WHERE user_id=? AND id>?
		ORDER BY id
		LIMIT ?`),
}

// afterKey returns what lists take for the zero key.
func afterKey(key ListKey) *ListKey {
	if key == (ListKey{}) {
		return nil
	}
	return &key
}

func (r exportedPostRevision) key() ListKey { return ListKey{r.PostID, r.Version} }

func (r exportedCommentRevision) key() ListKey { return ListKey{r.CommentID, r.Version} }

// revisionsOf is a section of the older versions of a user's posts or comments, in the order of what they are versions
// of. What others wrote in them is left out.
func revisionsOf[T interface{ key() ListKey }](name string, kind TargetKind, columns string) exportSection {
	from := `
		SELECT ` + columns + `
		FROM ` + likeTables[kind].targets + ` x FORCE INDEX (%s)
		STRAIGHT_JOIN ` + revisionTables[kind].name + ` r ON r.` + revisionTables[kind].id + `=x.id AND COALESCE(r.editor_id,x.user_id)=x.user_id`
	one := fmt.Sprintf(from, "PRIMARY") + `
		WHERE x.user_id=? AND x.id=? AND r.version>?
		ORDER BY r.version
		LIMIT ?`
	others := fmt.Sprintf(from, "idx_user_id") + `
		WHERE x.user_id=? AND x.id>?
		ORDER BY x.id, r.version
		LIMIT ?`
	return exportSection{name, func(ctx context.Context, s *Store, userID int64, after ListKey, limit int) ([]ExportItem, error) {
		items, err := exportRows[T](s.db.WithContext(ctx).Raw(one, userID, after.Value, after.ID, limit))
		if err != nil || len(items) == limit {
			return items, err
		}
		more, err := exportRows[T](s.db.WithContext(ctx).Raw(others, userID, after.Value, limit-len(items)))
		return append(items, more...), err
	}}
}
