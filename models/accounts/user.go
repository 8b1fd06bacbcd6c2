package accounts

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"gorm.io/gorm"

	"likewise/models"
	"likewise/models/db"
)

// AuthorColumns reads the user u as an Author that is embedded with the prefix author_.
const AuthorColumns = `u.id AS author_id, u.username AS author_username,
			u.display_name AS author_display_name, u.avatar_url AS author_avatar_url`

// CreateUser creates an account and sets its id and times. CodeConflict, with the field: the name or the address is
// taken, or held by a ban (see DeleteBannedUser).
func (s *Store) CreateUser(ctx context.Context, u *models.User) error {
	return s.createdUser(ctx, u, s.Transact(ctx, func(tx *db.Tx) error {
		if err := createUser(tx, u); err != nil {
			return err
		}
		return LogSecurity(tx, SecurityEvent{Kind: eventAccountCreated, UserID: u.ID})
	}))
}

func createUser(tx *db.Tx, u *models.User) error {
	u.ID = 0 // the transaction may be retried
	if u.Role == 0 {
		u.Role = models.RoleUser
	}
	if u.CreatedAt.IsZero() {
		u.CreatedAt = tx.Now
	}
	u.CreatedAt = models.WholeSeconds(u.CreatedAt)
	u.UpdatedAt = u.CreatedAt
	if err := tx.Create(u).Error; err != nil {
		return err
	}
	// What freed the name meanwhile, a deletion or a change, has reserved it in the same COMMIT.
	if err := usernameFree(tx, u.ID, u.Username); err != nil {
		return err
	}
	return notHeld(tx, "email", u.Email)
}

// createdUser returns the error of creating u as one that the caller can act on.
func (s *Store) createdUser(ctx context.Context, u *models.User, err error) error {
	if models.MySQLCode(err) == db.DuplicateKey {
		return s.takenField(ctx, u)
	}
	if err != nil {
		return fmt.Errorf("create user: %w", err)
	}
	return nil
}

// takenField finds out which of the two unique fields is taken. The server names it only in the text of its message.
func (s *Store) takenField(ctx context.Context, u *models.User) error {
	const query = `
		SELECT COUNT(*)
		FROM users
		WHERE username=?`
	var names int
	if err := s.Read(ctx).Raw(query, u.Username).Scan(&names).Error; err != nil {
		return fmt.Errorf("create user: %w", err)
	}
	if names > 0 {
		return errTaken("username")
	}
	return errTaken("email")
}

func errTaken(field string) *models.Error {
	return &models.Error{Code: models.CodeConflict, Message: "An account with this " + field + " exists.",
		Fields: []models.FieldError{models.Broken(models.FieldTaken, "is taken").In(field)}}
}

// ErrNoUser returns the error of a user who does not exist.
func ErrNoUser() *models.Error { return models.Errorf(models.CodeNotFound, "There is no such user.") }

// UserByID reads an account. CodeNotFound: it does not exist or was deleted.
func (s *Store) UserByID(ctx context.Context, id int64) (*models.User, error) {
	return s.userWhere(ctx, "id=?", id)
}

// UserByLogin reads an account by its name or, if login contains an '@', by its e-mail address. Both are compared by
// NormalizeLogin, and a name has to be in ASCII. CodeNotFound: the account does not exist.
func (s *Store) UserByLogin(ctx context.Context, login string) (*models.User, error) {
	login = models.CleanLine(login)
	column, of := "username", func(u *models.User) bool { return strings.EqualFold(u.Username, login) }
	if strings.Contains(login, "@") {
		column, of = "email", func(u *models.User) bool {
			return models.NormalizeLogin(u.Email) == models.NormalizeLogin(login)
		}
	}
	user, err := s.userWhere(ctx, column+"=?", login)
	if err == nil && !of(user) {
		return nil, ErrNoUser()
	}
	return user, err
}

func (s *Store) userWhere(ctx context.Context, condition string, arg any) (*models.User, error) {
	var u models.User
	err := s.Read(ctx).Where(condition+" AND deleted_at IS NULL", arg).Take(&u).Error
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return nil, ErrNoUser()
	}
	if err != nil {
		return nil, fmt.Errorf("read user: %w", err)
	}
	return &u, nil
}

