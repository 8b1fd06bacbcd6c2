-- +goose Up
ALTER TABLE content_operations
    ADD KEY idx_user_state (user_id, state) COMMENT 'whether one stands against a user';
