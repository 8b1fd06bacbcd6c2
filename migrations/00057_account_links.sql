-- +goose Up
CREATE TABLE account_links (
    token_hash BINARY(32) PRIMARY KEY COMMENT 'SHA-256 of the token in the link',
    mail_id BIGINT NOT NULL COMMENT 'the mail with the link',
    kind VARCHAR(30) NOT NULL COMMENT 'of the mail, such as password_reset',
    user_id BIGINT NULL COMMENT 'NULL: of a registration',
    registration_id BIGINT NULL,
    address VARCHAR(100) NOT NULL COMMENT 'that the mail went to',
    created_at DATETIME NOT NULL COMMENT 'UTC',
    expires_at DATETIME NOT NULL COMMENT 'UTC',
    ended_at DATETIME NULL COMMENT 'UTC; when it was used or replaced; NULL: it can be used',
    KEY idx_user_id (user_id, kind),
    KEY idx_expires_at (expires_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci
    COMMENT='links that can be used once, from mails';
