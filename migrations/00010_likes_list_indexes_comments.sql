-- +goose Up
ALTER TABLE comment_likes
    ADD KEY idx_comment_id_desc (comment_id, id);
