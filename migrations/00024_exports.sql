-- +goose Up
CREATE TABLE exports (
    id BIGINT PRIMARY KEY AUTO_INCREMENT,
    user_id BIGINT NULL
        COMMENT 'whose data it is; NULL: it has expired, or its account was deleted, and its chunks are about to go',
    state TINYINT NOT NULL COMMENT '1 building, 2 ready',
    section VARCHAR(30) NOT NULL COMMENT 'of the next part',
    part INT NOT NULL COMMENT 'number of the next part in its section, from 1',
    after_value BIGINT NOT NULL COMMENT 'key of the last row that was written; 0 and 0 before the first of a section',
    after_id BIGINT NOT NULL,
    chunks INT NOT NULL DEFAULT 0 COMMENT 'its rows in export_chunks, at every commit',
    size BIGINT NOT NULL DEFAULT 0 COMMENT 'of its chunks in bytes, at every commit',
    requested_at DATETIME(3) NOT NULL COMMENT 'UTC',
    ready_at DATETIME(3) NULL COMMENT 'UTC',
    expires_at DATETIME(3) NOT NULL COMMENT 'UTC',
    UNIQUE KEY idx_user_id (user_id) COMMENT 'one at a time',
    KEY idx_state_chunks (state, chunks, id),
    KEY idx_expires_at (expires_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci COMMENT='archives of what is stored about a user';
