-- +goose Up
ALTER TABLE users
    ADD COLUMN display_name VARCHAR(50) NULL,
    ADD COLUMN bio VARCHAR(500) NOT NULL DEFAULT '',
    ADD COLUMN avatar_url VARCHAR(500) NULL,
    ADD COLUMN followers_count INT NOT NULL DEFAULT 0 COMMENT 'rows of follows with this followed_id, at every commit',
    ADD COLUMN deleted_at DATETIME NULL COMMENT 'UTC; the account is a placeholder for the author of its content';
