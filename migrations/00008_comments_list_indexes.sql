-- +goose Up
ALTER TABLE comments
    ADD KEY idx_post_parent_created (post_id, parent_id, created_at, id),
    ADD KEY idx_post_parent_likes (post_id, parent_id, likes_count, id);
