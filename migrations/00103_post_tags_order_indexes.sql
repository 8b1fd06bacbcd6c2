-- +goose Up
ALTER TABLE post_tags
    ADD KEY idx_tag_status_hot (tag_id, status, hot_score, post_id, created_at, user_id),
    ADD KEY idx_tag_status_likes (tag_id, status, likes_count, post_id, created_at, user_id),
    ADD KEY idx_tag_status_active (tag_id, status, active_at, post_id, created_at, user_id);
