-- +goose Up
ALTER TABLE posts
    ADD KEY idx_status_created (status, created_at, id),
    ADD KEY idx_status_likes (status, likes_count, id),
    ADD KEY idx_user_status_created (user_id, status, created_at, id);
