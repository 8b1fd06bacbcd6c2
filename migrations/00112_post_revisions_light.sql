-- +goose Up
ALTER TABLE post_revisions
    ADD COLUMN size INT NOT NULL DEFAULT 0 COMMENT 'of the content in bytes',
    ADD COLUMN changed TINYINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'what it changed: 1 title, 2 content, 4 tags',
    ADD COLUMN redacted_at DATETIME NULL COMMENT 'UTC; NULL unless its text was overwritten';
