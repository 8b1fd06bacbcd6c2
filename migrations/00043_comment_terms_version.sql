-- +goose Up
ALTER TABLE comments
    ADD COLUMN terms_version SMALLINT NOT NULL DEFAULT 0
        COMMENT 'version of the rules behind comment_terms; 0: the comment is not indexed',
    ADD KEY idx_status_terms (status, terms_version, id);
