-- +goose Up
CREATE TABLE comments (
    id BIGINT PRIMARY KEY AUTO_INCREMENT,
    post_id BIGINT NOT NULL,
    user_id BIGINT NOT NULL COMMENT 'the author',
    parent_id BIGINT DEFAULT NULL COMMENT 'the comment this replies to',
    content TEXT NOT NULL COMMENT 'Markdown',
    likes_count INT NOT NULL DEFAULT 0 COMMENT 'rows of this comment in comment_likes, at every commit',
    replies_count INT NOT NULL DEFAULT 0 COMMENT 'direct replies with status 1',
    status TINYINT NOT NULL DEFAULT 1 COMMENT '1 normal, 2 deleted',
    created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    updated_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP
        COMMENT 'last edit; counting does not move it',
    version INT NOT NULL DEFAULT 0 COMMENT 'optimistic lock of content edits',
    depth TINYINT UNSIGNED NOT NULL DEFAULT 1
        COMMENT '1 at the top level, one more than the parent below; 255 stands for more',
    milestone INT NOT NULL DEFAULT 0 COMMENT 'the highest power of ten in likes_count that the author was told of',
    deleted_at DATETIME NULL COMMENT 'UTC, with status 2',
    deleted_by BIGINT NULL COMMENT 'who deleted it',
    delete_reason VARCHAR(500) NOT NULL DEFAULT '' COMMENT 'why a moderator deleted it',
    operation_id BIGINT NULL COMMENT 'of content_operations: what deleted it',
    edited_by BIGINT NULL COMMENT 'who wrote this version; NULL: the author; 0: a redaction left it',
    purged BOOLEAN NOT NULL DEFAULT FALSE COMMENT 'an admin deleted its text for good',
    KEY idx_post_id (post_id),
    KEY idx_user_id (user_id),
    KEY idx_parent_id (parent_id),
    KEY idx_post_parent_created (post_id, parent_id, created_at, id),
    KEY idx_post_parent_likes (post_id, parent_id, likes_count, id),
    KEY idx_user_status_created (user_id, status, created_at, id),
    KEY idx_created_at (created_at, id),
    KEY idx_status_created (status, created_at, id),
    KEY idx_post_status_created (post_id, status, created_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;
