-- The tables of core/model.py, one column per field in the order of the struct, the counters, and the writers.
--
-- Names are without a schema: whoever runs this has put the right one in the search path. Ids compare by their bytes,
-- as in the other engines. A list of states in a CHECK names the members of its enum (a test compares them).
--
-- Every index ends in the id, so that a select by one value comes out in the order of its pages without sorting. That
-- also keeps the few live rows of a state side by side, so that an index of those alone would save nothing.
--
-- Rows that are rewritten often leave room on their pages: a new version on the same page needs no new index entries.

CREATE TABLE nodes (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL CHECK (version > 0),
    epoch BIGINT NOT NULL,
    url TEXT NOT NULL,
    pid BIGINT NOT NULL,
    started_at BIGINT NOT NULL
) WITH (fillfactor = 80);

CREATE TABLE browsers (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL CHECK (version > 0),
    node_id TEXT NOT NULL,
    pool TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('starting', 'ready', 'draining', 'crashed', 'broken', 'stopped')),
    pid BIGINT NOT NULL,
    pid_started BIGINT NOT NULL,
    port BIGINT NOT NULL,
    endpoint TEXT NOT NULL,
    profile_dir TEXT NOT NULL,
    product TEXT NOT NULL,
    sessions_served BIGINT NOT NULL,
    started_at BIGINT NOT NULL
) WITH (fillfactor = 80);

CREATE INDEX browsers_by_node_id ON browsers (node_id, id);
CREATE INDEX browsers_by_state ON browsers (state, id);

CREATE TABLE sessions (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL CHECK (version > 0),
    state TEXT NOT NULL CHECK (state IN ('reserved', 'active', 'recovering', 'pooled', 'closing', 'closed', 'lost')),
    agent_id TEXT NOT NULL,
    pool TEXT NOT NULL,
    key TEXT NOT NULL,
    tier TEXT NOT NULL,
    fence BIGINT NOT NULL,
    node_id TEXT NOT NULL,
    browser_id TEXT NOT NULL,
    context_id TEXT NOT NULL,
    access TEXT NOT NULL,
    reuse TEXT NOT NULL,
    keep_alive BOOLEAN NOT NULL,
    allow_navigate BOOLEAN NOT NULL,
    owner_pid BIGINT NOT NULL,
    owner_started BIGINT NOT NULL,
    is_beating BOOLEAN NOT NULL,
    phase TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    heartbeat_at BIGINT NOT NULL,
    deadline_at BIGINT NOT NULL,
    ended_at BIGINT NOT NULL,
    end_reason TEXT NOT NULL,
    viewport TEXT NOT NULL,
    pooled_at BIGINT NOT NULL,
    taken_from TEXT NOT NULL,
    is_connection_bound BOOLEAN NOT NULL
) WITH (fillfactor = 80);

CREATE INDEX sessions_by_state ON sessions (state, id);
CREATE INDEX sessions_by_agent_id ON sessions (agent_id, id);
CREATE INDEX sessions_by_node_id ON sessions (node_id, id);

CREATE TABLE tabs (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL CHECK (version > 0),
    session_id TEXT NOT NULL,
    node_id TEXT NOT NULL,
    browser_id TEXT NOT NULL,
    state TEXT NOT NULL
        CHECK (state IN ('opening', 'ready', 'quarantined', 'paused', 'dead', 'rebuilding', 'closing', 'closed')),
    target_id TEXT NOT NULL,
    generation BIGINT NOT NULL,
    provenance TEXT NOT NULL,
    url TEXT NOT NULL,
    title TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    opener_tab_id TEXT NOT NULL
) WITH (fillfactor = 80);

CREATE INDEX tabs_by_session_id ON tabs (session_id, id);
CREATE INDEX tabs_by_node_id ON tabs (node_id, id);
CREATE INDEX tabs_by_state ON tabs (state, id);

CREATE TABLE checkpoints (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL CHECK (version > 0),
    node_id TEXT NOT NULL,
    cookies TEXT NOT NULL,
    origins TEXT NOT NULL,
    taken_at BIGINT NOT NULL
);

CREATE INDEX checkpoints_by_node_id ON checkpoints (node_id, id);

CREATE TABLE commands (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL CHECK (version > 0),
    node_id TEXT NOT NULL,
    tab_id TEXT NOT NULL,
    session_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    kind TEXT NOT NULL,
    state TEXT NOT NULL
        CHECK (state IN ('queued', 'running', 'completed', 'failed', 'timed_out', 'cancelled', 'outcome_unknown')),
    created_at BIGINT NOT NULL,
    ended_at BIGINT NOT NULL,
    queued_ms BIGINT NOT NULL,
    duration_ms BIGINT NOT NULL,
    outcome TEXT NOT NULL,
    controller_id TEXT NOT NULL
);

CREATE INDEX commands_by_tab_id ON commands (tab_id, id);
CREATE INDEX commands_by_agent_id ON commands (agent_id, id);

CREATE TABLE idempotency (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL CHECK (version > 0),
    command_id TEXT NOT NULL,
    body_hash TEXT NOT NULL,
    created_at BIGINT NOT NULL
);

