-- +goose Up
-- The bytes of all images with their thumbnails, kept in the transactions that add and delete them.
INSERT INTO settings (name, value)
SELECT 'image_bytes', COALESCE(SUM(bytes+thumbnail_bytes),0) FROM images;
