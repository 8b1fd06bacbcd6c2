-- +goose Up
ALTER TABLE notifications
    MODIFY COLUMN kind TINYINT NOT NULL COMMENT '1 reply, 2 mention, 3 milestone, 4 report',
    ADD COLUMN report_id BIGINT NOT NULL DEFAULT 0 COMMENT 'the report that was resolved; 0 for the other kinds',
    ADD UNIQUE KEY idx_once_report (user_id, kind, post_id, comment_id, milestone, report_id);
