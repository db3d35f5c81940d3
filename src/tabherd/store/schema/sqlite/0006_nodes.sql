-- What nodes that share a store know of each other. One node alone has no beats and no waiters.

ALTER TABLE nodes ADD COLUMN state TEXT NOT NULL DEFAULT 'up' CHECK (state IN ('up', 'left', 'dead', 'gone'));
ALTER TABLE nodes ADD COLUMN boot_id TEXT NOT NULL DEFAULT '';

CREATE TABLE beats (
    id TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL CHECK (version > 0),
    epoch INTEGER NOT NULL,
    at INTEGER NOT NULL,
    is_draining INTEGER NOT NULL CHECK (is_draining IN (0, 1)),
    sessions INTEGER NOT NULL,
    free_seats INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE waiters (
    id TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL CHECK (version > 0),
    node_id TEXT NOT NULL,
    pool TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    key TEXT NOT NULL,
    arrived_at INTEGER NOT NULL,
    granted_by TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX waiters_by_pool ON waiters (pool);
CREATE INDEX waiters_by_node_id ON waiters (node_id);

CREATE TABLE secrets (
    id TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL CHECK (version > 0),
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
