-- +goose Up
CREATE TABLE recovery_codes (
    user_id BIGINT NOT NULL,
    code_hash BINARY(32) NOT NULL COMMENT 'SHA-256 of 128 random bits; the row is deleted when the code is used',
    created_at DATETIME NOT NULL COMMENT 'UTC',
    PRIMARY KEY (user_id, code_hash)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;
