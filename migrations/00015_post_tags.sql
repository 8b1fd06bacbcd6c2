-- +goose Up
CREATE TABLE post_tags (
    post_id BIGINT NOT NULL,
    tag_id BIGINT NOT NULL,
    position TINYINT NOT NULL COMMENT 'place among the tags of the post, from 0',
    status TINYINT NOT NULL DEFAULT 1 COMMENT 'of the post',
    created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP COMMENT 'of the post',
    user_id BIGINT NOT NULL DEFAULT 0 COMMENT 'of the post, as the next three columns, at every commit',
    likes_count INT NOT NULL DEFAULT 0,
    hot_score BIGINT NOT NULL DEFAULT 0,
    active_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY (post_id, tag_id),
    KEY idx_tag_status_created (tag_id, status, created_at, post_id),
    KEY idx_tag_status_hot (tag_id, status, hot_score, post_id, created_at, user_id),
    KEY idx_tag_status_likes (tag_id, status, likes_count, post_id, created_at, user_id),
    KEY idx_tag_status_active (tag_id, status, active_at, post_id, created_at, user_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;
