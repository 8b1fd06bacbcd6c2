-- +goose Up
CREATE TABLE like_rings (
    id BIGINT PRIMARY KEY AUTO_INCREMENT,
    author_id BIGINT NOT NULL COMMENT 'the author whom the members like',
    coincidences INT NOT NULL COMMENT 'likes that two members or more gave the author in the same seconds',
    occasions INT NOT NULL COMMENT 'distinct times of coincidences',
    first_at DATETIME NOT NULL COMMENT 'UTC, first coincidence',
    last_at DATETIME NOT NULL COMMENT 'UTC, last coincidence',
    evidence TEXT NOT NULL COMMENT 'JSON: the latest coincidences, each like with its user and target',
    found_at DATETIME(3) NOT NULL COMMENT 'UTC',
    status VARCHAR(10) NOT NULL DEFAULT 'open' COMMENT 'open, dismissed or voided',
    resolved_at DATETIME(3) NULL COMMENT 'UTC',
    resolved_by BIGINT NULL COMMENT 'the moderator',
    reason VARCHAR(500) NOT NULL DEFAULT '' COMMENT 'the moderator''s',
    KEY idx_status (status, id),
    KEY idx_author_id (author_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci
    COMMENT='accounts that repeatedly like the same author in the same seconds';