CREATE TABLE tasks (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL CHECK (version > 0),
    node_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('queued', 'assigned', 'running', 'done', 'failed', 'cancelled', 'rejected')),
    action TEXT NOT NULL,
    tab_id TEXT NOT NULL,
    session_id TEXT NOT NULL,
    pool TEXT NOT NULL,
    request TEXT NOT NULL,
    priority BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    deadline_at BIGINT NOT NULL,
    started_at BIGINT NOT NULL,
    completed_at BIGINT NOT NULL,
    attempts BIGINT NOT NULL,
    is_idempotent BOOLEAN NOT NULL,
    scopes JSONB NOT NULL,
    key_id TEXT NOT NULL,
    result TEXT NOT NULL,
    error TEXT NOT NULL,
    code TEXT NOT NULL,
    callback_url TEXT NOT NULL,
    request_id TEXT NOT NULL,
    traceparent TEXT NOT NULL
) WITH (fillfactor = 80);

CREATE INDEX tasks_by_state ON tasks (state, id);
CREATE INDEX tasks_by_agent_id ON tasks (agent_id, id);

CREATE TABLE archived_tasks (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL CHECK (version > 0),
    node_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('queued', 'assigned', 'running', 'done', 'failed', 'cancelled', 'rejected')),
    action TEXT NOT NULL,
    tab_id TEXT NOT NULL,
    session_id TEXT NOT NULL,
    pool TEXT NOT NULL,
    request TEXT NOT NULL,
    priority BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    deadline_at BIGINT NOT NULL,
    started_at BIGINT NOT NULL,
    completed_at BIGINT NOT NULL,
    attempts BIGINT NOT NULL,
    is_idempotent BOOLEAN NOT NULL,
    scopes JSONB NOT NULL,
    key_id TEXT NOT NULL,
    result TEXT NOT NULL,
    error TEXT NOT NULL,
    code TEXT NOT NULL,
    callback_url TEXT NOT NULL,
    request_id TEXT NOT NULL,
    traceparent TEXT NOT NULL
);

CREATE INDEX archived_tasks_by_state ON archived_tasks (state, id);
CREATE INDEX archived_tasks_by_agent_id ON archived_tasks (agent_id, id);

CREATE TABLE task_keys (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL CHECK (version > 0),
    task_id TEXT NOT NULL,
    body_hash TEXT NOT NULL,
    created_at BIGINT NOT NULL
);

CREATE TABLE deliveries (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL CHECK (version > 0),
    node_id TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('pending', 'delivered', 'failed')),
    url TEXT NOT NULL,
    event TEXT NOT NULL,
    body TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    attempts BIGINT NOT NULL,
    due_at BIGINT NOT NULL,
    error TEXT NOT NULL,
    request_id TEXT NOT NULL,
    traceparent TEXT NOT NULL
) WITH (fillfactor = 80);

CREATE INDEX deliveries_by_state ON deliveries (state, id);

CREATE TABLE audit (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL CHECK (version > 0),
    at BIGINT NOT NULL,
    agent_id TEXT NOT NULL,
    controller_id TEXT NOT NULL,
    verb TEXT NOT NULL,
    session_id TEXT NOT NULL,
    tab_id TEXT NOT NULL,
    command_id TEXT NOT NULL,
    detail TEXT NOT NULL
);

CREATE INDEX audit_by_agent_id ON audit (agent_id, id);
CREATE INDEX audit_by_session_id ON audit (session_id, id);
CREATE INDEX audit_by_tab_id ON audit (tab_id, id);

CREATE TABLE named_locks (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL CHECK (version > 0),
    node_id TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    controller TEXT NOT NULL,
    fence BIGINT NOT NULL,
    ticket_hash TEXT NOT NULL,
    lease_ms BIGINT NOT NULL,
    acquired_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    owner_pid BIGINT NOT NULL,
    owner_started BIGINT NOT NULL,
    is_connection_bound BOOLEAN NOT NULL,
    generation BIGINT NOT NULL
) WITH (fillfactor = 80);

CREATE INDEX named_locks_by_node_id ON named_locks (node_id, id);

CREATE TABLE credentials (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    version BIGINT NOT NULL CHECK (version > 0),
    token_hash TEXT NOT NULL,
    agent_id TEXT NOT NULL,
    scopes JSONB NOT NULL,
    created_at BIGINT NOT NULL,
    revoked_at BIGINT NOT NULL
);

CREATE INDEX credentials_by_token_hash ON credentials (token_hash, id);
CREATE INDEX credentials_by_agent_id ON credentials (agent_id, id);
CREATE TABLE counters (
    name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    -- A counter at zero cannot be told from one that never moved, so it is not kept.
    value BIGINT NOT NULL CHECK (value > 0)
) WITH (fillfactor = 50);

-- One row per open store: what it wrote last, by which it finds out after a lost connection whether a commit happened,
-- and its life, which shuts out a commit that is still under way on the lost connection.
CREATE TABLE writers (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    life BIGINT NOT NULL CHECK (life > 0),
    batch BIGINT NOT NULL CHECK (batch >= 0),
    seen_at TIMESTAMPTZ NOT NULL
) WITH (fillfactor = 50);
