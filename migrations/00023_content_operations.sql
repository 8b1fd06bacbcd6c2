-- +goose Up
CREATE TABLE content_operations (
    id BIGINT PRIMARY KEY AUTO_INCREMENT,
    user_id BIGINT NOT NULL COMMENT 'the user whose content is deleted',
    state TINYINT NOT NULL COMMENT '1 deleting, 2 deleted, 3 undoing, 4 undone',
    requested_by BIGINT NOT NULL COMMENT 'the moderator',
    requested_at DATETIME(3) NOT NULL COMMENT 'UTC',
    reason VARCHAR(500) NOT NULL,
    last_post_id BIGINT NOT NULL COMMENT 'the latest of the user at the request; later ones are not deleted',
    last_comment_id BIGINT NOT NULL,
    done_post_id BIGINT NOT NULL DEFAULT 0 COMMENT 'progress: deleted in MySQL and closed in the gate',
    done_comment_id BIGINT NOT NULL DEFAULT 0,
    posts_deleted INT NOT NULL DEFAULT 0,
    comments_deleted INT NOT NULL DEFAULT 0,
    posts_restored INT NOT NULL DEFAULT 0,
    comments_restored INT NOT NULL DEFAULT 0,
    undone_by BIGINT NULL,
    finished_at DATETIME(3) NULL COMMENT 'UTC, end of the deletion or of its undoing',
    KEY idx_state (state, id),
    KEY idx_user_state (user_id, state) COMMENT 'the operations against a user'
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci COMMENT='deletions of everything that a user wrote';
