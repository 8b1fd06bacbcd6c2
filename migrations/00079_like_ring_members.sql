-- +goose Up
CREATE TABLE like_ring_members (
    ring_id BIGINT NOT NULL,
    user_id BIGINT NOT NULL,
    occasions INT NOT NULL COMMENT 'of the ring, at which the user was there',
    likes INT NOT NULL COMMENT 'times in all at which the user liked something of the author in the days that were looked at',
    PRIMARY KEY (ring_id, user_id),
    KEY idx_user_id (user_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;
