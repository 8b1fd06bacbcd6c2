-- +goose Up
ALTER TABLE posts
    ADD COLUMN hot_score BIGINT NOT NULL DEFAULT 0 COMMENT 'seconds since 1970 of created_at, plus 45,000 for each factor of ten in likes_count',
    ADD COLUMN active_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP COMMENT 'the latest comment; created_at while there is none',
    ADD COLUMN deleted_at DATETIME NULL COMMENT 'UTC, with status 2',
    ADD COLUMN deleted_by BIGINT NULL COMMENT 'who deleted it';
