-- +goose Up
ALTER TABLE users
    ADD COLUMN email_verified_at DATETIME NULL COMMENT 'UTC; NULL: nobody has shown that the address is theirs',
    ADD COLUMN email_undeliverable BOOLEAN NOT NULL DEFAULT FALSE COMMENT 'a mail to the address was refused for good',
    ADD COLUMN pending_email VARCHAR(100) NULL COMMENT 'the address to be confirmed; NULL: none';
