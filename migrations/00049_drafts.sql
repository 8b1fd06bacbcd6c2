-- +goose Up
CREATE TABLE drafts (
    id BIGINT PRIMARY KEY AUTO_INCREMENT,
    user_id BIGINT NOT NULL,
    draft_key VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'the name that its client chose',
    post_id BIGINT NOT NULL DEFAULT 0 COMMENT 'the post that it comments on; 0: it is a new post',
    parent_id BIGINT NOT NULL DEFAULT 0 COMMENT 'the comment that it replies to; 0: none',
    title VARCHAR(200) NOT NULL,
    content TEXT NOT NULL COMMENT 'Markdown',
    tags VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL COMMENT 'names, separated by spaces',
    version INT NOT NULL DEFAULT 0 COMMENT 'optimistic lock',
    created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    updated_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    UNIQUE KEY idx_user_key (user_id, draft_key),
    KEY idx_user_id (user_id, id),
    KEY idx_updated_at (updated_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;
