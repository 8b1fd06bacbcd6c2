package reader

import (
	"context"

	"likewise/models"
	"likewise/models/content"
)

// SubscribedPosts lists the posts to which the user has subscribed, as BookmarkedPosts does.
func (s *Store) SubscribedPosts(
	ctx context.Context, userID int64, view content.PostView, before int64, limit int,
) (list []models.KeptPost, rest *models.ListKey, err error) {
	return s.keptPosts(ctx, "subscriptions", userID, view, before, limit)
}
