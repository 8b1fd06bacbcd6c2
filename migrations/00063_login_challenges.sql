-- +goose Up
CREATE TABLE login_challenges (
    challenge_hash BINARY(32) PRIMARY KEY COMMENT 'SHA-256 of the challenge',
    user_id BIGINT NOT NULL COMMENT 'whose password was right',
    password_hash BINARY(32) NOT NULL COMMENT 'SHA-256 of users.password_hash then; another password voids the challenge',
    tries TINYINT NOT NULL DEFAULT 0 COMMENT 'wrong codes',
    expires_at DATETIME NOT NULL COMMENT 'UTC',
    KEY idx_user_id (user_id),
    KEY idx_expires_at (expires_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci
    COMMENT='logins that wait for the code of a second factor';
