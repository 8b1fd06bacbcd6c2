-- +goose Up
CREATE TABLE like_shards (
    shard SMALLINT PRIMARY KEY,
    epoch BIGINT NOT NULL DEFAULT 0 COMMENT 'highest epoch ever assigned',
    applied_epoch BIGINT NOT NULL DEFAULT 0 COMMENT 'watermark: position of the last event applied',
    applied_seq BIGINT NOT NULL DEFAULT 0,
    applied_at DATETIME(3) NOT NULL DEFAULT '2000-01-01 00:00:00' COMMENT 'UTC, when the watermark last moved',
    sealed_epoch BIGINT NOT NULL DEFAULT 0 COMMENT 'the last event of an epoch before the applied one',
    sealed_seq BIGINT NOT NULL DEFAULT 0
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;
