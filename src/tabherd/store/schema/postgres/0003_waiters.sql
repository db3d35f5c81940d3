-- Callers that cannot be passed on: only their own node may give them a place.

ALTER TABLE waiters ADD COLUMN is_local BOOLEAN NOT NULL DEFAULT FALSE;
