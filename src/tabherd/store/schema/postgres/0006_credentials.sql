-- When a token ends by itself; 0: never, as for those that are there already.

ALTER TABLE credentials ADD COLUMN expires_at BIGINT NOT NULL DEFAULT 0;
