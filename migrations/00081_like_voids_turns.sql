-- +goose Up
ALTER TABLE like_voids
    ADD COLUMN turn_at DATETIME(3) NULL COMMENT 'UTC; when it was last worked on; NULL: not yet',
    DROP KEY idx_done_at,
    ADD KEY idx_done_turn (done_at, turn_at, id);
