-- +goose Up
CREATE TABLE former_usernames (
    id BIGINT PRIMARY KEY AUTO_INCREMENT,
    user_id BIGINT NOT NULL COMMENT 'who had the name; nobody else can have it, so mentions lead to no stranger',
    username VARCHAR(50) NOT NULL,
    changed_at DATETIME NOT NULL COMMENT 'UTC; when the user gave it up',
    UNIQUE KEY idx_username (username),
    KEY idx_user_id (user_id, id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;
