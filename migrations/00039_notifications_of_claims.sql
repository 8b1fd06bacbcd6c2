-- +goose Up
ALTER TABLE notifications
    MODIFY kind TINYINT NOT NULL
        COMMENT '1 reply, 2 mention, 3 milestone, 4 report, 5 claim confirmed, 6 claim rejected, 7 claim expires',
    ADD COLUMN claim_id BIGINT NOT NULL DEFAULT 0 COMMENT 'the claim of the kinds 5 to 7; 0 for the other kinds',
    DROP KEY idx_once_report,
    ADD UNIQUE KEY idx_once (user_id, kind, post_id, comment_id, milestone, report_id, claim_id);
