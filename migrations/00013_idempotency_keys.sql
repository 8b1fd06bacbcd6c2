-- +goose Up
CREATE TABLE idempotency_keys (
    key_hash BINARY(32) PRIMARY KEY COMMENT 'HMAC-SHA-256 of the Idempotency-Key and its sender',
    request_hash BINARY(32) NOT NULL COMMENT 'HMAC-SHA-256 of method, path and body, keyed by the Idempotency-Key',
    claim BIGINT NOT NULL COMMENT 'random, from the request that holds the key; each of its COMMITs adds 1',
    claimed_until DATETIME(3) NOT NULL COMMENT 'UTC',
    expires_at DATETIME NOT NULL COMMENT 'UTC',
    effect BLOB NULL COMMENT 'committed part of the request, a JSON object; NULL: nothing',
    KEY idx_expires_at (expires_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;
