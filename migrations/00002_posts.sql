-- +goose Up
CREATE TABLE posts (
    id BIGINT PRIMARY KEY AUTO_INCREMENT,
    user_id BIGINT NOT NULL COMMENT 'the author',
    title VARCHAR(200) NOT NULL,
    content TEXT NOT NULL COMMENT 'Markdown',
    likes_count INT NOT NULL DEFAULT 0 COMMENT 'rows of this post in post_likes, at every commit',
    comments_count INT NOT NULL DEFAULT 0 COMMENT 'comments with status 1, replies included',
    status TINYINT NOT NULL DEFAULT 1 COMMENT '1 normal, 2 deleted',
    created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    updated_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP COMMENT 'last edit; counting does not move it',
    version INT NOT NULL DEFAULT 0 COMMENT 'optimistic lock of content edits',
    KEY idx_user_id (user_id),
    KEY idx_created_at (created_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;
