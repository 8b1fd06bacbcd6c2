-- +goose Up
ALTER TABLE comments
    ADD KEY idx_post_status_created (post_id, status, created_at);
