-- +goose Up
UPDATE post_revisions SET size=LENGTH(content);
