-- +goose Up
CREATE TABLE notifications (
    id BIGINT PRIMARY KEY AUTO_INCREMENT,
    user_id BIGINT NOT NULL COMMENT 'the recipient',
    kind TINYINT NOT NULL COMMENT '1 reply, 2 mention, 3 milestone, 4 report',
    actor_id BIGINT NOT NULL DEFAULT 0 COMMENT 'the user who replied or mentioned; 0 for a milestone',
    post_id BIGINT NOT NULL,
    comment_id BIGINT NOT NULL DEFAULT 0 COMMENT '0: about the post',
    milestone INT NOT NULL DEFAULT 0 COMMENT 'the number of likes reached; 0 for the other kinds',
    created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    read_at TIMESTAMP NULL DEFAULT NULL COMMENT 'NULL: unread',
    report_id BIGINT NOT NULL DEFAULT 0 COMMENT 'the report that was resolved; 0 for the other kinds',
    UNIQUE KEY idx_once_report (user_id, kind, post_id, comment_id, milestone, report_id),
    KEY idx_user_id (user_id, id),
    KEY idx_user_read (user_id, read_at, id),
    KEY idx_purge (read_at, created_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;
