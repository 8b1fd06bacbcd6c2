-- +goose Up
ALTER TABLE comments
    ADD COLUMN edited_by BIGINT NULL COMMENT 'who wrote this version; NULL: the author; 0: a redaction left it',
    ADD COLUMN purged BOOLEAN NOT NULL DEFAULT FALSE COMMENT 'an admin deleted its text for good';
