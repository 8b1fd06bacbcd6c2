-- +goose Up
ALTER TABLE dead_letters
    ADD COLUMN resolution VARCHAR(10) NOT NULL DEFAULT '' COMMENT 'retried or discarded; empty while it waits for somebody to look at it',
    ADD COLUMN resolved_at DATETIME(3) NULL COMMENT 'UTC',
    ADD COLUMN resolved_by BIGINT NULL COMMENT 'the moderator',
    ADD KEY idx_resolved_at (resolved_at, id);
