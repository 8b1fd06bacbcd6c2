-- +goose Up
CREATE TABLE users (
    id BIGINT PRIMARY KEY AUTO_INCREMENT,
    username VARCHAR(50) NOT NULL,
    email VARCHAR(100) NOT NULL,
    password_hash VARCHAR(255) NOT NULL,
    created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    updated_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP,
    role TINYINT NOT NULL DEFAULT 1 COMMENT '1 user, 2 moderator, 3 admin',
    display_name VARCHAR(50) NULL,
    bio VARCHAR(500) NOT NULL DEFAULT '',
    avatar_url VARCHAR(500) NULL,
    followers_count INT NOT NULL DEFAULT 0 COMMENT 'rows of follows with this followed_id, at every commit',
    deleted_at DATETIME NULL COMMENT 'UTC; the row stays as the author of its content',
    banned_until DATETIME NULL COMMENT 'UTC; 9999-12-31: permanent; NULL or past: not banned',
    ban_reason VARCHAR(500) NOT NULL DEFAULT '' COMMENT 'of the last ban, shown to the user',
    UNIQUE KEY idx_username (username),
    UNIQUE KEY idx_email (email),
    KEY idx_role (role, id),
    KEY idx_banned_until (banned_until, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;
