-- +goose Up
ALTER TABLE post_likes
    ADD KEY idx_post_id_desc (post_id, id);
