-- +goose Up
CREATE TABLE post_tags (
    post_id BIGINT NOT NULL,
    tag_id BIGINT NOT NULL,
    position TINYINT NOT NULL COMMENT 'its place among the post''s tags, from 0',
    status TINYINT NOT NULL DEFAULT 1 COMMENT 'of the post',
    created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP COMMENT 'of the post',
    PRIMARY KEY (post_id, tag_id),
    KEY idx_tag_status_created (tag_id, status, created_at, post_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;
