-- +goose Up
CREATE TABLE sessions (
    token_hash BINARY(32) PRIMARY KEY COMMENT 'SHA-256 of the bearer token',
    user_id BIGINT NOT NULL,
    created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    expires_at DATETIME NOT NULL COMMENT 'UTC',
    user_agent VARCHAR(200) NOT NULL DEFAULT '' COMMENT 'User-Agent of the client at sign-in',
    is_token BOOLEAN NOT NULL DEFAULT FALSE COMMENT 'an API token, which has a name and scopes',
    name VARCHAR(100) NOT NULL DEFAULT '' COMMENT 'of an API token',
    scopes TINYINT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'of an API token: 1 read + 2 write + 4 moderate',
    last_used_at DATETIME NULL COMMENT 'UTC; of an API token, in whole minutes',
    KEY idx_user_id (user_id),
    KEY idx_expires_at (expires_at),
    KEY idx_user_token_created (user_id, is_token, created_at, token_hash)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;
