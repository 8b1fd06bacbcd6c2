-- +goose Up
CREATE TABLE security_log (
    id BIGINT PRIMARY KEY AUTO_INCREMENT,
    bucket BINARY(32) NOT NULL COMMENT 'SHA-256 of what the row counts and of its hour',
    kind VARCHAR(30) NOT NULL COMMENT 'such as login.failed',
    user_id BIGINT NULL COMMENT 'the account; NULL: a login of nobody, or several accounts',
    actor_id BIGINT NULL COMMENT 'who did it, if it was not the account itself',
    login_hash VARCHAR(32) NOT NULL COMMENT 'of a failed login of nobody: a keyed hash of what was typed',
    address VARCHAR(45) NOT NULL COMMENT 'of the client; empty: the operator, or several',
    user_agent VARCHAR(200) NOT NULL COMMENT 'of the first of those that are counted',
    detail VARCHAR(200) NOT NULL,
    attempts INT UNSIGNED NOT NULL DEFAULT 1 COMMENT 'how often it happened in the hour',
    created_at DATETIME(3) NOT NULL COMMENT 'UTC; of the first',
    last_at DATETIME(3) NOT NULL COMMENT 'UTC; of the last',
    UNIQUE KEY idx_bucket (bucket),
    KEY idx_created_at (created_at, id),
    KEY idx_user_created (user_id, created_at, id),
    KEY idx_actor_created (actor_id, created_at, id),
    KEY idx_address_created (address, created_at, id),
    KEY idx_kind_created (kind, created_at, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci
    COMMENT='what happened to accounts, kept for 90 days';
