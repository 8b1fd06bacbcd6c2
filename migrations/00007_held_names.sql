-- +goose Up
CREATE TABLE held_names (
    name_hash BINARY(32) PRIMARY KEY
        COMMENT 'keyed hash of the username or e-mail address of a banned account that was deleted',
    held_until DATETIME NOT NULL COMMENT 'UTC; end of the ban, before which nobody can register the name',
    KEY idx_held_until (held_until)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci
        COMMENT='names of deleted accounts that are still banned';
