-- Callers that cannot be passed on: only their own node may give them a place.

ALTER TABLE waiters ADD COLUMN is_local INTEGER NOT NULL DEFAULT 0 CHECK (is_local IN (0, 1));
