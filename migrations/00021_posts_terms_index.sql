-- +goose Up
ALTER TABLE posts
    ADD KEY idx_status_terms (status, terms_version, id);
