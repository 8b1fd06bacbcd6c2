-- +goose Up
CREATE TABLE claims (
    drop_id BIGINT NOT NULL,
    user_id BIGINT NOT NULL,
    id BIGINT NOT NULL COMMENT 'a global id; a new one for each claim of the user to the drop',
    state TINYINT NOT NULL COMMENT '1 reserved, 2 confirmed, 3 returned, 4 expired, 5 rejected, 6 voided',
    reason VARCHAR(32) NOT NULL DEFAULT '' COMMENT 'why it was rejected or voided',
    created_at DATETIME(3) NOT NULL COMMENT 'UTC, when the claim was accepted',
    expires_at DATETIME(3) NULL COMMENT 'UTC; of a claim that was made with a time to confirm it',
    confirmed_at DATETIME(3) NULL COMMENT 'UTC',
    ended_at DATETIME(3) NULL COMMENT 'UTC; NULL: it is live',
    due_at DATETIME(3) NULL COMMENT 'UTC; while reserved, when its user is to be warned, then when it expires',
    to_release BOOLEAN NOT NULL DEFAULT FALSE COMMENT 'it was ended here first, and the gate may still hold it',
    PRIMARY KEY (drop_id, user_id) COMMENT 'one claim per user and drop, whose row a later one takes over',
    UNIQUE KEY idx_id (id),
    KEY idx_drop_id (drop_id, id),
    KEY idx_user_id (user_id, id),
    KEY idx_due (due_at),
    KEY idx_release (to_release, drop_id, user_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci COMMENT='claims to the stock of drops';
