-- +goose Up
CREATE TABLE settings (
    name VARCHAR(50) PRIMARY KEY,
    value VARBINARY(255) NOT NULL
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci
    COMMENT='values made at install and shared by all processes, such as the key that signs cursors';
