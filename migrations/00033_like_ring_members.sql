-- +goose Up
CREATE TABLE like_ring_members (
    ring_id BIGINT NOT NULL,
    user_id BIGINT NOT NULL,
    coincidences INT NOT NULL COMMENT 'likes that the user gave the author in the same seconds as another member',
    likes INT NOT NULL COMMENT 'all likes that the user gave the author in the examined days',
    PRIMARY KEY (ring_id, user_id),
    KEY idx_user_id (user_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;
