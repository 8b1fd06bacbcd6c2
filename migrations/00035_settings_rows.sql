-- +goose Up
-- A process that pins a post locks this row, so that counting and pinning are one step.
INSERT INTO settings (name, value) VALUES ('pins', '');
