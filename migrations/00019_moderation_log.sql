-- +goose Up
CREATE TABLE moderation_log (
    id BIGINT PRIMARY KEY AUTO_INCREMENT,
    actor_id BIGINT NOT NULL COMMENT 'the moderator',
    action VARCHAR(50) NOT NULL COMMENT 'such as post.delete',
    target_type VARCHAR(20) NOT NULL COMMENT 'post, comment, user, …',
    target_id BIGINT NOT NULL,
    reason VARCHAR(500) NOT NULL COMMENT 'empty for actions without one',
    before_state TEXT NULL COMMENT 'JSON: the changed fields of the target',
    after_state TEXT NULL COMMENT 'JSON: the same fields afterwards',
    request_id VARCHAR(64) NOT NULL COMMENT 'of the request, as in the logs of the API',
    created_at DATETIME(3) NOT NULL COMMENT 'UTC',
    KEY idx_created_at (created_at, id),
    KEY idx_actor_created (actor_id, created_at, id),
    KEY idx_action_created (action, created_at, id),
    KEY idx_target_created (target_type, target_id, created_at, id),
    KEY idx_type_created (target_type, created_at, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci COMMENT='append-only log of what moderators did';
