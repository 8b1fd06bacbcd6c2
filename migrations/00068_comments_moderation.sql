-- +goose Up
ALTER TABLE comments
    ADD COLUMN deleted_at DATETIME NULL COMMENT 'UTC, with status 2',
    ADD COLUMN deleted_by BIGINT NULL COMMENT 'who deleted it',
    ADD COLUMN delete_reason VARCHAR(500) NOT NULL DEFAULT '' COMMENT 'why a moderator deleted it',
    ADD COLUMN operation_id BIGINT NULL COMMENT 'of content_operations: what deleted it',
    ADD KEY idx_created_at (created_at, id),
    ADD KEY idx_status_created (status, created_at, id);
