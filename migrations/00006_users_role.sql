-- +goose Up
ALTER TABLE users
    ADD COLUMN role TINYINT NOT NULL DEFAULT 1 COMMENT '1 user, 2 moderator, 3 admin';
