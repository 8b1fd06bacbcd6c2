-- +goose Up
CREATE TABLE images (
    id BIGINT PRIMARY KEY AUTO_INCREMENT,
    name CHAR(20) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'its id in the API and the storage',
    user_id BIGINT NOT NULL,
    state TINYINT NOT NULL DEFAULT 1 COMMENT '1 pending, 2 ready, 3 being deleted',
    type VARCHAR(16) CHARACTER SET ascii COLLATE ascii_bin NOT NULL COMMENT 'of the image and its thumbnail',
    width SMALLINT UNSIGNED NOT NULL,
    height SMALLINT UNSIGNED NOT NULL,
    bytes INT NOT NULL,
    thumbnail_bytes INT NOT NULL,
    created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    due_at TIMESTAMP NULL COMMENT 'when cron looks at it next; NULL: it was in use',
    UNIQUE KEY idx_name (name),
    KEY idx_user_id (user_id, id),
    KEY idx_due_at (due_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;
