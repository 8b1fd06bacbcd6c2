-- +goose Up
ALTER TABLE sessions
    ADD COLUMN user_agent VARCHAR(200) NOT NULL DEFAULT '' COMMENT 'what the client called itself when it signed in',
    ADD KEY idx_user_created (user_id, created_at, token_hash);
