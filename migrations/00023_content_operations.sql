-- +goose Up
CREATE TABLE content_operations (
    id BIGINT PRIMARY KEY AUTO_INCREMENT,
    user_id BIGINT NOT NULL COMMENT 'whose content it deletes',
    state TINYINT NOT NULL COMMENT '1 deleting, 2 deleted, 3 undoing, 4 undone',
    requested_by BIGINT NOT NULL COMMENT 'the moderator',
    requested_at DATETIME(3) NOT NULL COMMENT 'UTC',
    reason VARCHAR(500) NOT NULL,
    last_post_id BIGINT NOT NULL COMMENT 'the user''s latest when it was requested: what comes later is left alone',
    last_comment_id BIGINT NOT NULL,
    done_post_id BIGINT NOT NULL DEFAULT 0 COMMENT 'how far it has got: deleted here and closed in the gate',
    done_comment_id BIGINT NOT NULL DEFAULT 0,
    posts_deleted INT NOT NULL DEFAULT 0,
    comments_deleted INT NOT NULL DEFAULT 0,
    posts_restored INT NOT NULL DEFAULT 0,
    comments_restored INT NOT NULL DEFAULT 0,
    undone_by BIGINT NULL,
    finished_at DATETIME(3) NULL COMMENT 'UTC, when it came to its end, or that of its undoing',
    KEY idx_state (state, id),
    KEY idx_user_state (user_id, state) COMMENT 'whether one stands against a user'
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci COMMENT='deletions of all that a user wrote';
