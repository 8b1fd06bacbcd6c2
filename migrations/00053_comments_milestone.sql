-- +goose Up
ALTER TABLE comments
    ADD COLUMN milestone INT NOT NULL DEFAULT 0 COMMENT 'the highest power of ten in likes_count that the author was told of';
