-- +goose Up
CREATE TABLE image_uses (
    subject_type VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'post, comment, draft or user',
    subject_id BIGINT NOT NULL,
    image_id BIGINT NOT NULL,
    PRIMARY KEY (subject_type, subject_id, image_id),
    KEY idx_image_id (image_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci
    COMMENT='what shows an image, in any version of its text that is kept';
