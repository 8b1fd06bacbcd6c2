-- +goose Up
CREATE TABLE pipeline_samples (
    slot DATETIME NOT NULL PRIMARY KEY COMMENT 'UTC, the beginning of the 10 s in which it was taken',
    accepted_per_second DOUBLE NULL COMMENT 'events that the gate accepted; NULL, here and below: unknown',
    applied_per_second DOUBLE NULL COMMENT 'events written to MySQL',
    outbox_events BIGINT NULL COMMENT 'likes and claims that wait for Kafka',
    lag_events BIGINT NULL COMMENT 'events that are accepted and not in MySQL',
    lag_seconds DOUBLE NULL COMMENT 'the age of the oldest of them',
    closed_shards INT NULL,
    open_gaps INT NULL,
    dead_letters BIGINT NOT NULL
) ENGINE=InnoDB DEFAULT CHARSET=ascii COLLATE=ascii_bin;
