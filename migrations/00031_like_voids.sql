-- +goose Up
CREATE TABLE like_voids (
    id BIGINT PRIMARY KEY AUTO_INCREMENT,
    user_id BIGINT NOT NULL COMMENT 'whose likes are taken back',
    requested_by BIGINT NOT NULL COMMENT 'the user, or a moderator',
    requested_at DATETIME(3) NOT NULL COMMENT 'UTC',
    liked_since DATETIME NULL COMMENT 'UTC; only likes accepted at or after; NULL: from the first',
    liked_until DATETIME NULL
        COMMENT 'UTC; only likes accepted at or before; NULL: to the last, those included that sessions still cached elsewhere may bring',
    done_at DATETIME(3) NULL COMMENT 'UTC, when none was left and none could come',
    reason VARCHAR(500) NOT NULL DEFAULT '' COMMENT 'the moderator''s; empty when the user did it',
    turn_at DATETIME(3) NULL COMMENT 'UTC; when it was last worked on; NULL: not yet',
    KEY idx_done_turn (done_at, turn_at, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;
