-- Named locks that are held through this server: one row each, gone with the lock, so there are never more than that.

CREATE TABLE named_locks (
    id TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL CHECK (version > 0),
    node_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    controller TEXT NOT NULL,
    fence INTEGER NOT NULL,
    ticket_hash TEXT NOT NULL,
    lease_ms INTEGER NOT NULL,
    acquired_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    owner_pid INTEGER NOT NULL,
    owner_started INTEGER NOT NULL,
    is_connection_bound INTEGER NOT NULL CHECK (is_connection_bound IN (0, 1)),
    generation INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX named_locks_by_node_id ON named_locks (node_id);
