-- +goose Up
CREATE TABLE report_cases (
    id BIGINT PRIMARY KEY AUTO_INCREMENT,
    is_open BOOLEAN NULL DEFAULT TRUE COMMENT 'NULL when it is resolved',
    target_type VARCHAR(20) NOT NULL COMMENT 'post or comment',
    target_id BIGINT NOT NULL,
    reporters_count INT NOT NULL DEFAULT 0 COMMENT 'rows in reports, at every commit',
    first_at DATETIME NOT NULL COMMENT 'UTC, of the first report',
    last_at DATETIME NOT NULL COMMENT 'UTC, of the latest report',
    claimed_by BIGINT NULL COMMENT 'the moderator who works on the case',
    claimed_until DATETIME(3) NULL COMMENT 'UTC; past: the case is free',
    resolved_by BIGINT NULL,
    resolved_at DATETIME NULL COMMENT 'UTC',
    outcome VARCHAR(20) NULL COMMENT 'dismissed or removed',
    note VARCHAR(500) NOT NULL DEFAULT '' COMMENT 'of the moderator who resolved it',
    UNIQUE KEY idx_open_target (is_open, target_type, target_id) COMMENT 'one open case per target',
    KEY idx_open (is_open, id),
    KEY idx_claimed (is_open, claimed_until, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci COMMENT='reported posts and comments';
