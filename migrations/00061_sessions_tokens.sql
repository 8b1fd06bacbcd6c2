-- +goose Up
ALTER TABLE sessions
    ADD COLUMN is_token BOOLEAN NOT NULL DEFAULT FALSE COMMENT 'an API token: named, and good for its scopes alone',
    ADD COLUMN name VARCHAR(100) NOT NULL DEFAULT '' COMMENT 'of an API token',
    ADD COLUMN scopes TINYINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'of an API token: 1 read + 2 write + 4 moderate',
    ADD COLUMN last_used_at DATETIME NULL COMMENT 'UTC; of an API token, to the minute';