// PublicUserByID reads a user as viewer (0 for the anonymous) sees them, in one query. Followers are a column. The
// other counts read one index entry for each row they count, about 0.1 ms per thousand; FollowingCount is at most
// MaxFollows. CodeNotFound: the user does not exist or was deleted.
func (s *Store) PublicUserByID(ctx context.Context, viewer, id int64) (*models.PublicUser, error) {
	return s.publicUser(ctx, viewer, "u.id=?", id)
}

// PublicUserByName is PublicUserByID for a username, without regard to case.
func (s *Store) PublicUserByName(ctx context.Context, viewer int64, name string) (*models.PublicUser, error) {
	user, err := s.publicUser(ctx, viewer, "u.username=?", name)
	if err == nil && !strings.EqualFold(user.Author.Username, name) { // as in UserByLogin
		return nil, ErrNoUser()
	}
	return user, err
}

// prefixWindow is the number of names that UsersByPrefix examines.
const prefixWindow = 100

// UsersByPrefix returns users whose names begin with prefix, without regard to case, in the order of their names: at
// most limit of the first prefixWindow. It passes over deleted accounts and those that the viewer blocks.
func (s *Store) UsersByPrefix(ctx context.Context, viewer int64, prefix string, limit int) ([]models.Author, error) {
	if len(prefix) > models.MaxUsername {
		return nil, nil
	}
	query := `
		SELECT u.id, u.username, u.display_name, u.avatar_url
		FROM (
			SELECT id
			FROM users FORCE INDEX (idx_username)
			WHERE username LIKE ?
			ORDER BY username
			LIMIT ?
		) n
		STRAIGHT_JOIN users u FORCE INDEX (PRIMARY) ON u.id=n.id
		WHERE u.deleted_at IS NULL AND ` + db.NotBlocked("u.id") + `
		ORDER BY u.username
		LIMIT ?`
	var users []models.Author
	err := s.Read(ctx).Raw(query, db.LikeEscape(prefix)+"%", prefixWindow, viewer, limit).Scan(&users).Error
	if err != nil {
		return nil, fmt.Errorf("complete a username: %w", err)
	}
	return users, nil
}

func (s *Store) publicUser(ctx context.Context, viewer int64, condition string, arg any) (*models.PublicUser, error) {
	query := `
		SELECT ` + AuthorColumns + `, u.role, u.bio, u.created_at, u.followers_count,
			(SELECT COUNT(*) FROM posts p WHERE p.user_id=u.id AND p.status=?) AS posts_count,
			(SELECT COUNT(*) FROM comments c WHERE c.user_id=u.id AND c.status=?) AS comments_count,
			(SELECT COUNT(*) FROM follows f WHERE f.user_id=u.id) AS following_count,
			EXISTS (SELECT 1 FROM follows f WHERE f.user_id=? AND f.followed_id=u.id) AS followed,
			` + db.IsBlocked("u.id") + ` AS blocked
		FROM users u
		WHERE ` + condition + ` AND u.deleted_at IS NULL`
	var u models.PublicUser
	read := s.Read(ctx).Raw(query, models.StatusNormal, models.StatusNormal, viewer, viewer, arg).Scan(&u)
	if read.Error != nil {
		return nil, fmt.Errorf("read user: %w", read.Error)
	}
	if read.RowsAffected == 0 {
		return nil, ErrNoUser()
	}
	return &u, nil
}

// UserExists returns CodeNotFound if the user does not exist or was deleted.
func (s *Store) UserExists(ctx context.Context, id int64) error {
	const query = `
		SELECT COUNT(*)
		FROM users
		WHERE id=? AND deleted_at IS NULL`
	var n int
	if err := s.Read(ctx).Raw(query, id).Scan(&n).Error; err != nil {
		return fmt.Errorf("read user %d: %w", id, err)
	}
	if n == 0 {
		return ErrNoUser()
	}
	return nil
}

// UserIDs returns the first limit ids of users that were not deleted, in ascending order.
func (s *Store) UserIDs(ctx context.Context, limit int) ([]int64, error) {
	const query = `
		SELECT id
		FROM users
		WHERE deleted_at IS NULL
		ORDER BY id
		LIMIT ?`
	var ids []int64
	if err := s.Read(ctx).Raw(query, limit).Scan(&ids).Error; err != nil {
		return nil, fmt.Errorf("read user ids: %w", err)
	}
	return ids, nil
}
