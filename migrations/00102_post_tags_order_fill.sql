-- +goose Up
UPDATE post_tags g
JOIN posts p ON p.id = g.post_id
SET g.user_id = p.user_id,
    g.likes_count = p.likes_count,
    g.hot_score = p.hot_score,
    g.active_at = p.active_at;
