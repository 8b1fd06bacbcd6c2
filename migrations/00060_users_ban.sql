-- +goose Up
ALTER TABLE users
    ADD COLUMN banned_until DATETIME NULL COMMENT 'UTC; 9999-12-31 is for good; NULL or past: not banned',
    ADD COLUMN ban_reason VARCHAR(500) NOT NULL DEFAULT '' COMMENT 'of the last ban, as the user is told it';
