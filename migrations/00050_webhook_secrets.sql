-- +goose Up
ALTER TABLE webhooks
    ADD COLUMN previous_secret VARBINARY(32) NULL COMMENT 'the key before the latest rotation',
    ADD COLUMN previous_until DATETIME(3) NULL COMMENT 'UTC, until when previous_secret signs, too';
