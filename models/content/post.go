package content

import (
	"context"
	"fmt"
	"time"

	"gorm.io/gorm"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/db"
	"likewise/models/media"
	"likewise/models/people"
	"likewise/models/search"
)

// CreatePost writes a post and returns it as viewers read it.
func (s *Store) CreatePost(ctx context.Context, author models.Author, text models.PostText) (*models.Post, error) {
	var p *models.Post
	tags, err := s.tagIDs(ctx, text.Tags)
	if err != nil {
		return nil, fmt.Errorf("create post: %w", err)
	}
	derived := derive(text, s.Excerpt(text.Content))
	err = s.Transact(ctx, func(tx *db.Tx) error {
		now := models.WholeSeconds(tx.Now)
		p = &models.Post{
			Author: author, Title: text.Title, Content: text.Content, Tags: text.Tags, Status: models.StatusNormal,
			CreatedAt: now, UpdatedAt: now, HotScore: models.HotScore(now, 0), ActiveAt: now,
		}
		if p.ID, err = insertPost(tx, newPost{author.ID, text, now, now}, tags, derived); err != nil {
			return err
		}
		if err := people.NotifyMentions(tx, author.ID, p.ID, 0, now, text.Mentions, 0); err != nil {
			return err
		}
		subject := media.TargetSubject(models.Target{Kind: models.KindPost, ID: p.ID})
		if err := media.AddImageUses(tx, subject, []int64{author.ID}, text.Content); err != nil {
			return err
		}
		tx.Announce(models.PostCreated, p.ID)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("create post: %w", err)
	}
	return p, nil
}

type newPost struct {
	authorID             int64
	text                 models.PostText
	createdAt, updatedAt time.Time // in whole seconds
}

// derived is what is stored beside the text of a post and made of it.
type derived struct {
	weights map[string]int // of the terms of the search index
	excerpt db.Excerpt
}

func derive(text models.PostText, e db.Excerpt) derived {
	return derived{search.Weights(text.Title, text.Content), e}
}

// insertPost writes a post with its tags and what was derived from its text.
func insertPost(tx *db.Tx, p newPost, tags map[string]int64, d derived) (int64, error) {
	id, err := tx.Insert(`
		INSERT INTO posts
			(user_id, title, content, excerpt, excerpt_version, created_at, updated_at, hot_score, active_at,
			terms_version)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		p.authorID, p.text.Title, p.text.Content, d.excerpt.Text, d.excerpt.Version, p.createdAt, p.updatedAt,
		models.HotScore(p.createdAt, 0), p.createdAt, search.Version)
	if err != nil {
		return 0, err
	}
	if err := insertTags(tx, id, p.createdAt, p.text.Tags, tags); err != nil {
		return 0, err
	}
	for _, name := range p.text.Tags {
		tx.CountTag(tags[name], 1)
	}
	return id, writeTerms(tx, models.Target{Kind: models.KindPost, ID: id}, d.weights)
}

// PostByID reads a post as viewer (0 for the anonymous) sees it. If the post is deleted or never existed, PostByID
// returns CodeNotFound.
func (s *Store) PostByID(ctx context.Context, viewer, id int64) (*models.Post, error) {
	return readPost(s.Read(ctx), viewer, id)
}

// PostsByID reads posts as the anonymous see them. It omits those that are deleted or never existed.
func (s *Store) PostsByID(ctx context.Context, ids []int64) (map[int64]*models.Post, error) {
	read, err := postsByID(s.Read(ctx), 0, ids)
	if err != nil {
		return nil, err
	}
	posts := make(map[int64]*models.Post, len(read))
	for _, p := range read {
		posts[p.ID] = p
	}
	return posts, nil
}

func readPost(conn *gorm.DB, viewer, id int64) (*models.Post, error) {
	posts, err := postsByID(conn, viewer, []int64{id})
	if err != nil {
		return nil, err
	}
	if len(posts) == 0 {
		return nil, models.NotFound(models.KindPost)
	}
	return posts[0], nil
}

// postsByID returns the posts that are not deleted, in no order.
func postsByID(conn *gorm.DB, viewer int64, ids []int64) (posts []*models.Post, err error) {
	query := `
		SELECT ` + PostColumns + `, ` + FullColumns + `
		FROM posts p FORCE INDEX (PRIMARY)
		STRAIGHT_JOIN users u FORCE INDEX (PRIMARY) ON u.id=p.user_id
		WHERE p.id IN (` + db.JoinIDs(ids) + `) AND p.status=?`
	if err := conn.Raw(query, viewer, models.StatusNormal).Scan(&posts).Error; err != nil {
		return nil, fmt.Errorf("read %d posts: %w", len(ids), err)
	}
	return posts, nil
}

// PostStates returns the states of posts that are not deleted, by id.
func (s *Store) PostStates(ctx context.Context, ids []int64) (map[int64]models.PostState, error) {
	query := `
		SELECT id, user_id AS author_id, locked
		FROM posts FORCE INDEX (PRIMARY)
		WHERE id IN (` + db.JoinIDs(ids) + `) AND status=?`
	var rows []struct {
		ID    int64
		Place models.PostState `gorm:"embedded"`
	}
	if err := s.Read(ctx).Raw(query, models.StatusNormal).Scan(&rows).Error; err != nil {
		return nil, fmt.Errorf("read places of %d posts: %w", len(ids), err)
	}
	places := make(map[int64]models.PostState, len(rows))
	for _, row := range rows {
		places[row.ID] = row.Place
	}
	return places, nil
}

// UpdatePost replaces text and tags of a post that has the given version, and keeps the old ones as a Revision. It
// returns the post as this edit left it. An edit that changes nothing makes no version. UpdatePost returns
// CodePrecondition if the post has another version, CodeLocked if it is locked and the editor is not a moderator, and
// CodeNotFound if it is deleted or never existed.
func (s *Store) UpdatePost(
	ctx context.Context, editor, id, version int64, text models.PostText,
) (p *models.Post, err error) {
	tags, err := s.tagIDs(ctx, text.Tags)
	if err != nil {
		return nil, fmt.Errorf("update post %d: %w", id, err)
	}
	derived := derive(text, s.Excerpt(text.Content))
	err = s.Transact(ctx, func(tx *db.Tx) error {
		if _, err := lockThose(tx, "posts", []int64{id}, models.StatusNormal); err != nil {
			return err
		}
		if p, err = readPost(tx.DB, editor, id); err != nil {
			return err
		}
		if err := mayEdit(tx, editor, p.Locked); err != nil {
			return err
		}
		if p.Version != version {
			return models.VersionMismatch(p.Version)
		}
		if p.ChangesTo(text) == 0 {
			return nil
		}
		if err := replacePost(tx, p, editor, text, tags, derived); err != nil {
			return err
		}
		return people.NotifyMentions(tx, p.Author.ID, p.ID, 0, p.UpdatedAt, text.Mentions, 0)
	})
	if err != nil {
		return nil, fmt.Errorf("update post %d: %w", id, err)
	}
	return p, nil
}

// replacePost writes the next version of p, whose row is locked, keeps the old one as a Revision and updates p. editor
// is 0 for the text that a redaction leaves.
func replacePost(
	tx *db.Tx, p *models.Post, editor int64, text models.PostText, tags map[string]int64, d derived,
) error {
	changed := p.ChangesTo(text)
	if err := keepRevision(tx, models.Target{Kind: models.KindPost, ID: p.ID}); err != nil {
		return err
	}
	p.Title, p.Content, p.Tags = text.Title, text.Content, text.Tags
	p.Version, p.UpdatedAt = p.Version+1, models.WholeSeconds(tx.Now)
	indexed := 0
	if p.Status == models.StatusNormal {
		indexed = search.Version
	} else {
		d.excerpt = db.Excerpt{} // ShowPosts makes it
	}
	const update = `
		UPDATE posts
		SET title=?, content=?, excerpt=?, excerpt_version=?, version=?, updated_at=?, edited_by=NULLIF(?,user_id),
			changed=?, terms_version=?
		WHERE id=?`
	err := tx.Exec(update, p.Title, p.Content, d.excerpt.Text, d.excerpt.Version, p.Version, p.UpdatedAt, editor,
		changed, indexed, p.ID).Error
	if err != nil {
		return err
	}
	if err := deleteTerms(tx, models.KindPost, p.ID); err != nil {
		return err
	}
	var before []int64
	if err := tx.Raw("SELECT tag_id FROM post_tags WHERE post_id=?", p.ID).Scan(&before).Error; err != nil {
		return err
	}
	if err := tx.Exec("DELETE FROM post_tags WHERE post_id=?", p.ID).Error; err != nil {
		return err
	}
	if err := insertTags(tx, p.ID, p.CreatedAt, text.Tags, tags); err != nil {
		return err
	}
	owners := []int64{p.Author.ID, editor}
	if err := media.AddImageUses(tx, media.TargetSubject(models.Target{Kind: models.KindPost, ID: p.ID}), owners,
		text.Content); err != nil {
		return err
	}
	if p.Status != models.StatusNormal { // a deleted post is neither indexed nor counted
		return nil
	}
	tx.Announce(models.PostEdited, p.ID)
	for _, name := range text.Tags {
		tx.CountTag(tags[name], 1)
	}
	for _, tag := range before {
		tx.CountTag(tag, -1)
	}
	return writeTerms(tx, models.Target{Kind: models.KindPost, ID: p.ID}, d.weights)
}

// RedactPost replaces the text of p by RedactedText, as replacePost does.
func RedactPost(tx *db.Tx, p *models.Post) error {
	text := models.PostText{Title: models.RedactedText, Content: models.RedactedText}
	return replacePost(tx, p, 0, text, nil, derive(text, tx.Excerpt(text.Content)))
}

// mayEdit returns CodeLocked if the post is locked and the editor is not a moderator (see despiteLock).
func mayEdit(tx *db.Tx, editor int64, locked bool) error {
	return despiteLock(tx, editor, locked, "neither it nor its comments can be edited")
}

// despiteLock returns CodeLocked with the effect of the lock if the post is locked and the user is not a moderator. The
// caller holds the post's row, so no moderator can lock the post before the caller commits.
func despiteLock(tx *db.Tx, userID int64, locked bool, effect string) error {
	if !locked {
		return nil
	}
	var role models.Role
	if err := tx.Raw("SELECT role FROM users WHERE id=?", userID).Scan(&role).Error; err != nil {
		return fmt.Errorf("read role of user %d: %w", userID, err)
	}
	if role < models.RoleModerator {
		return models.Errorf(models.CodeLocked, "A moderator has locked the post: %s.", effect)
	}
	return nil
}

// DeletePost marks a post as deleted by a user, 0 for nobody. If the post is already deleted or never existed,
// DeletePost returns CodeNotFound.
func (s *Store) DeletePost(ctx context.Context, by, id int64) error {
	err := s.Transact(ctx, func(tx *db.Tx) error {
		hidden, err := HidePosts(tx, []int64{id}, models.Deletion{At: tx.Now, By: models.Author{ID: by}})
		if err == nil && len(hidden) == 0 {
			err = models.NotFound(models.KindPost)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("delete post %d: %w", id, err)
	}
	return nil
}

// RestorePost restores a post that its author deleted at most RestoreWithin ago, and returns it as viewers read it. A
// post that is not deleted stays as it is. RestorePost returns CodeNotFound to anybody but the author, CodeForbidden if
// somebody else deleted the post, and CodeTooLate after RestoreWithin.
func (s *Store) RestorePost(ctx context.Context, author, id int64) (*models.Post, error) {
	err := s.Transact(ctx, func(tx *db.Tx) error {
		// A moderator who requests the deletion of all posts of the author locks the author, too.
		if _, err := accounts.LockStandings(tx, author); err != nil {
			return err
		}
		restorable, err := lockRestorable(tx, author, id)
		if err != nil || !restorable {
			return err
		}
		if swept, err := sweptAway(tx, author, id); err != nil {
			return err
		} else if swept {
			return models.Errorf(models.CodeForbidden,
				"A moderator has deleted everything that you wrote, including this post. "+
					"Only a moderator can restore it.")
		}
		_, err = ShowPosts(tx, []int64{id})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("restore post %d: %w", id, err)
	}
	return s.PostByID(ctx, author, id)
}

// lockRestorable locks a post. It reports false if the post is not deleted, and returns an error if the author must not
// restore it.
func lockRestorable(tx *db.Tx, author, id int64) (restorable bool, err error) {
	const query = `
		SELECT status, deleted_at, COALESCE(deleted_by, 0) AS deleted_by
		FROM posts FORCE INDEX (PRIMARY)
		WHERE id=? AND user_id=?
		FOR UPDATE`
	var p struct {
		Status    models.Status
		DeletedAt *time.Time
		DeletedBy int64
	}
	read := tx.Raw(query, id, author).Scan(&p)
	switch {
	case read.Error != nil:
		return false, read.Error
	case read.RowsAffected == 0:
		return false, models.NotFound(models.KindPost)
	case p.Status == models.StatusNormal:
		return false, nil
	case p.DeletedBy != author && p.DeletedBy != 0:
		return false, models.Errorf(models.CodeForbidden,
			"Somebody else deleted the post. Only a moderator can restore it.")
	case p.DeletedBy == 0 || p.DeletedAt == nil || tx.Now.Sub(*p.DeletedAt) > models.RestoreWithin:
		return false, models.Errorf(models.CodeTooLate,
			"An author can restore a post for 24 hours after deleting it. After that, only a moderator can restore it.")
	}
	return true, nil
}
