package accounts

import (
	"context"
	"fmt"

	"likewise/models"
	"likewise/models/db"
)

const accountColumns = `u.id, u.username, u.email, u.role, u.display_name, u.bio, u.avatar_url, u.followers_count,
			u.created_at, u.updated_at, u.banned_until, u.ban_reason`

// Accounts lists accounts that were not deleted, in one query.
func (s *Store) Accounts(ctx context.Context, q models.AccountQuery) ([]models.Account, error) {
	index, order := "PRIMARY", "u.id DESC"
	where := db.Matching("u.deleted_at IS NULL")
	column := ""
	switch {
	case q.Username != "":
		index, column = "idx_username", "username"
		where.Add("u.username LIKE ?", db.LikeEscape(q.Username)+"%")
	case q.Email != "":
		index, column = "idx_email", "email"
		where.Add("u.email LIKE ?", db.LikeEscape(q.Email)+"%")
	case q.Banned:
		index = "idx_banned_until"
	case q.Role != 0:
		index = "idx_role"
	}
	if column != "" {
		order = "u." + column
		where.AddIf(q.After != 0, order+">(SELECT a."+column+" FROM users a WHERE a.id=?)", q.After)
	} else {
		where.AddIf(q.After != 0, "u.id<?", q.After)
	}
	where.AddIf(q.Role != 0, "u.role=?", q.Role)
	where.AddIf(q.Banned, "u.banned_until>?", models.WholeSeconds(s.Now()))
	query := `
		SELECT ` + accountColumns + `
		FROM users u FORCE INDEX (` + index + `)
		` + where.Clause() + `
		ORDER BY ` + order + `
		LIMIT ?`
	var list []models.Account
	if err := s.Read(ctx).Raw(query, append(where.Args, q.Limit)...).Scan(&list).Error; err != nil {
		return nil, fmt.Errorf("list accounts: %w", err)
	}
	return list, nil
}

// AccountByID reads an account with its counts, in one query. CodeNotFound: it does not exist or was deleted.
func (s *Store) AccountByID(ctx context.Context, id int64) (*models.Account, *models.AccountCounts, error) {
	const query = `
		SELECT ` + accountColumns + `,
			(SELECT COUNT(*) FROM posts p WHERE p.user_id=u.id AND p.status=?) AS n_posts,
			(SELECT COUNT(*) FROM posts p WHERE p.user_id=u.id AND p.status=?) AS n_deleted_posts,
			(SELECT COUNT(*) FROM comments c WHERE c.user_id=u.id AND c.status=?) AS n_comments,
			(SELECT COUNT(*) FROM comments c WHERE c.user_id=u.id AND c.status=?) AS n_deleted_comments,
			(SELECT COUNT(*) FROM sessions s WHERE s.user_id=u.id AND s.is_token=0 AND s.expires_at>?) AS n_sessions,
			(SELECT COUNT(*) FROM sessions s WHERE s.user_id=u.id AND s.is_token=1 AND s.expires_at>?) AS n_tokens
		FROM users u
		WHERE u.id=? AND u.deleted_at IS NULL`
	var row struct {
		Account models.Account       `gorm:"embedded"`
		Counts  models.AccountCounts `gorm:"embedded;embeddedPrefix:n_"`
	}
	now := s.Now().UTC()
	read := s.Read(ctx).
		Raw(query, models.StatusNormal, models.StatusDeleted, models.StatusNormal, models.StatusDeleted, now, now,
			id).Scan(&row)
	if read.Error != nil {
		return nil, nil, fmt.Errorf("read account %d: %w", id, read.Error)
	}
	if read.RowsAffected == 0 {
		return nil, nil, ErrNoUser()
	}
	return &row.Account, &row.Counts, nil
}
