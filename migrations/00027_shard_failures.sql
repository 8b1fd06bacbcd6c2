-- +goose Up
CREATE TABLE shard_failures (
    shard SMALLINT NOT NULL,
    stage VARCHAR(10) NOT NULL COMMENT 'relay or writer',
    worker VARCHAR(100) NOT NULL COMMENT 'the process, as host and pid',
    error VARCHAR(500) NOT NULL,
    failed_at DATETIME(3) NOT NULL COMMENT 'UTC',
    PRIMARY KEY (shard, stage)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci
    COMMENT='the latest failure of each stage of the pipeline';
