-- +goose Up
CREATE TABLE comment_likes (
    id BIGINT PRIMARY KEY AUTO_INCREMENT,
    comment_id BIGINT NOT NULL,
    user_id BIGINT NOT NULL,
    created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP COMMENT 'when the like was accepted',
    UNIQUE KEY idx_comment_user (comment_id, user_id) COMMENT 'one like per user and comment',
    KEY idx_user_id (user_id),
    KEY idx_comment_id_desc (comment_id, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;
