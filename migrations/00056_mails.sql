-- +goose Up
CREATE TABLE mails (
    id BIGINT PRIMARY KEY AUTO_INCREMENT,
    kind VARCHAR(30) NOT NULL COMMENT 'such as password_reset',
    user_id BIGINT NULL COMMENT 'the account; NULL: none, or it is found by the address when the mail is sent',
    registration_id BIGINT NULL COMMENT 'the registration to be confirmed',
    address VARCHAR(100) NOT NULL,
    detail VARCHAR(200) NOT NULL DEFAULT '',
    created_at DATETIME(3) NOT NULL COMMENT 'UTC',
    due_at DATETIME(3) NULL COMMENT 'UTC; the next attempt; NULL: none',
    linked_at DATETIME(3) NULL COMMENT 'UTC; when the link was made; NULL: not yet, or the mail has none',
    attempts INT UNSIGNED NOT NULL DEFAULT 0 COMMENT 'that failed',
    outcome VARCHAR(20) NOT NULL DEFAULT '' COMMENT 'sent, dropped, refused or expired; empty: it is due',
    failure VARCHAR(200) NOT NULL DEFAULT '' COMMENT 'of the last attempt',
    KEY idx_due_at (due_at, id),
    KEY idx_created_at (created_at),
    KEY idx_user_id (user_id, id),
    KEY idx_address (address, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci
    COMMENT='mails to be sent, written in the transaction that causes them; kept for 30 days';
