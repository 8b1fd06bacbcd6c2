-- +goose Up
ALTER TABLE sessions
    ADD COLUMN proven_at DATETIME NULL
        COMMENT 'UTC; when its user last proved who they are, as by a login; NULL: never, and of API tokens';
