-- +goose Up
ALTER TABLE moderation_log
    ADD KEY idx_type_created (target_type, created_at, id);
