-- +goose Up
ALTER TABLE posts
    ADD COLUMN edited_by BIGINT NULL COMMENT 'who wrote this version; NULL: the author',
    ADD COLUMN terms_version SMALLINT NOT NULL DEFAULT 0 COMMENT 'which rules made its rows in post_terms; 0: it has none';
