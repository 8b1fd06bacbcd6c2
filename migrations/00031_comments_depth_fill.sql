-- +goose Up
-- The bound keeps the recursion under MySQL's limit of 1,000 rounds, and the depth within its column.
UPDATE comments c LEFT JOIN (
    WITH RECURSIVE tree (id, depth) AS (
        SELECT id, 1 FROM comments WHERE parent_id IS NULL
        UNION ALL
        SELECT r.id, tree.depth + 1 FROM tree JOIN comments r ON r.parent_id = tree.id WHERE tree.depth < 254
    )
    SELECT id, depth FROM tree
) t ON t.id = c.id
SET c.depth = COALESCE(t.depth, 255), c.updated_at = c.updated_at
WHERE c.parent_id IS NOT NULL;
