package reader

import (
	"context"

	"likewise/models"
)

// SubscribedPosts lists the posts to which the user has subscribed, as BookmarkedPosts does.
func (s *Store) SubscribedPosts(
	ctx context.Context, userID, before int64, limit int,
) (list []models.KeptPost, rest *models.ListKey, err error) {
	return s.keptPosts(ctx, "subscriptions", userID, before, limit)
}
