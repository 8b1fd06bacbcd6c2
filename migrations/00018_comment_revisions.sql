-- +goose Up
CREATE TABLE comment_revisions (
    comment_id BIGINT NOT NULL,
    version INT NOT NULL COMMENT 'a version that an edit has replaced',
    editor_id BIGINT NULL COMMENT 'the user who wrote it; NULL: the author of the comment; 0: a redaction',
    content TEXT NOT NULL,
    size INT NOT NULL COMMENT 'of the content in bytes',
    created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP COMMENT 'when it was written',
    redacted_at DATETIME NULL COMMENT 'UTC; NULL unless its text was overwritten',
    PRIMARY KEY (comment_id, version)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;
