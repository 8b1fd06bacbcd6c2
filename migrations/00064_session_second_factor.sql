-- +goose Up
ALTER TABLE sessions ADD COLUMN second_factor BOOLEAN NOT NULL DEFAULT FALSE
    COMMENT 'a second factor was used, or the operator created it; of an API token: that of the session it is from';
