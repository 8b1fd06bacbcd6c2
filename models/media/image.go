package media

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/db"
)

// The states of an image. It begins as pending, so that a row names every object that the storage may hold. Only a
// ready image is shown. The objects of one that is being deleted go first, its row last.
const (
	imagePending  = 1
	imageReady    = 2
	imageDeleting = 3
)

const (
	// keepUnused is how long an image that nothing shows is kept.
	keepUnused = 24 * time.Hour
)

// newImageName returns a name that nobody can guess. It ends in the size of the image, so that a text that shows the
// image can be rendered without reading a row.
func newImageName(width, height int) string {
	var name [models.ImageNameRandom + 3]byte
	_, _ = rand.Read(name[:models.ImageNameRandom]) // it never fails
	size := width<<12 | height
	name[12], name[13], name[14] = byte(size>>16), byte(size>>8), byte(size)
	return base64.RawURLEncoding.EncodeToString(name[:])
}

// noRoom returns the error of an image that does not fit in a room.
func noRoom(field string, limit int64, message string) error {
	return &models.Error{Code: models.CodeConflict, Message: message, Fields: []models.FieldError{
		models.Fault{Code: models.FieldNoRoom, Params: models.Params{"max": limit},
			Message: "does not fit in the room that is left"}.In(field),
	}}
}

var imagePattern = regexp.MustCompile(regexp.QuoteMeta(models.ImagePath) + `([A-Za-z0-9_-]{20})`)

