-- +goose Up
CREATE TABLE imports (
    source VARCHAR(100) NOT NULL COMMENT 'the dump, such as stackexchange:quantumcomputing',
    kind VARCHAR(20) NOT NULL,
    external_id BIGINT NOT NULL COMMENT 'the id in the dump',
    local_id BIGINT NOT NULL COMMENT 'the id in this database',
    PRIMARY KEY (source, kind, external_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci
    COMMENT='imported rows, so that an import can be repeated';
