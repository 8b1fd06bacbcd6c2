-- +goose Up
CREATE TABLE imports (
    source VARCHAR(100) NOT NULL COMMENT 'which dump, such as stackexchange:quantumcomputing',
    kind VARCHAR(20) NOT NULL,
    external_id BIGINT NOT NULL COMMENT 'the id in the dump',
    local_id BIGINT NOT NULL COMMENT 'the id here',
    PRIMARY KEY (source, kind, external_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci
    COMMENT='what an import has done, so that it can be run again';
