-- +goose Up
ALTER TABLE post_tags
    ADD COLUMN user_id BIGINT NOT NULL DEFAULT 0 COMMENT 'of the post, as the next, at every commit',
    ADD COLUMN likes_count INT NOT NULL DEFAULT 0,
    ADD COLUMN hot_score BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN active_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP;
