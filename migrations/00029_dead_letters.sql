-- +goose Up
CREATE TABLE dead_letters (
    id BIGINT PRIMARY KEY AUTO_INCREMENT,
    digest BINARY(32) NOT NULL COMMENT 'SHA-256 of origin and payload: a redelivery is the same letter',
    shard SMALLINT NOT NULL,
    epoch BIGINT NOT NULL DEFAULT 0 COMMENT '0 if the record could not be parsed',
    seq BIGINT NOT NULL DEFAULT 0,
    topic VARCHAR(249) NOT NULL,
    topic_partition INT NOT NULL,
    topic_offset BIGINT NOT NULL,
    payload MEDIUMBLOB NOT NULL,
    error VARCHAR(1000) NOT NULL,
    created_at DATETIME(3) NOT NULL COMMENT 'UTC',
    resolution VARCHAR(10) NOT NULL DEFAULT '' COMMENT 'retried or discarded; empty while unresolved',
    resolved_at DATETIME(3) NULL COMMENT 'UTC',
    resolved_by BIGINT NULL COMMENT 'the moderator',
    UNIQUE KEY idx_digest (digest),
    KEY idx_resolved_at (resolved_at, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;
