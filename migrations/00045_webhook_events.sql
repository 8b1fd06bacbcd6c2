-- +goose Up
CREATE TABLE webhook_events (
    id BIGINT PRIMARY KEY AUTO_INCREMENT COMMENT 'ascends with the events of an object',
    webhook_id BIGINT NOT NULL,
    type VARCHAR(32) NOT NULL COMMENT 'such as post.created',
    object_type VARCHAR(16) NOT NULL,
    object_id BIGINT NOT NULL,
    user_id BIGINT NULL COMMENT 'whose name is in data',
    data MEDIUMTEXT NOT NULL COMMENT 'JSON: the object when it happened',
    state TINYINT NOT NULL DEFAULT 1 COMMENT '1 pending, 2 delivered, 3 failed',
    attempts INT NOT NULL DEFAULT 0,
    attempt_log TEXT NOT NULL COMMENT 'JSON: the last attempts, earliest first',
    due_at DATETIME(3) NOT NULL COMMENT 'UTC, of the next attempt',
    retry_until DATETIME(3) NOT NULL COMMENT 'UTC; an attempt that fails later is the last',
    created_at DATETIME(3) NOT NULL COMMENT 'UTC',
    ended_at DATETIME(3) NULL COMMENT 'UTC, when it was delivered or failed for good',
    KEY idx_webhook_state (webhook_id, state, id),
    KEY idx_webhook (webhook_id, id),
    KEY idx_object (object_type, object_id),
    KEY idx_user (user_id),
    KEY idx_created (created_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci
    COMMENT='events for each endpoint, with their deliveries; kept for 30 days';
