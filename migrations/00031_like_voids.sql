-- +goose Up
CREATE TABLE like_voids (
    id BIGINT PRIMARY KEY AUTO_INCREMENT,
    user_id BIGINT NOT NULL COMMENT 'the user whose likes are withdrawn',
    requested_by BIGINT NOT NULL COMMENT 'the user or a moderator',
    requested_at DATETIME(3) NOT NULL COMMENT 'UTC',
    liked_since DATETIME NULL COMMENT 'UTC; only likes accepted at or after; NULL: from the first',
    liked_until DATETIME NULL
        COMMENT 'UTC; only likes accepted at or before; NULL: to the last, including those of cached sessions',
    done_at DATETIME(3) NULL COMMENT 'UTC, when no like was left and none could follow',
    reason VARCHAR(500) NOT NULL DEFAULT '' COMMENT 'the moderator''s; empty if the user requested it',
    turn_at DATETIME(3) NULL COMMENT 'UTC, when a run last worked on it; NULL: never',
    KEY idx_done_turn (done_at, turn_at, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;
