-- What nodes know of each other.

ALTER TABLE nodes
    ADD COLUMN state TEXT NOT NULL DEFAULT 'up' CHECK (state IN ('up', 'left', 'dead', 'gone')),
    ADD COLUMN boot_id TEXT NOT NULL DEFAULT '';

CREATE TABLE beats (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL CHECK (version > 0),
    epoch BIGINT NOT NULL,
    at BIGINT NOT NULL,
    is_draining BOOLEAN NOT NULL,
    sessions BIGINT NOT NULL,
    free_seats BIGINT NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE waiters (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL CHECK (version > 0),
    node_id TEXT NOT NULL,
    pool TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    key TEXT NOT NULL,
    arrived_at BIGINT NOT NULL,
    granted_by TEXT NOT NULL
) WITH (fillfactor = 50);

CREATE INDEX waiters_by_pool ON waiters (pool, id);
CREATE INDEX waiters_by_node_id ON waiters (node_id, id);

CREATE TABLE secrets (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL CHECK (version > 0),
    value TEXT NOT NULL
);
