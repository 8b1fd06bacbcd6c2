-- +goose Up
CREATE TABLE redactions (
    id BIGINT PRIMARY KEY AUTO_INCREMENT,
    is_open BOOLEAN NULL DEFAULT TRUE COMMENT 'NULL when it is resolved',
    target_type VARCHAR(20) NOT NULL COMMENT 'post or comment',
    target_id BIGINT NOT NULL,
    version INT NOT NULL COMMENT 'the version to redact',
    requested_by BIGINT NOT NULL COMMENT 'the author',
    reason VARCHAR(500) NOT NULL COMMENT 'the author''s; empty if the target was purged',
    requested_at DATETIME NOT NULL COMMENT 'UTC',
    resolved_by BIGINT NULL COMMENT 'the moderator',
    resolved_at DATETIME NULL COMMENT 'UTC',
    outcome VARCHAR(20) NULL COMMENT 'redacted or declined',
    note VARCHAR(500) NOT NULL DEFAULT '' COMMENT 'of the moderator who resolved it',
    UNIQUE KEY idx_open_version (is_open, target_type, target_id, version) COMMENT 'one open request per version',
    KEY idx_open (is_open, id),
    KEY idx_requester (requested_by, id),
    KEY idx_target (target_type, target_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci
    COMMENT='requests of authors to overwrite a version';
