-- +goose Up
CREATE TABLE post_likes (
    id BIGINT PRIMARY KEY AUTO_INCREMENT,
    post_id BIGINT NOT NULL,
    user_id BIGINT NOT NULL,
    created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP COMMENT 'when the like was accepted',
    UNIQUE KEY idx_post_user (post_id, user_id) COMMENT 'one like per user and post',
    KEY idx_user_id (user_id),
    KEY idx_post_id_desc (post_id, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;