// imageNames returns the names of the images that texts mention, in whatever form, each once.
func imageNames(texts ...string) []string {
	var names []string
	for _, text := range texts {
		for _, found := range imagePattern.FindAllStringSubmatch(text, -1) {
			names = append(names, found[1])
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

const imageColumns = `
	id, name, user_id, type, width, height, bytes, thumbnail_bytes, created_at`

// AddImage writes the row of an image that the caller is about to store, names it and sets its id and time. Nobody sees
// it before ShowImage. CodeConflict, with the field: the images of the user or of all users would exceed the room.
//
// The bytes of all images are in settings. That row is locked last.
func (s *Store) AddImage(ctx context.Context, i *models.Image, field string, room models.ImageRoom) error {
	const sum = `
		SELECT COALESCE(SUM(bytes+thumbnail_bytes),0)
		FROM images FORCE INDEX (idx_user_id)
		WHERE user_id=? AND state<>?`
	const insert = `
		INSERT INTO images (name, user_id, state, type, width, height, bytes, thumbnail_bytes, created_at, due_at)
		VALUES (?,?,?,?,?,?,?,?,?,?)`
	const add = `
		UPDATE settings
		SET value=CAST(value AS SIGNED)+?
		WHERE name='image_bytes' AND CAST(value AS SIGNED)<=?`
	size := i.Bytes + i.ThumbnailBytes
	err := s.Transact(ctx, func(tx *db.Tx) error {
		users, err := accounts.LockStandings(tx, i.UserID) // under this lock, nobody else adds images of the user
		if err != nil {
			return err
		}
		if users[i.UserID] == nil {
			return accounts.ErrNoUser()
		}
		var used int64
		if err := tx.Raw(sum, i.UserID, imageDeleting).Scan(&used).Error; err != nil {
			return err
		}
		if used+size > room.User {
			return noRoom(
				field,
				room.User,
				"Your images take up all the room of an account. Delete some of them first.",
			)
		}
		i.Name, i.CreatedAt = newImageName(i.Width, i.Height), models.WholeSeconds(tx.Now)
		i.ID, err = tx.Insert(insert, i.Name, i.UserID, imagePending, i.Type, i.Width, i.Height, i.Bytes,
			i.ThumbnailBytes, i.CreatedAt, i.CreatedAt.Add(keepUnused))
		if err != nil {
			return err
		}
		added := tx.Exec(add, size, room.Site-size)
		if added.Error == nil && added.RowsAffected == 0 {
			return noRoom(field, room.Site, "The images of this site take up all its room. Ask its operator for more.")
		}
		return added.Error
	})
	if err != nil {
		return fmt.Errorf("add an image of user %d: %w", i.UserID, err)
	}
	return nil
}

// ShowImage makes an image visible whose objects are stored.
func (s *Store) ShowImage(ctx context.Context, id int64) error {
	const update = `
		UPDATE images
		SET state=?
		WHERE id=? AND state=?`
	shown, err := s.Write(ctx, update, imageReady, id, imagePending)
	if err == nil && shown == 0 {
		err = models.Unavailable("The upload took too long; try again.", nil) // cron has given it up
	}
	if err != nil {
		return fmt.Errorf("show image %d: %w", id, err)
	}
	return nil
}

// DropImage has the cron job delete an image that could not be stored.
func (s *Store) DropImage(ctx context.Context, id int64) error {
	const update = `
		UPDATE images
		SET state=?, due_at=?
		WHERE id=? AND state=?`
	if _, err := s.Write(ctx, update, imageDeleting, models.WholeSeconds(s.Now()), id, imagePending); err != nil {
		return fmt.Errorf("drop image %d: %w", id, err)
	}
	return nil
}

// ImageByName reads an image. CodeNotFound: it was deleted or never existed.
func (s *Store) ImageByName(ctx context.Context, name string) (*models.Image, error) {
	const query = `
		SELECT ` + imageColumns + `
		FROM images FORCE INDEX (idx_name)
		WHERE name=? AND state=?`
	if _, _, ok := models.ImageSize(name); !ok { // no image can have the name
		return nil, models.ErrNoImage()
	}
	var i models.Image
	read := s.Read(ctx).Raw(query, name, imageReady).Scan(&i)
	if read.Error != nil {
		return nil, fmt.Errorf("read an image: %w", read.Error)
	}
	if read.RowsAffected == 0 {
		return nil, models.ErrNoImage()
	}
	item := []models.Image{i}
	if err := s.markHidden(ctx, item); err != nil {
		return nil, err
	}
	return &item[0], nil
}

// usesOfImages returns the uses of images as rows of (image_id, shown). A use is shown if everybody can read it: a
// profile, or a post or comment that is not deleted. Drafts are left out: they neither show an image nor hide it.
func usesOfImages(ids string) string {
	return `
		SELECT u.image_id, u.subject_type='user' AS shown
		FROM image_uses u FORCE INDEX (idx_image_id)
		WHERE u.image_id IN (` + ids + `) AND u.subject_type<>'draft'
		UNION
		SELECT u.image_id, TRUE
		FROM image_uses u FORCE INDEX (idx_image_id)
		STRAIGHT_JOIN posts p ON p.id=u.subject_id
		WHERE u.image_id IN (` + ids + `) AND u.subject_type='post' AND p.status=` + db.Literal(models.StatusNormal) + `
		UNION
		SELECT u.image_id, TRUE
		FROM image_uses u FORCE INDEX (idx_image_id)
		STRAIGHT_JOIN comments c ON c.id=u.subject_id
		STRAIGHT_JOIN posts p ON p.id=c.post_id
		WHERE u.image_id IN (` + ids + `) AND u.subject_type='comment' AND c.status=` +
		db.Literal(models.StatusNormal) + `
			AND p.status=` + db.Literal(models.StatusNormal)
}

// markHidden sets Hidden of images. An image that no post or comment uses is new, or only in a draft: it is hidden if
// the account of its user is deleted.
func (s *Store) markHidden(ctx context.Context, list []models.Image) error {
	if len(list) == 0 {
		return nil
	}
	ids, users := make([]int64, len(list)), make([]int64, len(list))
	for n, i := range list {
		ids[n], users[n] = i.ID, i.UserID
	}
	var uses []struct {
		ImageID int64
		Shown   bool
	}
	if err := s.Read(ctx).Raw(usesOfImages(db.JoinIDs(ids))).Scan(&uses).Error; err != nil {
		return fmt.Errorf("read the uses of images: %w", err)
	}
	used, shown := map[int64]bool{}, map[int64]bool{}
	for _, use := range uses {
		used[use.ImageID] = true
		shown[use.ImageID] = shown[use.ImageID] || use.Shown
	}
	query := `
		SELECT id
		FROM users
		WHERE id IN (` + db.JoinIDs(users) + `) AND deleted_at IS NOT NULL`
	var gone []int64
	if err := s.Read(ctx).Raw(query).Scan(&gone).Error; err != nil {
		return fmt.Errorf("read the users of images: %w", err)
	}
	for n := range list {
		i := &list[n]
		i.Hidden = !shown[i.ID] && (used[i.ID] || slices.Contains(gone, i.UserID))
	}
	return nil
}

// ImageUses returns what keeps an image, drafts excepted: the latest MaxImageUses of each type.
func (s *Store) ImageUses(ctx context.Context, id int64) ([]models.ImageUse, error) {
	const query = `
		SELECT subject_type, subject_id
		FROM image_uses FORCE INDEX (idx_image_id)
		WHERE image_id=? AND subject_type=?
		ORDER BY subject_id DESC
		LIMIT ?`
	uses := []models.ImageUse{}
	for _, kind := range []string{subjectUser, string(models.KindPost), string(models.KindComment)} {
		var batch []models.ImageUse
		if err := s.Read(ctx).Raw(query, id, kind, models.MaxImageUses).Scan(&batch).Error; err != nil {
			return nil, fmt.Errorf("read the uses of image %d: %w", id, err)
		}
		uses = append(uses, batch...)
	}
	return uses, nil
}

// Images lists the images of the user, the latest first: at most limit images older than row before (0 for the first
// page).
func (s *Store) Images(ctx context.Context, userID, before int64, limit int) ([]models.Image, error) {
	where := db.Matching("user_id=?", userID)
	where.AddIf(before > 0, "id<?", before)
	where.Add("state=?", imageReady)
	query := `
		SELECT ` + imageColumns + `
		FROM images FORCE INDEX (idx_user_id)
		` + where.Clause() + `
		ORDER BY id DESC
		LIMIT ?`
	var list []models.Image
	if err := s.Read(ctx).Raw(query, where.Between(nil, limit)...).Scan(&list).Error; err != nil {
		return nil, fmt.Errorf("list images of user %d: %w", userID, err)
	}
	return list, s.markHidden(ctx, list)
}

// DeleteImage deletes an image, whatever shows it, and has the cron job delete its objects. If the actor is not its
// user, the act is logged, and CodeForbidden means that the actor is no longer a moderator. CodeNotFound: it was
// deleted before.
func (s *Store) DeleteImage(ctx context.Context, actor int64, i *models.Image) error {
	const update = `
		UPDATE images FORCE INDEX (PRIMARY)
		SET state=?, due_at=?
		WHERE id=? AND state=?`
	err := s.Transact(ctx, func(tx *db.Tx) error {
		if actor != i.UserID {
			if err := accounts.LockActor(tx, actor, models.RoleModerator); err != nil {
				return err
			}
		}
		deleted := tx.Exec(update, imageDeleting, models.WholeSeconds(tx.Now), i.ID, imageReady)
		if deleted.Error != nil {
			return deleted.Error
		}
		if deleted.RowsAffected == 0 {
			return models.ErrNoImage()
		}
		if actor == i.UserID {
			return nil
		}
		return accounts.LogModeration(tx, accounts.ModerationAct{
			ActorID: actor, Action: "image.delete", TargetType: "image", TargetID: i.ID,
			Before: map[string]any{"name": i.Name, "user_id": i.UserID},
		})
	})
	if err != nil {
		return fmt.Errorf("delete image %d: %w", i.ID, err)
	}
	return nil
}

// OrphanImages takes at most limit images that are due. Those that something shows are put aside until it no longer
// does; of the others, nobody can begin to show them from now on. The caller deletes their objects and then forgets
// them. taken counts both.
//
// The rows stay locked from the look at the uses to the mark, and a text locks the row of an image before it writes a
// use. So either the text comes first and the image stays, or the text finds the image marked.
func (s *Store) OrphanImages(ctx context.Context, limit int) (orphans []models.StoredImage, taken int, err error) {
	const find = `
		SELECT id
		FROM images FORCE INDEX (idx_due_at)
		WHERE due_at<=?
		ORDER BY due_at
		LIMIT ?`
	now := models.WholeSeconds(s.Now())
	var ids []int64
	if err := s.Read(ctx).Raw(find, now, limit).Scan(&ids).Error; err != nil {
		return nil, 0, fmt.Errorf("find orphaned images: %w", err)
	}
	if len(ids) == 0 {
		return nil, 0, nil
	}
	err = s.Transact(ctx, func(tx *db.Tx) error {
		locked, err := lockImages(tx, ids)
		if err != nil {
			return err
		}
		uses := `
			SELECT DISTINCT image_id
			FROM image_uses FORCE INDEX (idx_image_id)
			WHERE image_id IN (` + db.JoinIDs(db.Ascending(ids)) + `)`
		var used []int64
		if err := tx.Raw(uses).Scan(&used).Error; err != nil {
			return err
		}
		orphans = nil
		var aside, doomed []int64
		for _, i := range locked {
			switch {
			case i.DueAt == nil || i.DueAt.After(now): // changed since it was found
			case i.State == imageReady && slices.Contains(used, i.ID):
				aside = append(aside, i.ID)
			default:
				doomed = append(doomed, i.ID)
				orphans = append(orphans, models.StoredImage{ID: i.ID, Name: i.Name})
			}
		}
		if err := updateImages(tx, aside, "due_at=NULL"); err != nil {
			return err
		}
		return updateImages(tx, doomed, fmt.Sprintf("state=%d", imageDeleting))
	})
	if err != nil {
		return nil, 0, fmt.Errorf("mark orphaned images: %w", err)
	}
	return orphans, len(ids), nil
}

// lockedImage is a row that the transaction holds.
type lockedImage struct {
	ID     int64
	Name   string
	UserID int64
	State  int
	DueAt  *time.Time
}

// lockImages locks images in the order of their ids. Those that do not exist are left out.
func lockImages(tx *db.Tx, ids []int64) ([]lockedImage, error) {
	return db.LockRows[lockedImage](tx, "images", "id, name, user_id, state, due_at", ids)
}

// updateImages changes the rows of images that the transaction holds. The change consists of names and numbers of this
// package, and of placeholders for args.
func updateImages(tx *db.Tx, ids []int64, change string, args ...any) error {
	if len(ids) == 0 {
		return nil
	}
	update := `
		UPDATE images FORCE INDEX (PRIMARY)
		SET ` + change + `
		WHERE id IN (` + db.JoinIDs(ids) + `)`
	return tx.Exec(update, args...).Error
}

// ForgetImage deletes the row of an orphaned image whose objects are deleted.
func (s *Store) ForgetImage(ctx context.Context, id int64) error {
	const find = `
		SELECT subject_type, subject_id
		FROM image_uses FORCE INDEX (idx_image_id)
		WHERE image_id=?
		ORDER BY subject_type, subject_id`
	const forgetUse = `
		DELETE FROM image_uses
		WHERE subject_type=? AND subject_id=? AND image_id=?`
	const measure = `
		SELECT bytes+thumbnail_bytes
		FROM images
		WHERE id=?`
	const forget = `
		DELETE FROM images
		WHERE id=? AND state=?`
	const free = `
		UPDATE settings
		SET value=CAST(value AS SIGNED)-?
		WHERE name='image_bytes'`
	err := s.Transact(ctx, func(tx *db.Tx) error {
		if _, err := lockImages(tx, []int64{id}); err != nil {
			return err
		}
		var uses []ImageSubject
		if err := tx.Raw(find, id).Scan(&uses).Error; err != nil {
			return err
		}
		for _, use := range uses {
			if err := tx.Exec(forgetUse, use.Type, use.ID, id).Error; err != nil {
				return err
			}
		}
		var size int64
		if err := tx.Raw(measure, id).Scan(&size).Error; err != nil {
			return err
		}
		deleted := tx.Exec(forget, id, imageDeleting)
		if deleted.Error != nil || deleted.RowsAffected == 0 {
			return deleted.Error
		}
		return tx.Exec(free, size).Error
	})
	if err != nil {
		return fmt.Errorf("forget image %d: %w", id, err)
	}
	return nil
}

// imageRetry is how long after a failure the objects of an orphaned image are deleted again.
const imageRetry = 10 * time.Minute

// RetryImage has the objects of an orphaned image deleted later, because the storage failed.
func (s *Store) RetryImage(ctx context.Context, id int64) error {
	const update = `
		UPDATE images
		SET due_at=?
		WHERE id=? AND state=?`
	if _, err := s.Write(ctx, update, models.WholeSeconds(s.Now().Add(imageRetry)), id, imageDeleting); err != nil {
		return fmt.Errorf("retry image %d: %w", id, err)
	}
	return nil
}

// ImageSubject is something that shows images.
type ImageSubject struct {
	Type string `gorm:"column:subject_type"`
	ID   int64  `gorm:"column:subject_id"`
}

// The types of subjects, besides those of a TargetKind.
const (
	subjectDraft = "draft"
	subjectUser  = "user"
)

// DraftSubject returns a draft, whose text shows images.
func DraftSubject(id int64) ImageSubject { return ImageSubject{subjectDraft, id} }

// UserSubject returns the account of a user, whose bio and avatar show images.
func UserSubject(id int64) ImageSubject { return ImageSubject{subjectUser, id} }

// TargetSubject returns a post or comment, whose text shows images.
func TargetSubject(t models.Target) ImageSubject { return ImageSubject{string(t.Kind), t.ID} }

// AddImageUses records that a further version of a subject's text uses images. The caller holds the subject's row, and
// locks only tags and events afterwards. An image that belongs to none of the owners is passed over: a text of another
// user may name its address, but does not keep it. So are images that do not exist.
func AddImageUses(tx *db.Tx, subject ImageSubject, owners []int64, texts ...string) error {
	names := imageNames(texts...)
	if len(names) == 0 {
		return nil
	}
	_, err := changeImageUses(tx, subject, owners, names, false)
	return err
}

// SetImageUses records that a subject uses the images of these texts and no others. Those that nothing else uses are
// kept for another day, because the user may want to use them again.
func SetImageUses(tx *db.Tx, subject ImageSubject, owners []int64, texts ...string) error {
	free, err := changeImageUses(tx, subject, owners, imageNames(texts...), true)
	if err != nil {
		return err
	}
	return updateImages(tx, free, "due_at=?", models.WholeSeconds(tx.Now.Add(keepUnused)))
}

// EraseImageUses records that a text was erased for good, and which texts of its subject are left. The images that only
// the erased text used are deleted, like that text: a draft does not keep them.
func EraseImageUses(tx *db.Tx, subject ImageSubject, left ...string) error {
	free, err := changeImageUses(tx, subject, nil, imageNames(left...), true)
	if err != nil || len(free) == 0 {
		return err
	}
	query := `
		SELECT DISTINCT image_id
		FROM image_uses FORCE INDEX (idx_image_id)
		WHERE image_id IN (` + db.JoinIDs(db.Ascending(free)) + `) AND subject_type<>'draft'`
	var used []int64
	if err := tx.Raw(query).Scan(&used).Error; err != nil {
		return err
	}
	now := models.WholeSeconds(tx.Now)
	if err := updateImages(tx, used, "due_at=?", now.Add(keepUnused)); err != nil {
		return err
	}
	return updateImages(tx, without(free, used), "state=?, due_at=?", imageDeleting, now)
}

// changeImageUses adds uses of images that belong to one of the owners, and if replace is set, removes those of all
// other images. It returns the images whose uses it removed, which the transaction holds.
func changeImageUses(
	tx *db.Tx, subject ImageSubject, owners []int64, names []string, replace bool,
) (free []int64, err error) {
	const readBefore = `
		SELECT image_id
		FROM image_uses
		WHERE subject_type=? AND subject_id=?`
	const find = `
		SELECT id
		FROM images FORCE INDEX (idx_name)
		WHERE name IN (?)`
	const insert = `
		INSERT INTO image_uses (subject_type, subject_id, image_id)
		VALUES (?,?,?)`
	var before, now []int64
	if err := tx.Raw(readBefore, subject.Type, subject.ID).Scan(&before).Error; err != nil {
		return nil, err
	}
	if len(names) > 0 {
		if err := tx.Raw(find, names).Scan(&now).Error; err != nil {
			return nil, err
		}
	}
	added, removed := without(now, before), []int64(nil)
	if replace {
		removed = without(before, now)
	}
	if len(added)+len(removed) == 0 {
		return nil, nil
	}
	locked, err := lockImages(tx, append(slices.Clone(added), removed...))
	if err != nil {
		return nil, err
	}
	for _, i := range locked {
		switch {
		case i.State != imageReady:
		case slices.Contains(removed, i.ID):
			free = append(free, i.ID)
		case slices.Contains(owners, i.UserID):
			if err := tx.Exec(insert, subject.Type, subject.ID, i.ID).Error; err != nil {
				return nil, err
			}
		}
	}
	if len(removed) == 0 {
		return free, nil
	}
	remove := `
		DELETE FROM image_uses
		WHERE subject_type=? AND subject_id=? AND image_id IN (` + db.JoinIDs(db.Ascending(removed)) + `)`
	return free, tx.Exec(remove, subject.Type, subject.ID).Error
}

// FreeImagesOfDrafts records that deleted drafts show nothing.
func FreeImagesOfDrafts(tx *db.Tx, drafts []int64) error {
	list := db.JoinIDs(drafts)
	read := `
		SELECT DISTINCT image_id
		FROM image_uses FORCE INDEX (PRIMARY)
		WHERE subject_type='draft' AND subject_id IN (` + list + `)`
	remove := `
		DELETE u
		FROM image_uses u FORCE INDEX (PRIMARY)
		WHERE u.subject_type='draft' AND u.subject_id IN (` + list + `)`
	var shown []int64
	if err := tx.Raw(read).Scan(&shown).Error; err != nil || len(shown) == 0 {
		return err
	}
	locked, err := lockImages(tx, shown)
	if err != nil {
		return err
	}
	if err := tx.Exec(remove).Error; err != nil {
		return err
	}
	var free []int64
	for _, i := range locked {
		if i.State == imageReady {
			free = append(free, i.ID)
		}
	}
	return updateImages(tx, free, "due_at=?", models.WholeSeconds(tx.Now.Add(keepUnused)))
}

// without returns the ids that are not among others.
func without(ids, others []int64) []int64 {
	set := map[int64]bool{}
	for _, id := range ids {
		set[id] = true
	}
	for _, id := range others {
		delete(set, id)
	}
	return slices.Sorted(maps.Keys(set))
}
