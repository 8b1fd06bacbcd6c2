-- +goose Up
ALTER TABLE like_voids
    ADD COLUMN reason VARCHAR(500) NOT NULL DEFAULT '' COMMENT 'the moderator''s; empty when the user did it';
