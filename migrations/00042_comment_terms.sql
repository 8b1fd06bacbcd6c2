-- +goose Up
CREATE TABLE comment_terms (
    comment_id BIGINT NOT NULL COMMENT 'a comment that is not deleted; its post may be',
    term VARCHAR(32) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    weight SMALLINT NOT NULL COMMENT 'contribution of the term to the relevance of the comment',
    PRIMARY KEY (term, comment_id),
    KEY idx_comment_id (comment_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci COMMENT='the search index of comments';
