-- +goose Up
ALTER TABLE comments
    ADD COLUMN depth TINYINT UNSIGNED NOT NULL DEFAULT 1 COMMENT '1 at the top level, one more than the parent below; 255 stands for more';
