-- +goose Up
CREATE TABLE drops (
    id BIGINT PRIMARY KEY AUTO_INCREMENT,
    post_id BIGINT NOT NULL,
    user_id BIGINT NOT NULL COMMENT 'who made it: the author of the post, or a moderator',
    title VARCHAR(200) NOT NULL,
    stock INT NOT NULL,
    claimed INT NOT NULL DEFAULT 0 COMMENT 'live rows in claims (state 1 or 2), at every commit',
    begins_at DATETIME(3) NULL COMMENT 'UTC; NULL: at once',
    ends_at DATETIME(3) NULL COMMENT 'UTC; NULL: never',
    closed_at DATETIME(3) NULL COMMENT 'UTC; NULL: it was not closed',
    confirm_within INT NOT NULL DEFAULT 0 COMMENT 'seconds; 0: a claim needs no confirmation',
    version BIGINT NOT NULL DEFAULT 1 COMMENT 'grows with each change of the settings',
    sent_version BIGINT NOT NULL DEFAULT 1 COMMENT 'the highest version that the gate is known to have',
    unsent BOOLEAN GENERATED ALWAYS AS (sent_version < version) STORED,
    created_at DATETIME(3) NOT NULL COMMENT 'UTC',
    updated_at DATETIME(3) NOT NULL COMMENT 'UTC, of the settings',
    CONSTRAINT drops_not_oversold CHECK (claimed BETWEEN 0 AND stock),
    KEY idx_post_id (post_id, id),
    KEY idx_user_id (user_id, id),
    KEY idx_unsent (unsent, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci COMMENT='limited stock, attached to posts';
