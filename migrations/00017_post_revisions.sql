-- +goose Up
CREATE TABLE post_revisions (
    post_id BIGINT NOT NULL,
    version INT NOT NULL COMMENT 'a version that an edit has replaced',
    editor_id BIGINT NULL COMMENT 'the user who wrote it; NULL: the author of the post',
    title VARCHAR(200) NOT NULL,
    content TEXT NOT NULL,
    tags VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'names, separated by spaces',
    created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP COMMENT 'when it was written',
    size INT NOT NULL DEFAULT 0 COMMENT 'of the content in bytes',
    changed TINYINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'what it changed: 1 title, 2 content, 4 tags',
    redacted_at DATETIME NULL COMMENT 'UTC; NULL unless its text was overwritten',
    PRIMARY KEY (post_id, version)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;
