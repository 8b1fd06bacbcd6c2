-- +goose Up
CREATE TABLE export_chunks (
    export_id BIGINT NOT NULL,
    number INT NOT NULL COMMENT 'from 0, without gaps',
    data MEDIUMBLOB NOT NULL COMMENT 'a piece of the archive, less than 1 MiB',
    PRIMARY KEY (export_id, number)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;
