-- +goose Up
ALTER TABLE posts
    ADD COLUMN excerpt VARCHAR(280) NOT NULL DEFAULT ''
        COMMENT 'the beginning of content as plain text; empty while the post is deleted',
    ADD COLUMN excerpt_version SMALLINT NOT NULL DEFAULT 0
        COMMENT 'version of the rules behind excerpt; 0: it was not made',
    ADD KEY idx_status_excerpt (status, excerpt_version, id);
