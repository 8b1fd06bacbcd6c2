-- +goose Up
UPDATE posts SET
    hot_score = UNIX_TIMESTAMP(created_at) + ROUND(45000 * LOG10(GREATEST(likes_count, 1))),
    active_at = COALESCE((SELECT MAX(c.created_at) FROM comments c WHERE c.post_id = posts.id AND c.status = 1), created_at),
    updated_at = updated_at;
