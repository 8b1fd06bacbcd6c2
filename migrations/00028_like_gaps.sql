-- +goose Up
CREATE TABLE like_gaps (
    id BIGINT PRIMARY KEY AUTO_INCREMENT,
    shard SMALLINT NOT NULL,
    after_epoch BIGINT NOT NULL COMMENT 'the last position applied before the gap',
    after_seq BIGINT NOT NULL,
    before_epoch BIGINT NOT NULL COMMENT 'the position that arrived in place of the next one',
    before_seq BIGINT NOT NULL,
    created_at DATETIME(3) NOT NULL COMMENT 'UTC',
    reconciled_at DATETIME(3) NULL COMMENT 'UTC, when the shard was compared with Redis and repaired',
    KEY idx_open (shard, reconciled_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;
