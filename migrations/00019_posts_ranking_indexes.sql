-- +goose Up
ALTER TABLE posts
    ADD KEY idx_status_hot (status, hot_score, id),
    ADD KEY idx_status_active (status, active_at, id);
