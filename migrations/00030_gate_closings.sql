-- +goose Up
CREATE TABLE gate_closings (
    id BIGINT PRIMARY KEY AUTO_INCREMENT,
    kind VARCHAR(10) NOT NULL COMMENT 'post or comment',
    target_id BIGINT NOT NULL,
    deleted_at DATETIME NOT NULL COMMENT 'UTC; once it was closed, the time of that',
    told BOOLEAN NOT NULL DEFAULT FALSE COMMENT 'the target itself was closed in the gate once',
    done_comment_id BIGINT NOT NULL DEFAULT 0 COMMENT 'of a post: its comments up to this id are closed in the gate'
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci
    COMMENT='deletions that are still to be closed in the gate';
