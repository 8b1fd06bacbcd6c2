-- +goose Up
-- A process that pins a post holds this row, so that posts are counted and pinned one after the other.
INSERT INTO settings (name, value) VALUES ('pins', '');
