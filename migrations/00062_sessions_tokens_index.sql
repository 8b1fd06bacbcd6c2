-- +goose Up
ALTER TABLE sessions
    DROP KEY idx_user_created,
    ADD KEY idx_user_token_created (user_id, is_token, created_at, token_hash);
