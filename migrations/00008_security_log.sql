-- +goose Up
CREATE TABLE security_log (
    id BIGINT PRIMARY KEY AUTO_INCREMENT,
    bucket BINARY(32) NOT NULL COMMENT 'SHA-256 of the counted event and its hour',
    kind VARCHAR(30) NOT NULL COMMENT 'such as login.failed',
    user_id BIGINT NULL COMMENT 'the account; NULL: none, or several',
    actor_id BIGINT NULL COMMENT 'the acting user, unless it is the account itself',
    login_hash VARCHAR(32) NOT NULL COMMENT 'of a failed login without an account: keyed hash of the typed name',
    address VARCHAR(45) NOT NULL COMMENT 'of the client; empty: the operator, or several addresses',
    user_agent VARCHAR(200) NOT NULL COMMENT 'of the first event',
    detail VARCHAR(200) NOT NULL,
    attempts INT UNSIGNED NOT NULL DEFAULT 1 COMMENT 'events in the hour',
    created_at DATETIME(3) NOT NULL COMMENT 'UTC; first event',
    last_at DATETIME(3) NOT NULL COMMENT 'UTC; last event',
    UNIQUE KEY idx_bucket (bucket),
    KEY idx_created_at (created_at, id),
    KEY idx_user_created (user_id, created_at, id),
    KEY idx_actor_created (actor_id, created_at, id),
    KEY idx_address_created (address, created_at, id),
    KEY idx_kind_created (kind, created_at, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci
    COMMENT='security events of accounts, kept for 90 days';
