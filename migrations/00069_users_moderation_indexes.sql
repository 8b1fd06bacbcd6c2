-- +goose Up
ALTER TABLE users
    ADD KEY idx_role (role, id),
    ADD KEY idx_banned_until (banned_until, id);
