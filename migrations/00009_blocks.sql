-- +goose Up
CREATE TABLE blocks (
    user_id BIGINT NOT NULL COMMENT 'the blocking user',
    blocked_id BIGINT NOT NULL COMMENT 'the user whose content is hidden',
    created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY (user_id, blocked_id),
    KEY idx_blocked_id (blocked_id),
    KEY idx_user_created (user_id, created_at, blocked_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;
