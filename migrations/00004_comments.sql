-- +goose Up
CREATE TABLE comments (
    id BIGINT PRIMARY KEY AUTO_INCREMENT,
    post_id BIGINT NOT NULL,
    user_id BIGINT NOT NULL COMMENT 'the author',
    parent_id BIGINT DEFAULT NULL COMMENT 'the comment this replies to',
    content TEXT NOT NULL COMMENT 'Markdown',
    likes_count INT NOT NULL DEFAULT 0 COMMENT 'rows of this comment in comment_likes, at every commit',
    replies_count INT NOT NULL DEFAULT 0 COMMENT 'direct replies with status 1',
    status TINYINT NOT NULL DEFAULT 1 COMMENT '1 normal, 2 deleted',
    created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    updated_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP COMMENT 'last edit; counting does not move it',
    version INT NOT NULL DEFAULT 0 COMMENT 'optimistic lock of content edits',
    KEY idx_post_id (post_id),
    KEY idx_user_id (user_id),
    KEY idx_parent_id (parent_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;
