-- +goose Up
CREATE TABLE idempotency_keys (
    key_hash BINARY(32) PRIMARY KEY COMMENT 'HMAC-SHA-256 of the Idempotency-Key and of who sent it',
    request_hash BINARY(32) NOT NULL COMMENT 'HMAC-SHA-256 of method, path and body, keyed by the Idempotency-Key',
    claim BIGINT NOT NULL COMMENT 'drawn by the request that holds the key: whoever finds another is late',
    resource_kind VARCHAR(20) NULL COMMENT 'what the request created, set by the transaction that created it',
    resource_id BIGINT NULL,
    answer MEDIUMBLOB NULL COMMENT 'encrypted with a key that only the Idempotency-Key gives',
    claimed_until DATETIME(3) NOT NULL COMMENT 'UTC',
    expires_at DATETIME NOT NULL COMMENT 'UTC',
    KEY idx_expires_at (expires_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;
