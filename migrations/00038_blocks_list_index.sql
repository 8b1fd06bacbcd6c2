-- +goose Up
ALTER TABLE blocks
    ADD KEY idx_user_created (user_id, created_at, blocked_id);
