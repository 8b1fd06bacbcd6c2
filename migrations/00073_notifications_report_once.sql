-- +goose Up
ALTER TABLE notifications
    DROP KEY idx_once;
