-- +goose Up
CREATE TABLE post_terms (
    post_id BIGINT NOT NULL COMMENT 'a post that is not deleted',
    term VARCHAR(32) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL,
    weight SMALLINT NOT NULL COMMENT 'contribution of the term to the relevance of the post',
    PRIMARY KEY (term, post_id),
    KEY idx_post_id (post_id)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci COMMENT='the search index';
