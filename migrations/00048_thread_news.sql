-- +goose Up
CREATE TABLE thread_news (
    post_id BIGINT PRIMARY KEY COMMENT 'a post that has followers and new comments',
    latest_id BIGINT NOT NULL COMMENT 'its latest comment',
    from_id BIGINT NOT NULL COMMENT 'the pass over its followers is about comments after this one',
    to_id BIGINT NOT NULL DEFAULT 0 COMMENT 'and up to this one; 0: no pass has begun',
    after_user BIGINT NOT NULL DEFAULT 0 COMMENT 'the last follower of whom the pass has taken care'
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;
