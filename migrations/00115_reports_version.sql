-- +goose Up
ALTER TABLE reports
    ADD COLUMN version INT NULL COMMENT 'the version that was reported, which is kept; NULL: not known, or more than a case keeps';
