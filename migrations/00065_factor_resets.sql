-- +goose Up
CREATE TABLE factor_resets (
    user_id BIGINT PRIMARY KEY COMMENT 'whose second factors are removed at the first sign-in after due_at',
    actor_id BIGINT NOT NULL COMMENT 'the admin',
    reason VARCHAR(500) NOT NULL,
    requested_at DATETIME NOT NULL COMMENT 'UTC',
    due_at DATETIME NOT NULL COMMENT 'UTC'
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;
