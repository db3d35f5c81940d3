-- The tables of core/model.py, one column per field in the order of the struct, and the counters.
--
-- STRICT, so that a value of the wrong type is refused instead of kept; a list of states in a CHECK names the members
-- of its enum (a test compares them). Truth values are 0 or 1, nested tuples are JSON text.
--
-- WITHOUT ROWID makes the id the one key of the tree, and every index then ends in the id, so that a select by one
-- value comes out in the order of its pages without sorting. `commands` keeps a rowid: its outcomes can be long, and
-- long rows do not belong inside a tree of keys; its indexes name the id instead.

CREATE TABLE nodes (
    id TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL CHECK (version > 0),
    epoch INTEGER NOT NULL,
    url TEXT NOT NULL,
    pid INTEGER NOT NULL,
    started_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE browsers (
    id TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL CHECK (version > 0),
    node_id TEXT NOT NULL,
    pool TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('starting', 'ready', 'draining', 'crashed', 'broken', 'stopped')),
    pid INTEGER NOT NULL,
    pid_started INTEGER NOT NULL,
    port INTEGER NOT NULL,
    endpoint TEXT NOT NULL,
    profile_dir TEXT NOT NULL,
    product TEXT NOT NULL,
    sessions_served INTEGER NOT NULL,
    started_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX browsers_by_node_id ON browsers (node_id);
CREATE INDEX browsers_by_state ON browsers (state);

CREATE TABLE sessions (
    id TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL CHECK (version > 0),
    state TEXT NOT NULL
        CHECK (state IN ('reserved', 'active', 'recovering', 'pooled', 'closing', 'closed', 'lost')),
    agent_id TEXT NOT NULL,
    pool TEXT NOT NULL,
    key TEXT NOT NULL,
    tier TEXT NOT NULL,
    fence INTEGER NOT NULL,
    node_id TEXT NOT NULL,
    browser_id TEXT NOT NULL,
    context_id TEXT NOT NULL,
    access TEXT NOT NULL,
    reuse TEXT NOT NULL,
    keep_alive INTEGER NOT NULL CHECK (keep_alive IN (0, 1)),
    allow_navigate INTEGER NOT NULL CHECK (allow_navigate IN (0, 1)),
    owner_pid INTEGER NOT NULL,
    owner_started INTEGER NOT NULL,
    is_beating INTEGER NOT NULL CHECK (is_beating IN (0, 1)),
    phase TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    heartbeat_at INTEGER NOT NULL,
    deadline_at INTEGER NOT NULL,
    ended_at INTEGER NOT NULL,
    end_reason TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX sessions_by_state ON sessions (state);
CREATE INDEX sessions_by_agent_id ON sessions (agent_id);
CREATE INDEX sessions_by_node_id ON sessions (node_id);

CREATE TABLE tabs (
    id TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL CHECK (version > 0),
    session_id TEXT NOT NULL,
    node_id TEXT NOT NULL,
    browser_id TEXT NOT NULL,
    state TEXT NOT NULL
        CHECK (state IN ('opening', 'ready', 'quarantined', 'paused', 'dead', 'rebuilding', 'closing', 'closed')),
    target_id TEXT NOT NULL,
    generation INTEGER NOT NULL,
    provenance TEXT NOT NULL,
    url TEXT NOT NULL,
    title TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX tabs_by_session_id ON tabs (session_id);
CREATE INDEX tabs_by_node_id ON tabs (node_id);
CREATE INDEX tabs_by_state ON tabs (state);

CREATE TABLE commands (
    id TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL CHECK (version > 0),
    node_id TEXT NOT NULL,
    tab_id TEXT NOT NULL,
    session_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    state TEXT NOT NULL CHECK (
        state IN ('queued', 'running', 'completed', 'failed', 'timed_out', 'cancelled', 'outcome_unknown')
    ),
    created_at INTEGER NOT NULL,
    ended_at INTEGER NOT NULL,
    queued_ms INTEGER NOT NULL,
    duration_ms INTEGER NOT NULL,
    outcome TEXT NOT NULL
) STRICT;

CREATE INDEX commands_by_tab_id ON commands (tab_id, id);
CREATE INDEX commands_by_agent_id ON commands (agent_id, id);

CREATE TABLE credentials (
    id TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL CHECK (version > 0),
    token_hash TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    scopes TEXT NOT NULL CHECK (json_valid(scopes)),
    created_at INTEGER NOT NULL,
    revoked_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX credentials_by_token_hash ON credentials (token_hash);
CREATE INDEX credentials_by_agent_id ON credentials (agent_id);

CREATE TABLE counters (
    name TEXT NOT NULL PRIMARY KEY,
    value INTEGER NOT NULL CHECK (value >= 0)
) STRICT, WITHOUT ROWID;

-- A counter at zero cannot be told from one that never moved, so it is not kept: names such as those of agents come
-- and go without end. Triggers do it inside the write itself, which spares every commit another statement.
CREATE TRIGGER counters_born_at_zero AFTER INSERT ON counters WHEN NEW.value = 0
BEGIN
    DELETE FROM counters WHERE name = NEW.name;
END;

CREATE TRIGGER counters_fallen_to_zero AFTER UPDATE ON counters WHEN NEW.value = 0
BEGIN
    DELETE FROM counters WHERE name = NEW.name;
END;
