-- +goose Up
CREATE TABLE read_marks (
    user_id BIGINT NOT NULL,
    post_id BIGINT NOT NULL,
    comment_id BIGINT NOT NULL COMMENT 'the last comment on the post that the user has read; 0: there was none',
    read_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP COMMENT 'when the user last read the post',
    PRIMARY KEY (user_id, post_id),
    KEY idx_read_at (read_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;
