-- +goose Up
ALTER TABLE idempotency_keys
    DROP COLUMN resource_kind,
    DROP COLUMN resource_id,
    DROP COLUMN answer,
    MODIFY COLUMN claim BIGINT NOT NULL COMMENT 'drawn by the request that holds the key, and counted up by each of its COMMITs',
    ADD COLUMN effect BLOB NULL COMMENT 'what is committed of the request, a JSON object; NULL: nothing';
