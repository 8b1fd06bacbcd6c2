-- +goose Up
ALTER TABLE comments
    ADD KEY idx_user_status_created (user_id, status, created_at, id);
