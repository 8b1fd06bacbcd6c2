-- +goose Up
CREATE TABLE totp_factors (
    user_id BIGINT PRIMARY KEY,
    seed VARBINARY(64) NOT NULL COMMENT 'sealed with AES-GCM for this user: nonce, 20 bytes, tag',
    created_at DATETIME NOT NULL COMMENT 'UTC',
    confirmed_at DATETIME NULL COMMENT 'UTC; NULL: no code was sent for it yet, so no login needs one',
    last_step BIGINT NOT NULL DEFAULT 0
        COMMENT 'Unix time / 30 s of the last accepted code; codes of this step and of earlier ones are refused',
    wrong_codes INT NOT NULL DEFAULT 0 COMMENT 'since wrong_since, at sign-in',
    wrong_since DATETIME NULL COMMENT 'UTC; an hour later, counting begins anew'
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;
