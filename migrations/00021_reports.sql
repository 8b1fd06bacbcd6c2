-- +goose Up
CREATE TABLE reports (
    id BIGINT PRIMARY KEY AUTO_INCREMENT,
    case_id BIGINT NOT NULL,
    reporter_id BIGINT NOT NULL,
    reason VARCHAR(20) NOT NULL,
    detail VARCHAR(1000) NOT NULL,
    created_at DATETIME NOT NULL COMMENT 'UTC',
    version INT NULL COMMENT 'the reported version, which is kept; NULL: unknown, or beyond what a case keeps',
    UNIQUE KEY idx_case_reporter (case_id, reporter_id) COMMENT 'one open report per reporter and target',
    KEY idx_case_id (case_id, id),
    KEY idx_reporter (reporter_id, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;
