-- +goose Up
ALTER TABLE posts
    ADD COLUMN changed TINYINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'what this version changed: 1 title, 2 content, 4 tags',
    ADD COLUMN purged BOOLEAN NOT NULL DEFAULT FALSE COMMENT 'an admin deleted its text for good';
