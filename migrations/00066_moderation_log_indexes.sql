-- +goose Up
ALTER TABLE moderation_log
    DROP KEY idx_actor,
    DROP KEY idx_action,
    DROP KEY idx_target,
    ADD KEY idx_actor_created (actor_id, created_at, id),
    ADD KEY idx_action_created (action, created_at, id),
    ADD KEY idx_target_created (target_type, target_id, created_at, id);
