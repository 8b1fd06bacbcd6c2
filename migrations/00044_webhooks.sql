-- +goose Up
CREATE TABLE webhooks (
    id BIGINT PRIMARY KEY AUTO_INCREMENT,
    url VARCHAR(2000) NOT NULL,
    events VARCHAR(1000) NOT NULL COMMENT 'types of events, separated by spaces',
    secret VARBINARY(32) NOT NULL COMMENT 'the key that signs deliveries',
    active BOOLEAN NOT NULL DEFAULT TRUE,
    disabled_reason VARCHAR(32) NOT NULL DEFAULT '' COMMENT 'why a worker set active to false: failing or gone',
    failing_since DATETIME(3) NULL COMMENT 'UTC; NULL: the last attempt was a success, or there was none',
    lease VARCHAR(64) NOT NULL DEFAULT '' COMMENT 'of the process that delivers',
    leased_until DATETIME(3) NULL COMMENT 'UTC, by the clock of the server',
    version BIGINT NOT NULL DEFAULT 0,
    created_by BIGINT NOT NULL,
    created_at DATETIME(3) NOT NULL COMMENT 'UTC',
    updated_at DATETIME(3) NOT NULL COMMENT 'UTC, of the last change by an admin'
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci COMMENT='endpoints that receive events';
