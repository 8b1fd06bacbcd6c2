-- +goose Up
CREATE TABLE exports (
    id BIGINT PRIMARY KEY AUTO_INCREMENT,
    user_id BIGINT NULL
        COMMENT 'the owner of the data; NULL: expired or deleted, and its chunks are still to be removed',
    state TINYINT NOT NULL COMMENT '1 building, 2 ready',
    section VARCHAR(30) NOT NULL COMMENT 'of the next part',
    part INT NOT NULL COMMENT 'number of the next part in its section, from 1',
    after_value BIGINT NOT NULL COMMENT 'key of the last row written; 0 and 0 before the first of a section',
    after_id BIGINT NOT NULL,
    chunks INT NOT NULL DEFAULT 0 COMMENT 'rows in export_chunks, at every commit',
    size BIGINT NOT NULL DEFAULT 0 COMMENT 'bytes in its chunks, at every commit',
    requested_at DATETIME(3) NOT NULL COMMENT 'UTC',
    ready_at DATETIME(3) NULL COMMENT 'UTC',
    expires_at DATETIME(3) NOT NULL COMMENT 'UTC',
    UNIQUE KEY idx_user_id (user_id) COMMENT 'one export per user',
    KEY idx_state_chunks (state, chunks, id),
    KEY idx_expires_at (expires_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci
        COMMENT='archives of the data that is stored about a user';
