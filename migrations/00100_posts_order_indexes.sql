-- +goose Up
ALTER TABLE posts
    DROP KEY idx_status_hot,
    DROP KEY idx_status_likes,
    DROP KEY idx_status_active,
    ADD KEY idx_status_hot (status, hot_score, id, created_at, user_id),
    ADD KEY idx_status_likes (status, likes_count, id, created_at, user_id),
    ADD KEY idx_status_active (status, active_at, id, created_at, user_id),
    ADD KEY idx_user_status_hot (user_id, status, hot_score, id, created_at),
    ADD KEY idx_user_status_likes (user_id, status, likes_count, id, created_at),
    ADD KEY idx_user_status_active (user_id, status, active_at, id, created_at);
