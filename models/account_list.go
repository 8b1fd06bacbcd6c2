package models

import (
	"context"
	"fmt"
	"time"
)

// Account is a user as moderators see them.
type Account struct {
	User        User `gorm:"embedded"`
	BannedUntil *time.Time
	BanReason   string
}

// Ban gives the ban that the account has at the time; nil for none.
func (a *Account) Ban(now time.Time) *Ban {
	return (&standing{BannedUntil: a.BannedUntil, BanReason: a.BanReason}).ban(now)
}

// AccountQuery says which accounts to list: those whose names, or addresses, begin with something, in their order, or all,
// the latest first.
type AccountQuery struct {
	Username string // a prefix; "" for all
	Email    string // a prefix; only without Username
	Role     Role   // 0 for all
	Banned   bool   // those who are banned now
	After    int64  // the last one of the page before; 0 for the first page
	Limit    int
}

const accountColumns = "u.id, u.username, u.email, u.role, u.display_name, u.bio, u.avatar_url, u.followers_count, u.created_at, u.updated_at, u.banned_until, u.ban_reason"

// Accounts lists accounts that were not deleted, in one query.
func (s *Store) Accounts(ctx context.Context, q AccountQuery) ([]Account, error) {
	index, order, where, args := "PRIMARY", "u.id DESC", "u.deleted_at IS NULL", []any{}
	filter := func(on bool, condition string, values ...any) {
		if on {
			where, args = where+" AND "+condition, append(args, values...)
		}
	}
	column := ""
	switch {
	case q.Username != "":
		index, column = "idx_username", "username"
		filter(true, "u.username LIKE ?", likeEscape(q.Username)+"%")
	case q.Email != "":
		index, column = "idx_email", "email"
		filter(true, "u.email LIKE ?", likeEscape(q.Email)+"%")
	case q.Banned:
		index = "idx_banned_until"
	case q.Role != 0:
		index = "idx_role"
	}
	if column != "" {
		order = "u." + column
		filter(q.After != 0, order+">(SELECT a."+column+" FROM users a WHERE a.id=?)", q.After)
	} else {
		filter(q.After != 0, "u.id<?", q.After)
	}
	filter(q.Role != 0, "u.role=?", q.Role)
	filter(q.Banned, "u.banned_until>?", second(s.now()))
	var list []Account
	err := s.db.WithContext(ctx).Raw("SELECT "+accountColumns+" FROM users u FORCE INDEX ("+index+") WHERE "+where+" ORDER BY "+order+" LIMIT ?",
		append(args, q.Limit)...).Scan(&list).Error
	if err != nil {
		return nil, fmt.Errorf("list accounts: %w", err)
	}
	return list, nil
}

// AccountCounts is how much there is of an account.
type AccountCounts struct {
	Posts, DeletedPosts       int64
	Comments, DeletedComments int64
	Sessions, Tokens          int64 // that have not expired
}

// AccountByID reads an account with its counts, in one query. CodeNotFound when there is none, or it was deleted.
func (s *Store) AccountByID(ctx context.Context, id int64) (*Account, *AccountCounts, error) {
	var row struct {
		Account Account       `gorm:"embedded"`
		Counts  AccountCounts `gorm:"embedded;embeddedPrefix:n_"`
	}
	now := s.now().UTC()
	read := s.db.WithContext(ctx).Raw("SELECT "+accountColumns+","+
		" (SELECT COUNT(*) FROM posts p WHERE p.user_id=u.id AND p.status=1) AS n_posts, (SELECT COUNT(*) FROM posts p WHERE p.user_id=u.id AND p.status=2) AS n_deleted_posts,"+
		" (SELECT COUNT(*) FROM comments c WHERE c.user_id=u.id AND c.status=1) AS n_comments, (SELECT COUNT(*) FROM comments c WHERE c.user_id=u.id AND c.status=2) AS n_deleted_comments,"+
		" (SELECT COUNT(*) FROM sessions s WHERE s.user_id=u.id AND s.is_token=0 AND s.expires_at>?) AS n_sessions,"+
		" (SELECT COUNT(*) FROM sessions s WHERE s.user_id=u.id AND s.is_token=1 AND s.expires_at>?) AS n_tokens"+
		" FROM users u WHERE u.id=? AND u.deleted_at IS NULL", now, now, id).Scan(&row)
	if read.Error != nil {
		return nil, nil, fmt.Errorf("read account %d: %w", id, read.Error)
	}
	if read.RowsAffected == 0 {
		return nil, nil, errNoUser()
	}
	return &row.Account, &row.Counts, nil
}
