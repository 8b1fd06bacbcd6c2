-- +goose Up
ALTER TABLE posts
    ADD COLUMN locked BOOLEAN NOT NULL DEFAULT FALSE COMMENT 'takes no new comments',
    ADD COLUMN pinned BOOLEAN NOT NULL DEFAULT FALSE COMMENT 'is in the list of pinned posts',
    ADD COLUMN delete_reason VARCHAR(500) NOT NULL DEFAULT '' COMMENT 'why a moderator deleted it',
    ADD COLUMN operation_id BIGINT NULL COMMENT 'of content_operations: what deleted it',
    ADD KEY idx_locked_created (locked, created_at, id),
    ADD KEY idx_pinned_created (pinned, created_at, id);
