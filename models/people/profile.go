package people

import (
	"context"
	"fmt"

	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/db"
	"likewise/models/media"
)

// UpdateProfile replaces the profile of a user. Of two concurrent updates, the later one stays.
func (s *Store) UpdateProfile(ctx context.Context, userID int64, p models.Profile) error {
	const update = `
		UPDATE users
		SET display_name=NULLIF(?,''), bio=?, avatar_url=NULLIF(?,'')
		WHERE id=? AND deleted_at IS NULL`
	err := s.Transact(ctx, func(tx *db.Tx) error {
		if err := tx.Exec(update, p.DisplayName, p.Bio, p.AvatarURL, userID).Error; err != nil {
			return err
		}
		if err := media.SetImageUses(tx, media.UserSubject(userID), []int64{userID}, p.AvatarURL); err != nil {
			return err
		}
		return accounts.SessionsChanged(tx, userID) // which hold the name
	})
	if err != nil {
		return fmt.Errorf("update profile of user %d: %w", userID, err)
	}
	return nil
}
